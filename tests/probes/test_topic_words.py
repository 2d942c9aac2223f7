"""Representative words, co-occurring pairs and coherence, against double loops."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import torch

from sandtable.arguments import ArgumentError
from sandtable.probes import topic_words
from sandtable.probes.topic_words import (
    coherence,
    cooccurrence,
    document_frequency,
    same_topic_pairs,
    select_words,
    top_pairs,
    words_per_topic,
)


def corpus(documents=60, vocab=25, seed=0):
    random = np.random.default_rng(seed)
    rates = random.gamma(0.3, 1.0, vocab)
    return scipy.sparse.csr_matrix(random.poisson(rates, (documents, vocab)))


def table(topics=4, vocab=50, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(vocab, 0.2), topics))


# -- words of a topic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "words", "pairs"), [(0.0005, 15, 105), (0.001, 30, 435), (0.002, 59, 1711)])
def test_published_numbers_of_words_and_pairs(threshold, words, pairs):
    for vocab in (29_000, 29_250, 29_499):
        assert words_per_topic(threshold, vocab) == words
        assert math.comb(words, 2) == pairs
    chosen = select_words(table(2, 29_400), threshold, overlap=True)
    assert chosen.sizes.tolist() == [words, words]
    assert len(same_topic_pairs(chosen, 1)) == pairs


def test_the_floor_is_that_of_the_exact_product():
    assert 0.29 * 100 < 29  # in floats, which makes the test worth having
    assert words_per_topic(0.29, 100) == 30


def test_selection_against_sorting_by_hand():
    probabilities, stop = table(), {3, 7, 11}
    chosen = select_words(probabilities, 0.15, overlap=True, stop=stop)
    alone = select_words(probabilities, 0.15, stop=stop)
    expected: dict[int, set[int]] = {}
    for k, row in enumerate(probabilities.tolist()):
        ranked = sorted((w for w in range(50) if w not in stop), key=lambda w: -row[w])
        for w in ranked[: math.floor(0.15 * 50) + 1]:
            expected.setdefault(w, set()).add(k)
    assert {w: set(chosen.member[w].nonzero()[:, 0].tolist()) for w in chosen.words.tolist()} == expected
    best = {w: max(topics, key=lambda k: float(probabilities[k, w])) for w, topics in expected.items()}
    assert {w: int(alone.topic_of[w]) for w in alone.words.tolist()} == best
    assert (alone.topic_of >= 0).sum() == len(expected)
    assert alone.sizes.sum() == len(best)
    assert any(len(topics) > 1 for topics in expected.values())


def test_same_is_whether_kept_sets_meet():
    chosen = select_words(table(), 0.2, overlap=True)
    rows, cols = torch.arange(0, 30), torch.arange(10, 50)
    kept = [set(row.nonzero()[:, 0].tolist()) for row in chosen.member]
    expected = [[bool(kept[i] & kept[j]) for j in cols.tolist()] for i in rows.tolist()]
    assert chosen.same(rows, cols).tolist() == expected


def test_words_without_probability_are_never_kept():
    probabilities = torch.tensor([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    chosen = select_words(probabilities, 0.6, overlap=True)
    assert chosen.sizes.tolist() == [2, 1]
    assert chosen.words.tolist() == [0, 1, 3]


def test_topic_of_needs_one_topic_per_word():
    with pytest.raises(ArgumentError, match="overlap=False"):
        _ = select_words(torch.ones(2, 4), 0.5, overlap=True).topic_of


# -- pairs -----------------------------------------------------------------------------------------------------------


def together(counts, i, j):
    return sum(1 for row in counts.toarray() if row[i] > 0 and row[j] > 0)


def test_cooccurrence_against_a_double_loop():
    counts = corpus()
    words = [4, 0, 17, 9, 22]
    expected = [[together(counts, i, j) for j in words] for i in words]
    assert cooccurrence(counts, words).tolist() == expected
    frequency, documents = document_frequency(counts)
    assert documents == 60
    assert frequency.tolist() == [together(counts, i, i) for i in range(25)]


@pytest.mark.parametrize("frequent", [2, 5, 2048])
def test_top_pairs_are_exact_however_few_words_are_tried_first(frequent, monkeypatch):
    monkeypatch.setattr(topic_words, "_FREQUENT", frequent)
    counts, stop = corpus(), {int(np.asarray(corpus().sum(0)).argmax())}
    pairs = [(i, j) for i, j in itertools.combinations(range(25), 2) if not {i, j} & stop]
    ranked = sorted(pairs, key=lambda pair: (-together(counts, *pair), pair))
    for number in (1, 10, 40):
        found = top_pairs(counts, number, stop=stop)
        assert [tuple(pair) for pair in found.words.tolist()] == ranked[:number]
        assert found.documents.tolist() == [together(counts, *pair) for pair in ranked[:number]]


def test_streams_matrices_and_objects_with_chunks_agree():
    counts = corpus()
    parts = [counts[:13], counts[13:14], counts[14:]]

    class Stored:
        def count_chunks(self, size):
            assert size > 0
            yield from parts

    expected = top_pairs(counts, 20)
    for source in (parts, lambda: iter(parts), Stored(), counts.toarray(), counts.tocoo()):
        found = top_pairs(source, 20)
        assert found.words.tolist() == expected.words.tolist()
        assert found.documents.tolist() == expected.documents.tolist()


def test_stored_zeros_and_repeated_entries_are_no_words_and_one_word():
    messy = scipy.sparse.csr_matrix(
        (np.array([1.0, 0.0, 1.0, 1.0, 2.0]), np.array([0, 1, 2, 2, 1]), np.array([0, 4, 5])), shape=(2, 3)
    )
    assert document_frequency(messy)[0].tolist() == [1, 1, 1]
    assert cooccurrence(messy, [0, 1, 2]).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


# -- coherence -------------------------------------------------------------------------------------------------------


def test_coherence_against_a_double_loop():
    counts = corpus()
    probabilities = table(3, 25)
    found = coherence(probabilities, counts, top=6)
    for k in range(3):
        words = sorted(range(25), key=lambda w: -float(probabilities[k, w]))[:6]
        npmi, umass = [], []
        for i, j in itertools.combinations(words, 2):
            both, one, other = together(counts, i, j), together(counts, i, i), together(counts, j, j)
            if both == 0:
                npmi.append(-1.0)
            elif both == 60:
                npmi.append(1.0)
            else:
                npmi.append(math.log((both / 60) / (one / 60 * other / 60)) / -math.log(both / 60))
            umass.append(math.log((both + 1) / max(one, 1)))
        assert float(found.npmi[k]) == pytest.approx(np.mean(npmi), abs=1e-12)
        assert float(found.umass[k]) == pytest.approx(np.mean(umass), abs=1e-12)


def test_words_that_only_come_together_have_npmi_one():
    counts = scipy.sparse.csr_matrix(np.array([[1, 2, 0], [3, 1, 0], [0, 0, 1], [0, 0, 2]]))
    found = coherence(torch.tensor([[0.6, 0.4, 0.0], [0.6, 0.0, 0.4]]), counts, top=2)
    assert found.npmi.tolist() == pytest.approx([1.0, -1.0])


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.1, 2.0, float("nan"), "much", None])
def test_thresholds_outside_the_unit_interval(threshold):
    with pytest.raises(ArgumentError, match="threshold"):
        select_words(table(), threshold)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: select_words(table(), 0.1, stop=range(50)), "stop tokens"),
        (lambda: select_words(table(), 0.1, stop=[50]), "0 to 49"),
        (lambda: select_words(torch.rand(5), 0.1), "topics × vocab"),
        (lambda: select_words(-table(), 0.1), "≥ 0"),
        (lambda: same_topic_pairs(select_words(table(), 0.1), 4), "topic=4"),
        (lambda: top_pairs(corpus(), 10_000), "only"),
        (lambda: top_pairs(corpus(), 0), "number_of_pairs=0"),
        (lambda: top_pairs(iter([corpus()]), 3), "read only once"),
        (lambda: top_pairs([], 3), "no documents"),
        (lambda: top_pairs(["text"], 3), "sparse matrices"),
        (lambda: top_pairs(7, 3), "sparse matrix"),
        (lambda: top_pairs([corpus(), corpus(vocab=24)], 3), "documents × 25"),
        (lambda: top_pairs(-corpus(), 3), "≥ 0"),
        (lambda: top_pairs(corpus() * np.nan, 3), "finite"),
        (lambda: cooccurrence(corpus(), [0, 25]), "0 to 24"),
        (lambda: coherence(table(3, 25), corpus(), top=1), "top=1"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
