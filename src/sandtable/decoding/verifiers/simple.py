"""Verifiers that need no training: world acceptors, and noisy or random ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import probability
from sandtable.decoding.language_model import Hidden
from sandtable.decoding.verifiers.base import Verifier, View
from sandtable.worlds import Recogniser


@dataclass(frozen=True)
class Accepts:
    """The perfect verifier of a world: 1 if a prefix can still be completed, else 0."""

    world: Recogniser
    needs: Hidden | None = None
    is_value: bool = False

    def score(self, view: View) -> Float[Tensor, " row"]:
        scores = torch.zeros(len(view), dtype=torch.float64)
        for index, tokens in view.by_length():
            scores[index.cpu()] = self.world.accepts(tokens.cpu()).double()
        return scores.to(view.tokens.device)


@dataclass
class Random:
    """A number from Uniform[0, 1], drawn anew at every call: what a verifier that knows nothing says."""

    seed: int = 0
    needs: Hidden | None = None
    is_value: bool = False
    _generator: torch.Generator | None = field(default=None, repr=False)

    def score(self, view: View) -> Float[Tensor, " row"]:
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(len(view), generator=self._generator, dtype=torch.float64).to(view.tokens.device)


@dataclass
class Noisy:
    """A verifier that errs at every call: it passes what `base` rejects with probability `false_accept`, and so on."""

    base: Verifier
    false_accept: float = 0.0
    false_reject: float = 0.0
    threshold: float = 0.5
    seed: int = 0
    _generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        probability("false_accept", self.false_accept)
        probability("false_reject", self.false_reject)

    @property
    def needs(self) -> Hidden | None:
        return self.base.needs

    @property
    def is_value(self) -> bool:
        return False

    def score(self, view: View) -> Float[Tensor, " row"]:
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self.seed)
        truth = torch.as_tensor(self.base.score(view)) >= self.threshold
        uniform = torch.rand(len(view), generator=self._generator, dtype=torch.float64).to(truth.device)
        flip = uniform < torch.where(truth, self.false_reject, self.false_accept)
        return (truth ^ flip).double()
