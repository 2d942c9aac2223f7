"""The stack behind bracket strings, for a whole batch of rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import whole

PAIRS = ("[]", "()", "{}", "<>")


class StackTrace(NamedTuple):
    """The stack after every position, and what every closer met there."""

    depth: Int[Tensor, "batch position"]
    """Open brackets after the position."""
    opener: Int[Tensor, "batch position"]
    """Where the last open bracket after the position was opened; −1 on an empty stack."""
    top: Int[Tensor, "batch position"]
    """The type of that bracket; −1 on an empty stack."""
    match: Int[Tensor, "batch position"]
    """Where the bracket that a closer closes was opened; −1 for closers on an empty stack and other tokens."""
    wrong: Bool[Tensor, "batch position"]
    """Closers of another type than the bracket that they close."""


@dataclass(frozen=True)
class Brackets:
    """Bracket types 0 … k−1 as tokens: type t opens with token t and closes with token k + t.

    All other tokens leave the stack alone.
    """

    types: int = 2

    def __post_init__(self) -> None:
        whole("types", self.types)

    @property
    def tokens(self) -> tuple[str, ...]:
        """What the 2k tokens look like."""
        pairs = PAIRS if self.types <= len(PAIRS) else [(f"{t}<", f">{t}") for t in range(self.types)]
        return tuple(pair[side] for side in (0, 1) for pair in pairs[: self.types])

    def opens(self, tokens: Int[Tensor, ...]) -> Bool[Tensor, ...]:
        return (tokens >= 0) & (tokens < self.types)

    def closes(self, tokens: Int[Tensor, ...]) -> Bool[Tensor, ...]:
        return (tokens >= self.types) & (tokens < 2 * self.types)

    def trace(self, tokens: Int[Tensor, "batch position"]) -> StackTrace:
        """Read every row. A closer takes away what is on top whatever its type, and nothing from an empty stack."""
        positions, rows = tokens.shape[1], len(tokens)
        opens, closes = self.opens(tokens), self.closes(tokens)
        # s_i − min(0, min_{j≤i} s_j): a walk that stays where it is instead of stepping below zero.
        height = (opens.long() - closes.long()).cumsum(1)
        depth = height - height.cummin(1).values.clamp(max=0) if positions else height
        before = torch.cat([torch.zeros_like(depth[:, :1]), depth[:, :-1]], dim=1)
        # latest[d] is where depth d was last entered by an opener; pops need not erase it, since d is reached again
        # from below only through a new opener. Level 0 stays −1: nothing is open.
        deepest = int(depth.max()) if depth.numel() else 0
        latest = torch.full((deepest + 1, rows), -1, dtype=torch.long, device=tokens.device)
        opener = torch.empty((positions, rows), dtype=torch.long, device=tokens.device)
        levels, pushed = depth.T.contiguous(), opens.T.contiguous()
        for i in range(positions):
            level = levels[i : i + 1]
            opener[i] = torch.where(pushed[i], i, latest.gather(0, level)[0])
            latest.scatter_(0, level, opener[i : i + 1])
        opener = opener.T
        match = torch.cat([torch.full_like(opener[:, :1], -1), opener[:, :-1]], dim=1)
        match = match.where(closes & (before > 0), -1)
        opened_as = tokens.gather(1, match.clamp(min=0)) if positions else tokens
        top = (tokens.gather(1, opener.clamp(min=0)) if positions else tokens).where(opener >= 0, -1)
        wrong = (match >= 0) & (tokens - self.types != opened_as)
        return StackTrace(depth, opener, top, match, wrong)
