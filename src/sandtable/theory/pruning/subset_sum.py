"""Random subset sums: the subset of n numbers whose sum comes nearest to a target, for many targets at once."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sandtable.arguments import ArgumentError

MOST = 40
"""Elements of one set: 2^20 sums in each half are as many as fit into memory comfortably."""
AT_ONCE = 1 << 22


def nearest_subsets(
    values: Float[Tensor, "set element"], targets: Float[Tensor, " set"]
) -> tuple[Bool[Tensor, "set element"], Float[Tensor, " set"]]:
    """For every row the subset S minimising |Σ_S values − target|, and that distance.

    Meet in the middle (Horowitz & Sahni 1974): all sums of one half, sorted; for every sum of the other half the best
    partner is found by bisection. O(n·2^(n/2)) for each row instead of 2^n, and all rows together.
    """
    if values.ndim != 2 or targets.shape != values.shape[:1]:
        raise ArgumentError(
            f"values of shape {tuple(values.shape)}, targets of shape {tuple(targets.shape)}: must be (set, element) "
            "and (set,)"
        )
    count = values.shape[1]
    if count > MOST:
        raise ArgumentError(f"values with {count} elements in a set: at most {MOST}")
    values, targets = values.double(), targets.double()
    if not (values.isfinite().all() and targets.isfinite().all()):
        raise ArgumentError("values, targets: all of them must be finite")
    rows = max(1, AT_ONCE >> ((count + 1) // 2))
    parts = [_nearest(values[i : i + rows], targets[i : i + rows]) for i in range(0, len(values), rows)]
    if not parts:
        return torch.zeros(values.shape, dtype=torch.bool), targets.clone()
    chosen = torch.cat(parts)
    return chosen, ((values * chosen).sum(1) - targets).abs()


def _nearest(values: Tensor, targets: Tensor) -> Bool[Tensor, "set element"]:
    count = values.shape[1]
    half = count // 2
    left, right = _sums(values[:, :half]), _sums(values[:, half:])
    right, order = right.sort(dim=1)
    wanted = targets[:, None] - left
    place = torch.searchsorted(right, wanted).clamp(max=right.shape[1] - 1)
    below = (place - 1).clamp(min=0)
    nearer = (right.gather(1, below) - wanted).abs() < (right.gather(1, place) - wanted).abs()
    place = torch.where(nearer, below, place)
    best = (right.gather(1, place) - wanted).abs().argmin(1, keepdim=True)
    partner = order.gather(1, place.gather(1, best))
    return torch.cat([_bits(best, half), _bits(partner, count - half)], dim=1)


def _sums(values: Float[Tensor, "set element"]) -> Float[Tensor, "set subset"]:
    """Sums of all subsets; bit i of a subset's index says whether it holds element i."""
    sums = values.new_zeros(len(values), 1)
    for column in values.unbind(1):
        sums = torch.cat([sums, sums + column[:, None]], dim=1)
    return sums


def _bits(index: Tensor, count: int) -> Bool[Tensor, "set element"]:
    return (index >> torch.arange(count)) & 1 == 1


def expected_residual(values: Float[Tensor, "set element"], targets: Float[Tensor, " set"]) -> Float[Tensor, " set"]:
    """The mean distance 1/(2λ) when subset sums lie near the target like a Poisson process of its density λ.

    λ = 2^n φ((t − μ)/s)/s with the mean μ = Σw/2 and the variance s² = Σw²/4 of a random subset's sum (the local form
    of the bound of Lueker 1998); the distance to the nearest sum is then exponential.
    """
    mean, deviation = values.sum(1) / 2, values.square().sum(1).sqrt() / 2
    height = torch.exp(-(((targets - mean) / deviation) ** 2) / 2) / (math.sqrt(2 * math.pi) * deviation)
    return 1 / (2 * 2.0 ** values.shape[1] * height)
