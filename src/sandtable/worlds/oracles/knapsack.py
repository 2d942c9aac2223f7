"""Subset sums as a constraint on fair bits (Botta et al. 2025, computational hardness)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed, whole, wholes
from sandtable.worlds.oracles.base import Oracle

_MOST_SUMS = 4_000_000
_LARGEST = 2**62


class Sums(NamedTuple):
    """The sums of subsets of some weights that do not exceed the target, rising, and in how many ways each arises."""

    sums: Int[np.ndarray, " sums"]
    ways: Int[np.ndarray, " sums"]


@typed
@dataclass(frozen=True)
class Knapsack(Oracle):
    """A = {s ∈ {0,1}^D : Σ s_i·weights_i = target} under fair bits, D = the number of weights.

    The verifier asks whether target − Σ_{j≤|s|} s_j·weights_j is a sum of the weights that are left: by a table of all
    such sums (pseudo-polynomial), or greedily where the weights are superincreasing, weights_i ≥ Σ_{j<i} weights_j.
    """

    weights: tuple[int, ...]
    target: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", wholes("weights", self.weights, least=0))
        if not 1 <= len(self.weights) <= 62:
            raise ArgumentError(f"weights={self.weights!r}: must be 1 to 62 whole numbers")
        if sum(self.weights) >= _LARGEST:
            raise ArgumentError(f"weights with sum {sum(self.weights)}: must sum to less than 2^62")
        whole("target", self.target, least=0, most=_LARGEST)

    # -- instances ---------------------------------------------------------------------------------------------------

    @classmethod
    def arbitrary(cls, length: int, generator: torch.Generator, *, most: int = 60) -> Knapsack:
        """Weights uniform from 1 to `most`, and the sum of a random subset as target."""
        whole("most", most)
        return cls._with_solution(
            torch.randint(1, most + 1, (whole("length", length),), generator=generator), generator
        )

    @classmethod
    def superincreasing(cls, length: int, generator: torch.Generator) -> Knapsack:
        """Each weight exceeds the sum of those before it by 0, 1 or 2: solved greedily in linear time."""
        weights: list[int] = []
        for extra in torch.randint(3, (whole("length", length, most=58),), generator=generator).tolist():
            weights.append(max(1, sum(weights) + extra))
        return cls._with_solution(torch.tensor(weights), generator)

    @classmethod
    def low_density(cls, length: int, generator: torch.Generator, *, density: float = 0.5) -> Knapsack:
        """Weights uniform up to 2^(D/density): density = D / log₂ max weight, where lattice methods work."""
        bits = whole("length", length) / number("density", density, above=0.0)
        if bits + np.log2(length) >= 62:
            raise ArgumentError(f"density={density:g}: {length} weights of {bits:.0f} bits do not fit 62-bit sums")
        return cls._with_solution(torch.randint(1, int(2**bits) + 1, (length,), generator=generator), generator)

    @classmethod
    def _with_solution(cls, weights: Int[Tensor, " position"], generator: torch.Generator) -> Knapsack:
        chosen = torch.randint(2, weights.shape, generator=generator)
        return cls(tuple(weights.tolist()), int((weights * chosen).sum()))

    # -- the constraint ----------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:  # type: ignore[override]
        return len(self.weights)

    @cached_property
    def is_superincreasing(self) -> bool:
        """weights_i ≥ Σ_{j<i} weights_j for all i."""
        return all(weight >= sum(self.weights[:i]) for i, weight in enumerate(self.weights))

    @property
    def density(self) -> float:
        """D / log₂ max weight."""
        return self.length / float(np.log2(max(*self.weights, 2)))

    @cached_property
    def tails(self) -> tuple[Sums, ...]:
        """For i = 0 … D, the sums of weights_{i+1}, …, weights_D: sizes grow with the target, at most doubling."""
        tails = [Sums(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))]
        for weight in reversed(self.weights):
            sums, ways = tails[-1]
            both = np.concatenate([sums, sums + weight])
            fits = both <= self.target
            found, place = np.unique(both[fits], return_inverse=True)
            if len(found) > _MOST_SUMS:
                raise ArgumentError(f"target={self.target}: more than {_MOST_SUMS} sums; no table of them is kept")
            count = np.zeros(len(found), dtype=np.int64)
            np.add.at(count, place, np.concatenate([ways, ways])[fits])
            tails.append(Sums(found, count))
        return tuple(reversed(tails))

    @property
    def solutions(self) -> int:
        """|A|."""
        return int(self.completions(torch.zeros(1, 0, dtype=torch.long))[0])

    def completions(self, prefix: Int[Tensor, "batch position"]) -> Int[Tensor, " batch"]:
        """How many completions of each row lie in A; over 2^(tokens left) this is the true value function."""
        self._check(prefix, self.length)
        tail, left = self.tails[prefix.shape[1]], self._left(prefix)
        sums, ways = (torch.from_numpy(array).to(prefix.device) for array in tail)
        place = torch.searchsorted(sums, left).clamp(max=len(sums) - 1)
        return ways[place].where(sums[place] == left, 0)

    def greedy(self) -> tuple[int, ...] | None:
        """The solution found from the largest weight down, each taken if it fits; None if there is none."""
        if not self.is_superincreasing:
            raise ArgumentError(f"weights={self.weights!r}: greedy choice needs each weight ≥ the sum of those before")
        left, chosen = self.target, [0] * self.length
        for i in reversed(range(self.length)):
            chosen[i] = int(self.weights[i] <= left)
            left -= chosen[i] * self.weights[i]
        return tuple(chosen) if left == 0 else None

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        if not self.is_superincreasing:
            return self.completions(prefix) > 0
        left = self._left(prefix)  # what is left of a superincreasing sequence is one too
        for weight in reversed(self.weights[prefix.shape[1] :]):
            left = left - weight * (left >= weight)
        return left == 0

    def _left(self, prefix: Int[Tensor, "batch position"]) -> Int[Tensor, " batch"]:
        weights = torch.tensor(self.weights[: prefix.shape[1]], dtype=torch.long, device=prefix.device)
        return self.target - (prefix.long() * weights).sum(1)
