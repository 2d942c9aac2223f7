"""A secret prefix that only exhaustive search finds (Botta et al. 2025, information-theoretic hardness)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, items, typed, whole
from sandtable.worlds.oracles.base import Oracle


@typed
@dataclass(frozen=True)
class HiddenPrefix(Oracle):
    """Fair bits, then a last bit that makes the parity odd — except after the `secret` prefix ŝ, where it is even.

    A = strings of even parity, so that ŝ∘parity(ŝ) is the only string in A that the oracle ever draws.
    """

    length: int
    secret: tuple[int, ...]

    def __post_init__(self) -> None:
        whole("length", self.length, least=2)
        object.__setattr__(self, "secret", tuple(items("secret", self.secret, "bits")))
        if len(self.secret) != self.length - 1 or not all(bit in (0, 1) for bit in self.secret):
            raise ArgumentError(f"secret={self.secret!r}: must be length − 1 = {self.length - 1} bits")

    @classmethod
    def draw(cls, length: int, generator: torch.Generator) -> HiddenPrefix:
        """An oracle with a uniformly random secret."""
        bits = torch.randint(2, (whole("length", length, least=2) - 1,), generator=generator)
        return cls(length, tuple(bits.tolist()))

    @property
    def answer(self) -> tuple[int, ...]:
        """ŝ∘parity(ŝ)."""
        return (*self.secret, sum(self.secret) % 2)

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        probs = super().next_token_probs(prefix)
        if prefix.shape[1] == self.length - 1:
            found = (prefix == torch.tensor(self.secret, device=prefix.device)).all(1)
            last = (prefix.sum(1) + ~found) % 2
            probs = torch.nn.functional.one_hot(last, 2).to(probs)
        return probs

    def accepts_supported(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        """The verifier that also knows the oracle's support: whether each row begins ŝ∘parity(ŝ)."""
        self._check(prefix, self.length)
        return (prefix == torch.tensor(self.answer, device=prefix.device)[: prefix.shape[1]]).all(1)

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return (prefix.sum(1) % 2 == 0) | (prefix.shape[1] < self.length)
