"""What a decoder of translations returns, and which tokens it may write."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.inputs import EOS, LENGTH, MASK, PAD
from sandtable.models import Seq2Seq

FORBIDDEN = (PAD, MASK, LENGTH)
"""What no target contains."""


@dataclass(frozen=True)
class Translated:
    """Targets with ⟨eos⟩ at their ends, then padding, and what they cost, row by row.

    `encoder_passes` and `decoder_passes` count how often each side of the network was run on a row; hypotheses of one
    row that are decoded together count once. `score` is the log-probability that ranked the hypotheses. `trace`, where
    it was asked for, holds X^(0), X^(1), … of the chosen hypothesis; a row that has stopped stays as it is.
    """

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    score: Float[Tensor, " row"]
    encoder_passes: Int[Tensor, " row"]
    decoder_passes: Int[Tensor, " row"]
    trace: tuple[Int[Tensor, "row position"], ...] = ()

    @property
    def mask(self) -> Bool[Tensor, "row position"]:
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]


def log_probs(logits: Float[Tensor, "... vocab"]) -> Float[Tensor, "... vocab"]:
    """log softmax over the tokens that a target may contain."""
    logits = logits.clone()
    logits[..., list(FORBIDDEN)] = -torch.inf
    return logits.log_softmax(-1)


def checked(
    model: Seq2Seq, source: Int[Tensor, "row source"], seen: Tensor | None, *, causal: bool
) -> Bool[Tensor, "row source"]:
    """The mask of the source, or an `ArgumentError` where source and model do not go together."""
    if not isinstance(model, Seq2Seq) or model.causal is not causal:
        raise ArgumentError(f"model of {type(model).__name__}: this decoder needs a Seq2Seq with causal={causal}")
    if source.ndim != 2 or source.is_floating_point() or not source.numel():
        raise ArgumentError(f"source of shape {tuple(source.shape)}, {source.dtype}: must be ids, row × position")
    if not 0 <= int(source.min()) <= int(source.max()) < model.size:
        raise ArgumentError(f"source from {int(source.min())} to {int(source.max())}: must be ids below {model.size}")
    if seen is None:
        return torch.ones_like(source, dtype=torch.bool)
    if seen.shape != source.shape:
        raise ArgumentError(f"seen of shape {tuple(seen.shape)}: must be that of the source, {tuple(source.shape)}")
    return seen


def ended(tokens: Int[Tensor, "row position"]) -> Int[Tensor, " row"]:
    """Tokens up to the first ⟨eos⟩, which counts; all of them where there is none."""
    stop = tokens == EOS
    first = stop.long().argmax(1) + 1
    return torch.where(stop.any(1), first, tokens.shape[1])
