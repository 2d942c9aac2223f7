"""Toy translation: from a source of distinct symbols to a target that a latent choice leaves open.

Three ways to have several right answers: which symbols are translated at all (`DropTask`), how each is rendered
(`FertilityTask`), which dictionary is used throughout (`DialectTask`). Distilled, the choice is a fixed table of the
source, and one right answer is left. In every batch `x` is the target with ⟨eos⟩ at its end, `given` the source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, nearest, one_of, probability, whole, with_generator
from sandtable.inputs import EOS, MASK, PAD, RESERVED
from sandtable.worlds.base import Batch, Vocab

SPECIAL = ("⟨pad⟩", "⟨eos⟩", "⟨mask⟩", "⟨length⟩")
Ids = Int[Tensor, "batch position"]


def in_front(present: Bool[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
    """Positions in the order that brings those which are present to the front, for `gather`."""
    return (~present).to(torch.uint8).sort(dim=1, stable=True).indices


def packed(tokens: Ids, present: Bool[Tensor, "batch position"]) -> tuple[Ids, Bool[Tensor, "batch longer"]]:
    """The tokens that are present, in order, then ⟨eos⟩, then padding; and the mask of what is no padding."""
    n, size = tokens.shape
    lengths = present.sum(1, keepdim=True)
    place = torch.arange(size + 1, device=tokens.device).expand(n, -1)
    words = torch.cat([tokens.gather(1, in_front(present)), torch.full_like(lengths, PAD)], 1)
    return torch.where(place < lengths, words, torch.where(place == lengths, EOS, PAD)), place <= lengths


@dataclass(frozen=True)
class _Task:
    """What the tasks share: sources of `length` distinct symbols out of `symbols`, a table, the frame of a batch."""

    symbols: int = 24
    length: int = 8
    distilled: bool = False
    table_seed: int = 0

    def __post_init__(self) -> None:
        whole("symbols", self.symbols, least=2)
        whole("length", self.length, most=self.symbols)
        whole("table_seed", self.table_seed, least=0)
        if not isinstance(self.distilled, bool):
            raise ArgumentError(f"distilled={self.distilled!r}: must be True or False")

    @property
    def renderings(self) -> tuple[str, ...]:
        """The letters of the target's words; there is one word for each of them and each symbol."""
        raise NotImplementedError("a task says what its target is written in")

    @cached_property
    def vocab(self) -> Vocab:
        """Special tokens, then the symbols of the source, then the words of the target."""
        source = (f"s{i}" for i in range(self.symbols))
        target = (f"{letter}{i}" for letter in self.renderings for i in range(self.symbols))
        return Vocab((*SPECIAL, *source, *target), mask=MASK)

    @property
    def longest(self) -> int:
        """Tokens of the longest target, ⟨eos⟩ included."""
        return self.length + 1

    def words(self, symbol: Tensor, kind: Tensor | int = 0) -> Tensor:
        """The target's word of that kind (the letter's number) for a symbol counted from 0."""
        return RESERVED + self.symbols * (1 + kind) + symbol

    def _sources(self, n: int, generator: torch.Generator) -> Int[Tensor, "batch source"]:
        """Distinct symbols in random order, counted from 0."""
        return torch.rand(whole("n", n), self.symbols, generator=generator).argsort(1)[:, : self.length]

    def _batch(self, symbols: Tensor, x: Tensor, mask: Tensor, **latents: Tensor) -> Batch:
        real = torch.ones_like(symbols, dtype=torch.bool)
        given = Batch(symbols + RESERVED, mask=real, vocab=self.vocab)
        return Batch(x, mask=mask, latents={**latents, "length": mask.sum(1)}, given=given, vocab=self.vocab)

    def _read(self, source: Ids, target: Ids) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Source symbols; symbol and kind of every word of the target (−1: no word); whether it ends as it should."""
        if len(source) != len(target) or source.shape[1] != self.length:
            raise ArgumentError(
                f"source of shape {tuple(source.shape)}, target of shape {tuple(target.shape)}: "
                f"must have one row each, and {self.length} symbols in a source"
            )
        ended = (target == EOS).cumsum(1) > 0
        code = target - RESERVED - self.symbols
        word = ~ended & (code >= 0) & (target < len(self.vocab))
        kind = torch.where(word, code.div(self.symbols, rounding_mode="floor"), -1)
        tail = ended & (target != EOS) & (target != PAD) | ended & (target == EOS) & ((target == EOS).cumsum(1) > 1)
        ends = ended.any(1) & (word | ended).all(1) & ~tail.any(1)
        return source - RESERVED, torch.where(word, code % self.symbols, -1), kind, ends

    def log_prob_given(self, source: Ids, target: Ids) -> Float[Tensor, " batch"]:
        """log P(target | source), −∞ where it is not a translation; a target is its words, ⟨eos⟩, padding."""
        raise NotImplementedError("a task knows its law")

    def log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log P(target | source) of a batch."""
        if batch.given is None:
            raise ArgumentError("given=None: a translation needs its source")
        return self.log_prob_given(batch.given.x, batch.x)

    def valid(self, source: Ids, target: Ids) -> Bool[Tensor, " batch"]:
        """Which targets are translations of their source."""
        return self.log_prob_given(source, target) > -math.inf

    def _logs(self, valid: Tensor, value: Tensor | float) -> Tensor:
        value = torch.as_tensor(value, dtype=torch.float64, device=valid.device)
        return torch.where(valid, value, -math.inf)


@dataclass(frozen=True)
class DropTask(_Task):
    """Every symbol is translated with probability `keep`, and left out otherwise; the order stays.

    P(target | source) = keep^k (1 − keep)^(L − k) for the subsequences of k words. No right target repeats a word, so
    every adjacent repetition is a stutter. Distilled, a fixed table says which symbols are left out.
    """

    keep: float = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        probability("keep", self.keep)

    @property
    def renderings(self) -> tuple[str, ...]:
        return ("a",)

    @cached_property
    def table(self) -> Bool[Tensor, " symbol"]:
        return torch.rand(self.symbols, generator=torch.Generator().manual_seed(self.table_seed)) < self.keep

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        symbols = self._sources(n, generator)
        chance = torch.rand(symbols.shape, generator=generator)
        kept = self.table[symbols] if self.distilled else chance < self.keep
        return self._batch(symbols, *packed(self.words(symbols), kept), kept=kept)

    def log_prob_given(self, source: Ids, target: Ids) -> Float[Tensor, " batch"]:
        symbols, word, _, ends = self._read(source, target)
        same = word[:, :, None] == symbols[:, None, :]
        place = torch.where(word >= 0, same.long().argmax(2), self.length)
        rising = (place[:, 1:] > place[:, :-1]) | (word[:, 1:] < 0)
        valid = ends & (same.any(2) | (word < 0)).all(1) & rising.all(1)
        kept = same.any(1)
        if self.distilled:
            return self._logs(valid & (kept == self.table.to(source.device)[symbols]).all(1), 0.0)
        k = kept.sum(1).double()
        keep = torch.tensor(self.keep, dtype=torch.float64)
        return self._logs(valid, torch.xlogy(k, keep) + torch.xlogy(self.length - k, 1 - keep))


@dataclass(frozen=True)
class FertilityTask(_Task):
    """Every symbol s becomes one word a_s or two words b_s c_s, with probability 1/2 each: P(target | source) = 2^(−L).

    Distilled, a fixed table says which.
    """

    symbols: int = 12
    length: int = 6

    @property
    def renderings(self) -> tuple[str, ...]:
        return ("a", "b", "c")

    @property
    def longest(self) -> int:
        return 2 * self.length + 1

    @cached_property
    def table(self) -> Bool[Tensor, " symbol"]:
        """Which symbols become two words."""
        return torch.rand(self.symbols, generator=torch.Generator().manual_seed(self.table_seed)) < 0.5

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        symbols = self._sources(n, generator)
        chance = torch.rand(symbols.shape, generator=generator)
        two = self.table[symbols] if self.distilled else chance < 0.5
        words = torch.stack([self.words(symbols, two.long()), self.words(symbols, 2)], 2).flatten(1)
        present = torch.stack([torch.ones_like(two), two], 2).flatten(1)
        return self._batch(symbols, *packed(words, present), two=two)

    def log_prob_given(self, source: Ids, target: Ids) -> Float[Tensor, " batch"]:
        symbols, word, kind, ends = self._read(source, target)
        first = (kind == 0) | (kind == 1)
        count = first.cumsum(1)
        expected = symbols.gather(1, (count - 1).clamp(0, self.length - 1))
        follows = torch.zeros_like(first)
        follows[:, 1:] = (kind[:, 1:] == 2) & (kind[:, :-1] == 1) & (word[:, 1:] == word[:, :-1])
        followed = torch.zeros_like(first)
        followed[:, :-1] = follows[:, 1:]
        right = ((word == expected) | ~first) & (follows == (kind == 2)) & (followed == (kind == 1))
        valid = ends & (count[:, -1] == self.length) & right.all(1)
        if self.distilled:
            two = self.table.to(source.device)[word.clamp(min=0)]
            return self._logs(valid & ((two == (kind == 1)) | ~first).all(1), 0.0)
        return self._logs(valid, -self.length * math.log(2))


@dataclass(frozen=True)
class DialectTask(_Task):
    """The whole source is translated word by word into one of M `dialects`, all alike: P(target | source) = 1/M.

    Distilled, the first symbol of the source decides by a fixed table. A decoder that draws all N words at once has one
    dialect throughout with probability M^(1 − N).
    """

    symbols: int = 12
    length: int = 6
    dialects: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("dialects", self.dialects)

    @property
    def renderings(self) -> tuple[str, ...]:
        return tuple(f"d{z}w" for z in range(self.dialects))

    @cached_property
    def table(self) -> Int[Tensor, " symbol"]:
        """The dialect that a first symbol asks for."""
        generator = torch.Generator().manual_seed(self.table_seed)
        return torch.randint(self.dialects, (self.symbols,), generator=generator)

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        symbols = self._sources(n, generator)
        chance = torch.randint(self.dialects, (n,), generator=generator)
        dialect = self.table[symbols[:, 0]] if self.distilled else chance
        words = self.words(symbols, dialect[:, None])
        return self._batch(symbols, *packed(words, torch.ones_like(words, dtype=torch.bool)), dialect=dialect)

    def consistent(self, target: Ids) -> Bool[Tensor, " batch"]:
        """Which targets are written in one dialect throughout, whether they are right or not."""
        kind = (target - RESERVED - self.symbols).div(self.symbols, rounding_mode="floor")
        word = target >= RESERVED + self.symbols
        most = torch.where(word, kind, -1).amax(1)
        return (torch.where(word, kind, self.dialects).amin(1) == most) & word.any(1)

    def log_prob_given(self, source: Ids, target: Ids) -> Float[Tensor, " batch"]:
        symbols, word, kind, ends = self._read(source, target)
        count = (word >= 0).sum(1)
        valid = ends & (count == self.length) & self.consistent(target)
        size = min(self.length, word.shape[1])
        valid = valid & (word[:, :size] == symbols[:, :size]).all(1)
        if self.distilled:
            return self._logs(valid & (kind[:, 0] == self.table.to(source.device)[symbols[:, 0]]), 0.0)
        return self._logs(valid, -math.log(self.dialects))


TRANSLATION_TASKS: dict[str, type[DropTask] | type[FertilityTask] | type[DialectTask]] = {
    "drop": DropTask,
    "fertility": FertilityTask,
    "dialect": DialectTask,
}


def translation_task(name: str, **settings: Any) -> DropTask | FertilityTask | DialectTask:
    """The task of that name: "drop", "fertility" or "dialect"."""
    make = TRANSLATION_TASKS[one_of("task", name, TRANSLATION_TASKS)]
    known = [field.name for field in fields(make)]
    for setting in settings:
        if setting not in known:
            raise ArgumentError(f"{setting}: not a setting of the task {name!r}{nearest(setting, known)}")
    return make(**settings)
