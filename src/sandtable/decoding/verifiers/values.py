"""Values of prefixes: tables, and values made worse or better in a known way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole
from sandtable.decoding.language_model import Hidden
from sandtable.decoding.verifiers.base import Verifier, View, granularity_of
from sandtable.worlds.bits import random_bits


@dataclass(frozen=True)
class ValueTable:
    """A number ≥ 0 for every prefix, written down: `table[tokens]`, or `default` for those that are missing.

    Keys are whole rows, prompt included; with `after_prompt` what follows the prompt.
    """

    table: Mapping[tuple[int, ...], float]
    default: float | None = None
    after_prompt: bool = False
    needs: Hidden | None = None
    is_value: bool = True

    def score(self, view: View) -> Float[Tensor, " row"]:
        keys = keys_of(view, after_prompt=self.after_prompt)
        values = [self.table.get(key, self.default) for key in keys]
        if None in values:
            raise ArgumentError(f"table has no value for prefix {keys[values.index(None)]}, and default is None")
        return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class ScaledNoise:
    """V̂ = V · (1 + ε)^U with U ~ Uniform[−1, 1], drawn once for every prefix: V / (1 + ε) ≤ V̂ ≤ (1 + ε) V.

    U is a hash of the prefix and the seed, so the same prefix has the same value whenever it is asked for.
    """

    base: Verifier
    eps: float
    seed: int = 0

    def __post_init__(self) -> None:
        number("eps", self.eps, least=0.0)
        whole("seed", self.seed, least=0)

    @property
    def needs(self) -> Hidden | None:
        return self.base.needs

    @property
    def is_value(self) -> bool:
        return True

    @property
    def granularity(self) -> str:
        return granularity_of(self.base)

    def score(self, view: View) -> Float[Tensor, " row"]:
        bits = random_bits(prefix_seeds(view, self.seed), 1)[:, 0]
        uniform = (bits >> 11).double() * 2.0**-52  # an arithmetic shift: in [−1, 1)
        return torch.as_tensor(self.base.score(view)).cpu().double() * (1 + self.eps) ** uniform


@dataclass(frozen=True)
class Floor:
    """max(V, `least`): no prefix is given up for good. At finished rows this also lifts outcomes that are worth zero;
    decoders that walk or weigh have `floor=` for inner prefixes only."""

    base: Verifier
    least: float

    def __post_init__(self) -> None:
        number("least", self.least, least=0.0)

    @property
    def needs(self) -> Hidden | None:
        return self.base.needs

    @property
    def is_value(self) -> bool:
        return self.base.is_value

    @property
    def granularity(self) -> str:
        return granularity_of(self.base)

    def score(self, view: View) -> Float[Tensor, " row"]:
        return torch.as_tensor(self.base.score(view)).double().clamp(min=self.least)


def keys_of(view: View, *, after_prompt: bool = False) -> list[tuple[int, ...]]:
    """The rows of a view as tuples of tokens."""
    starts = view.prompts.tolist() if after_prompt else [0] * len(view)
    rows = zip(view.tokens.tolist(), starts, view.lengths.tolist(), strict=True)
    return [tuple(row[start:length]) for row, start, length in rows]


def prefix_seeds(view: View, seed: int) -> Int[Tensor, " row"]:
    """64 bits for every row that depend on its tokens and on `seed`, and on nothing else."""
    seeds = torch.full_like(view.lengths, seed)
    for place in range(view.tokens.shape[1]):
        mixed = random_bits(seeds + 2 * view.tokens[:, place] + 1, 1)[:, 0]
        seeds = mixed.where(place < view.lengths, seeds)
    return seeds
