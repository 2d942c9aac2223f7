"""Uniform numbers row by row: what a row is given depends on its own seed and its own past, never on its neighbours."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.worlds.bits import bulk_generator, random_bits, row_seeds

_STEP = 0x9E3779B97F4A7C15 - 2**64
_UNIT = 2.0**-53
_AHEAD = 16


class Draws:
    """One splitmix64 stream per row (`worlds.bits`): a batch split into pieces draws the same numbers as a whole."""

    def __init__(self, seeds: Int[Tensor, " row"]) -> None:
        self.seeds = seeds
        self.used = torch.zeros_like(seeds)
        # The coming numbers of every row, from the `_first`-th of its stream on, and how often they were asked for.
        self._coming, self._first, self._asked = seeds.new_zeros(len(seeds), 0, dtype=torch.float64), self.used, _AHEAD

    @classmethod
    def of(cls, generator: torch.Generator | int, rows: int) -> Draws:
        """Streams for `rows` rows from a generator, or from a seed."""
        seeds = row_seeds(rows, bulk_generator(as_generator(generator)))
        return cls(torch.from_numpy(np.ascontiguousarray(seeds)))

    def __len__(self) -> int:
        return len(self.seeds)

    def uniform(self, rows: Bool[Tensor, " row"] | None = None) -> Float[Tensor, " row"]:
        """A float64 in [0, 1) for every row; only the streams of `rows` move on."""
        if self._asked == _AHEAD:
            bits = random_bits(self.seeds + self.used * _STEP, _AHEAD)
            self._coming = ((bits >> 11) & (2**53 - 1)).double() * _UNIT
            self._first, self._asked = self.used.clone(), 0
        self._asked += 1
        found = self._coming.gather(1, (self.used - self._first)[:, None])[:, 0]
        self.used += 1 if rows is None else rows
        return found

    def take(self, index: Int[Tensor, " row"] | slice) -> Draws:
        """The streams of some rows, each where it stands; a row taken twice would draw the same numbers twice."""
        taken = Draws(self.seeds[index])
        taken.used = self.used[index].clone()
        return taken

    def split(self, copies: int) -> Draws:
        """`copies` fresh streams for every row, in row-major order, hashed from the row's own stream."""
        seeds = random_bits(self.seeds + self.used * _STEP, copies)
        self.used += copies
        self._asked = _AHEAD  # what lay ahead is used up
        return Draws(seeds.reshape(-1))


def as_generator(generator: torch.Generator | int) -> torch.Generator:
    """A CPU generator as it is, or the one of a seed."""
    if isinstance(generator, torch.Generator):
        if generator.device.type != "cpu":
            raise ArgumentError(f"generator on {generator.device}: must be a CPU generator or a seed")
        return generator
    return torch.Generator().manual_seed(whole("generator", generator, least=0))
