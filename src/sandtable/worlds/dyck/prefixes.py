"""Prefixes of bounded-depth bracket words: the law D_{q,k,D,N} (Wen, Li, Liu & Risteski 2023, section 2.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.worlds.base import Batch, Expectation
from sandtable.worlds.dyck.bounded import LARGEST_SUPPORT, BoundedDyck
from sandtable.worlds.dyck.rows import rows_of


@dataclass(frozen=True)
class DyckPrefixes(BoundedDyck):
    """⟨bos⟩ w_1 … w_N, N = `length`: every string of N brackets that begins a word of depth at most D.

    P(w) = (1/k)^{#opened to depth 1} · (q/k)^{#opened deeper} · (1−q)^{#closed to a depth below D−1}, where the printed
    "∝" is an "=". Prefixes of a row follow the law of their own length, so only `sample` and `support` ask for N; no
    row ends, and ⟨eos⟩, which is in the vocabulary of all bracket worlds, never comes.
    """

    length: int = 28

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("length", self.length)

    @cached_property
    def opening(self) -> Float[Tensor, "read depth"]:
        opening = torch.full((1, self.depth + 1), self.q, dtype=torch.float64)
        opening[:, 0], opening[:, -1] = 1.0, 0.0
        return opening

    @property
    def most(self) -> int:
        """Brackets of a row."""
        return self.length

    @property
    def _positions(self) -> int:
        return self.length

    def support(self) -> Expectation:
        """Every row with its probability; `count_prefixes(length)` of them."""
        size = self.count_prefixes(self.length)
        if size > LARGEST_SUPPORT:
            raise ArgumentError(f"length={self.length}: has {size} prefixes; at most {LARGEST_SUPPORT} are enumerated")
        rows = torch.full((1, 1), self.bos)
        for _ in range(self.length):
            row, token = self.next_token_probs(rows).nonzero(as_tuple=True)
            rows = torch.cat([rows[row], token[:, None]], dim=1)
        batch = Batch(x=rows, mask=torch.ones_like(rows, dtype=torch.bool), vocab=self.vocab)
        return Expectation(batch, self.log_prob(batch).exp())

    def weight(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """The product in the docstring of the class as it is printed, counted bracket by bracket; 0 off the support."""
        self.require_own(batch)
        x, real = rows_of(batch)
        depth = self.brackets.trace(x).depth
        opens, closes = self.brackets.opens(x) & real, self.brackets.closes(x) & real
        counts = opens & (depth == 1), opens & (depth > 1), closes & (depth < self.depth - 1)
        factors = 1 / self.types, self.q / self.types, 1 - self.q
        weight = torch.ones(len(x), dtype=torch.float64, device=x.device)
        for count, factor in zip(counts, factors, strict=True):
            weight *= factor ** count.sum(1).double()
        return weight * self.accepts(x, real.sum(1))
