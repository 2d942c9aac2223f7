"""Errors that add up with the length: action-level rejection against the first leaf of VGB, at any length.

Fair bits, τ ≡ 1 (so V* ≡ 1 and π* is uniform), and a value that is off by the factor 1 + ε wherever the last bit is 1
and more bits follow: V̂(y_{1:h}) = 1 + ε if y_h = 1 and h < H, else 1. Both methods then draw independent bits.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy import stats

from sandtable.arguments import ArgumentError, number, typed, whole


@typed
def action_level_tv(length: int, error: float) -> float:
    """TV to uniform of bits 1 … H−1 ~ Bernoulli((1+ε)/(2+ε)), the last one fair: a sum over how many are 1."""
    free, error = whole("length", length) - 1, number("error", error, least=0.0)
    ones = np.arange(free + 1)
    biased, fair = (stats.binom.pmf(ones, free, p) for p in ((1 + error) / (2 + error), 0.5))
    return float(np.abs(biased - fair).sum() / 2)


MOST_LENGTH = 100_000
"""Of strings that are gone through step by step."""


@typed
def first_leaf_bits(length: int, error: float) -> Float[np.ndarray, " position"]:
    """P(bit h = 1), h = 1 … H, at VGB's first leaf.

    The conductance below a node with k levels to go is c_0 = ∞, c_k = ½ Σ_a 1/(1/V_a + 1/c_{k−1}), V_a ≡ 1 for k = 1; a
    bit's chance is its share of the sum.
    """
    length, error = whole("length", length, most=MOST_LENGTH), number("error", error, least=0.0)
    below, chances = math.inf, []
    for left in range(1, length + 1):
        values = (1.0, 1.0 if left == 1 else 1.0 + error)
        zero, one = (0.5 / (1 / value + 1 / below) for value in values)
        below = zero + one
        chances.append(one / below)
    return np.array(chances[::-1])


@typed
def first_leaf_tv(length: int, error: float, *, grid: float = 1e-4) -> float:
    """TV to uniform of the bits of VGB's first leaf."""
    return product_tv(first_leaf_bits(length, error), grid=grid)


@typed
def product_tv(chances: Float[np.ndarray, " position"], *, grid: float = 1e-4) -> float:
    """TV between independent bits with the given chances of 1 and fair ones: E_fair (1 − R)⁺, R = likelihood ratio.

    The law of ln R is kept on a grid. A value between two grid points is split so that the mean of R stays, which can
    only raise the mean of a convex function, by O(grid²) each time: an upper bound, within 10⁻⁵ for 256 bits.
    """
    number("grid", grid, least=1e-9, most=1.0)
    chances = np.asarray(chances, dtype=float)
    if chances.ndim != 1 or not bool(((chances > 0) & (chances < 1)).all()):
        raise ArgumentError("chances: must be a vector of probabilities strictly between 0 and 1")
    ratios = np.stack([2 * (1 - chances), 2 * chances])
    logs = np.log(ratios) / grid
    low, high = int(np.floor(logs.min(0)).sum()), int(np.ceil(logs.max(0)).sum())
    law = np.zeros(high - low + 2)
    law[-low] = 1.0
    for pair in logs.T:
        moved = np.zeros_like(law)
        for log in pair:
            whole_steps = math.floor(log)
            upper = math.expm1((log - whole_steps) * grid) / math.expm1(grid)
            for steps, share in ((whole_steps, 1 - upper), (whole_steps + 1, upper)):
                if share > 0:
                    _shift_into(moved, law, steps, share / 2)
        law = moved
    ratio = np.exp(grid * (np.arange(len(law)) + low))
    return float(law @ np.maximum(0.0, 1.0 - ratio))


def _shift_into(target: np.ndarray, source: np.ndarray, steps: int, share: float) -> None:
    if steps >= 0:
        target[steps:] += share * source[: len(source) - steps]
    else:
        target[:steps] += share * source[-steps:]
