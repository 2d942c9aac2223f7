"""The corridor 0 … S without a network: where a walk ends, from its prefix sums alone, and by clamped maps.

`last_states` is the reading that two layers of attention compute (Algorithm 1 of Liu, Ash, Goel, Krishnamurthy & Zhang
2023): a walk that has spread over S + 1 values must have stood at both walls. `clamped` composes x ↦ min(max(x + a,
low), high), an oracle of another kind.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Reading(NamedTuple):
    """Where walks end, as far as the latest window with S + 1 values exists, and what it spans."""

    states: Int[Tensor, " row"]
    defined: Bool[Tensor, " row"]
    span: Int[Tensor, " row"]
    """z at the latest maximum minus z at the latest minimum."""
    branches: Int[Tensor, "row wall"]
    """The answer if the wall reached last is 0, and if it is S."""


def last_states(
    moves: Int[Tensor, "row position"], last: int, *, start: int = 0, padding: int | None = None, window: str = "latest"
) -> Reading:
    """The state after moves −1, 0, +1 in a corridor 0 … S = `last`.

    S + 1 moves to the left come first, then `start` to the right; the printed S leave walks without S + 1 values.
    z are prefix sums, u the latest t for which z_t … z_T take S + 1 values, and the state is z_T − z_b + (0 or S), b
    being the later one of the latest minimum and the latest maximum from u on. `window="all"` takes u = 1.
    """
    left = last + 1 if padding is None else padding
    before = torch.tensor([-1] * left + [1] * start, dtype=moves.dtype)
    z = torch.cat([before.expand(len(moves), -1), moves], 1).cumsum(1)
    length = z.shape[1]
    highest = z.flip(1).cummax(1).values.flip(1)  # of z_t … z_T for every t
    lowest = z.flip(1).cummin(1).values.flip(1)
    wide = highest - lowest == last
    place = torch.arange(length)
    first = torch.where(wide, place, -1).amax(1)
    defined = first >= 0
    first = first.clamp(min=0) if window == "latest" else torch.zeros_like(first)
    inside = place >= first[:, None]
    top, bottom = (end.gather(1, first[:, None]) for end in (highest, lowest))
    latest = [torch.where(inside & (z == end), place, -1).amax(1, keepdim=True) for end in (bottom, top)]
    at = torch.cat([z.gather(1, where) for where in latest], 1)
    branches = z[:, -1:] - at + torch.tensor([0, last])
    chosen = torch.cat(latest, 1).argmax(1, keepdim=True)
    return Reading(branches.gather(1, chosen)[:, 0], defined, at[:, 1] - at[:, 0], branches)


def clamped(moves: Int[Tensor, "row position"], last: int, *, start: int = 0) -> Int[Tensor, "row position"]:
    """All states, by doubling over maps x ↦ min(max(x + a, low), high): (a, l, h) then (b, m, k) is
    (a + b, clip(l + b), clip(h + b)), clipped to [m, k]."""
    shift, low, high = moves.clone(), torch.zeros_like(moves), torch.full_like(moves, last)
    reach = 1
    while reach < moves.shape[1]:
        a, before, after = shift[:, :-reach], low[:, :-reach], high[:, :-reach]
        b, m, k = shift[:, reach:], low[:, reach:], high[:, reach:]
        parts = (a + b, (before + b).clamp(m, k), (after + b).clamp(m, k))
        shift, low, high = (
            torch.cat([whole[:, :reach], part], 1) for whole, part in zip((shift, low, high), parts, strict=True)
        )
        reach *= 2
    return (start + shift).clamp(low, high)
