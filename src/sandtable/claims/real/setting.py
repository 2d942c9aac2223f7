"""What the claims on real text share: the corpus and its topics, the model, and what is measured of it per seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from sandtable.arguments import one_of
from sandtable.bridges import corpus as corpora
from sandtable.bridges.pretraining import MaskedModel, bert_like
from sandtable.bridges.readers import Reader, read
from sandtable.bridges.tokens import TextWorld
from sandtable.bridges.topics import (
    CHANCE,
    SAME,
    THRESHOLDS,
    TOGETHER,
    Choice,
    CorpusTopics,
    Study,
    open_prepared,
    prepare,
    study,
)
from sandtable.lab import Check, Lab, Source, statistic
from sandtable.objectives import MaskedLM
from sandtable.probes.topic_words import TopicWords
from sandtable.training import Adam, Cosine, SingleRecipe

WEIGHTS = ("trained", "random")
LABELS = ("true", "shuffled")
ABOVE_CHANCE = 0.5 + CHANCE
"""An AUC counts when it is above the band in which that of a random model must lie."""
_BINS = 64
KINDS = (SAME, TOGETHER)


def source(where: str) -> Source:
    return Source("Li, Li & Risteski", 2023, where)


@dataclass(frozen=True)
class Text:
    """A corpus, its topics and a model of it: `model` is a Hugging Face name or folder, None trains a small BERT.

    Controls: `weights` of a random model (for embeddings, of `draws` of them a seed), `labels` shuffled `draws` times,
    attention not scaled by length (`debias`), or raised between words of one topic (`boost`).
    """

    corpus: str = "builtin"
    model: str | None = None
    topics: int = 100
    passes: int = 6
    documents: int = 1000
    longest: int = 128
    vocab: int = 4096
    layers: int = 4
    heads: int = 4
    width: int = 128
    length: int = 128
    batch: int = 16
    steps: int = 4000
    lr: float = 1e-3
    precision: str = "bfloat16"
    weights: str = "trained"
    labels: str = "true"
    draws: int = 8
    debias: bool = True
    boost: float = 1.0


PAPER = Text(documents=2000, vocab=8192, width=512, layers=8, heads=8, batch=128, steps=20_000, lr=5e-4)


def prepared(settings: Text, lab: Lab) -> CorpusTopics:
    """The corpus as tokens of the model, with its topics."""
    place = lab.folder(
        prepare,
        settings.corpus,
        corpora.stamp(settings.corpus) + (corpora.stamp(settings.model) if settings.model else ""),
        tokenizer=settings.model,
        vocab=settings.vocab,
        topics=settings.topics,
        passes=settings.passes,
    )
    return open_prepared(place)[0]


def bert(settings: Text, found: CorpusTopics) -> MaskedModel:
    return bert_like(
        found.tokens.vocab_size,
        layers=settings.layers,
        heads=settings.heads,
        width=settings.width,
        longest=settings.length,
        attention_scale=None,
        attentions=True,
    )


def reader(settings: Text, lab: Lab, found: CorpusTopics) -> Reader:
    """The model of the lab's one seed: loaded by name, or trained on the corpus; its random twin on demand."""
    (seed,) = lab.seeds
    one_of("weights", settings.weights, WEIGHTS)
    if settings.model is not None:
        loaded = read(settings.model, device=lab.device)
        loaded.check_vocabulary(found.tokens.vocab_size)
        return loaded if settings.weights == "trained" else loaded.random(seed)
    if settings.weights == "random":
        fresh: Any = bert(settings, found).initialise(lab.generator(seed, "random model"))
        return read(fresh.model, device=lab.device)
    recipe = SingleRecipe(
        bert(settings, found),
        TextWorld(found.tokens, length=settings.length),
        MaskedLM(),
        settings.steps,
        batch_size=settings.batch,
        optimizer=Adam(settings.lr),
        schedule=Cosine(warmup=min(200, settings.steps // 10)),
        precision=settings.precision,
    )
    trained: Any = lab.fit(recipe)[0]
    return read(trained.model, device=lab.device)


def measured(
    settings: Text,
    lab: Lab,
    *,
    choices: tuple[Choice, ...] = (),
    pairs: tuple[tuple[float, int], ...] = (),
    planted: float = 0.0,
) -> dict[str, np.ndarray]:
    """What `_measure` found for every seed, from the store where it was measured before; labels are not part of it."""
    one_of("labels", settings.labels, LABELS)
    plain = replace(settings, labels="true")
    return lab.measure(_measure, plain, choices=choices, pairs=pairs, planted=planted)


def _measure(
    lab: Lab, settings: Text, *, choices: tuple[Choice, ...], pairs: tuple[tuple[float, int], ...], planted: float
) -> dict[str, np.ndarray]:
    found = prepared(settings, lab)
    rows = []
    for seed in lab.seeds:
        alone = lab.only([seed])
        model = reader(settings, alone, found)
        if settings.boost != 1:
            model = Boosted(model, found.words(max(THRESHOLDS)), settings.boost)
        seen = study(
            model,
            found,
            choices=choices,
            pair_thresholds=dict(pairs),
            documents=settings.documents,
            longest=settings.longest,
            debias=settings.debias,
            special=settings.model is not None,
            resamples=0,
            say=lab.say,
        )
        tables = [model.embeddings]
        if settings.weights == "random":
            tables += [model.random(settings.draws * seed + k).embeddings for k in range(1, settings.draws)]
        if planted:
            plan = found.words(choices[0][0]).member.float()
            tables = [plant(table, plan, planted, alone.generator(seed, "planted")) for table in tables]
        rows.append(_arrays(tables, seen, choices, pairs, found))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _arrays(
    tables: list[torch.Tensor],
    seen: Study,
    choices: tuple[Choice, ...],
    pairs: tuple[tuple[float, int], ...],
    found: CorpusTopics,
) -> dict[str, np.ndarray]:
    out: dict[str, Any] = {}
    for choice in choices:
        cell, name = seen.cells[choice], label(choice)
        attention, ids = cell.attention, cell.words.words
        sums = [part.mean((1, 2)) for part in (attention.same_sums, attention.different_sums)]
        counts = [attention.same_counts, attention.different_counts]
        out[f"{name}: documents"] = torch.stack([*sums, *counts], 1)
        out[f"{name}: histograms"] = attention.histograms.unflatten(2, (_BINS, -1)).sum(3)
        out[f"{name}: heads"] = attention.ratio
        out[f"{name}: words"] = ids
        out[f"{name}: member"] = cell.words.member[ids]
        out[f"{name}: vectors"] = torch.stack([table[ids] for table in tables])
        out[f"{name}: ratios"] = torch.tensor([part.same / part.different for part in cell.contrasts.values()])
    for threshold, _ in pairs:
        pair_cell, name = seen.pairs[threshold], label((threshold, False))
        ids = torch.cat(list(pair_cell.sets.values())).unique()
        out[f"{name}: pair documents"] = torch.cat([pair_cell.attention.by_document[kind] for kind in KINDS], 1)
        out[f"{name}: pair vectors"] = tables[0][ids]
        for kind in KINDS:
            out[f"{name}: {kind}"] = torch.searchsorted(ids, pair_cell.sets[kind])
    return {name: value.numpy() for name, value in out.items()}


class Boosted(Reader):
    """A model whose attention between different words of one topic is multiplied by a factor, rows summing to one."""

    def __init__(self, model: Reader, words: TopicWords, factor: float) -> None:
        self.inner, self.topic, self.factor = model, words.topic_of, factor
        self.tokenizer, self.name = model.tokenizer, f"{model.name}, boosted"

    embeddings = property(lambda self: self.inner.embeddings)
    longest = property(lambda self: self.inner.longest)
    causal = property(lambda self: self.inner.causal)
    layers = property(lambda self: self.inner.layers)
    heads = property(lambda self: self.inner.heads)
    _size = property(lambda self: self.inner._size)

    def random(self, seed: int) -> Reader:
        return self.inner.random(seed)

    def _pattern(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        pattern = self.inner.attention(ids, mask)
        topic = torch.where(mask, self.topic[ids], -1).to(pattern.device)
        same = (topic[:, :, None] == topic[:, None, :]) & (topic[:, :, None] >= 0)
        same &= ids[:, :, None].to(pattern.device) != ids[:, None, :].to(pattern.device)
        raised = pattern * torch.where(same, self.factor, 1.0)[None, :, None]
        return raised / raised.sum(-1, keepdim=True).clamp_min(1e-30)


def plant(table: torch.Tensor, member: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
    """An embedding with a direction per topic added, `strength` times as long as its rows: a known structure."""
    directions = torch.randn(member.shape[1], table.shape[1], generator=generator) / table.shape[1] ** 0.5
    return table + strength * table.norm(dim=1).mean() * (member @ directions)


def label(choice: Choice) -> str:
    threshold, overlap = choice
    return f"{threshold:g}" + (", overlap" if overlap else "")


# -- checks over documents -------------------------------------------------------------------------------------------


@np.errstate(invalid="ignore")
def attention_ratio(sums: np.ndarray) -> float:
    """Mean same-topic over mean different-topic attention, of rows (same, different, pairs of either kind)."""
    same, different, same_pairs, different_pairs = sums.sum(0)
    return float((same / same_pairs) / (different / different_pairs))


@np.errstate(invalid="ignore")
def attention_auc(histograms: np.ndarray) -> float:
    """P(same > different) + P(equal) / 2, of one histogram pair per document."""
    same, different = histograms.sum(0).reshape(2, -1)
    below = np.cumsum(different) - different
    return float(np.sum(same * (below + different / 2)) / (same.sum() * different.sum()))


def over_documents(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The measurement `name` by document, models averaged."""
    return found[name].astype(float).mean(0)


@np.errstate(invalid="ignore")
def pair_ratio(sums: np.ndarray) -> float:
    """Mean attention of co-occurring over that of same-topic pairs, of rows (sum, pairs) of same, then co-occurring."""
    same, same_pairs, together, together_pairs = sums.sum(0)
    return float((together / together_pairs) / (same / same_pairs))


# -- checks over words -----------------------------------------------------------------------------------------------


def embedding_auc(
    name: str, found: Mapping[str, np.ndarray], choice: Choice, settings: Text, *, cosine: bool = True
) -> Check:
    """AUC of same-topic against different-topic similarities, models averaged, words redrawn within their topics."""
    key = label(choice)
    fn = word_auc(found, key, shuffles=settings.draws if settings.labels == "shuffled" else 0, cosine=cosine)
    strata = found[f"{key}: member"][0].argmax(1)
    units = np.arange(len(strata))
    return statistic(name, fn, units, above=ABOVE_CHANCE, unit="word", strata=strata, vectorised=True)


def word_auc(
    found: Mapping[str, np.ndarray], key: str, *, shuffles: int = 0, cosine: bool = True
) -> Callable[[np.ndarray], np.ndarray]:
    """The AUC as a function of many samples of words, averaged over models (and over shuffles of the topics).

    To first order (DeLong, DeLong & Clarke-Pearson 1988) a sample's AUC is mean V over its same-topic pairs + mean V
    over its different-topic pairs − AUC, where V is a pair's share of pairs of the other kind on the right side of it.
    """
    placements = []
    for tables, member in zip(found[f"{key}: vectors"], found[f"{key}: member"], strict=True):
        orders = [np.random.default_rng(i).permutation(len(member)) for i in range(shuffles)] or [slice(None)]
        for vectors, order in itertools.product(tables.astype(float), orders):
            if cosine:
                vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
            topics = member[order].astype(float)
            other = ~np.eye(len(member), dtype=bool)
            same = (topics @ topics.T > 0) & other
            different = ~same & other
            placements.append((*_placements(vectors @ vectors.T, same, different), same, different))
    return partial(_linear_auc, placements)


def _placements(values: np.ndarray, same: np.ndarray, different: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(V at same-topic pairs, V at different-topic pairs, their common mean), ties half."""
    above, below = values[same], values[different]
    ranked = np.sort(below)
    v_same = (np.searchsorted(ranked, above) + np.searchsorted(ranked, above, side="right")) / (2 * len(below))
    ranked = np.sort(above)
    v_different = 1 - (np.searchsorted(ranked, below) + np.searchsorted(ranked, below, side="right")) / (2 * len(above))
    full_same, full_different = np.zeros_like(values), np.zeros_like(values)
    full_same[same], full_different[different] = v_same, v_different
    return full_same, full_different, float(v_same.mean())


@np.errstate(invalid="ignore")  # a sample without a pair of some kind has no value
def _linear_auc(placements: list[tuple[Any, ...]], samples: np.ndarray) -> np.ndarray:
    total = np.zeros(len(samples))
    weight = _weights(samples, len(placements[0][0]))
    for v_same, v_different, auc, same, different in placements:
        means = [
            ((weight @ values) * weight).sum(1) / ((weight @ kind) * weight).sum(1)
            for values, kind in ((v_same, same), (v_different, different))
        ]
        total += means[0] + means[1] - auc
    return total / len(placements)


def cosine_gap(found: Mapping[str, np.ndarray], key: str) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """(mean cosine of same-topic less that of co-occurring pairs, as a function of many samples of words; words)."""
    matrices = []
    for i, vectors in enumerate(found[f"{key}: pair vectors"]):
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
        kinds = []
        for kind in KINDS:
            chosen = np.zeros((len(units), len(units)))
            chosen[tuple(found[f"{key}: {kind}"][i].T)] = 1.0
            kinds.append(chosen)
        matrices.append(((units @ units.T).astype(float), *kinds))
    return partial(_cosine_gap, matrices), len(matrices[0][0])


@np.errstate(invalid="ignore")
def _cosine_gap(matrices: list[tuple[Any, ...]], samples: np.ndarray) -> np.ndarray:
    weight = _weights(samples, len(matrices[0][0]))
    total = np.zeros(len(samples))
    for cosines, same, together in matrices:
        for kind, sign in ((same, 1), (together, -1)):
            total += sign * ((weight @ (cosines * kind)) * weight).sum(1) / ((weight @ kind) * weight).sum(1)
    return total / len(matrices)


def _weights(samples: np.ndarray, words: int) -> np.ndarray:
    """How often every word is in each sample."""
    weight = np.zeros((len(samples), words))
    np.add.at(weight, (np.arange(len(samples))[:, None], samples), 1.0)
    return weight
