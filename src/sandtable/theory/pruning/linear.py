"""Two random matrices pruned to one linear map (thesis, Lemma 2.2.2, after Pensia et al. 2020). Rows are inputs: x @ W.

Every input gets hidden units of its own, and every weight of the map a subset of them: Σ_r first[j, r]·second[r, i]
over the subset is near the weight. After a ReLU that is done twice, with units that answer to x > 0 and to x < 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.theory.pruning.subset_sum import MOST, expected_residual, nearest_subsets

SELECTIONS = ("best", "largest", "first")
"""Which of its units a weight may use: those whose sums lie densest about it, the largest products, or any."""


class PrunedMap(NamedTuple):
    """What is kept of the two matrices, and the worst distance of a weight from its subset's sum."""

    first: Bool[Tensor, "input hidden"]
    second: Bool[Tensor, "hidden output"]
    residual: float


def prune_linear(
    first: Float[Tensor, "input hidden"],
    second: Float[Tensor, "hidden output"],
    target: Float[Tensor, "input output"],
    *,
    units: int = 24,
    select: str = "best",
) -> PrunedMap:
    """Masks with (first ⊙ mask)(second ⊙ mask) ≈ target, every weight a sum of some of its `units` products."""
    return _prune(first, second, target, units=units, select=select, signs=(0,))


@typed
def prune_relu(
    first: Float[Tensor, "input hidden"],
    second: Float[Tensor, "hidden output"],
    target: Float[Tensor, "input output"],
    *,
    units: int = 24,
    select: str = "best",
    positive: bool = False,
) -> PrunedMap:
    """Masks with ReLU(x (first ⊙ mask))(second ⊙ mask) ≈ x target; `positive` inputs need only half of the units."""
    return _prune(first, second, target, units=units, select=select, signs=(1,) if positive else (1, -1))


def _prune(
    first: Tensor, second: Tensor, target: Tensor, *, units: int, select: str, signs: tuple[int, ...]
) -> PrunedMap:
    whole("units", units, most=MOST)
    one_of("select", select, SELECTIONS)
    (inputs, hidden), outputs = first.shape, second.shape[1]
    if second.shape[0] != hidden or target.shape != (inputs, outputs):
        raise ArgumentError(
            f"target of shape {tuple(target.shape)}: cannot be made of matrices of shapes {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    keep_first, keep_second = torch.zeros_like(first, dtype=torch.bool), torch.zeros_like(second, dtype=torch.bool)
    # An input without weights needs no units: the others share them all.
    used = target.ne(0).any(1).nonzero()[:, 0]
    if not len(used):
        return PrunedMap(keep_first, keep_second, 0.0)
    share = hidden // len(used)
    place, output = target[used].ne(0).nonzero().unbind(1)
    owner, own = used[place], share * place[:, None] + torch.arange(share)  # "weight", "weight unit"
    weights = target.double()[owner, output]
    ahead = first.double()[owner[:, None], own]
    product = ahead * second.double()[own, output[:, None]]
    worst = 0.0
    for sign in signs:
        served = ahead * sign > 0 if sign else torch.ones_like(ahead, dtype=torch.bool)
        if (least := int(served.sum(1).min())) < units:
            raise ArgumentError(
                f"{hidden} hidden units for {len(used)} inputs: too narrow, one of them has only {least} of its own "
                f"where units={units} are needed{' of each sign' if sign else ''}"
            )
        offered = _select(product, served, weights, units, select)
        chosen, distance = nearest_subsets(product.gather(1, offered), weights)
        worst = max(worst, float(distance.max()))
        row, column = chosen.nonzero().unbind(1)
        unit = own[row, offered[row, column]]
        keep_first[owner[row], unit] = True
        keep_second[unit, output[row]] = True
    return PrunedMap(keep_first, keep_second, worst)


def _select(
    product: Float[Tensor, "weight unit"],
    served: Bool[Tensor, "weight unit"],
    weights: Float[Tensor, " weight"],
    units: int,
    select: str,
) -> Int[Tensor, "weight chosen"]:
    """For every weight the units whose products it may sum, among those that are `served`."""
    count = product.shape[1]
    if select == "first":
        return (served * torch.arange(count, 0, -1)).topk(units, dim=1).indices
    if select == "largest":
        return (product.abs() * served).topk(units, dim=1).indices
    # The k largest and the units − k least products, k such that their subset sums are densest at the weight: the
    # largest |products| alone may nearly all have the wrong sign, and leave it out of reach.
    order = product.masked_fill(~served, torch.inf).argsort(dim=1, descending=True)
    others = (~served).sum(1)[:, None, None]
    j, k = torch.arange(units), torch.arange(units + 1)[:, None]
    place = torch.where(j < k, others + j, count - units + j)  # "weight k chosen"
    sets = order[:, None].expand(-1, units + 1, -1).gather(2, place)
    offered = product[:, None].expand(-1, units + 1, -1).gather(2, sets)
    expected = expected_residual(offered.flatten(0, 1), weights.repeat_interleave(units + 1)).unflatten(
        0, (-1, units + 1)
    )
    best = expected.argmin(1)[:, None, None].expand(-1, 1, units)
    return sets.gather(1, best)[:, 0]
