"""Which words a refiner takes back before it goes on (Ghazvininejad et al. 2019; Li et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, probability, whole
from sandtable.inputs import EOS, RESERVED, Encoded, allowed
from sandtable.models import Seq2Seq
from sandtable.probes.classifier import Classifier, train_classifier
from sandtable.worlds import Batch


class Round(NamedTuple):
    """What a rejecter sees: the words written in pass `step` of `steps`, their log-probabilities, the states behind.

    `words` marks the positions that hold words: neither padding nor the last one, which is that of ⟨eos⟩.
    """

    tokens: Int[Tensor, "row position"]
    log_probs: Float[Tensor, "row position"]
    words: Bool[Tensor, "row position"]
    states: Float[Tensor, "row position width"]
    step: int
    steps: int

    @property
    def last(self) -> bool:
        """Whether what was written is the answer, since no pass comes after this one."""
        return self.step + 1 == self.steps

    @property
    def nothing(self) -> Bool[Tensor, "row position"]:
        return torch.zeros_like(self.words)


class Rejecter(Protocol):
    """`reject(round)` marks the words that are taken back.

    `steady` says that the answer does not hang on the number of the pass, but for whether it is the last: then
    X^(t+1) = X^(t) is a fixed point.
    """

    steady: bool

    def reject(self, round: Round) -> Bool[Tensor, "row position"]: ...


@dataclass(frozen=True)
class Stutter:
    """A word equal to its left neighbour is taken back; after the last pass only with `last`."""

    last: bool = False
    steady = True

    def reject(self, round: Round) -> Bool[Tensor, "row position"]:
        return stutters(round.tokens, round.words) if self.last or not round.last else round.nothing


def stutters(tokens: Int[Tensor, "row position"], words: Bool[Tensor, "row position"]) -> Bool[Tensor, "row position"]:
    """Positions whose word equals the one before it; padding and the first position never do."""
    out = torch.zeros_like(words)
    out[:, 1:] = words[:, 1:] & words[:, :-1] & (tokens[:, 1:] == tokens[:, :-1])
    return out


def _least(round: Round, count: Int[Tensor, " row"]) -> Bool[Tensor, "row position"]:
    """The `count` least probable words of every row; of equals, the first."""
    keys = round.log_probs.masked_fill(~round.words, torch.inf)
    rank = keys.sort(dim=1, stable=True).indices.argsort(1)
    return (rank < count[:, None]) & round.words


@dataclass(frozen=True)
class LinearSchedule:
    """After pass t = 0, 1, … of T the ⌊(T − t − 1)/T · n⌋ least probable of n words are taken back, one at least.

    Nothing is taken back after the last pass.
    """

    steady = False

    def reject(self, round: Round) -> Bool[Tensor, "row position"]:
        if round.last:
            return round.nothing
        count = round.words.sum(1) * (round.steps - round.step - 1) // round.steps
        return _least(round, count.clamp(min=1))


@dataclass(frozen=True)
class Bottom:
    """The `k` least probable words are taken back, or the share `percent` of them (rounded down); never after the last.

    One of the two is given.
    """

    k: int | None = None
    percent: float | None = None
    steady = False

    def __post_init__(self) -> None:
        if (self.k is None) == (self.percent is None):
            raise ArgumentError(f"k={self.k!r}, percent={self.percent!r}: give exactly one of them")
        if self.k is not None:
            whole("k", self.k, least=0)
        else:
            number("percent", self.percent, least=0.0, most=100.0)

    def reject(self, round: Round) -> Bool[Tensor, "row position"]:
        if round.last:
            return round.nothing
        n = round.words.sum(1)
        if self.k is not None:
            return _least(round, n.clamp(max=self.k))
        assert self.percent is not None
        return _least(round, (n.double() * self.percent / 100).long())


@dataclass(frozen=True)
class Learnt:
    """Words that a classifier of the decoder's last states holds for wrong with probability > `threshold`.

    Nothing is taken back after the last pass.
    """

    classifier: Classifier
    threshold: float = 0.5
    steady = True

    def __post_init__(self) -> None:
        probability("threshold", self.threshold)

    def reject(self, round: Round) -> Bool[Tensor, "row position"]:
        if round.last:
            return round.nothing
        right = self.classifier(round.states).softmax(-1)[..., 1]
        return (1 - right > self.threshold) & round.words


@torch.no_grad()
def learn_rejecter(
    model: Seq2Seq, batch: Batch, generator: torch.Generator, *, unmask: float = 0.15, threshold: float = 0.5
) -> Learnt:
    """A linear head on the decoder's last states, which stay as they are, trained to tell right words from wrong.

    The words are those written in one pass from targets of which the share `unmask` is shown, the rest random words.
    """
    if batch.given is None or batch.mask is None:
        raise ArgumentError("batch: needs sources (`given`) and a mask, as translation worlds sample")
    target, real = batch.x, batch.mask
    probability("unmask", unmask)
    shown = (torch.rand(target.shape, generator=generator) < unmask).to(target.device) | (target == EOS)
    noise = torch.randint(RESERVED, model.size, target.shape, generator=generator).to(target.device)
    memory, _ = model.encode(batch.given.x, batch.given.mask)
    inputs = Encoded(memory, batch.given.mask, torch.where(shown, target, noise), real)
    logits, found = model(inputs, want=("hook_normalized",))
    words = real & (target != EOS)
    right = (allowed(logits).argmax(-1) == target)[words]
    if bool(right.all()) or not bool(right.any()):
        raise ArgumentError(
            f"batch: of {len(right)} words this model writes {int(right.sum())} right; needs right ones and wrong ones"
        )
    fit = train_classifier(found["hook_normalized"][words], right.long(), generator)
    return Learnt(fit.classifier.to(target.device), threshold)


NO_REJECTERS: Sequence[Rejecter] = ()
