"""Do words attend more to words of their own topic than to words of other topics?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.probes.text_topics.contrast import LEVEL, Contrast, Draws, check_ids, document_draws, interval
from sandtable.probes.topic_words import TopicWords


class Attended(NamedTuple):
    """A batch of documents and the attention a model pays in them."""

    pattern: Float[Tensor, "layer batch head query key"]
    ids: Int[Tensor, "batch position"]
    mask: Bool[Tensor, "batch position"]
    causal: bool = False


@dataclass(frozen=True)
class AttentionTopics:
    """Attention between positions of different kept words, summed per document, layer and head.

    `histograms` counts, for every document, same-topic (0) and different-topic (1) pairs by their attention averaged
    over layers and heads, in bins that hold about equally many pairs.
    """

    same_sums: Float[Tensor, "documents layers heads"]
    different_sums: Float[Tensor, "documents layers heads"]
    same_counts: Int[Tensor, " documents"]
    different_counts: Int[Tensor, " documents"]
    histograms: Int[Tensor, "documents 2 bins"]

    @property
    def same(self) -> Float[Tensor, "layers heads"]:
        """Mean attention per layer and head between words of one topic."""
        return self.same_sums.sum(0) / self.same_counts.sum()

    @property
    def different(self) -> Float[Tensor, "layers heads"]:
        """The same between words of different topics."""
        return self.different_sums.sum(0) / self.different_counts.sum()

    @property
    def difference(self) -> Float[Tensor, "layers heads"]:
        return self.same - self.different

    @property
    def ratio(self) -> Float[Tensor, "layers heads"]:
        return self.same / self.different

    def difference_interval(
        self, *, generator: torch.Generator, resamples: int = 1000, level: float = LEVEL
    ) -> tuple[Float[Tensor, "layers heads"], Float[Tensor, "layers heads"]]:
        """Both ends of the interval of every head's difference; bootstrap over documents."""
        parts = [self.same_sums.flatten(1), self.different_sums.flatten(1)]
        parts += [self.same_counts[:, None], self.different_counts[:, None]]
        sums = document_draws(torch.cat(parts, 1), resamples, generator)
        same, different = sums[:, :-2].chunk(2, 1)
        draws = same / sums[:, -2:-1] - different / sums[:, -1:]
        low, high = interval(draws, level)
        return low.view_as(self.same), high.view_as(self.same)

    def contrast(self, *, generator: torch.Generator, resamples: int = 1000) -> Contrast:
        """All layers and heads together; bootstrap over documents, in which every document keeps all of its pairs."""
        sums = [self.same_sums.mean((1, 2)), self.different_sums.mean((1, 2))]
        columns = torch.cat([torch.stack(sums, 1), self.histograms.flatten(1)], 1)
        same, different, auc = _attention_means(columns.sum(0, keepdim=True))
        draws = _attention_means(document_draws(columns, resamples, generator))
        pairs = int(self.same_counts.sum()), int(self.different_counts.sum())
        return Contrast(same.item(), different.item(), auc.item(), *pairs, *draws)


@typed
def attention_topics(
    attentions: Iterable[Attended], words: TopicWords, *, debias: bool = True, bins: int = 512
) -> AttentionTopics:
    """What an `AttentionTally` of these topic words makes of a stream of documents."""
    tally = AttentionTally(words, debias=debias, bins=bins)
    for batch in attentions:
        tally.add(batch)
    return tally.result()


class AttentionTally:
    """Attention over ordered pairs (i, j) of positions that hold different kept words, same topic or not.

    A row of attention sums to one over the m keys it sees: all n of a document, or i + 1 in a causal model. With
    `debias` it is multiplied by m / 100. Its mean over the keys it sees is then exactly 1/100, whatever the length of
    the document and the position of the query; otherwise short documents, and early rows, which pay more to every key
    and hold fewer topics, fake a same-topic advantage in any network. Memory is bounded by a batch, plus `bins` counts
    per document. Several tallies can read one stream, each with words of its own.
    """

    def __init__(self, words: TopicWords, *, debias: bool = True, bins: int = 512) -> None:
        self.histograms = _Histograms(whole("bins", bins, least=2, most=1 << 14))
        self.member, self.known, self.debias = words.member, words.member.any(1), debias
        self.sums: list[Tensor] = []
        self.counts: list[Tensor] = []

    def add(self, documents: Attended) -> None:
        """Take note of a batch; its documents without a token do not count."""
        batch = measurable(documents)
        if not len(batch.ids):
            return
        check_ids("ids", batch.ids, len(self.member))
        self.member, self.known = self.member.to(batch.ids.device), self.known.to(batch.ids.device)
        kept = _kept(batch, self.member, self.known, self.debias)
        weights = torch.stack([kept.same, kept.pairs & ~kept.same], 1) * kept.scale[:, None].double()
        average = torch.zeros_like(kept.scale.expand_as(kept.pairs))
        layers = []
        for layer in batch.pattern:
            values = layer.flatten(2).gather(2, kept.place[:, None].expand(-1, layer.shape[1], -1))
            layers.append(values.double() @ weights.flatten(2).mT)
            average += values.sum(1).view_as(average)
        self.sums.append(torch.stack(layers, 1).cpu())
        self.counts.append(torch.stack([kept.same.sum((1, 2)), kept.pairs.sum((1, 2))], 1).cpu())
        self.histograms.add(average * kept.scale / math.prod(batch.pattern.shape[::2][:2]), kept.pairs, kept.same)

    def result(self) -> AttentionTopics:
        if not self.counts:
            raise ArgumentError("attentions: no documents to measure")
        total, number = torch.cat(self.sums), torch.cat(self.counts)
        number[:, 1] -= number[:, 0]
        for i, kind in enumerate(("same", "different")):
            if not number[:, i].sum():
                raise ArgumentError(f"attentions: no document holds two different kept words of {kind} topic")
        return AttentionTopics(total[..., 0], total[..., 1], number[:, 0], number[:, 1], self.histograms.counts())


class _Kept(NamedTuple):
    """Pairs among the positions of kept words only, of which a document has far fewer than positions.

    `place` is where a pair stands in the flattened pattern; `scale` debiases rows.
    """

    place: Int[Tensor, "batch pair"]
    pairs: Bool[Tensor, "batch kept kept"]
    same: Bool[Tensor, "batch kept kept"]
    scale: Float[Tensor, "batch kept 1"]


def _kept(batch: Attended, member: Bool[Tensor, "vocab topics"], known: Bool[Tensor, " vocab"], debias: bool) -> _Kept:
    real = known[batch.ids] & batch.mask
    most = int(real.sum(1).max())
    at = real.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    real, ids = real.gather(1, at), batch.ids.gather(1, at)
    pairs = real[:, :, None] & real[:, None, :] & (ids[:, :, None] != ids[:, None, :])
    if batch.causal:
        pairs = pairs.tril()
    topics = member.index_select(0, ids.flatten()).unflatten(0, ids.shape).float()
    place = at[:, :, None] * batch.ids.shape[1] + at[:, None, :]
    scale = row_scale(batch, debias).gather(1, at)
    return _Kept(place.flatten(1), pairs, pairs & (topics @ topics.mT > 0), scale[:, :, None])


class _Histograms:
    """Per-document counts of values in bins; the edges are quantiles of the first `enough` values.

    Values are compared by log(100 a) in steps of 1e-5: below that, differences are rounding, and uniform attention,
    100 a = 1, must come out as ties.
    """

    def __init__(self, bins: int, enough: int = 1 << 16) -> None:
        self.bins, self.enough, self.held = bins, enough, 0
        self.lowest = 0
        self.bin_of: Tensor | None = None  # by level, from the lowest upwards
        self.waiting: list[tuple[Tensor, Tensor, int]] = []
        self.done: list[Tensor] = []

    def add(self, values: Tensor, pairs: Bool[Tensor, "batch a b"], same: Bool[Tensor, "batch a b"]) -> None:
        at = pairs.flatten().nonzero()[:, 0]
        # index_select: several times faster here than indexing by brackets
        level = (values.flatten().index_select(0, at).mul_(100).clamp_(min=1e-30).log_() * 1e5).round_().long()
        row = 2 * (at // max(pairs[0].numel(), 1)) + 1 - same.flatten().index_select(0, at).long()
        self.waiting.append((level, row, len(pairs)))
        self.held += len(level)
        if self.bin_of is not None or self.held >= self.enough:
            self._count()

    def counts(self) -> Int[Tensor, "documents 2 bins"]:
        self._count()
        return torch.cat(self.done).unflatten(1, (2, self.bins))

    def _count(self) -> None:
        if self.bin_of is None:
            self._settle(torch.cat([level for level, _, _ in self.waiting]).sort().values)
        assert self.bin_of is not None
        for level, row, documents in self.waiting:
            known = (level - self.lowest).clamp_(0, len(self.bin_of) - 1)
            place = row * self.bins + self.bin_of.index_select(0, known)
            found = torch.bincount(place, minlength=documents * 2 * self.bins)
            self.done.append(found.view(documents, -1).int().cpu())
        self.waiting.clear()

    def _settle(self, levels: Int[Tensor, " values"]) -> None:
        """Bins end at quantiles of the levels; equal levels share a bin."""
        if not len(levels):
            self.bin_of = levels.new_zeros(1)
            return
        self.lowest = int(levels[0])
        quantiles = (torch.arange(1, self.bins, device=levels.device) * len(levels)) // self.bins
        steps = torch.zeros(int(levels[-1]) - self.lowest + 2, dtype=torch.int16, device=levels.device)
        steps[(levels[quantiles] + 1 - self.lowest).unique()] = 1
        self.bin_of = steps.cumsum(0, dtype=torch.int16)


def measurable(batch: Attended) -> Attended:
    """The batch on one device and without documents that hold no token."""
    pattern, (documents, positions) = batch.pattern, batch.ids.shape
    if pattern.ndim != 5 or (pattern.shape[1], *pattern.shape[3:]) != (documents, positions, positions):
        expected = f"layer × {documents} documents × head × {positions} × {positions} for these ids"
        raise ArgumentError(f"attention of shape {tuple(pattern.shape)}: must be {expected}")
    ids, mask = batch.ids.to(pattern.device), batch.mask.to(pattern.device)
    some = mask.any(1)
    if not bool(some.all()):
        pattern, ids, mask = pattern[:, some], ids[some], mask[some]
    return Attended(pattern.detach(), ids.masked_fill(~mask, 0), mask, batch.causal)


def row_scale(batch: Attended, debias: bool) -> Float[Tensor, "batch query"]:
    """(number of keys that a row sees) / 100, or 1."""
    mask = batch.mask.float()
    if not debias:
        return torch.ones_like(mask)
    return (mask.cumsum(1) if batch.causal else mask.sum(1, keepdim=True).expand_as(mask)) / 100


def _attention_means(columns: Float[Tensor, "draws columns"]) -> tuple[Draws, Draws, Draws]:
    """(mean same, mean different, AUC) from the two sums and the two histograms of every draw."""
    same, different = columns[:, 2:].unflatten(1, (2, -1)).unbind(1)
    below = different.cumsum(1) - different
    same_pairs, different_pairs = same.sum(1), different.sum(1)
    auc = (same * (below + different / 2)).sum(1) / (same_pairs * different_pairs)
    return columns[:, 0] / same_pairs, columns[:, 1] / different_pairs, auc
