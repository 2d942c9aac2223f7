"""An oracle that slips now and then: the plainest generator on which backtracking can be computed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole
from sandtable.worlds.base import Vocab
from sandtable.worlds.oracles.base import Oracle


@dataclass(frozen=True)
class Slips(Oracle):
    """Every token is wrong with probability `slip` < 1/2, independently; A = strings without a wrong token.

    The argmax is always right, and the verifier is perfect: no wrong token so far.
    """

    length: int
    slip: float
    words: ClassVar[Vocab] = Vocab(("right", "wrong"))

    def __post_init__(self) -> None:
        whole("length", self.length)
        if number("slip", self.slip, least=0.0) >= 0.5:
            raise ArgumentError(f"slip={self.slip:g}: must be at least 0 and below 1/2, or the argmax is wrong")

    @property
    def vocab(self) -> Vocab:
        return self.words

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        self._check(prefix, self.length - 1)
        law = torch.tensor([1.0 - self.slip, self.slip], dtype=torch.float64, device=prefix.device)
        return law.repeat(len(prefix), 1)

    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        return (prefix == 0).all(1)
