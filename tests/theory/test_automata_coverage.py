"""Coverage of (position, count) pairs against enumeration and against drawn training sets."""

import itertools

import numpy as np
import pytest

from sandtable.theory.automata import coverage


def test_accuracies_are_means_over_all_rows():
    length, sequences, rate = 6, 20, 0.5
    right = coverage.known(coverage.met(length, sequences))
    by_rate, by_count = np.zeros(2), np.zeros((length + 1, 2))
    for row in itertools.product((0, 1), repeat=length):
        sums = np.cumsum(row)
        accuracy = np.mean([right[t, c] for t, c in enumerate(sums)])
        for i, p in enumerate((0.1, rate)):
            by_rate[i] += np.prod([p if bit else 1 - p for bit in row]) * accuracy
        by_count[sums[-1]] += (accuracy, 1)
    assert coverage.accuracy_by_rate((0.1, rate), length, sequences) == pytest.approx(by_rate)
    found = coverage.accuracy_by_count(range(length + 1), length, sequences)
    assert found == pytest.approx(by_count[:, 0] / by_count[:, 1])


def test_pairs_are_met_as_often_as_in_drawn_training_sets():
    rng, length, sequences = np.random.default_rng(0), 8, 30
    sums = (rng.random((400, sequences, length)) < 0.3).cumsum(-1)
    counts = (sums[..., None] == np.arange(length + 1)).sum(1)
    assert np.abs(counts.mean(0) - coverage.visits(length, sequences, rate=0.3)).max() < 0.6
    assert np.abs((counts > 0).mean(0) - coverage.met(length, sequences, rate=0.3)).max() < 0.1


def test_published_length():
    rates = (0.05, 0.1, 0.2, 0.3, 0.5)
    assert coverage.accuracy_by_rate(rates, 40, 6e5) == pytest.approx((0.817, 0.896, 0.985, 0.999, 1.0), abs=6e-4)
    assert coverage.accuracy_by_rate(rates, 40, 1e4) == pytest.approx((0.719, 0.784, 0.924, 0.989, 1.0), abs=6e-4)
    mirrored = [1 - rate for rate in rates]
    assert coverage.accuracy_by_rate(mirrored, 40, 1e4) == pytest.approx(coverage.accuracy_by_rate(rates, 40, 1e4))
