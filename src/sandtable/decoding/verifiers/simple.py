"""Verifiers that need no training: world acceptors, and noisy or random ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, probability, whole
from sandtable.decoding.language_model import Hidden
from sandtable.decoding.verifiers.base import Verifier, View, granularity_of
from sandtable.worlds import Recogniser
from sandtable.worlds.bits import random_bits


@dataclass(frozen=True)
class Accepts:
    """The perfect verifier of a world: 1 if a prefix can still be completed, else 0."""

    world: Recogniser
    needs: Hidden | None = None
    is_value: bool = False

    def score(self, view: View) -> Float[Tensor, " row"]:
        own = getattr(self.world, "vocab", None)
        if own is not None and len(own) != view.model.vocab_size:
            raise ArgumentError(
                f"verifier {type(self.world).__name__} has {len(own)} tokens, and the model {view.model.vocab_size}: "
                "must be the same"
            )
        scores = torch.zeros(len(view), dtype=torch.float64)
        for index, tokens in view.by_length():
            scores[index] = self.world.accepts(tokens).double()
        return scores


class _Dice:
    """Uniform numbers, a stream for every row of a call: what a row is given does not depend on those beside it."""

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, least=0)
        self.used = torch.zeros(0, dtype=torch.long)

    def throw(self, view: View) -> Float[Tensor, " row"]:
        """The next number of the stream of every row of the view, which may hold a row more than once."""
        rows = view.rows
        self.used = torch.nn.functional.pad(self.used, (0, max(0, int(rows.max()) + 1 - len(self.used))))
        order = rows.sort(stable=True).indices
        _, counts = rows[order].unique_consecutive(return_counts=True)
        before = (counts.cumsum(0) - counts).repeat_interleave(counts)
        again = torch.empty_like(rows).index_copy_(0, order, torch.arange(len(rows)) - before)
        seeds = random_bits(torch.full_like(rows, self.seed) + 2 * rows + 1, 1)[:, 0]
        bits = random_bits(seeds + 2 * (self.used[rows] + again) + 1, 1)[:, 0]
        self.used += torch.bincount(rows, minlength=len(self.used))
        return ((bits >> 11) & (2**53 - 1)).double() * 2.0**-53


@dataclass
class Random:
    """A number from Uniform[0, 1], drawn anew at every call: what a verifier that knows nothing says.

    It depends on `seed`, on the row and on how often that row was judged before, not on the rows beside it.
    """

    seed: int = 0
    needs: Hidden | None = None
    is_value: bool = False

    def __post_init__(self) -> None:
        self._dice = _Dice(self.seed)

    def score(self, view: View) -> Float[Tensor, " row"]:
        return self._dice.throw(view)


@dataclass
class Noisy:
    """A verifier that errs at every call: it passes what `base` rejects with probability `false_accept`, and so on.

    Whether it errs is drawn as `Random` draws.
    """

    base: Verifier
    false_accept: float = 0.0
    false_reject: float = 0.0
    threshold: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        probability("false_accept", self.false_accept)
        probability("false_reject", self.false_reject)
        self._dice = _Dice(self.seed)

    @property
    def needs(self) -> Hidden | None:
        return self.base.needs

    @property
    def is_value(self) -> bool:
        return False

    @property
    def granularity(self) -> str:
        return granularity_of(self.base)

    def score(self, view: View) -> Float[Tensor, " row"]:
        truth = torch.as_tensor(self.base.score(view)).cpu() >= self.threshold
        flip = self._dice.throw(view) < torch.where(truth, self.false_reject, self.false_accept)
        return (truth ^ flip).double()
