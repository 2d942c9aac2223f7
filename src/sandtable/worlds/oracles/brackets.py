"""Balanced brackets from a generator that slips: the oracle on which verifiers can be tried without training one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import instance, probability
from sandtable.worlds.base import Vocab
from sandtable.worlds.dyck import FixedLengthDyck
from sandtable.worlds.oracles.base import Oracle


@dataclass(frozen=True)
class SlippingDyck(Oracle):
    """Strings of a `world` whose closing brackets are of the wrong type with probability min(1, ε + ε′s).

    ε is `slip`, ε′ = `rise`, and s counts the open square brackets. A = strings of the world. A wrong closer takes the
    bracket away as a right one does: what comes after a slip is drawn as if there had been none.
    """

    world: FixedLengthDyck = field(default_factory=lambda: FixedLengthDyck(length=12))
    slip: float = 0.1
    rise: float = 0.0

    def __post_init__(self) -> None:
        instance("world", self.world, FixedLengthDyck, "a FixedLengthDyck")
        probability("slip", self.slip)
        probability("rise", self.rise)

    @property
    def length(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.world.longest

    @property
    def vocab(self) -> Vocab:
        return self.world.vocab

    @property
    def eos(self) -> int:
        return self.world.eos

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        self._check(prefix, self.length - 1)
        law = self.world.next_token_probs(prefix)
        slip = (self.slip + self.rise * self._open_squares(prefix).double()).clamp(max=1.0)[:, None]
        types = self.world.brackets.types
        closers = law[:, types : 2 * types]
        law[:, types : 2 * types] = (1 - slip) * closers + slip * closers.flip(1)
        return law

    def _open_squares(self, prefix: Int[Tensor, "batch position"]) -> Int[Tensor, " batch"]:
        """How many brackets of the first type are opened and not yet closed, whatever the type that closed them."""
        if not prefix.shape[1]:
            return prefix.new_zeros(len(prefix))
        match = self.world.brackets.trace(prefix).match
        closed = torch.zeros_like(prefix, dtype=torch.bool)
        closed.scatter_(1, match.clamp(min=0), True)
        first = match.eq(0).any(1)  # position 0 is marked by every −1, too
        closed[:, 0] = first
        return ((prefix == 0) & ~closed).sum(1)

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return self.world.accepts(prefix)
