"""Do the topics of a corpus show in a model? From text and any model to the published tables.

Source of the measurements: Li, Li and Risteski (2023), "How do Transformers learn topic structure".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sandtable.arguments import ArgumentError, nearest, number, whole
from sandtable.bridges.huggingface import load_tokenizer
from sandtable.bridges.lda import Topics, fit_topics, stop_tokens
from sandtable.bridges.readers import Reader
from sandtable.bridges.tokens import TokenCorpus, prepare_tokens
from sandtable.probes.text_topics import (
    AttentionTally,
    AttentionTopics,
    Contrast,
    EmbeddingTopics,
    PairMeans,
    PairTally,
    embedding_topics,
    pair_cosines,
)
from sandtable.probes.topic_words import (
    Coherence,
    TopicWords,
    coherence,
    select_words,
    top_pairs,
    topic_pairs,
    words_per_topic,
)
from sandtable.training.pace import Pace

THRESHOLDS = (0.0005, 0.001, 0.002)
"""The published ambiguity thresholds: words per topic over the size of the vocabulary."""
CHANCE = 0.02
"""How far from one half an AUC may be and still count as that of a model without topics."""

Say = Callable[[str], None]
Choice = tuple[float, bool]
"""(ambiguity threshold, whether a word may belong to several topics)."""


@dataclass(frozen=True)
class CorpusTopics:
    """A tokenized corpus, the topics found in it, the tokens left out of them, and how coherent they are."""

    tokens: TokenCorpus
    topics: Topics
    stop: frozenset[int]
    coherence: Coherence

    def words(self, threshold: float, *, overlap: bool = False) -> TopicWords:
        """The representative words of every topic at an ambiguity threshold."""
        return select_words(self.topics.word_given_topic, threshold, overlap=overlap, stop=self.stop)

    def save(self, folder: Path | str) -> None:
        """Write topics, stop tokens and coherence; the tokens have a folder of their own."""
        folder = Path(folder)
        self.topics.save(folder / "topics.safetensors")
        measured = {"npmi": self.coherence.npmi.tolist(), "umass": self.coherence.umass.tolist()}
        facts = {"stop": sorted(self.stop), "coherence": measured, "tokens": self.tokens.digest}
        (folder / "topics.json").write_text(json.dumps(facts, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str, tokens: TokenCorpus) -> CorpusTopics:
        folder = Path(folder)
        try:
            facts = json.loads((folder / "topics.json").read_text(encoding="utf-8"))
            measured = Coherence(**{name: torch.tensor(values) for name, values in facts["coherence"].items()})
            stop, digest = frozenset(facts["stop"]), facts["tokens"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"folder={str(folder)!r}: holds no saved topics ({error})") from error
        if digest != tokens.digest:
            raise ArgumentError(f"folder={str(folder)!r}: topics of another corpus than {tokens!r}")
        return cls(tokens, Topics.load(folder / "topics.safetensors"), stop, measured)

    def ids(self, words: Sequence[str]) -> list[int]:
        """Token ids of whole words, also as byte-level and SentencePiece tokenizers mark the start of a word."""
        place = {word: i for i, word in reversed(list(enumerate(self.tokens.words)))}
        found = []
        for word in words:
            spelled = [form for form in (word, f"Ġ{word}", f"▁{word}", word.lower()) if form in place]
            if not spelled:
                known = [w.lstrip("Ġ▁") for w in self.tokens.words]
                raise ArgumentError(f"words: {word!r} is not in the vocabulary as one token{nearest(word, known)}")
            # where a tokenizer marks the start of words, the marked form is the word and the bare one a part of it
            found.append(place[max(spelled, key=lambda form: form[0] in "Ġ▁")])
        return found

    def clearest(self, topics: int = 3, words: int = 3, *, threshold: float | None = None) -> list[list[int]]:
        """The most certain words of the most coherent topics of the larger half; fewer topics where there are not."""
        kept = self.words(max(*THRESHOLDS, 3 * words / self.tokens.vocab_size) if threshold is None else threshold)
        table = torch.where(kept.member.T, self.topics.word_given_topic, 0.0)
        full = (table > 0).sum(1) >= words
        if not bool(full.any()):
            raise ArgumentError(f"words={words}: no topic of this corpus has so many words of its own")
        large = full & (self.topics.share >= self.topics.share[full].median())
        order = torch.where(large, self.coherence.npmi, -2.0).argsort(descending=True, stable=True)
        chosen = order[: min(topics, int(large.sum()))]
        return [table[k].argsort(descending=True, stable=True)[:words].tolist() for k in chosen]


def find_topics(
    tokens: TokenCorpus,
    *,
    topics: int = 100,
    passes: int = 6,
    seed: int = 0,
    common: float = 0.2,
    say: Say | None = None,
) -> CorpusTopics:
    """Topics of a corpus by online LDA (100 topics and 6 passes as published).

    Stop tokens are left out, among them words of more than the share `common` of documents.
    """
    if len(tokens) < whole("topics", topics, least=2):
        raise ArgumentError(f"topics={topics}: needs at least as many documents, the corpus has {len(tokens)}")
    stop = stop_tokens(tokens.words, tokens, special=tokens.special, common=common)
    report = None
    if say is not None:
        pace = Pace()
        report = lambda done, of, speed: say(  # noqa: E731
            f"topics: {done:,} of {of:,} documents · {speed:,.0f} tokens/s{pace.words(done, of)}"
        )
    found = fit_topics(tokens, topics=topics, passes=passes, stop=stop, seed=seed, progress=report)
    return CorpusTopics(tokens, found, stop, coherence(found.word_given_topic, tokens))


def prepare(
    say: Say,
    place: Path,
    source: str | None,
    stamp: str,
    *,
    tokenizer: str | None = None,
    vocab: int = 8192,
    limit: int | None = None,
    topics: int = 100,
    passes: int = 6,
    seed: int = 0,
) -> None:
    """Fill a folder with what `open_prepared` reads: tokenizer, tokens (`prepare_tokens`) and topics of a corpus."""
    prepare_tokens(say, place, source, stamp, tokenizer=tokenizer, vocab=vocab, limit=limit)
    found = find_topics(TokenCorpus.open(place / "tokens"), topics=topics, passes=passes, seed=seed, say=say)
    found.save(place)


def open_prepared(place: Path) -> tuple[CorpusTopics, Any]:
    """(topics of a corpus, its tokenizer) from a folder that `prepare` filled."""
    return CorpusTopics.load(place, TokenCorpus.open(place / "tokens")), load_tokenizer(place / "tokenizer")


@dataclass(frozen=True)
class Cell:
    """One cell of the published tables: the words kept, and what the model makes of their pairs."""

    words: TopicWords
    embeddings: EmbeddingTopics
    attention: AttentionTopics
    attention_contrast: Contrast

    @property
    def contrasts(self) -> dict[str, Contrast]:
        """The three published columns."""
        cosine, dot = self.embeddings.cosine, self.embeddings.dot
        return {"cosine": cosine, "dot": dot, "attention": self.attention_contrast}


@dataclass(frozen=True)
class PairCell:
    """Same-topic pairs against as many of the most frequently co-occurring pairs as one topic has pairs."""

    sets: Mapping[str, Int[Tensor, "pairs 2"]]
    attention: PairMeans
    cosine: PairMeans

    @property
    def pairs(self) -> int:
        """How many co-occurring pairs there are."""
        return len(self.sets[TOGETHER])


SAME, TOGETHER = "same topic", "co-occurring"


@dataclass(frozen=True)
class Study:
    """What was measured of one model on one corpus."""

    name: str
    cells: Mapping[Choice, Cell]
    pairs: Mapping[float, PairCell]
    documents: int


def verdict(contrast: Contrast) -> str:
    """ "yes" or "no" when the AUC's interval is above or below what a model without topics shows, else "undecided"."""
    low, high = contrast.interval("auc")
    if low > 0.5 + CHANCE:
        return "yes"
    return "no" if high < 0.5 + CHANCE else "undecided"


def study(
    reader: Reader,
    found: CorpusTopics,
    *,
    choices: Sequence[Choice] = tuple((t, overlap) for overlap in (False, True) for t in THRESHOLDS),
    pair_thresholds: Sequence[float] | Mapping[float, int] = THRESHOLDS,
    documents: int = 1000,
    longest: int = 128,
    batch_size: int = 16,
    debias: bool = True,
    special: bool = False,
    relabel: Callable[[TopicWords], TopicWords] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    say: Say | None = None,
) -> Study:
    """Embeddings and attention of a model by topic, in one pass over `documents` documents of the corpus.

    `choices` are the cells of the table; `pair_thresholds` those at which same-topic pairs are compared with as many
    co-occurring ones as one topic has, or with as many as the mapping says. Documents are cut after `longest` tokens
    (fewer, if the model reads fewer); `special` frames them as the tokenizer does. `relabel` replaces the words of the
    topics, for controls.
    """
    whole("documents", documents)
    whole("longest", longest, least=2)
    relabel = relabel or (lambda words: words)
    kept = {(number("threshold", t), overlap): relabel(found.words(t, overlap=overlap)) for t, overlap in choices}
    counts = pair_thresholds if isinstance(pair_thresholds, Mapping) else {}
    sets = {t: _pair_sets(found, relabel(found.words(t)), t, counts.get(t)) for t in pair_thresholds}
    tallies = {choice: AttentionTally(words, debias=debias) for choice, words in kept.items()}
    pair_tallies = {t: PairTally(some, debias=debias) for t, some in sets.items()}
    chosen = found.tokens.some(documents, seed)
    size = _room(reader, longest, special)
    pace = Pace()
    for done, attended in enumerate(reader.attentions(found.tokens.batches(size, batch_size, chosen), special=special)):
        for tally in (*tallies.values(), *pair_tallies.values()):
            tally.add(attended)
        if say is not None:
            seen = min((done + 1) * batch_size, len(chosen))
            left = pace.words(seen, len(chosen))
            say(f"{reader.name}: attention in {seen:,} of {len(chosen):,} documents{left}")
    generator = torch.Generator().manual_seed(whole("seed", seed, least=0))
    options: dict[str, Any] = dict(generator=generator, resamples=resamples)
    cells = {}
    for choice, words in kept.items():
        if say is not None:
            say(f"{reader.name}: embeddings of {len(words.words):,} words")
        attention = tallies[choice].result()
        embeddings = embedding_topics(reader.embeddings, words, **options)
        cells[choice] = Cell(words, embeddings, attention, attention.contrast(**options))
    pairs = {
        t: PairCell(sets[t], tally.result(**options), pair_cosines(reader.embeddings, sets[t], **options))
        for t, tally in pair_tallies.items()
    }
    return Study(reader.name, cells, pairs, len(chosen))


def _pair_sets(found: CorpusTopics, words: TopicWords, threshold: float, count: int | None) -> dict[str, Tensor]:
    if count is None:
        count = max(1, math.comb(words_per_topic(threshold, found.tokens.vocab_size), 2))
    return {SAME: topic_pairs(words), TOGETHER: top_pairs(found.tokens, count, stop=found.stop).words}


def _room(reader: Reader, longest: int, special: bool) -> int:
    """How many tokens of a document the model can read."""
    if reader.longest is None:
        return longest
    frame = reader.frame_size if special else 0
    return min(longest, reader.longest - frame)


def rows(studies: Sequence[Study]) -> Iterator[dict[str, Any]]:
    """One record per model and cell: the published ratios (None where undefined), AUCs, intervals and verdicts."""
    for each in studies:
        for (threshold, overlap), cell in each.cells.items():
            record: dict[str, Any] = dict(
                model=each.name, threshold=threshold, overlap=overlap, words=len(cell.words.words)
            )
            for name, contrast in cell.contrasts.items():
                record[name] = dict(
                    ratio=contrast.ratio if contrast.ratio_defined else None,
                    same=contrast.same,
                    different=contrast.different,
                    difference=contrast.difference,
                    difference_interval=contrast.interval("difference"),
                    auc=contrast.auc,
                    auc_interval=contrast.interval("auc"),
                    verdict=verdict(contrast),
                )
            yield record
