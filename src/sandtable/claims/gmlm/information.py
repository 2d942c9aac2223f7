"""What one masked observation says about parameters: the information-matrix equality, and blocks that cover."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import hessian

from sandtable.claims.gmlm.instances import (
    Instance,
    adaptive_masks,
    independent_masks,
    ising,
    mixed,
    together_when_aligned,
)
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.estimation import estimate
from sandtable.worlds import FiniteLaw, MaskLaw, UniformSize
from sandtable.worlds import Table as LawTable
from sandtable.worlds.finite import conditional_log_probs

ROUNDING = 1e-8

# -- the information-matrix equality ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equality:
    instances: int = 4
    length: int = 3
    adaptive: int = 3
    data: Literal["realizable", "misspecified"] = "realizable"
    masks: Literal["one", "all"] = "one"
    conditioned: bool = True
    score: Literal["log", "probability"] = "log"
    off: float = 0.0


@claim(
    id="gmlm/information-matrix",
    statement=(
        "With one mask per sequence the score −∇ log p_θ(X_K | X_−K, K) has mean zero at the truth, and its covariance "
        "is the Hessian of the masked loss there: for masks that look at X and masks that do not, in families that are "
        "exponential and families that are not. Both are E Cov(∇ log p_θ(X) | X_−K, K)."
    ),
    source=li2024("the generalised information-matrix equality, masks independent of X and adaptive"),
    scales={"smoke": Equality(instances=1, adaptive=1), "desk": Equality(instances=5, adaptive=3)},
    controls=(
        Control(
            "data of another law, at its minimiser",
            {"data": "misspecified"},
            ("Hessian, independent masks", "Hessian, adaptive masks"),
        ),
        Control(
            "all masks of a sequence averaged",
            {"masks": "all"},
            ("Hessian, independent masks", "Hessian, adaptive masks"),
        ),
        Control("K left out of the condition", {"conditioned": False}, ("mean score, adaptive masks",)),
        Control(
            "θ off by 0.1",
            {"off": 0.1},
            ("mean score, independent masks", "mean score, adaptive masks", "E Cov, independent masks"),
        ),
        Control("scores of p, not of log p", {"score": "probability"}, ("E Cov, adaptive masks",)),
    ),
)
def information_matrix(settings: Equality, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "families")
    found: dict[str, list[float]] = {}
    rows = []
    for instance in _families(settings, generator):
        other = LawTable.random(instance.law.length, generator)
        for masks in _mask_laws(instance.law.length, settings.adaptive, generator):
            data = instance.law if settings.data == "realizable" else other
            moments = _moments(instance, data, masks, settings)
            kind = "adaptive masks" if masks.adaptive else "independent masks"
            for what, value in moments.items():
                found.setdefault(f"{what}, {kind}", []).append(value)
            rows.append([instance.name, type(masks).__name__, kind, *moments.values()])
    return Evidence(
        [bounded(name, values, ROUNDING, unit="family and mask law") for name, values in sorted(found.items())],
        tables={"largest differences": Table(["family", "masks", "kind", "mean score", "Hessian", "E Cov"], rows)},
        notes=["All differences are relative to the largest entry of the Hessian, which is differentiated twice."],
    )


def _families(settings: Equality, generator: torch.Generator) -> Iterable[Instance]:
    for _ in range(settings.instances):
        n = settings.length
        yield ising(*(0.5 * torch.randn(size, generator=generator) for size in (n, n * (n - 1) // 2)))
        yield mixed(n + 1, generator)


def _mask_laws(length: int, adaptive: int, generator: torch.Generator) -> list[MaskLaw]:
    looking = [adaptive_masks(length, generator) for _ in range(adaptive)]
    return [*independent_masks(length, generator), together_when_aligned(length), *looking]


def _moments(instance: Instance, data: FiniteLaw, masks: MaskLaw, settings: Equality) -> dict[str, float]:
    """How far the mean score is from zero, its covariance from the Hessian and from E Cov."""
    family, given = instance.family, settings.conditioned
    pairs, theta = fisher.joint(data, masks), instance.theta + settings.off
    if settings.data == "misspecified":
        theta = estimate(family, pairs[None], masks, theta, conditioned=given).theta[0]
    bend = hessian(fisher.population_loss(family, data, masks, conditioned=given))(theta)
    score = fisher.masked_scores(family, theta, masks, conditioned=given)
    if settings.score == "probability":
        score = score * _conditionals(instance, theta, masks)[:, :, None]
    mean = torch.einsum("sb,sbp->p", pairs, score)
    if settings.masks == "one":
        spread = torch.einsum("sb,sbp,sbq->pq", pairs, score, score)
    else:
        whole = torch.einsum("sb,sbp->sp", masks.probs(data.states), score)
        spread = whole.T @ (data.probs[:, None] * whole)
    spread = spread - torch.outer(mean, mean)
    explained = fisher.information(instance.scores, data, masks)
    size = float(bend.abs().max())
    return {
        "mean score": float(mean.abs().max()) / size,
        "Hessian": float((spread - bend).abs().max()) / size,
        "E Cov": float((spread - explained).abs().max()) / size,
    }


def _conditionals(instance: Instance, theta: Tensor, masks: MaskLaw) -> Float[Tensor, "states block"]:
    logs = instance.family(theta)
    chosen = masks.probs(instance.law.states).log()
    return torch.stack(
        [conditional_log_probs(logs, hidden, 2, chosen[:, b]).exp() for b, hidden in enumerate(masks.family)], 1
    )


# -- blocks cover ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cover:
    lengths: tuple[int, ...] = (2, 3, 5, 8)
    reads: Literal["cover", "partition"] = "cover"


@claim(
    id="gmlm/blocks-cover",
    statement=(
        "The blocks of a mask law together cover [N], and overlap: among all blocks of k positions every position lies "
        "in C(N−1, k−1)."
    ),
    source=li2024("the definition of the weighted pseudolikelihood, “partition” read as cover"),
    scales={"smoke": Cover(), "desk": Cover()},
    controls=(Control("blocks that do not overlap", {"reads": "partition"}, ("blocks that hold a position",)),),
)
def blocks_cover(settings: Cover, lab: Lab) -> Evidence:
    held, expected = [], []
    for n in settings.lengths:
        for k in range(1, n + 1):
            held += UniformSize(n, k).family.sum(0).tolist()
            expected += [comb(n - 1, k - 1) if settings.reads == "cover" else 1] * n
    return Evidence([exact("blocks that hold a position", held, expected, unit="position")])


PRINTED = (
    printed(
        "fisher-information",
        information_matrix,
        {"score": "probability"},
        statement="The information in a (masked) observation is the covariance of ∇p_θ.",
        where="the definition of the Fisher information",
        erratum="The logarithm is missing: the covariance of ∇ log p_θ is meant; that of ∇p_θ is not the Hessian.",
    ),
    printed(
        "partition",
        blocks_cover,
        {"reads": "partition"},
        statement="The blocks of a mask law form a partition of [N]: every position lies in exactly one.",
        where="the definition of the weighted pseudolikelihood",
        erratum="All blocks of k positions overlap wherever 1 < k; covering [N] is what is needed, and what is used.",
    ),
)

CLAIMS = (information_matrix, blocks_cover, *PRINTED)
