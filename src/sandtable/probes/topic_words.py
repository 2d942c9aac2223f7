"""Words of real topics: which words stand for a topic, which pairs co-occur, how coherent a topic is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, items, number, typed, whole

Csr = Any  # scipy.sparse.csr_array, which has no types to check
Counts = Any
"""Word counts of documents: a sparse matrix [documents, vocab]; a function that starts a new stream of such matrices
(chunks of one corpus); anything that can be iterated again and again over them; or an object with `count_chunks`."""

_CHUNK = 8192  # documents per product: keeps the sparse products of a large corpus small
_FREQUENT = 2048  # the first guess at how many words can be part of a top pair


# -- words of a topic ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopicWords:
    """Which topics keep which word: `member[w, k]`. Two words are of the same topic when their kept sets meet."""

    member: Bool[Tensor, "vocab topics"]

    @cached_property
    def words(self) -> Int[Tensor, " words"]:
        """Ids of the words that some topic keeps, in increasing order."""
        return self.member.any(1).nonzero()[:, 0]

    @property
    def sizes(self) -> Int[Tensor, " topics"]:
        """How many words every topic keeps."""
        return self.member.sum(0)

    @property
    def overlap(self) -> bool:
        """Whether some word belongs to several topics."""
        return bool((self.member.sum(1) > 1).any())

    @cached_property
    def topic_of(self) -> Int[Tensor, " vocab"]:
        """The topic of every word, −1 for words that no topic keeps."""
        if self.overlap:
            raise ArgumentError("topic_of: words belong to several topics here; select with overlap=False")
        return torch.where(self.member.any(1), self.member.int().argmax(1), -1)

    def same(self, rows: Int[Tensor, " rows"], cols: Int[Tensor, " cols"]) -> Bool[Tensor, "rows cols"]:
        """Whether the words of each pair share a topic; a word that no topic keeps shares none, even with itself."""
        return self.member[rows].float() @ self.member[cols].float().T > 0


def words_per_topic(threshold: float, vocab: int) -> int:
    """⌊θ·n⌋ + 1: how many words a topic keeps at ambiguity threshold θ in a vocabulary of n.

    The published numbers of pairs (105, 435, 1711 at θ = 0.0005, 0.001, 0.002; Li, Li & Risteski 2023) are those of
    15, 30 and 59 words, which this rule gives for n from 29 000 to 29 499.
    """
    threshold = number("threshold", threshold, above=0.0)
    if threshold >= 1:
        raise ArgumentError(f"threshold={threshold!r}: must be a number between 0 and 1, both excluded")
    return math.floor(round(threshold * whole("vocab", vocab), 9)) + 1  # 0.29 · 100 is 28.999… in floats


@typed
def select_words(
    word_given_topic: Float[Tensor, "topics vocab"],
    threshold: float,
    *,
    overlap: bool = False,
    stop: Collection[int] = (),
) -> TopicWords:
    """The least ambiguous words: of every topic the first ⌊θ·n⌋ + 1 by P(word | topic) (Li, Li & Risteski 2023).

    n is the whole vocabulary, stop tokens included, though these and words of probability 0 are never kept. Without
    `overlap` a word stays only with the topic of highest P(word | topic) among those that selected it, so topics may
    end up smaller; with it a word may have several topics.
    """
    table = torch.as_tensor(word_given_topic)
    if table.ndim != 2 or 0 in table.shape:
        raise ArgumentError(f"word_given_topic of shape {tuple(table.shape)}: must be topics × vocab, neither empty")
    if not bool(((table >= 0) & (table < torch.inf)).all()):
        raise ArgumentError("word_given_topic: must hold finite numbers ≥ 0 only")
    topics, vocab = table.shape
    keep = words_per_topic(threshold, vocab)
    table = table.clone()
    table[:, _ids("stop", stop, vocab)] = 0
    if not bool(table.any()):
        raise ArgumentError("word_given_topic: no word with positive probability is left after stop tokens are removed")
    # a stable sort: equal probabilities go to the smaller id on every machine
    value, order = table.sort(dim=1, descending=True, stable=True)
    chosen = torch.zeros(topics, vocab, dtype=torch.bool)
    chosen.scatter_(1, order[:, :keep], value[:, :keep] > 0)
    if not overlap:
        best = torch.where(chosen, table, -1).argmax(0, keepdim=True)
        chosen &= torch.zeros_like(chosen).scatter_(0, best, True)
    return TopicWords(chosen.T.contiguous())


def same_topic_pairs(words: TopicWords, topic: int) -> Int[Tensor, "pairs 2"]:
    """All unordered pairs of different words that `topic` keeps."""
    topic = whole("topic", topic, least=0, most=words.member.shape[1] - 1)
    return torch.combinations(words.member[:, topic].nonzero()[:, 0], 2)


def topic_pairs(words: TopicWords) -> Int[Tensor, "pairs 2"]:
    """All unordered pairs of different words that some topic keeps, each once."""
    pairs = torch.cat([same_topic_pairs(words, topic) for topic in range(words.member.shape[1])])
    if not len(pairs):
        raise ArgumentError("words: no topic keeps two words; choose a larger threshold")
    return pairs.unique(dim=0)


def shuffled(words: TopicWords, generator: torch.Generator) -> TopicWords:
    """The same topics with the kept words dealt out anew: what is left of a measurement is not about topics."""
    ids = words.words
    member = torch.zeros_like(words.member)
    member[ids] = words.member[ids[torch.randperm(len(ids), generator=generator)]]
    return TopicWords(member)


# -- counts, in memory or streamed -----------------------------------------------------------------------------------


def chunks(counts: Counts) -> Iterator[Csr]:
    """One reading of the counts as checked csr chunks of all words and some thousand documents."""
    width = None
    for chunk in _stream(counts):
        if not scipy.sparse.issparse(chunk) and not isinstance(chunk, np.ndarray):
            raise ArgumentError(f"counts: must give sparse matrices [documents, vocab], not {type(chunk).__name__}")
        if chunk.ndim != 2 or (width is not None and chunk.shape[1] != width):
            raise ArgumentError(f"counts of shape {chunk.shape}: must be documents × {width or 'vocab'} in every chunk")
        width = chunk.shape[1]
        rows: Csr = scipy.sparse.csr_array(chunk)
        if rows.dtype.kind not in "buif" or (rows.nnz and not 0 <= rows.data.min() <= rows.data.max() < np.inf):
            raise ArgumentError("counts: must hold finite numbers ≥ 0 only")
        if rows.nnz and not rows.data.all():
            rows = rows.copy()
            rows.eliminate_zeros()
        yield rows


def _stream(counts: Counts) -> Iterable[Any]:
    if scipy.sparse.issparse(counts) or isinstance(counts, np.ndarray):
        rows: Csr = scipy.sparse.csr_array(counts) if counts.ndim == 2 else counts
        return (rows[first : first + _CHUNK] for first in range(0, max(1, rows.shape[0]), _CHUNK))
    if hasattr(counts, "count_chunks"):
        return counts.count_chunks(_CHUNK)
    if isinstance(counts, Callable):
        return counts()
    if not isinstance(counts, Iterable):
        raise ArgumentError(f"counts: must be a sparse matrix or a function that streams them, not {counts!r}")
    if iter(counts) is counts:
        raise ArgumentError("counts: an iterator can be read only once; pass a function that makes a new one")
    return counts


def document_frequency(counts: Counts) -> tuple[Int[np.ndarray, " vocab"], int]:
    """(in how many documents every word occurs, number of documents)."""
    frequency, documents = np.zeros(0, dtype=np.int64), 0
    for chunk in chunks(counts):
        present = _binary(chunk)
        frequency = (frequency if documents else 0) + np.bincount(present.indices, minlength=chunk.shape[1])
        documents += chunk.shape[0]
    if not documents:
        raise ArgumentError("counts: hold no documents")
    return frequency, documents


@typed
def cooccurrence(counts: Counts, words: Collection[int] | Tensor) -> Int[np.ndarray, "words words"]:
    """In how many documents each pair of the given words occurs together; the diagonal holds document frequencies.

    Memory is one dense words × words table, whatever the size of the corpus.
    """
    ids = np.array([whole("words", word, least=0) for word in items("words", words, "word ids")], dtype=np.int64)
    together = np.zeros((len(ids), len(ids)), dtype=np.int32)
    for chunk in chunks(counts):
        if len(ids) and not 0 <= ids.min() <= ids.max() < chunk.shape[1]:
            raise ArgumentError(f"words: ids must be from 0 to {chunk.shape[1] - 1}")
        some = _binary(chunk)[:, ids]
        product = (some.T @ some).tocoo()
        together[product.row, product.col] += product.data
    return together


def _binary(chunk: Csr) -> Csr:
    present = chunk.copy()
    present.sum_duplicates()
    present.data = np.ones(present.nnz, dtype=np.int32)
    return present


@dataclass(frozen=True)
class Pairs:
    """Unordered pairs of words and the number of documents that hold both, most frequent first."""

    words: Int[Tensor, "pairs 2"]
    documents: Int[Tensor, " pairs"]


@typed
def top_pairs(counts: Counts, number_of_pairs: int, *, stop: Collection[int] = ()) -> Pairs:
    """The pairs of words that occur together in most documents, stop tokens left out; equal counts rank by id.

    A pair is in no more documents than its rarer word. So only the most frequent words are counted against each other,
    and their number doubles until the next word is rarer than the last pair found: exact, with no vocab × vocab table.
    """
    wanted = whole("number_of_pairs", number_of_pairs)
    frequency, _ = document_frequency(counts)
    frequency[_ids("stop", stop, len(frequency))] = 0
    order = np.argsort(-frequency, kind="stable")
    seen = int((frequency > 0).sum())
    most = min(seen, max(_FREQUENT, 2 * math.isqrt(wanted)))
    while True:
        ids = np.sort(order[:most])
        table = np.triu(cooccurrence(counts, ids), 1)
        first, second = table.nonzero()
        value = table[first, second]
        best = np.argsort(-value, kind="stable")[:wanted]
        if most == seen or (len(best) == wanted and frequency[order[most]] < value[best[-1]]):
            break
        most = min(seen, 2 * most)
    if len(best) < wanted:
        raise ArgumentError(
            f"number_of_pairs={wanted}: only {len(best)} pairs of words occur together in some document"
        )
    pairs = np.stack([ids[first[best]], ids[second[best]]], 1)
    return Pairs(torch.from_numpy(pairs), torch.from_numpy(value[best]))


def _ids(name: str, ids: Collection[int], vocab: int) -> Int[np.ndarray, " ids"]:
    out = np.array(sorted(int(i) for i in ids), dtype=np.int64)
    if len(out) and not 0 <= out[0] <= out[-1] < vocab:
        raise ArgumentError(f"{name}: token ids must be from 0 to {vocab - 1}")
    return out


# -- coherence -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coherence:
    """How much the top words of each topic keep company: `npmi` in [−1, 1], `umass` ≲ 0; higher is better."""

    npmi: Float[Tensor, " topics"]
    umass: Float[Tensor, " topics"]


def coherence(word_given_topic: Float[Tensor, "topics vocab"], counts: Counts, *, top: int = 10) -> Coherence:
    """Coherence of the first `top` words of every topic, from the documents that hold them; means over pairs.

    NPMI = log(p_ij / (p_i p_j)) / −log p_ij (Bouma 2009), −1 for words that never meet and 1 for words found only, and
    always, together. UMass = log((D_ij + 1) / D_i) with i the more probable word (Mimno et al. 2011).
    """
    table = torch.as_tensor(word_given_topic)
    top = whole("top", top, least=2, most=table.shape[1])
    leading = table.sort(dim=1, descending=True, stable=True)[1][:, :top].numpy()
    ids, place = np.unique(leading, return_inverse=True)
    place = place.reshape(leading.shape)
    documents = document_frequency(counts)[1]
    together = cooccurrence(counts, ids).astype(np.float64)
    single = together.diagonal()
    i, j = np.triu_indices(top, 1)
    both, one, other = together[place[:, i], place[:, j]], single[place[:, i]], single[place[:, j]]
    npmi = np.where(both > 0, 1.0, -1.0)
    some = (both > 0) & (both < documents)  # elsewhere the ratio is a limit: never, or in every document
    share = both[some] / documents
    npmi[some] = np.log(share * documents**2 / (one * other)[some]) / -np.log(share)
    umass = np.log((both + 1) / np.maximum(one, 1))
    return Coherence(torch.from_numpy(npmi.mean(1)), torch.from_numpy(umass.mean(1)))
