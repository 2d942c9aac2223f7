"""What the claims on real text share: the corpus and its topics, the model, and what is measured of it per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from sandtable.probes.topic_words import TopicWords, shuffled
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
    """A corpus, its topics and a model of it: `model` is a Hugging Face name or folder, None trains a small BERT."""

    corpus: str = "builtin"
    model: str | None = None
    topics: int = 50
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
    weights: str = "trained"
    labels: str = "true"
    debias: bool = True


PAPER = Text(topics=100, documents=2000, vocab=8192, width=512, layers=8, heads=8, batch=128, steps=20_000, lr=5e-4)


def prepared(settings: Text, lab: Lab) -> CorpusTopics:
    """The corpus as tokens of the model, with its topics."""
    place = lab.folder(
        prepare,
        settings.corpus,
        corpora.stamp(settings.corpus),
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
        precision="bfloat16" if lab.device.startswith("cuda") else "float32",
    )
    trained: Any = lab.fit(recipe)[0]
    return read(trained.model, device=lab.device)


def relabel(settings: Text, lab: Lab) -> Callable[[TopicWords], TopicWords] | None:
    """Shuffled topics for the control, the same for all thresholds of a seed."""
    if one_of("labels", settings.labels, LABELS) == "true":
        return None
    return lambda words: shuffled(words, lab.generator(lab.seeds[0], "shuffled topics"))


def measured(
    settings: Text,
    lab: Lab,
    *,
    choices: tuple[Choice, ...] = (),
    pairs: tuple[float, ...] = (),
    planted: float = 0.0,
) -> dict[str, np.ndarray]:
    """What `_measure` found for every seed, from the store where it was measured before."""
    return lab.measure(_measure, settings, choices=choices, pairs=pairs, planted=planted)


def _measure(
    lab: Lab, settings: Text, *, choices: tuple[Choice, ...], pairs: tuple[float, ...], planted: float
) -> dict[str, np.ndarray]:
    found = prepared(settings, lab)
    rows = []
    for seed in lab.seeds:
        alone = lab.only([seed])
        model = reader(settings, alone, found)
        change = relabel(settings, alone)
        seen = study(
            model,
            found,
            choices=choices or ((THRESHOLDS[0], False),),
            pair_thresholds=pairs,
            documents=settings.documents,
            longest=settings.longest,
            debias=settings.debias,
            special=settings.model is not None,
            relabel=change,
            resamples=0,
            say=lab.say,
        )
        rows.append(_arrays(model, seen, choices, pairs, found, planted, lab.generator(seed, "planted")))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _arrays(
    model: Reader,
    seen: Study,
    choices: tuple[Choice, ...],
    pairs: tuple[float, ...],
    found: CorpusTopics,
    planted: float,
    generator: torch.Generator,
) -> dict[str, np.ndarray]:
    out: dict[str, Any] = {}
    for choice in choices:
        cell, name = seen.cells[choice], label(choice)
        attention, ids = cell.attention, cell.words.words
        vectors = model.embeddings[ids]
        if planted:
            vectors = plant(vectors, cell.words.member[ids].float(), planted, generator)
        sums = [part.mean((1, 2)) for part in (attention.same_sums, attention.different_sums)]
        counts = [attention.same_counts, attention.different_counts]
        out[f"{name}: documents"] = torch.stack([*sums, *counts], 1)
        out[f"{name}: histograms"] = attention.histograms.unflatten(2, (_BINS, -1)).sum(3)
        out[f"{name}: heads"] = attention.ratio
        out[f"{name}: words"] = ids
        out[f"{name}: member"] = cell.words.member[ids]
        out[f"{name}: vectors"] = vectors
        out[f"{name}: ratios"] = torch.tensor(
            [contrast.same / contrast.different for contrast in cell.contrasts.values()]
        )
    for threshold in pairs:
        pair_cell, name = seen.pairs[threshold], label((threshold, False))
        # all words that any relabelling can pair, so that every seed has arrays of one shape
        ids = torch.cat([found.words(threshold).words, pair_cell.sets[TOGETHER].flatten()]).unique()
        out[f"{name}: pair documents"] = torch.cat([pair_cell.attention.by_document[kind] for kind in KINDS], 1)
        out[f"{name}: pair vectors"] = model.embeddings[ids]
        for kind in KINDS:
            out[f"{name}: {kind}"] = torch.searchsorted(ids, pair_cell.sets[kind])
    return {name: value.numpy() for name, value in out.items()}


def plant(vectors: torch.Tensor, member: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
    """Embeddings with a direction per topic added, `strength` times as long as they are: a known topic structure."""
    directions = torch.randn(member.shape[1], vectors.shape[1], generator=generator) / vectors.shape[1] ** 0.5
    return vectors + strength * vectors.norm(dim=1).mean() * (member @ directions)


def label(choice: Choice) -> str:
    threshold, overlap = choice
    return f"{threshold:g}" + (", overlap" if overlap else "")


# -- checks over documents -------------------------------------------------------------------------------------------


def attention_ratio(sums: np.ndarray) -> float:
    """Mean same-topic over mean different-topic attention, of rows (same, different, pairs of either kind)."""
    same, different, same_pairs, different_pairs = sums.sum(0)
    return float((same / same_pairs) / (different / different_pairs))


def attention_auc(histograms: np.ndarray) -> float:
    """P(same > different) + P(equal) / 2, of one histogram pair per document."""
    same, different = histograms.sum(0).reshape(2, -1)
    below = np.cumsum(different) - different
    return float(np.sum(same * (below + different / 2)) / (same.sum() * different.sum()))


def over_documents(found: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The measurement `name` by document, models averaged."""
    return found[name].astype(float).mean(0)


# -- checks over words -----------------------------------------------------------------------------------------------


def embedding_auc(name: str, found: Mapping[str, np.ndarray], choice: Choice, *, cosine: bool = True) -> Check:
    """AUC of same-topic against different-topic similarities, models averaged, words redrawn within their topics."""
    key = label(choice)
    fn, strata = word_statistic(found, key, cosine=cosine)
    units = np.arange(len(strata))
    return statistic(name, fn, units, above=ABOVE_CHANCE, unit="word", strata=strata, vectorised=True)


def word_statistic(
    found: Mapping[str, np.ndarray], key: str, *, cosine: bool
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """(the AUC as a function of many samples of words, each word's first topic).

    To first order (DeLong, DeLong & Clarke-Pearson 1988) a sample's AUC is mean V over its same-topic pairs + mean V
    over its different-topic pairs − AUC, where V is a pair's share of pairs of the other kind on the right side of it.
    """
    placements, kinds = [], None
    for vectors, member in zip(found[f"{key}: vectors"], found[f"{key}: member"], strict=True):
        vectors = vectors.astype(float)
        if cosine:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
        same = (member.astype(float) @ member.T.astype(float) > 0) & ~np.eye(len(member), dtype=bool)
        different = ~same & ~np.eye(len(member), dtype=bool)
        placements.append((*_placements(vectors @ vectors.T, same, different), same, different))
        kinds = member.argmax(1) if kinds is None else kinds
    assert kinds is not None
    return partial(_linear_auc, placements), kinds


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


def _linear_auc(placements: list[tuple[Any, ...]], samples: np.ndarray) -> np.ndarray:
    total = np.zeros(len(samples))
    words = len(placements[0][0])
    weight = np.zeros((len(samples), words))
    np.add.at(weight, (np.arange(len(samples))[:, None], samples), 1.0)
    for v_same, v_different, auc, same, different in placements:
        means = [
            ((weight @ values) * weight).sum(1) / ((weight @ kind) * weight).sum(1)
            for values, kind in ((v_same, same), (v_different, different))
        ]
        total += means[0] + means[1] - auc
    return total / len(placements)
