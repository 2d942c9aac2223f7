"""Which masks teach most, exactly: the information-matrix equality, more masking, all masks at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import hessian

from sandtable.claims.gmlm.instances import (
    WORSE,
    Instance,
    adaptive_masks,
    clique,
    every_block,
    independent_masks,
    ising,
    mixed,
    random_instances,
    together_when_aligned,
)
from sandtable.claims.gmlm.printed import printed
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, exceeds
from sandtable.lab.figures import curves
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.estimation import estimate
from sandtable.worlds import Blocks, FiniteLaw, MaskLaw, UniformSize
from sandtable.worlds import Table as LawTable
from sandtable.worlds.finite import conditional_log_probs

ROUNDING = 1e-8

# -- the information-matrix equality ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equality:
    instances: int = 4
    length: int = 3
    adaptive: int = 3
    data: str = "realizable"
    masks: str = "one"
    conditioned: bool = True
    score: str = "log"
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
    reads: str = "cover"


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


# -- masking more ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class More:
    instances: int = 3
    lengths: tuple[int, ...] = (2, 3, 4, 5)
    masks: str = "one"
    order: str = "more masks more"
    missing: int = 0
    gain: str = "not negative"
    formula: str = "pairs by size"
    pairs: float = 1.0


@claim(
    id="gmlm/masking-more",
    statement=(
        "Larger masks are never worse: Γ^{k+1} ⪯ Γ^k, with H_{k+1} − H_k the information of one coordinate given what "
        "a mask of k + 1 leaves, and so for any mask law that hides a subset of what another hides; k = N gives "
        "maximum likelihood. For independent spins Tr Γ^k = N²/k + C(N, 2)/(1 − (N−k)(N−k−1)/(N(N−1)))."
    ),
    source=li2024("the theorem that masking more is statistically better; increment and closed form of our own"),
    scales={"smoke": More(instances=1, lengths=(2, 3, 4)), "desk": More(instances=20, lengths=(2, 3, 4, 5, 6))},
    controls=(
        Control("all masks of a sequence averaged", {"masks": "all"}, ("gain of one more, largest",)),
        Control(
            "smaller masks in place of larger", {"order": "reversed"}, ("gain of a larger block", "maximum likelihood")
        ),
        Control("the increment of the next size", {"missing": 1}, ("H_{k+1} − H_k",)),
        Control("pairs counted as fields are", {"formula": "pairs as fields"}, ("Tr Γ for independent spins",)),
        Control("pairs counted twice", {"pairs": 2.0}, ("Tr Γ of four spins",)),
    ),
    tour=True,
)
def masking_more(settings: More, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "families")
    each = 1.0 if settings.masks == "one" else float("inf")
    gains, added, larger, last = [], [], [], []
    for instance in [*random_instances(settings.instances, generator), clique(3, 0.3, free="J"), WORSE]:
        scores, law, n = instance.scores, instance.law, instance.law.length
        sizes = [UniformSize(n, k) for k in range(1, n + 1)]
        h = [fisher.information(scores, law, masks) for masks in sizes]
        gamma = [fisher.covariance_of_many(scores, law, masks, each=each) for masks in sizes]
        gains += [_top(gamma[i + 1] - gamma[i]) / _top(gamma[i]) for i in range(n - 1)]
        for k in range(1, n):
            wanted = fisher.increment(scores, law, min(k + settings.missing, n - 1))
            wanted = torch.zeros_like(wanted) if settings.missing and k == n - 1 else wanted
            added.append(float((h[k] - h[k - 1] - wanted).abs().max() / h[-1].abs().max()))
        inner, outer = _nested(n, generator)
        if settings.order == "reversed":
            inner, outer, h[-1] = outer, inner, h[0]
        larger.append(
            _top(fisher.information(scores, law, inner) - fisher.information(scores, law, outer)) / _top(h[-1])
        )
        last.append(float((h[-1] - fisher.fisher(scores, law)).abs().max()))
    least = 0.0 if settings.gain == "not negative" else -1e-6
    traces, closed = _independent(settings)
    return Evidence(
        [
            bounded("gain of one more, largest", gains, least, atol=1e-9, unit="family and k"),
            bounded("H_{k+1} − H_k", added, 1e-12, unit="family and k"),
            bounded("gain of a larger block", larger, 1e-10, unit="family"),
            bounded("maximum likelihood", last, 1e-10, unit="family"),
            exact("Tr Γ for independent spins", traces, closed, rtol=1e-9, unit="N and k"),
            exact("Tr Γ of four spins", *_four_spins(settings.pairs), rtol=1e-4, unit="coupling and k"),
        ],
        figures={"traces": _traces},
        tables={"Tr Γ, N = 4, one coupling for all pairs": _reference()},
        notes=[
            "Gains are the largest eigenvalue of Γ^{k+1} − Γ^k over that of Γ^k, and of H_small − H_large over that of "
            "the Fisher information: at most zero."
        ],
    )


def _top(matrix: Tensor) -> float:
    return float(torch.linalg.eigvalsh(matrix)[-1])


def _nested(length: int, generator: torch.Generator) -> tuple[Blocks, Blocks]:
    """A random law of blocks, and that of the same blocks each with random positions added."""
    blocks = every_block(length)
    weights = torch.rand(len(blocks), generator=generator).double()
    grown: dict[tuple[int, ...], float] = {}
    for block, weight in zip(blocks, (weights / weights.sum()).tolist(), strict=True):
        more = (torch.rand(length, generator=generator) < 0.5).nonzero()[:, 0].tolist()
        key = tuple(sorted({*block, *more}))
        grown[key] = grown.get(key, 0.0) + weight
    return Blocks(length, blocks, tuple((weights / weights.sum()).tolist())), Blocks(
        length, tuple(grown), tuple(grown.values())
    )


def _independent(settings: More) -> tuple[list[float], list[float]]:
    """Tr Γ^k of independent spins, and its closed form."""
    traces, closed = [], []
    for n in settings.lengths:
        instance = clique(n, 0.0)
        for k in range(1, n + 1):
            h = fisher.information(instance.scores, instance.law, UniformSize(n, k))
            traces.append(float(fisher.asymptotic_covariance(h).trace()))
            by_size = fisher.independent_trace(n, k)
            closed.append(by_size if settings.formula == "pairs by size" else n * n / k + comb(n, 2) * n / k)
    return traces, closed


FOUR_SPINS = {
    0.0: (28.000, 15.200, 11.333, 10.000),
    0.05: (28.261, 15.335, 11.446, 10.112),
    0.1: (29.141, 15.791, 11.819, 10.478),
    0.3: (43.732, 23.462, 17.821, 16.327),
    0.5: (106.19, 56.96, 43.88, 41.55),
    1.0: (2576.1, 1473.0, 1221.2, 1190.5),
}
COUPLINGS_ALONE = {0.05: (12.128, 7.283, 6.078, 6.078), 0.3: (19.381, 11.823, 10.249, 10.249)}
"""Tr Γ^k of four spins with one coupling for all pairs and no fields, k = 1 … 4, from a calculation of its own: fields
and couplings free, then couplings alone."""
COUPLINGS = tuple(FOUR_SPINS)


@cache
def _four_spins(pairs: float) -> tuple[list[float], list[float]]:
    """Tr Γ^k, every pair counted so many times, and the traces known."""
    found = [t for j in FOUR_SPINS for t in _clique_traces(pairs * j)]
    found += [t for j in COUPLINGS_ALONE for t in _clique_traces(pairs * j, free="J")]
    return found, [t for table in (FOUR_SPINS, COUPLINGS_ALONE) for row in table.values() for t in row]


def _clique_traces(coupling: float, *, each: float = 1.0, free: str = "h and J") -> list[float]:
    """Tr Γ^k of four spins with one coupling for all pairs, k = 1 … 4."""
    instance = clique(4, coupling, free=free)
    scores = instance.scores
    found = [fisher.covariance_of_many(scores, instance.law, UniformSize(4, k), each=each) for k in range(1, 5)]
    return [float(gamma.trace()) for gamma in found]


@cache
def _reference() -> Table:
    rows: list[list[object]] = [["h and J", j, *_clique_traces(j)] for j in COUPLINGS]
    rows += [["J", j, *_clique_traces(j, free="J")] for j in COUPLINGS_ALONE]
    return Table(["free", "J", *(f"k = {k}" for k in range(1, 5))], rows)


def _traces():
    return curves(
        range(1, 5),
        {f"J = {j:g}": _clique_traces(j) for j in COUPLINGS[:-1]},
        xlabel="masked positions k",
        ylabel="Tr Γ",
        title="Larger masks are never worse (four spins, h = 0)",
        log_y=True,
    )


# -- all masks at once -----------------------------------------------------------------------------------------------

AT_ONCE = {0.05: (10.112, 10.112, 10.112, 10.112), 0.3: (16.337, 16.327, 16.327, 16.327)}
"""Tr Γ^k of four spins when every sequence is shown with all of its masks, from a calculation of its own."""


@dataclass(frozen=True)
class AtOnce:
    masks: str = "all"


@claim(
    id="gmlm/all-masks-at-once",
    statement=(
        "The theorems need one mask per sequence. With all masks of every sequence at once the size of masks hardly "
        "matters (Tr Γ^k = 10.112 for all k of four spins at J = 0.05; 16.337, then 16.327 at J = 0.3, where one mask "
        "each gives 43.7 to 16.3), and larger masks can be worse."
    ),
    source=li2024("the theorems on asymptotic variance, read without their one mask per sample"),
    scales={"smoke": AtOnce(), "desk": AtOnce()},
    controls=(Control("one mask each", {"masks": "one"}, ("Tr Γ", "spread over k", "Tr Γ² / Tr Γ¹, three spins")),),
)
def all_masks_at_once(settings: AtOnce, lab: Lab) -> Evidence:
    each = float("inf") if settings.masks == "all" else 1.0
    traces = {j: _clique_traces(j, each=each) for j in AT_ONCE}
    scores = WORSE.scores
    worse = [
        float(fisher.covariance_of_many(scores, WORSE.law, UniformSize(3, k), each=each).trace()) for k in (1, 2, 3)
    ]
    return Evidence(
        [
            exact(
                "Tr Γ", [t for row in traces.values() for t in row], sum(AT_ONCE.values(), ()), atol=5.1e-4, unit="k"
            ),
            bounded("spread over k", [max(row) / min(row) - 1 for row in traces.values()], 1e-3, unit="J"),
            exceeds("Tr Γ² / Tr Γ¹, three spins", [worse[1] / worse[0]], 1.1, deterministic=True, unit="family"),
        ],
        tables={
            "Tr Γ": Table(
                ["", *(f"k = {k}" for k in range(1, 5))],
                [
                    *([f"J = {j:g}, all at once", *row] for j, row in traces.items()),
                    *([f"J = {j:g}, one each", *_clique_traces(j)] for j in AT_ONCE),
                    [WORSE.name, *worse, ""],
                ],
            )
        },
        notes=[f"The family in which k = 2 is worse than k = 1: {WORSE.name}, three spins, coefficients −1 to 2."],
    )


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
    printed(
        "strictly-better",
        masking_more,
        {"gain": "strict"},
        statement="Every further masked position strictly improves the asymptotic variance.",
        where="the discussion of the theorem that masking more is better",
        erratum=(
            "Only ⪯ is proved, and equality occurs: with couplings alone free and no fields Γ^{N−1} = Γ^N, maximum "
            "likelihood."
        ),
    ),
)

CLAIMS = (information_matrix, blocks_cover, masking_more, all_masks_at_once, *PRINTED)
