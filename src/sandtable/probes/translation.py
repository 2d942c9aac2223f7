"""Stutter of translations, what attention says of it, and how refinement goes (Li et al. 2024, Tables 4.4 and 4.5).

Pair i of a row is its positions i and i + 1. Only pairs of words count: neither ⟨eos⟩ nor padding is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.inputs import EOS, PAD, RESERVED, Pair
from sandtable.models import Seq2Seq

Ids = Int[Tensor, "row position"]
Measures = dict[str, Float[Tensor, "row pair"]]
SELF = ("min", "avg", "max", "top-1", "top-2")
"""Columns of Table 4.4."""
CROSS = (*(f"{distance} {over}" for distance in ("TV", "cosine") for over in ("min", "avg", "max")), "top-1", "top-2")
"""Columns of Table 4.5."""


class Neighbours(NamedTuple):
    """Which pairs are two words, and which of these are a stutter."""

    words: Bool[Tensor, "row pair"]
    stutter: Bool[Tensor, "row pair"]

    @property
    def rate(self) -> float:
        """Stutters in so many pairs of words; 0 where there are no pairs."""
        return float(self.stutter.sum() / self.words.sum().clamp(min=1))

    @property
    def incidence(self) -> float:
        """The share of rows that stutter."""
        return float(self.stutter.any(1).double().mean())


def neighbours(tokens: Ids, reference: Ids | None = None) -> Neighbours:
    """Pairs of equal words, but for those that a reference excuses: the first k of a word that it repeats k times."""
    words, again = _repeats(tokens)
    if reference is None:
        return Neighbours(words, again)
    if len(reference) != len(tokens):
        raise ArgumentError(f"{len(reference)} references: must be as many as outputs ({len(tokens)})")
    word = tokens[:, 1:]
    same = (word[:, :, None] == word[:, None, :]) & again[:, None, :]
    number = same.tril().sum(2)
    theirs = (word[:, :, None] == reference[:, None, 1:]) & _repeats(reference)[1][:, None, :]
    return Neighbours(words, again & (number > theirs.sum(2)))


def _repeats(tokens: Ids) -> tuple[Bool[Tensor, "row pair"], Bool[Tensor, "row pair"]]:
    word = (tokens >= RESERVED) & ((tokens == EOS).cumsum(1) == 0)
    words = word[:, 1:] & word[:, :-1]
    return words, words & (tokens[:, 1:] == tokens[:, :-1])


# -- attention -------------------------------------------------------------------------------------------------------


@typed
@torch.no_grad()
def last_layer(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    target: Ids,
    *,
    seen: Bool[Tensor, "row source"] | None = None,
    batch_size: int = 512,
) -> tuple[Float[Tensor, "row heads position position"], Float[Tensor, "row heads position source"]]:
    """Self- and cross-attention of the decoder's last layer as it reads `target`.

    For a refiner's answer X^(T) that is X^(T − 1): attention belongs to the pass that wrote the answer.
    """
    want = tuple(f"decoder.{len(model.decoder) - 1}.{which}.hook_pattern" for which in ("attn", "cross"))
    own, cross = [], []
    for first in range(0, len(source), whole("batch_size", batch_size)):
        rows = slice(first, first + batch_size)
        pair = Pair(source[rows], None if seen is None else seen[rows], target[rows], target[rows] != PAD)
        found = model(pair, want=want)[1]
        own.append(found[want[0]])
        cross.append(found[want[1]])
    return torch.cat(own), torch.cat(cross)


def self_dependence(pattern: Float[Tensor, "row heads position position"]) -> Measures:
    """What the words of a pair pay to one another: min, avg, max over heads; how often one is in the other's top k.

    The average of both directions; top k is asked of every head.
    """
    there, back = pattern.diagonal(1, 2, 3), pattern.diagonal(-1, 2, 3)
    both = torch.stack([there, back])
    place = torch.arange(pattern.shape[2] - 1, device=pattern.device)[:, None]
    found = _over_heads(both, 2)
    for k in (1, 2):
        most = pattern.topk(min(k, pattern.shape[3]), dim=3).indices
        hits = torch.stack([(most[:, :, :-1] == place + 1).any(3), (most[:, :, 1:] == place).any(3)])
        found.append(hits.to(pattern.dtype).mean(2))
    return {name: value.mean(0) for name, value in zip(SELF, found, strict=True)}


def cross_dependence(pattern: Float[Tensor, "row heads position source"]) -> Measures:
    """How far apart the words of a pair look in the source: total variation and 1 − cosine, min, avg, max over heads.

    And how often their k most attended source positions meet, in every head.
    """
    one, other = pattern[:, :, :-1], pattern[:, :, 1:]
    found = _over_heads((one - other).abs().sum(3) / 2, 1)
    found += _over_heads(1 - F.cosine_similarity(one, other, dim=3), 1)
    for k in (1, 2):
        most = pattern.topk(min(k, pattern.shape[3]), dim=3).indices
        meet = (most[:, :, :-1, :, None] == most[:, :, 1:, None, :]).flatten(3).any(3)
        found.append(meet.to(pattern.dtype).mean(1))
    return dict(zip(CROSS, found, strict=True))


def _over_heads(values: Tensor, dim: int) -> list[Tensor]:
    return [values.amin(dim), values.mean(dim), values.amax(dim)]


# -- refinement ------------------------------------------------------------------------------------------------------


def edits(trace: Sequence[Ids]) -> Int[Tensor, "row step"]:
    """How many positions every pass changed, of X^(0), X^(1), …"""
    if len(trace) < 2:
        raise ArgumentError(f"trace of {len(trace)} states: must hold two at least; ask for it with trace=True")
    states = torch.stack(list(trace), dim=1)
    return (states[:, 1:] != states[:, :-1]).sum(2)


def settled(trace: Sequence[Ids]) -> Int[Tensor, " row"]:
    """The pass after which nothing changed any more: the least t with X^(t) = X^(t+1) = … = X^(T)."""
    changed = edits(trace) > 0
    steps = torch.arange(1, changed.shape[1] + 1, device=changed.device)
    return (changed * steps).amax(1)
