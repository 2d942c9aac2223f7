"""One joint step against many parallel ones: cliques on which the first succeeds and the others do not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from matplotlib.figure import Figure

from sandtable.claims.gmlm.sources import li2024
from sandtable.decoding import CliqueGibbs, Parallel, run_chains
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, printed, proportion
from sandtable.lab.figures import curves
from sandtable.theory.gmlm import clique, magnetisation
from sandtable.worlds import CliqueIsing

ROWS = ((0.5, 1), (0.2, 10), (0.1, 100), (0.1, 1000))
"""(δ, M)."""
SIZES = (25, 51, 75, 93)
FIELDS = (1.320, 1.819, 2.178, 2.178)
SLACKS = (8.66, 17.68, 25.99, 32.23)
REACHED = (0.9333, 0.9744, 0.9873, 0.9873)
GRID = tuple((delta, steps) for delta in (0.01, 0.1, 0.5, 0.9) for steps in (1, 10, 100, 10_000))
LARGE = ((0.5, 1, 250), (0.5, 1, 2000), (0.2, 10, 3000), (0.1, 100, 9000))
"""(δ, M, N)."""
SIMULATED = tuple(f"both, δ = {delta:g} and M = {steps}" for delta, steps in ROWS[:3])
ROUNDING = 1e-9


@dataclass(frozen=True)
class Separation:
    chains: int = 4000
    field: float = 1.0
    coupling: float = 1.0
    clique: float = 1.0
    block_off: int = 0
    slack: float = 1.0
    quarter: float = 4.0


@claim(
    id="gmlm/separation",
    statement=(
        "With c ≥ 8(1 + ln(4M/δ)), h_G ≥ ½ ln(2(4−δ)/δ), J₀ ≥ ½ c ln 2 and k ≥ max{c, N − δ(N+1)/((4−δ)c+δ)}, from "
        "any start with Σ_clique x ≤ −2 it has probability 1 − δ that one k-Gibbs step ends in R₁ and M steps of the "
        "parallel sampler do not enter it."
    ),
    source=li2024("Corollary on the separation of the samplers (T14)"),
    scales={"smoke": Separation(chains=200), "desk": Separation()},
    controls=(
        Control(
            "half the field, turned round",
            {"field": -0.5},
            ("h_G", "chance of one step", "k-Gibbs, one step", "the weights", *SIMULATED),
        ),
        Control("a thousandth of the coupling", {"coupling": 0.001}, ("parallel, M steps",)),
        Control("cliques half as large", {"clique": 0.5}, ("clique", "J₀", "hold on the clique")),
        Control("blocks twenty positions smaller", {"block_off": -20}, ("smallest blocks", "the block")),
        Control("(c/4 − 1)² with c²/4", {"quarter": 2.0}, ("square in the proof",)),
    ),
)
def separation(settings: Separation, lab: Lab) -> Evidence:
    factors = settings.field, settings.coupling, settings.clique
    worlds = [_instance(factors, *row) for row in ROWS]
    reached = [clique.joint_reach(world, k=world.size) for world in worlds]
    parallel = [magnetisation.parallel_chain(world) for world in worlds]
    escaped = [
        chain.escape_probability(steps, start=(world.clique - 2) // 2)
        for (_, steps), world, chain in zip(ROWS, worlds, parallel, strict=True)
    ]
    needed = [1 - delta / 2 for delta, _ in ROWS]
    sizes = [clique.strong_interaction(d, m).clique for d, m, _ in LARGE]
    fewest = [clique.large_block(n, c, d) + settings.block_off for (d, _, n), c in zip(LARGE, sizes, strict=True)]
    spread = [
        clique.joint_reach(_instance(factors, d, m, size=n), k=k) for (d, m, n), k in zip(LARGE, fewest, strict=True)
    ]
    both = lab.measure(_both, settings.chains, factors)["both"]
    c = np.arange(2.0, 200.0)
    return Evidence(
        [
            exact("clique", [world.clique for world in worlds], SIZES, unit="row"),
            exact("h_G", [world.clique_field for world in worlds], FIELDS, atol=5e-4, unit="row"),
            exact("J₀", [world.slack for world in worlds], SLACKS, atol=5e-3, unit="row"),
            exact("chance of one step", reached, REACHED, atol=5e-5, unit="row"),
            bounded(
                "k-Gibbs, one step",
                np.array([*needed, *(1 - d / 2 for d, _, _ in LARGE)]) - [*reached, *spread],
                0.0,
                unit="row",
            ),
            bounded("parallel, M steps", np.array(escaped) - [d / 2 for d, _ in ROWS], 0.0, unit="row"),
            exact("smallest blocks", fewest, [_smallest(d, c, n) for (d, _, n), c in zip(LARGE, sizes, strict=True)]),
            bounded("the weights", [_weights(factors, *row) for row in GRID], 0.0, atol=ROUNDING),
            bounded("the block", [_block(settings.block_off, *row) for row in GRID], 0.0, atol=ROUNDING),
            bounded("hold on the clique", [_hold(settings.clique, *row) for row in GRID], 0.0, atol=ROUNDING),
            exact("square in the proof", 1 - c / 2 + (c / settings.quarter) ** 2, (c / 4 - 1) ** 2, rtol=ROUNDING),
            *(
                proportion(name, int(row.sum()), row.size, at_least=1 - delta, unit="pair of chains")
                for name, (delta, _), row in zip(SIMULATED, ROWS, both.swapaxes(0, 1), strict=False)
            ),
        ],
        figures={"separation": lambda: _figure(ROWS[1])},
        tables={
            "one step against M": Table(
                ["δ", "M", "c", "h_G", "J₀", "k-Gibbs, one step", "needed", "parallel in M steps"],
                [
                    [*row, w.clique, w.clique_field, w.slack, r, n, e]
                    for row, w, r, n, e in zip(ROWS, worlds, reached, needed, escaped, strict=True)
                ],
            ),
            "smaller blocks": Table(
                ["δ", "M", "N", "k", "one step", "needed"],
                [[d, m, n, k, p, 1 - d / 2] for (d, m, n), k, p in zip(LARGE, fewest, spread, strict=True)],
            ),
        },
        notes=[
            "“The weights”, “the block” and “hold on the clique” are the three inequalities of the proof, over a grid "
            "of δ and M. Simulated: N = c and k = N from the last start that is allowed."
        ],
    )


Factors = tuple[float, float, float]


def _instance(factors: Factors, delta: float, steps: int, *, size: int | None = None) -> CliqueIsing:
    """The least clique of the theorem, its field, its coupling and its size multiplied as a control wants."""
    world, (field, coupling, share) = clique.separating(delta, steps), factors
    c = max(2, round(share * world.clique))
    h = field * world.clique_field / c
    n = c if size is None else size
    return CliqueIsing(n, c, coupling * (_slack(c) + c * h), (h,) * c + (0.0,) * (n - c))


def _slack(c: int) -> float:
    """½ c ln 2, and so little more that no rounding undercuts it."""
    return c * math.log(2) / 2 * (1 + 1e-11)


def _both(lab: Lab, chains: int, factors: Factors) -> dict[str, np.ndarray]:
    """Pairs of chains of which one has reached R₁ in a k-Gibbs step and the other has not in M parallel ones."""
    return {
        "both": np.array(
            [[_pairs(lab.generator(seed, "pairs"), chains, factors, *r) for r in ROWS[:3]] for seed in lab.seeds]
        )
    }


def _pairs(generator: torch.Generator, chains: int, factors: Factors, delta: float, steps: int) -> np.ndarray:
    world = _instance(factors, delta, steps)
    start = (torch.arange(world.size) < (world.clique - 2) // 2).long().expand(chains, -1)
    joint = world.mode(CliqueGibbs(world, k=world.size)(start, generator)) == 1
    found = run_chains(Parallel(world), start, steps=steps, generator=generator, until=lambda x: world.mode(x) == 1)
    return (joint & (found.hits < 0)).numpy()


def _smallest(delta: float, c: int, n: int) -> int:
    """The least k ≥ c with k((4−δ)c + δ) ≥ N(4−δ)c − δ, in fractions."""
    exact_delta = Fraction(str(delta))
    scale = (4 - exact_delta) * c
    return max(c, math.ceil((n * scale - exact_delta) / (scale + exact_delta)))


def _weights(factors: Factors, delta: float, steps: int) -> float:
    """(4−δ)/4 less the chance that a block which holds the clique turns it up."""
    world = _instance(factors, delta, steps)
    return (4 - delta) / 4 - clique.joint_reach(world, k=world.size)


def _block(block_off: int, delta: float, steps: int) -> float:
    """(4−2δ)/(4−δ) less the chance that the block holds the clique, in a text of forty cliques."""
    c = clique.strong_interaction(delta, steps).clique
    k = clique.large_block(40 * c, c, delta) + block_off
    return (4 - 2 * delta) / (4 - delta) - clique.holds_clique(40 * c, c, k)


def _hold(share: float, delta: float, steps: int) -> float:
    """ln(4M/δ) less c/8 − 1, or c/8 − 1 less c_stuck, whichever is larger."""
    c = round(share * clique.strong_interaction(delta, steps).clique)
    return max(math.log(4 * steps / delta) - (c / 8 - 1), c / 8 - 1 - clique.stuck_exponent(c, _slack(c)))


def _figure(row: tuple[float, int]) -> Figure:
    """How likely the parallel sampler has left {Σ_clique x ≤ −2}, at couplings up to the theorem's."""
    steps, least = (1, 2, 5, 10, 20, 50, 100), 1e-14
    series = {}
    for share in (0.001, 0.003, 0.01, 0.015):
        world = _instance((1.0, share, 1.0), *row)
        chain = magnetisation.parallel_chain(world)
        left = [max(least, chain.escape_probability(n, start=(world.clique - 2) // 2)) for n in steps]
        series[f"{share:g} J"] = left
    rate = math.exp(-clique.stuck_exponent(world.clique, _slack(world.clique)))
    return curves(
        steps,
        series,
        predictions={"bound at J": [rate * n for n in steps]},
        xlabel="parallel steps",
        ylabel="has left Σ ≤ −2",
        title=f"What holds the parallel sampler (δ = {row[0]:g}, c = {world.clique})",
        log_x=True,
        log_y=True,
    )


PRINTED = (
    printed(
        "corollary-square",
        separation,
        {"quarter": 2.0},
        statement="(−1 + c/4)² = 1 − c/2 + c²/4.",
        where="Proof of the corollary on separation (T14)",
        erratum="The square of c/4 is c²/16; the conclusion c_stuck ≥ c/8 − 1 is right.",
    ),
)

CLAIMS = (separation, *PRINTED)
