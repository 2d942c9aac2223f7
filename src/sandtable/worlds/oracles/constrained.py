"""Uniform bits under a constraint: the smallest worlds in which ways to generate differ (Botta et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import whole
from sandtable.worlds.oracles.base import Oracle


@dataclass(frozen=True)
class _Uniform(Oracle):
    length: int

    def __post_init__(self) -> None:
        whole("length", self.length)


@dataclass(frozen=True)
class Zeros(_Uniform):
    """A = {0^D}: rejection of whole strings is exponentially dearer than rejection of tokens."""

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return (prefix == 0).all(1)


@dataclass(frozen=True)
class OneZero(_Uniform):
    """A = strings with at least one 0: rejection of tokens favours 1^(D−1)0, by less and less as D grows."""

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return (prefix == 0).any(1) | (prefix.shape[1] < self.length)


@dataclass(frozen=True)
class Trap(_Uniform):
    """A = strings that start with 0, and 1^D: rejection of tokens puts half its mass on 1^D, whatever D is."""

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return (prefix[:, :1] == 0).all(1) | (prefix == 1).all(1)
