"""Cosine and attention of chosen word pairs, such as the pairs of a topic and those that co-occur most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.probes.text_topics.attention import Attended, measurable, row_scale
from sandtable.probes.text_topics.contrast import (
    LEVEL,
    Draws,
    Pairs,
    check_ids,
    document_draws,
    dots,
    interval,
    pair_draws,
    word_weights,
)


@dataclass(frozen=True)
class PairMeans:
    """Named sets of word pairs: the mean of each set, the mean of each pair (NaN if never seen), bootstrap draws.

    `by_document` has the sum over a set's pairs in each document and their number, where documents are what is redrawn.
    """

    means: Mapping[str, float]
    by_pair: Mapping[str, Float[Tensor, " pairs"]]
    draws: Mapping[str, Draws]
    by_document: Mapping[str, Float[Tensor, "documents 2"]] = field(default_factory=dict)

    def interval(self, name: str, level: float = LEVEL) -> tuple[float, float]:
        low, high = interval(self.draws[one_of("name", name, self.draws)], level)
        return float(low), float(high)

    def difference_interval(self, name: str, other: str, level: float = LEVEL) -> tuple[float, float]:
        """The interval of mean(name) − mean(other), both on the same bootstrap samples."""
        chosen = [self.draws[one_of("name", each, self.draws)] for each in (name, other)]
        low, high = interval(chosen[0] - chosen[1], level)
        return float(low), float(high)


@typed
def pair_cosines(
    embeddings: Float[Tensor, "vocab width"],
    sets: Mapping[str, Pairs],
    *,
    generator: torch.Generator,
    resamples: int = 1000,
) -> PairMeans:
    """Mean cosine of each set of word pairs; bootstrap over the words of all sets."""
    chosen = {name: _checked_pairs(name, pairs, len(embeddings)) for name, pairs in sets.items()}
    if not chosen:
        raise ArgumentError("sets={}: needs at least one set of pairs")
    used = torch.cat(list(chosen.values())).unique()
    weights = word_weights(torch.ones(len(used), 1), whole("resamples", resamples, least=0), generator)
    units = F.normalize(embeddings[used.to(embeddings.device)].detach().double().cpu(), dim=1)
    cosines, draws = {}, {}
    for name, pairs in chosen.items():
        place = torch.searchsorted(used, pairs)
        cosines[name] = dots(units, place)
        weight, total = pair_draws(place, [torch.ones(len(pairs)), cosines[name]], weights)
        draws[name] = total / weight
    return PairMeans({name: float(values.mean()) for name, values in cosines.items()}, cosines, draws)


@typed
def pair_attention(
    attentions: Iterable[Attended],
    sets: Mapping[str, Pairs],
    *,
    generator: torch.Generator,
    resamples: int = 1000,
    debias: bool = True,
) -> PairMeans:
    """What a `PairTally` of these sets makes of a stream of documents; bootstrap over documents."""
    tally = PairTally(sets, debias=debias)
    for batch in attentions:
        tally.add(batch)
    return tally.result(generator=generator, resamples=resamples)


@typed
class PairTally:
    """Mean attention of each set of word pairs over all layers, heads and places where a pair occurs, both directions.

    Frequent pairs count as often as they occur.
    """

    def __init__(self, sets: Mapping[str, Pairs], *, debias: bool = True) -> None:
        chosen = {name: _checked_pairs(name, pairs, None) for name, pairs in sets.items()}
        if not chosen:
            raise ArgumentError("sets={}: needs at least one set of pairs")
        self.base, self.debias = 1 + max(int(pairs.max()) for pairs in chosen.values()), debias
        self.keys = {name: (pairs.amin(1) * self.base + pairs.amax(1)).sort() for name, pairs in chosen.items()}
        self.sums = {name: torch.zeros(2, len(pairs), dtype=torch.float64) for name, pairs in chosen.items()}
        self.columns: list[Tensor] = []

    def add(self, documents: Attended) -> None:
        """Take note of a batch; its documents without a token do not count."""
        batch = measurable(documents)
        if not len(batch.ids):
            return
        seen = batch.mask[:, :, None] & batch.mask[:, None, :]
        seen = seen.tril() if batch.causal else seen
        values = batch.pattern.mean((0, 2)) * row_scale(batch, self.debias)[:, :, None]
        a, b = batch.ids[:, :, None], batch.ids[:, None, :]
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        key = torch.where(seen & (high < self.base), low * self.base + high, -1)
        found = []
        for name, (known, order) in self.keys.items():
            known = known.to(key.device)
            place = torch.searchsorted(known, key).clamp(max=len(known) - 1)
            hit = known[place] == key
            pair, value = order.to(key.device)[place[hit]], values[hit].double()
            both = [torch.bincount(pair, weight, len(known)) for weight in (value, torch.ones_like(value))]
            self.sums[name] += torch.stack(both).cpu()
            found.append(torch.stack([(values.double() * hit).sum((1, 2)), hit.sum((1, 2)).double()], 1))
        self.columns.append(torch.stack(found, 1).cpu())

    def result(self, *, generator: torch.Generator, resamples: int = 1000) -> PairMeans:
        if not self.columns:
            raise ArgumentError("attentions: no documents to measure")
        for name, (_, number) in self.sums.items():
            if not number.sum():
                raise ArgumentError(f"sets[{name!r}]: none of its pairs occurs in the documents")
        columns = torch.cat(self.columns)
        drawn = document_draws(columns.flatten(1), resamples, generator).unflatten(1, columns.shape[1:])
        return PairMeans(
            {name: float(value.sum() / number.sum()) for name, (value, number) in self.sums.items()},
            {name: value / number for name, (value, number) in self.sums.items()},
            {name: drawn[:, i, 0] / drawn[:, i, 1] for i, name in enumerate(self.sums)},
            {name: columns[:, i] for i, name in enumerate(self.sums)},
        )


def _checked_pairs(name: str, pairs: Pairs, vocab: int | None) -> Pairs:
    """Pairs of different words, each given once."""
    try:
        pairs = torch.as_tensor(pairs).long().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"sets[{name!r}]: must be pairs of word ids") from error
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ArgumentError(f"sets[{name!r}] of shape {tuple(pairs.shape)}: must be pairs × 2, at least one pair")
    check_ids(f"sets[{name!r}]", pairs, vocab)
    if bool((pairs[:, 0] == pairs[:, 1]).any()) or len(pairs.sort(1).values.unique(dim=0)) < len(pairs):
        raise ArgumentError(f"sets[{name!r}]: must be pairs of two different words, each pair once")
    return pairs
