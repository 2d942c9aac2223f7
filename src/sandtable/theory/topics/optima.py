"""Where L(α, β) is smallest: theorem intervals, asymptotic losses, sharp optima, numerical optima, basins, landscapes.

Source of intervals and asymptotic losses: Li, Li & Risteski (2023), theorem 3 and the theorem on diagonal value
matrices, for T, τ → ∞ with τ = o(T). The sharp optima are derived here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize, minimize_scalar

from sandtable.arguments import ArgumentError, number, numbers, one_of, typed, whole
from sandtable.theory.topics.attention import VALUES, VARIANTS, attention_loss, reduced_loss
from sandtable.theory.topics.masking import constants, require_present
from sandtable.worlds import BertMasking, TopicModel

GRID = (1e-4, 1e7)  # the square of the published landscapes


class Interval(NamedTuple):
    low: float
    high: float

    def __contains__(self, x: object) -> bool:
        return isinstance(x, int | float) and self.low < x < self.high


class Optimum(NamedTuple):
    """A minimiser of L(α, β) and the loss there; for block value matrices α = β = γ."""

    alpha: float
    beta: float
    loss: float


class Landscape(NamedTuple):
    """L on a grid: `loss[i, j]` at `alpha[i]`, `beta[j]`."""

    alpha: np.ndarray
    beta: np.ndarray
    loss: np.ndarray


class BlockConstants(NamedTuple):
    """λ₁ as theorem 3 states it, as its proof yields it (c₅, smaller), and λ₂."""

    stated: float
    proved: float
    upper: float


def block_constants(masking: BertMasking) -> BlockConstants:
    """λ₁ = (a+p_m p_r)(2−a)/(2a), c₅ = (a+p_m p_r)(2a−1)/(2a), λ₂ = 100(a/(p_m p_r) + 1)."""
    a, noise = _kept(masking), _noise(masking)
    half = (a + noise) / (2.0 * a)
    return BlockConstants(half * (2.0 - a), half * (2.0 * a - 1.0), 100.0 * (a / noise + 1.0))


def block_interval(world: TopicModel, masking: BertMasking, *, constant: str = "stated") -> Interval:
    """Theorem 3: every optimal γ lies in (λ₁(τ−1), λ₂T), with λ₁ as "stated" or as "proved"."""
    one_of("constant", constant, ("stated", "proved"))
    lower = getattr(block_constants(masking), constant)
    return Interval(lower * (require_present(world) - 1), block_constants(masking).upper * world.topics)


class DiagonalBounds(NamedTuple):
    """λ₃τ < β < λ₄T and α < λ₅β at every optimum with a diagonal value matrix."""

    beta: Interval
    slope: float


def diagonal_bounds(world: TopicModel, masking: BertMasking) -> DiagonalBounds:
    """λ₃ = v(a+p_m p_r)/100, λ₄ = a/(√(v−1)−1−a)·(1−p_mask)/(p_m p_r)·v, λ₅ = 1/((v−1)a)."""
    a, noise, v = _kept(masking), _noise(masking), world.words
    if v - 1 <= (1.0 + a) ** 2:
        raise ArgumentError(f"words={v}: must exceed (1 + a)² + 1 = {(1.0 + a) ** 2 + 1.0:.3g}, or λ₄ is not defined")
    upper = a / ((v - 1) ** 0.5 - 1.0 - a) * (1.0 - masking.select * masking.hide) / noise * v
    return DiagonalBounds(
        Interval(v * (a + noise) / 100.0 * require_present(world), upper * world.topics), 1.0 / ((v - 1) * a)
    )


def meets_assumptions(world: TopicModel, masking: BertMasking) -> bool:
    """Whether v > (1/a + 1)² + 1, p_m < 1/2 and 0 < p_c = p_r < 1/2; the theorems also send τ and T/τ to infinity."""
    a = _kept(masking)
    return (
        world.words > (1.0 / a + 1.0) ** 2 + 1.0
        and masking.select < 0.5
        and masking.keep == masking.random
        and 0.0 < masking.keep < 0.5
    )


@typed
def asymptotic_block_loss(world: TopicModel, masking: BertMasking, gamma: ArrayLike) -> np.ndarray:
    """L(γ) → p_c[(1−x)² + (v−1)x²] + p_r + p_r v y², x and y the outputs at the query's topic, present and absent."""
    x, y = asymptotic_outputs(world, masking, gamma)
    v = world.words
    return masking.keep * ((1.0 - x) ** 2 + (v - 1) * x**2) + masking.random * (1.0 + v * y**2)


@typed
def asymptotic_outputs(world: TopicModel, masking: BertMasking, gamma: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """x = c₃γ/(v(γ + τ − 1 + c₃p_m p_r τ)) and y = c₃p_m p_r γ/(v(p_m p_r γ + (a + p_m p_r)T))."""
    c, tau = constants(world, masking), require_present(world)
    gamma = np.asarray(gamma, dtype=np.float64)
    x = c.c3 * gamma / (c.words * (gamma + tau - 1 + c.c3 * c.noise * tau))
    y = c.c3 * c.noise * gamma / (c.words * (c.noise * gamma + (c.a + c.noise) * c.topics))
    return x, y


@typed
def asymptotic_diagonal_loss(world: TopicModel, masking: BertMasking, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """L(α, β) → p_c[(1−c₃β/D₁)² + (v−1)(c₃α/D₁)²] + p_r[1 + (c₃β/D₂)² + (v−1)(c₃α/D₂)²].

    D₁ = β + (v−1)α + (1 + c₃p_m p_r)vτ, D₂ = β + (v−1)α + (a/(p_m p_r) + 1)vT.
    """
    c, tau = constants(world, masking), require_present(world)
    alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    v, inside = c.words, beta + (c.words - 1) * alpha
    present = c.c3 / (inside + (1.0 + c.c3 * c.noise) * v * tau)
    absent = c.c3 / (inside + (c.a / _noise(masking) + 1.0) * v * c.topics)
    return masking.keep * ((1.0 - present * beta) ** 2 + (v - 1) * (present * alpha) ** 2) + masking.random * (
        1.0 + (absent * beta) ** 2 + (v - 1) * (absent * alpha) ** 2
    )


def sharp_ratio(masking: BertMasking, *, variant: str = "paper") -> float:
    """Limit of γ*/τ (block) and of β*/(vτ) (diagonal): (a + p_m p_r)/(1 − a), or 1/(1 − a) with [MASK] keys counted."""
    one_of("variant", variant, VARIANTS)
    a = _kept(masking)
    if a == 1.0:
        raise ArgumentError("keep=1: must be < 1, or the optimal weight is infinite")
    return (a + masking.select * masking.random if variant == "paper" else 1.0) / (1.0 - a)


def sharp_loss(world: TopicModel, masking: BertMasking, *, value: str = "block") -> float:
    """Limit of the least loss: p_c(1 − 1/v) + p_r for block value matrices, p_r (pure copying) for diagonal ones."""
    block = one_of("value", value, VALUES) == "block"
    return masking.random + (masking.keep * (1.0 - 1.0 / world.words) if block else 0.0)


def optimal_gamma(world: TopicModel, masking: BertMasking, *, variant: str = "paper") -> Optimum:
    """The minimiser of L(γ) for the block value matrix, by a log-spaced scan and a bounded search."""

    def loss(log_gamma: np.ndarray) -> np.ndarray:
        gamma = np.exp(log_gamma)
        return reduced_loss(world, masking, gamma, gamma, variant=variant)

    best = _scan_minimum(loss, np.log(1e-4), np.log(1e4 * world.topics))
    gamma = float(np.exp(best))
    return Optimum(gamma, gamma, float(attention_loss(world, masking, gamma, gamma, variant=variant)))


def optimal_beta(world: TopicModel, masking: BertMasking, *, variant: str = "paper") -> Optimum:
    """The minimiser of L(α, β) for the diagonal value matrix over α ≥ 1e-6, by a log-spaced scan and a local search.

    β* is well determined; the loss is nearly flat in α below 1, so α* is not.
    """
    low, high = np.log(1e-6), np.log(1e4 * world.topics * world.words)

    def loss(point: np.ndarray) -> float:
        alpha, beta = np.exp(point)
        return float(reduced_loss(world, masking, alpha, beta, value="diagonal", variant=variant))

    axis = np.exp(np.linspace(low, high, 161))
    scan = reduced_loss(world, masking, axis[:, None], axis[None, :], value="diagonal", variant=variant)
    i, j = np.unravel_index(int(scan.argmin()), scan.shape)
    start = np.log([axis[i], axis[j]])
    scale = -float(scan.min()) or 1.0
    found = minimize(
        lambda point: loss(point) / scale,
        start,
        method="Nelder-Mead",
        bounds=[(low, high)] * 2,
        options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 2000},
    )
    alpha, beta = (float(x) for x in np.exp(found.x))
    return Optimum(alpha, beta, float(attention_loss(world, masking, alpha, beta, value="diagonal", variant=variant)))


@typed
def landscape(
    world: TopicModel,
    masking: BertMasking,
    *,
    value: str = "block",
    variant: str = "paper",
    points: int = 111,
    grid: tuple[float, float] = GRID,
) -> Landscape:
    """L on a square log-spaced grid of α and β, by default the square of the published figures."""
    axis = _axis(grid, whole("points", points, least=2))
    loss = attention_loss(world, masking, axis[:, None], axis[None, :], value=value, variant=variant)
    return Landscape(axis, axis.copy(), loss)


@typed
def basin(
    world: TopicModel,
    masking: BertMasking,
    *,
    value: str = "block",
    variant: str = "paper",
    fraction: float = 0.1,
    grid: tuple[float, float] = GRID,
) -> Interval:
    """The weights γ (block) or β (diagonal, at its best α) whose loss is within `fraction` of the range of the minimum.

    The range is that of the loss over the grid: of γ for block value matrices, of α and β for diagonal ones.
    """
    number("fraction", fraction, above=0.0, most=1.0)
    axis = _axis(grid, 441)

    def profile(x: float) -> float:
        if value == "block":
            return float(reduced_loss(world, masking, x, x, variant=variant))
        return float(reduced_loss(world, masking, axis, x, value=value, variant=variant).min())

    if one_of("value", value, VALUES) == "block":
        line = reduced_loss(world, masking, axis, axis, variant=variant)
        highest, least = line.max(), optimal_gamma(world, masking, variant=variant)
    else:
        plane = reduced_loss(world, masking, axis[:, None], axis[None, :], value=value, variant=variant)
        highest, line = plane.max(), plane.min(0)
        least = optimal_beta(world, masking, variant=variant)
    lowest = least.loss - masking.keep - masking.random
    level = float(lowest + fraction * (highest - lowest))
    inside = np.flatnonzero(line <= level)
    if not len(inside):
        raise ArgumentError(f"fraction={fraction:g}, grid={grid!r}: no point of the grid is so near the minimum")
    first, last = int(inside[0]), int(inside[-1])

    def edge(i: int, j: int) -> float:
        return find_root(lambda x: profile(x) - level, float(axis[i]), float(axis[j]))

    return Interval(
        edge(first - 1, first) if first > 0 else float(axis[0]),
        edge(last, last + 1) if last + 1 < len(axis) else float(axis[-1]),
    )


def find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """A root between two positive numbers, searched on a log scale."""
    root = brentq(lambda t: function(math.exp(t)), math.log(low), math.log(high), xtol=1e-13)
    assert isinstance(root, float)
    return math.exp(root)


def _scan_minimum(loss: Callable[[np.ndarray], np.ndarray], low: float, high: float, points: int = 801) -> float:
    axis = np.linspace(low, high, points)
    values = loss(axis)
    i = int(values.argmin())
    bracket = (axis[max(i - 1, 0)], axis[min(i + 1, points - 1)])
    scale = float(np.abs(values[i])) or 1.0
    found = minimize_scalar(
        lambda x: float(loss(np.asarray(x))) / scale, bounds=bracket, method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x)


def _axis(grid: tuple[float, float], points: int) -> np.ndarray:
    ends = numbers("grid", grid, above=0.0)
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise ArgumentError(f"grid={grid!r}: must be a rising pair of positive numbers")
    return np.geomspace(*ends, points)


def _kept(masking: BertMasking) -> float:
    return 1.0 - (1.0 - masking.keep) * masking.select


def _noise(masking: BertMasking) -> float:
    if masking.random == 0.0:
        raise ArgumentError("random=0: must be > 0, or the upper bounds of the theorems are infinite")
    return masking.select * masking.random
