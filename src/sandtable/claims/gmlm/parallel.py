"""Where the sampler that draws all positions at once ends up: a law in closed form, and not the one it was given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb
from typing import Literal

import torch

from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact
from sandtable.lab.figures import curves
from sandtable.theory.gmlm import chains
from sandtable.worlds import Ising

FOUR_SPINS = {0.0: 0.0, 0.05: 0.0386, 0.1: 0.0796, 0.3: 0.2233, 0.5: 0.1720, 1.0: 0.0050}
"""Total variation between where the sampler ends up and the law, four spins with one coupling, no fields: from a
calculation of its own."""


@dataclass(frozen=True)
class Parallel:
    models: int = 10
    lengths: tuple[int, ...] = (2, 3, 4)
    couplings: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0)
    kept: Literal["Little's law", "the law"] = "Little's law"
    pairs: float = 1.0


@claim(
    id="gmlm/parallel-law",
    statement=(
        "Drawing all spins at once, each given the others as they were, ends in π(x) ∝ e^{h·x} Π_i 2cosh(h_i + Σ_j "
        "J_ij x_j), in detailed balance, whatever the fields and couplings; p itself is not kept. Two spins without "
        "fields end uniform, at total variation ½ tanh J from p; four spins with one coupling are furthest from p at "
        "moderate J."
    ),
    source=li2024("the independent parallel sampler, whose stationary law the text leaves open; Little 1974"),
    scales={"smoke": Parallel(), "desk": Parallel(models=100, lengths=(2, 3, 4, 5, 6))},
    controls=(
        Control("the law itself in place of π", {"kept": "the law"}, ("stationary law", "detailed balance")),
        Control("pairs counted twice", {"pairs": 2.0}, ("two spins", "four spins")),
    ),
)
def parallel_law(settings: Parallel, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "models")
    apart, flows = [], []
    for n in settings.lengths:
        for _ in range(settings.models):
            model = Ising.of(*(0.7 * torch.randn(size, generator=generator) for size in (n, n * (n - 1) // 2)))
            p = chains.parallel_transition(model)
            law = model.parallel_law() if settings.kept == "Little's law" else model.probs
            apart.append(chains.tv(chains.stationary(p), law))
            flow = law[:, None] * p
            flows.append(float((flow - flow.T).abs().max()))
    two = [_distance(_coupled(2, settings.pairs * j)) for j in settings.couplings]
    four = [_distance(_coupled(4, settings.pairs * j)) for j in FOUR_SPINS]
    return Evidence(
        [
            bounded("stationary law", apart, 1e-10, unit="model"),
            bounded("detailed balance", flows, 1e-12, unit="model"),
            exact("two spins", two, [math.tanh(j) / 2 for j in settings.couplings], rtol=1e-9, unit="coupling"),
            exact("four spins", four, list(FOUR_SPINS.values()), atol=5.1e-5, unit="coupling"),
        ],
        figures={"distance": _figure},
        tables={
            "four spins": Table(
                ["J", "total variation to the law"], [list(row) for row in zip(FOUR_SPINS, four, strict=True)]
            )
        },
    )


def _coupled(spins: int, coupling: float) -> Ising:
    """All pairs with one coupling, no fields."""
    return Ising.of([0.0] * spins, [coupling] * comb(spins, 2))


def _distance(model: Ising) -> float:
    """TV between the chain's own stationary law, by linear algebra, and the model."""
    return chains.tv(chains.stationary(chains.parallel_transition(model)), model.probs)


def _figure():
    js = [j / 20 for j in range(31)]
    return curves(
        js,
        {f"{n} spins": [_distance(_coupled(n, j)) for j in js] for n in (2, 4)},
        xlabel="coupling J",
        ylabel="total variation between π and p",
        title="Drawing all spins at once keeps another law",
    )


CLAIMS = (parallel_law,)
