"""Balanced brackets of one fixed length, drawn from left to right (Botta, Li, Mehta, Ash, Zhang & Risteski 2025)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole, with_generator
from sandtable.worlds.base import Batch, Expectation, Vocab
from sandtable.worlds.dyck.rows import lengths_of, rows_of
from sandtable.worlds.dyck.stack import Brackets

_BRACKETS = Brackets(types=2)
_LARGEST_SUPPORT = 2**20


class DyckError(IntEnum):
    """What can be wrong with a token, given the tokens before it."""

    NONE = 0
    START_INCORRECT = 1
    """No start token in front, or one further on."""
    END_INCORRECT = 2
    """The end token too early, or anything but a bracket or the end where one of them belongs."""
    MAX_STACK_DEPTH_EXCEEDED = 3
    STACK_DEPTH_EXCEEDS_REMAINING_LENGTH = 4
    STACK_UNDERFLOW = 5
    INCORRECT_CLOSING_BRACKET = 6


class FirstError(NamedTuple):
    """Where each row first goes wrong (−1: nowhere) and how, a `DyckError`."""

    position: Int[Tensor, " batch"]
    kind: Int[Tensor, " batch"]


@dataclass(frozen=True)
class FixedLengthDyck:
    """⟨bos⟩ w_1 … w_D ⟨eos⟩ with w balanced over the brackets [ ] ( ), D = `length` even.

    Position i, with depth d of open brackets before it and r = D − i + 1 positions left:

    - d = 0: open;  d = r, or d = `max_depth`: close the last open bracket;
    - otherwise: open with probability `q`, else close.

    An opened bracket is `[` with probability `p`, otherwise `(`. Closed form of the probability of a prefix:
    Π_opens (p or 1−p)·(1 if d(w_{1:i}) = 1 else q) · Π_closes (1−q if d(w_{1:i}) < D − i else 1).

    Rows of tokens may be padded on the right: then `lengths` says how many of their tokens count.
    """

    length: int = 32
    p: float = 0.2
    q: float = 0.5
    max_depth: int | None = None

    def __post_init__(self) -> None:
        if whole("length", self.length, least=2) % 2:
            raise ArgumentError(f"length={self.length}: must be even, or no string is balanced")
        for name in ("p", "q"):
            value = number(name, getattr(self, name), above=0.0)
            if value >= 1:
                raise ArgumentError(f"{name}={value:g}: must be a probability strictly between 0 and 1")
        if self.max_depth is not None:
            whole("max_depth", self.max_depth)

    @property
    def bos(self) -> int:
        return 2 * _BRACKETS.types

    @property
    def eos(self) -> int:
        return 2 * _BRACKETS.types + 1

    @property
    def longest(self) -> int:
        """Tokens of a complete row: brackets, start and end."""
        return self.length + 2

    @property
    def brackets(self) -> Brackets:
        return _BRACKETS

    @cached_property
    def vocab(self) -> Vocab:
        return Vocab((*_BRACKETS.tokens, "<bos>", "<eos>"))

    # -- drawing -----------------------------------------------------------------------------------------------------

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` rows; `latents` hold the `depth` after every position and the type on `top` of the stack (−1: empty)."""
        whole("n", n, least=0)
        uniform = torch.rand(2, self.length, n, generator=generator)
        x = torch.empty(self.longest, n, dtype=torch.long)
        depths, tops = torch.zeros(2, self.longest, n, dtype=torch.long)
        x[0], x[-1] = self.bos, self.eos
        tops[0] = tops[-1] = -1
        depth = torch.zeros(1, n, dtype=torch.long)
        types = torch.full((self.length // 2 + 1, n), -1)  # of the open brackets, from level 1 up
        drawn = (uniform[1] >= self.p).long()
        for i in range(self.length):
            left = self.length - i
            forced = (depth == 0) | (depth == left) | (depth == self.max_depth if self.max_depth else False)
            opens = torch.where(forced, depth == 0, uniform[0, i] < self.q)
            x[i + 1] = torch.where(opens, drawn[i], _BRACKETS.types + types.gather(0, depth))
            depth = depth + 2 * opens - 1
            types.scatter_(0, depth, torch.where(opens, drawn[i], types.gather(0, depth)))
            depths[i + 1], tops[i + 1] = depth, types.gather(0, depth)
        x = x.T.contiguous()
        latents = {"depth": depths.T.contiguous(), "top": tops.T.contiguous()}
        return Batch(x=x, mask=torch.ones_like(x, dtype=torch.bool), latents=latents, vocab=self.vocab)

    def prompts(
        self, n: int, generator: torch.Generator, *, lengths: tuple[int, int] = (25, 31), p: float = 0.8
    ) -> list[Int[Tensor, " position"]]:
        """Beginnings ⟨bos⟩ w_1 … w_N of `n` strings drawn with another `p`, N uniform from lengths[0] to lengths[1].

        Where p is small in training, strings full of `[` are what a model has hardly seen.
        """
        if not isinstance(lengths, tuple | list) or len(lengths) != 2:
            raise ArgumentError(f"lengths={lengths!r}: must be a pair (least, most)")
        least = whole("lengths[0]", lengths[0], least=0, most=self.length)
        most = whole("lengths[1]", lengths[1], least=least, most=self.length)
        rows = replace(self, p=p).sample(n, generator).x
        ends = torch.randint(least, most + 1, (n,), generator=generator) + 1
        return [row[:end] for row, end in zip(rows, ends.tolist(), strict=True)]

    def support(self) -> Expectation:
        """Every string with its probability: Catalan(D/2) · 2^(D/2) of them without a `max_depth`."""
        half = self.length // 2
        size = math.comb(self.length, half) // (half + 1) * _BRACKETS.types**half
        if size > _LARGEST_SUPPORT:
            raise ArgumentError(f"length={self.length}: has {size} strings; at most {_LARGEST_SUPPORT} are enumerated")
        rows = torch.zeros(1, 0, dtype=torch.long)
        for _ in range(self.longest):
            row, token = self.next_token_probs(rows).nonzero(as_tuple=True)
            rows = torch.cat([rows[row], token[:, None]], dim=1)
        batch = Batch(x=rows, mask=torch.ones_like(rows, dtype=torch.bool), vocab=self.vocab)
        return Expectation(batch, self.log_prob(batch).exp())

    # -- probabilities -----------------------------------------------------------------------------------------------

    def next_token_probs(
        self, prefix: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch vocab"]:
        """The law of the token after each row: ⟨bos⟩ of an empty one, ⟨eos⟩ once D brackets are there.

        Defined for all rows of brackets, also where an error makes them impossible: depth and top of the stack decide.
        """
        lengths = lengths_of(prefix, lengths)
        depth, top = (state.gather(1, lengths[:, None])[:, 0] for state in _states(prefix))
        return self._law(depth, top, lengths)

    def log_prob(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """Log-probability of each row, or of its beginning where it is only that (`Batch.mask` counts its tokens)."""
        x, real = rows_of(batch)
        depth, top = (state[:, :-1] for state in _states(x))
        read = torch.arange(x.shape[1], device=x.device).expand_as(x)
        law = self._law(depth, top, read)
        known = (x >= 0) & (x < len(self.vocab)) & (read < self.longest)
        chosen = law.gather(-1, x.where(known, 0)[..., None])[..., 0] * known
        return chosen.log().where(real, 0.0).sum(1)

    def closed_form(
        self, batch: Batch | Int[Tensor, "batch position"], *, printed: bool = False
    ) -> Float[Tensor, " batch"]:
        """Logarithm of the product in the docstring of the class; −∞ for what cannot begin a string.

        The `printed` product charges 1 − q for closes with d(w_{1:i}) ≤ D − i. That is all of them, forced ones too, so
        that the weights of all strings do not sum to one.
        """
        x, real = rows_of(batch)
        depth = _BRACKETS.trace(x).depth
        left = self.length - torch.arange(x.shape[1], device=x.device)
        free = depth <= left if printed else depth < left
        if self.max_depth is not None and not printed:
            free = free & (depth + 1 < self.max_depth)
        opens, closes = _BRACKETS.opens(x), _BRACKETS.closes(x)
        counts = x == 0, x == 1, opens & (depth > 1), closes & free
        factors = self.p, 1 - self.p, self.q, 1 - self.q
        weight = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for count, factor in zip(counts, factors, strict=True):
            weight += (count & real).sum(1).double() * math.log(factor)
        return weight.where(self.accepts(x, real.sum(1)), -math.inf)

    def _law(
        self, depth: Int[Tensor, ...], top: Int[Tensor, ...], read: Int[Tensor, ...]
    ) -> Float[Tensor, "... vocab"]:
        """Next-token law after `read` tokens that left `depth` open brackets, the last of type `top`."""
        left = self.length + 1 - read  # ⟨bos⟩ is one of the tokens read
        inside = (read > 0) & (left > 0)
        must_close = (depth >= left) | (depth >= self.max_depth if self.max_depth else False)
        opens = torch.full_like(depth, self.q, dtype=torch.float64)
        opens = opens.masked_fill(must_close, 0.0).masked_fill(depth == 0, 1.0) * inside
        closes = (1.0 - opens) * inside
        law = torch.zeros(*depth.shape, len(self.vocab), dtype=torch.float64, device=depth.device)
        law[..., 0], law[..., 1] = opens * self.p, opens * (1 - self.p)
        law[..., 2], law[..., 3] = closes * (top == 0), closes * (top == 1)
        law[..., self.bos], law[..., self.eos] = (read == 0).double(), (left <= 0).double()
        return law

    # -- recognising -------------------------------------------------------------------------------------------------

    def accepts(
        self, prefix: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Bool[Tensor, " batch"]:
        """Whether each row is the beginning of a string of this world."""
        return self.first_error(prefix, lengths).kind == DyckError.NONE

    def valid(
        self, tokens: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Bool[Tensor, " batch"]:
        """Whether each row is a complete string of this world: ⟨bos⟩, all D brackets, and ⟨eos⟩ or nothing more."""
        lengths = lengths_of(tokens, lengths)
        return (lengths > self.length) & self.accepts(tokens, lengths)

    def first_error(
        self, tokens: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> FirstError:
        """The first token of each row after which no completion is left; a row that merely stops early has none."""
        lengths = lengths_of(tokens, lengths)
        if not tokens.shape[1]:
            return FirstError(torch.full_like(lengths, -1), torch.zeros_like(lengths))
        kinds = self._kinds(tokens)
        kinds = kinds * (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None])
        position = (kinds > 0).to(torch.uint8).argmax(1)
        kind = kinds.gather(1, position[:, None])[:, 0]
        return FirstError(position.where(kind > 0, -1), kind)

    def _kinds(self, x: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """What is wrong with each token if nothing was before it."""
        trace = _BRACKETS.trace(x)
        position = torch.arange(x.shape[1], device=x.device).expand_as(x)
        opens, closes = _BRACKETS.opens(x), _BRACKETS.closes(x)
        bracket, last = opens | closes, self.length + 1
        kinds = torch.zeros_like(x)
        for kind, where in (  # what stands further down wins
            (DyckError.INCORRECT_CLOSING_BRACKET, trace.wrong),
            (DyckError.STACK_UNDERFLOW, closes & (trace.match < 0)),
            (DyckError.STACK_DEPTH_EXCEEDS_REMAINING_LENGTH, opens & (trace.depth > self.length - position)),
            (DyckError.MAX_STACK_DEPTH_EXCEEDED, opens & (trace.depth > (self.max_depth or self.length))),
            (DyckError.END_INCORRECT, torch.where(position < last, ~bracket, (x != self.eos) | (position > last))),
            (DyckError.START_INCORRECT, (x == self.bos) != (position == 0)),
        ):
            kinds = kinds.masked_fill(where, int(kind))
        return kinds.masked_fill((x == self.bos) & (position == 0), 0)


def _states(x: Int[Tensor, "batch position"]) -> tuple[Int[Tensor, "batch read"], Int[Tensor, "batch read"]]:
    """Depth and top of the stack after 0, 1, … tokens."""
    trace = _BRACKETS.trace(F.pad(x, (1, 0), value=-1))
    return trace.depth, trace.top
