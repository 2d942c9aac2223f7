"""How fast block dynamics mix, and what that says about learning: Poincaré constants, Dirichlet forms, χ²."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.claims.gmlm.instances import (
    Instance,
    adaptive_masks,
    clique,
    independent_masks,
    ising,
    random_instances,
    together_when_aligned,
)
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.lab.figures import curves, scatter
from sandtable.theory.gmlm import chains, fisher
from sandtable.worlds import FiniteLaw, Ising, MaskLaw, UniformSize
from sandtable.worlds import Table as LawTable

ROUNDING = 1e-9

# -- masks that do not look at x -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    instances: int = 3
    starts: int = 20
    constant: Literal["of the chain", "one"] = "of the chain"
    rate: float = 2.0
    form: Literal["blocks", "plain"] = "blocks"
    pairs: float = 1.0


@claim(
    id="gmlm/poincare-bounds-variance",
    statement=(
        "If the block dynamics of a mask law have Poincaré constant C, then Γ ⪯ C I^{−1}: C bounds what masked "
        "estimation costs beside maximum likelihood. The bound is attained by pairwise models with all parameters free "
        "and at most two positions visible. The same chain has χ²(p_t) ≤ e^{−2t/C} χ²(p_0)."
    ),
    source=li2024("Poincaré constants bound the asymptotic variance; Dirichlet form of block dynamics; χ² mixing"),
    scales={"smoke": Bound(instances=1, starts=3), "desk": Bound(instances=10, starts=20)},
    controls=(
        Control(
            "C of a chain that draws everything anew",
            {"constant": "one"},
            ("excess of Γ over C I⁻¹", "worst direction, full models", "χ² over its bound"),
        ),
        Control("form without the mean given what is seen", {"form": "plain"}, ("Dirichlet forms",)),
        Control("χ² at twice the rate", {"rate": 4.0}, ("χ² over its bound",)),
        Control("pairs counted twice", {"pairs": 2.0}, ("C of four spins",)),
    ),
)
def poincare_bounds_variance(settings: Bound, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "families")
    excess, forms, chi, points = [], [], [], []
    for instance in [*random_instances(settings.instances, generator), *(clique(4, j) for j in (0.05, 0.3, 1.0))]:
        for masks in independent_masks(instance.law.length, generator):
            constant = _constant(instance.law, masks, settings)
            gamma, information = variance(instance, masks)
            excess.append(_excess(gamma, constant, information))
            points.append((constant, worst_direction(gamma, information), instance.name))
            forms.append(_forms_apart(instance.law, masks, generator, settings.form))
            chi.append(_chi_square(instance.law, masks, constant, settings, generator))
    ratios = []
    for instance in _full(settings.instances, generator):
        n = instance.law.length
        for k in range(max(1, n - 2), n):
            masks = UniformSize(n, k)
            ratios.append(worst_direction(*variance(instance, masks)) / _constant(instance.law, masks, settings))
    return Evidence(
        [
            bounded("excess of Γ over C I⁻¹", excess, ROUNDING, unit="family and mask law"),
            exact("worst direction, full models", ratios, 1.0, rtol=1e-7, unit="model and k"),
            bounded("Dirichlet forms", forms, ROUNDING, unit="family and mask law"),
            bounded("χ² over its bound", chi, 1.0, atol=1e-7, unit="family and mask law"),
            exact("C of four spins", *_four_spins(settings.pairs), rtol=5e-4, unit="coupling and k"),
        ],
        figures={"worst direction": lambda: _figure(points), "constants": _constants_by_coupling},
        tables={"Poincaré constants and Tr Γ, four spins, one coupling": _reference()},
        notes=[
            "Excess: the largest eigenvalue of I^{1/2} Γ I^{1/2} over C, less 1; at most zero. Fully free pairwise "
            "models attain it with N − k ≤ 2 visible positions because Pf is then a sum of functions of two spins, and "
            "so is the slowest eigenfunction: a direction of θ."
        ],
    )


def _constant(law: FiniteLaw, masks: MaskLaw, settings: Any) -> float:
    return chains.poincare(law, masks) if settings.constant == "of the chain" else 1.0


def variance(instance: Instance, masks: MaskLaw) -> tuple[Float[Tensor, "p p"], Float[Tensor, "p p"]]:
    """Γ and I."""
    scores = instance.scores
    gamma = fisher.asymptotic_covariance(fisher.information(scores, instance.law, masks))
    return gamma, fisher.fisher(scores, instance.law)


def worst_direction(gamma: Tensor, information: Tensor) -> float:
    """λ_max(I^{1/2} Γ I^{1/2}): how many times the variance of maximum likelihood the worst direction has."""
    values, vectors = torch.linalg.eigh(information)
    root = vectors @ (vectors.T * values.clamp(min=0).sqrt()[:, None])
    return float(torch.linalg.eigvalsh(root @ gamma @ root)[-1])


def _excess(gamma: Tensor, constant: float, information: Tensor) -> float:
    return worst_direction(gamma, information) / constant - 1


def _forms_apart(law: FiniteLaw, masks: MaskLaw, generator: torch.Generator, form: str) -> float:
    """⟨f, (I − P)g⟩ and ½ Σ μ P Δf Δg beside E Cov(f, g | x_−K, K), f and g random."""
    f, g = torch.randn(2, len(law.probs), generator=generator).double()
    p = chains.transition(law, masks)
    inner = float((law.probs * f * (g - p @ g)).sum())
    blocks = chains.block_dirichlet(law, masks, f, g) if form == "blocks" else float((law.probs * f * g).sum())
    return max(abs(inner - blocks), abs(chains.dirichlet(p, law.probs, f, g) - blocks))


def _chi_square(law: FiniteLaw, masks: MaskLaw, constant: float, settings: Bound, generator: torch.Generator) -> float:
    """The largest χ²(p_t)/(e^{−rate·t/C} χ²(p_0)) over starts, among them one along the slowest eigenfunction."""
    p, mu = chains.transition(law, masks), law.probs
    vectors = torch.linalg.eigh(mu.sqrt()[:, None] * p / mu.sqrt()).eigenvectors
    slowest = mu.sqrt() * vectors[:, -2]
    starts = [mu + 0.9 * float((mu / slowest.abs()).min()) * slowest]
    starts += [LawTable.random(law.length, generator).probs for _ in range(settings.starts)]
    worst = 0.0
    for start in starts:
        now, first = start, chains.chi_square(start, mu)
        for t in range(1, 6):
            now = now @ p
            # Below this both sides are rounding.
            if chains.chi_square(now, mu) > 1e-16:
                worst = max(worst, chains.chi_square(now, mu) / (math.exp(-settings.rate * t / constant) * first))
    return worst


def _full(count: int, generator: torch.Generator) -> list[Instance]:
    """Pairwise models with all parameters free."""
    out = [clique(4, j) for j in (0.05, 0.3)]
    for i in range(count):
        n = 3 + i % 3
        out.append(ising(*(0.5 * torch.randn(size, generator=generator) for size in (n, n * (n - 1) // 2))))
    return out


FOUR_SPINS = {
    0.0: (4.000, 2.000, 1.333, 1.0),
    0.05: (4.701, 2.234, 1.411, 1.0),
    0.1: (5.655, 2.552, 1.517, 1.0),
    0.3: (14.699, 5.552, 2.517, 1.0),
    0.5: (48.80, 16.42, 6.14, 1.0),
    1.0: (1540.8, 357.2, 119.7, 1.0),
}
"""C of k-Gibbs on four spins with one coupling J and no fields, k = 1 … 4, from a calculation of its own."""
COUPLINGS = tuple(FOUR_SPINS)


@cache
def _four_spins(pairs: float) -> tuple[list[float], list[float]]:
    """The constants of k-Gibbs, every pair counted so many times, and those known."""
    found = [chains.poincare(clique(4, pairs * j).law, UniformSize(4, k)) for j in COUPLINGS for k in range(1, 5)]
    return found, [c for row in FOUR_SPINS.values() for c in row]


@cache
def _reference() -> Table:
    rows = []
    for j in COUPLINGS:
        instance, row = clique(4, j), []
        for k in range(1, 5):
            masks = UniformSize(4, k)
            row.append(
                f"{float(variance(instance, masks)[0].trace()):.5g} / {chains.poincare(instance.law, masks):.5g}"
            )
        correlation = chains.total_correlation(instance.law, range(4))
        assert isinstance(instance.law, Ising)
        rows.append([j, *row, correlation, chains.tv(instance.law.parallel_law(), instance.law.probs)])
    return Table(["J", *(f"k = {k}: Tr Γ / C" for k in range(1, 5)), "total correlation", "TV, parallel to law"], rows)


def _figure(points: list[tuple[float, float, str]]):
    groups: dict[str, tuple[list[float], list[float]]] = {}
    for constant, worst, name in points:
        x, y = groups.setdefault(name.split(",")[0], ([], []))
        x.append(math.log10(constant))
        y.append(math.log10(worst))
    return scatter(
        groups,
        xlabel="log₁₀ Poincaré constant C",
        ylabel="log₁₀ variance over maximum likelihood's",
        title="The worst direction never costs more than C",
    )


def _constants_by_coupling():
    js = [j / 20 for j in range(21)]
    return curves(
        js,
        {f"k = {k}": [chains.poincare(clique(4, j).law, UniformSize(4, k)) for j in js] for k in (1, 2, 3)},
        xlabel="coupling J",
        ylabel="Poincaré constant",
        title="Stronger dependence, slower mixing (four spins)",
        log_y=True,
    )


# -- masks that look at x --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adaptive:
    instances: int = 2
    masks: int = 2
    constant: Literal["of the chain", "one"] = "of the chain"
    kernel: Literal["states", "pairs"] = "states"
    form: Literal["given K", "without K"] = "given K"


@claim(
    id="gmlm/poincare-bounds-variance-adaptive",
    statement=(
        "With masks that look at X the bound Γ ⪯ C I^{−1} holds for the Poincaré constant of the chain on states, "
        "which draws K ~ p(· | x) and then x_K given x_−K and K; that chain keeps the law and no other. Its Dirichlet "
        "form is E Cov(f, g | x_−K, K), as that of the chain on pairs (x, K) that keeps K is for functions of both."
    ),
    source=li2024("the proposition on adaptive masking and the Poincaré inequality, kernel corrected"),
    scales={"smoke": Adaptive(instances=1, masks=1), "desk": Adaptive(instances=10, masks=5)},
    controls=(
        Control("C of a chain that draws everything anew", {"constant": "one"}, ("excess of Γ over C I⁻¹",)),
        Control("a kernel that never changes K", {"kernel": "pairs"}, ("eigenvalues equal to one",)),
        Control("forms without K in the condition", {"form": "without K"}, ("Dirichlet forms", "kept by the chain")),
    ),
)
def poincare_adaptive(settings: Adaptive, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "families")
    excess, forms, ones, kept = [], [], [], []
    naive = settings.form == "without K"
    for instance in random_instances(settings.instances, generator):
        law, n = instance.law, instance.law.length
        for masks in [together_when_aligned(n), *(adaptive_masks(n, generator) for _ in range(settings.masks))]:
            excess.append(_excess(*_ordered(instance, masks, settings)))
            f, g = torch.randn(2, len(law.probs), generator=generator).double()
            p = chains.transition(law, masks, naive=naive)
            inner = float((law.probs * f * (g - p @ g)).sum())
            forms.append(abs(inner - chains.block_dirichlet(law, masks, f, g)))
            forms.append(_pair_forms_apart(law, masks, generator))
            kept.append(float((law.probs @ p - law.probs).abs().max()))
            kernel = p if settings.kernel == "states" else pair_kernel(law, masks)
            ones.append(int((torch.linalg.eigvals(kernel).real > 1 - 1e-9).sum()))
    return Evidence(
        [
            bounded("excess of Γ over C I⁻¹", excess, ROUNDING, unit="family and mask law"),
            exact("eigenvalues equal to one", ones, 1.0, unit="family and mask law"),
            bounded("Dirichlet forms", forms, ROUNDING, unit="family and mask law"),
            bounded("kept by the chain", kept, ROUNDING, unit="family and mask law"),
        ],
        notes=[
            "Each eigenvalue equal to one is a part of the state space that the chain never leaves: with more than one "
            "there is no unique stationary law, and the Poincaré constant is infinite."
        ],
    )


def _ordered(instance: Instance, masks: MaskLaw, settings: Adaptive) -> tuple[Tensor, float, Tensor]:
    gamma, information = variance(instance, masks)
    return gamma, _constant(instance.law, masks, settings), information


def _pair_forms_apart(law: FiniteLaw, masks: MaskLaw, generator: torch.Generator) -> float:
    """½ Σ μ P Δf Δg of the chain that keeps K beside E Cov(f, g | x_−K, K), f and g random functions of (x, K)."""
    pairs = fisher.joint(law, masks)
    f, g = torch.randn(2, *pairs.shape, generator=generator).double()
    whole = chains.dirichlet(pair_kernel(law, masks), *(values.T.flatten() for values in (pairs, f, g)))
    return abs(whole - chains.block_dirichlet(law, masks, f, g))


def pair_kernel(law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "pairs pairs"]:
    """The printed kernel on pairs: P((x, K), (y, K')) = 1[K = K'] 1[x_−K = y_−K] p(y_K | x_−K, K)."""
    parts = []
    for hidden, weight in zip(masks.family, fisher.joint(law, masks).T, strict=True):
        seen = law.states[:, ~hidden]
        flow = (seen[:, None] == seen).all(2) * weight
        parts.append(flow / flow.sum(1, keepdim=True))
    return torch.block_diag(*parts)


PRINTED = (
    printed(
        "adaptive-kernel",
        poincare_adaptive,
        {"kernel": "pairs"},
        statement=(
            "The chain on pairs (x, K) with kernel 1[K = K'] 1[x_−K = y_−K] p(y_K | x_−K, K) has one stationary law "
            "and a Poincaré constant that bounds Γ."
        ),
        where="the proposition on adaptive masking and the Poincaré inequality",
        erratum=(
            "The kernel never changes K, so that it has a stationary law for every K and x_−K (19 for three spins and "
            "all blocks), and its Poincaré constant is infinite. The chain on states does the work: for functions of "
            "x alone the conditional variance is that of the conditional score."
        ),
    ),
)

CLAIMS = (poincare_bounds_variance, poincare_adaptive, *PRINTED)
