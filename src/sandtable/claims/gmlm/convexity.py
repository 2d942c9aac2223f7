"""Masked estimation of Ising models is a convex problem; and what strong dependence costs everybody at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.func import grad, jacrev

from sandtable.claims.gmlm.instances import adaptive_masks, clique, independent_masks, mixed
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact
from sandtable.lab.figures import curves
from sandtable.theory.gmlm import chains, fisher
from sandtable.worlds import FiniteLaw, MaskLaw, UniformSize
from sandtable.worlds import Table as TableLaw

ROUNDING = 1e-9

# -- convexity -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convexity:
    lengths: tuple[int, ...] = (2, 3, 4)
    points: int = 5
    family: Literal["Ising", "mixture"] = "Ising"
    moments: Literal["given what is seen", "of the whole law"] = "given what is seen"


@claim(
    id="gmlm/convexity",
    statement=(
        "For Ising models the loss of weighted masked prediction is convex in (h, J), whatever the data, with Hessian "
        "E Cov(T | x_−K) under the model; so it is with masks that look at x, given x_−K and K."
    ),
    source=li2024("Proposition on convexity of pseudolikelihood (T16); adaptive masks by the same proof"),
    scales={"smoke": Convexity(lengths=(2, 3), points=2), "desk": Convexity(points=20)},
    controls=(
        Control("a mixture of two models", {"family": "mixture"}, ("least eigenvalue", "Hessian", "chords")),
        Control("moments without what is seen", {"moments": "of the whole law"}, ("Hessian",)),
    ),
)
def convexity(settings: Convexity, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "data and parameters")
    lowest, apart, above = [], [], []
    for length in settings.lengths:
        statistics = fisher.ising_statistics(length)
        family = fisher.exponential(statistics)
        if settings.family == "mixture":
            family = mixed(length, generator).family
        size = statistics.shape[1] if settings.family == "Ising" else length + 2
        for masks in [*independent_masks(length, generator), adaptive_masks(length, generator)]:
            data = TableLaw.random(length, generator)
            loss = fisher.population_loss(family, data, masks)
            for _ in range(settings.points):
                one, two = torch.randn(2, size, generator=generator, dtype=torch.float64) * 1.5
                second = jacrev(grad(loss))(one)
                lowest.append(-float(torch.linalg.eigvalsh(second)[0]))
                above.append(float(loss((one + two) / 2) - (loss(one) + loss(two)) / 2))
                t = statistics if settings.family == "Ising" else fisher.scores(family, one)
                expected = _mean_covariance(family(one), t, data, masks, settings.moments)
                apart.append(float((second - expected).abs().max()))
    return Evidence(
        [
            bounded("least eigenvalue", lowest, 0.0, atol=1e-10, unit="point"),
            bounded("Hessian", apart, ROUNDING, unit="point"),
            bounded("chords", above, 0.0, atol=1e-12, unit="chord"),
        ],
        notes=[
            "The data are random laws over all states, none of them of the family. Shown: the negative of the least "
            "eigenvalue; Hessian by automatic differentiation less sums over states; the loss above its chords."
        ],
    )


def _mean_covariance(
    logs: Float[Tensor, " states"], statistics: Tensor, data: FiniteLaw, masks: MaskLaw, moments: str
) -> Float[Tensor, "p p"]:
    """Σ_K Σ_{x_−K} data(x_−K, K) Cov_model(T | x_−K, K), block by block and state by state."""
    p, chosen = logs.softmax(0), masks.probs(data.states)
    total = torch.zeros(statistics.shape[1], statistics.shape[1], dtype=torch.float64)
    for block, hidden in enumerate(masks.family):
        seen = data.states.masked_fill(hidden, -1)
        for x in seen.unique(dim=0):
            rows = (seen == x).all(1) if moments == "given what is seen" else torch.ones(len(p), dtype=torch.bool)
            model = p[rows] * (chosen[rows, block] if masks.adaptive else 1.0)
            model = model / model.sum()
            centred = statistics[rows] - model @ statistics[rows]
            mass = (data.probs * chosen[:, block])[(seen == x).all(1)].sum()
            total += mass * centred.T @ (model[:, None] * centred)
    return total


# -- strong dependence -----------------------------------------------------------------------------------------------

COUPLINGS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
PRINTED_AT = (0.0, 0.05, 0.1, 0.3, 0.5, 1.0)
CORRELATIONS = (0.0, 0.0085, 0.0385, 0.4668, 1.2014, 2.0018)
"""Total correlation of four spins of a clique without fields, at the couplings of `PRINTED_AT`."""


@dataclass(frozen=True)
class Dependence:
    lengths: tuple[int, ...] = (2, 3, 4, 5)
    couplings: tuple[float, ...] = COUPLINGS
    k: Literal["less than N", "N"] = "less than N"
    pairs: float = 1.0


@claim(
    id="gmlm/strong-dependence",
    statement=(
        "The stronger the spins of a clique depend on one another, the slower every k-Gibbs chain mixes for k < N, the "
        "more every k-mask estimator errs, and the more a step that draws all positions independently loses: C_k, "
        "Tr Γ^k and the total correlation all grow with J."
    ),
    source=li2024("Discussion of strong dependence (T17), slides; on cliques without fields"),
    scales={"smoke": Dependence(lengths=(2, 3), couplings=PRINTED_AT), "desk": Dependence()},
    controls=(
        Control(
            "couplings in falling order",
            {"couplings": COUPLINGS[::-1]},
            ("C_k grows", "Tr Γ grows", "total correlation grows"),
        ),
        Control("everything drawn anew", {"k": "N"}, ("C_k grows",)),
        Control("pairs counted twice", {"pairs": 2.0}, ("four spins, total correlation",)),
    ),
)
def strong_dependence(settings: Dependence, lab: Lab) -> Evidence:
    def falls(measure: Callable[[int, int, float], float]) -> list[float]:
        """The value at each coupling less that at the next, for every length and k."""
        steps = []
        for length in settings.lengths:
            for k in [length] if settings.k == "N" else range(1, length):
                steps.append(-np.diff([measure(length, k, j) for j in settings.couplings]))
        return np.concatenate(steps).tolist()

    found = [chains.total_correlation(clique(4, settings.pairs * j).law, range(4)) for j in PRINTED_AT]
    return Evidence(
        [
            bounded("C_k grows", falls(_constant), -1e-6, unit="pair of couplings"),
            bounded("Tr Γ grows", falls(_trace), -1e-6, unit="pair of couplings"),
            bounded("total correlation grows", falls(_correlation), -1e-6, unit="pair of couplings"),
            exact("four spins, total correlation", found, CORRELATIONS, atol=5e-5, unit="coupling"),
        ],
        figures={"dependence": _figure},
        tables={
            "four spins": Table(
                ["J", *(f"C_{k}" for k in (1, 2, 3)), *(f"Tr Γ, k = {k}" for k in (1, 2, 3)), "total correlation"],
                [
                    [
                        j,
                        *(_constant(4, k, j) for k in (1, 2, 3)),
                        *(_trace(4, k, j) for k in (1, 2, 3)),
                        _correlation(4, 1, j),
                    ]
                    for j in COUPLINGS
                ],
            )
        },
        notes=[
            "What the parallel sampler keeps is another matter: its distance from p rises and falls again with J, as "
            "both laws gather in the two modes (0.0386, 0.2233, 0.0050 for four spins at J = 0.05, 0.3, 1)."
        ],
    )


def _constant(length: int, k: int, coupling: float) -> float:
    return chains.poincare(clique(length, coupling).law, UniformSize(length, k))


def _trace(length: int, k: int, coupling: float) -> float:
    instance = clique(length, coupling)
    information = fisher.information(instance.scores, instance.law, UniformSize(length, k))
    return float(fisher.asymptotic_covariance(information).trace())


def _correlation(length: int, k: int, coupling: float) -> float:
    return chains.total_correlation(clique(length, coupling).law, range(length))


def _figure() -> Figure:
    couplings = np.linspace(0, 1, 21)
    return curves(
        couplings,
        {
            "Poincaré constant, k = 1": [_constant(4, 1, j) / 4 for j in couplings],
            "Poincaré constant, k = 2": [_constant(4, 2, j) / 2 for j in couplings],
            "Tr Γ, k = 1": [_trace(4, 1, j) / 28 for j in couplings],
        },
        xlabel="coupling J",
        ylabel="times its value at J = 0",
        title="Strong dependence is slow to mix and hard to learn",
        log_y=True,
    )


CLAIMS = (convexity, strong_dependence)
