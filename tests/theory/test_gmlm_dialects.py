"""How often the words of several dialects agree, against drawing them and against Bayes' rule start by start."""

import itertools

import numpy as np
import pytest

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import dialects


def test_marginals_agree_by_chance():
    assert dialects.agree_by_chance(2, 6) == 1 / 32
    assert dialects.agree_by_chance(3, 1) == 1
    for m, n in ((2, 4), (3, 3)):
        rows = list(itertools.product(range(m), repeat=n))
        assert dialects.agree_by_chance(m, n) == pytest.approx(np.mean([len(set(row)) == 1 for row in rows]))


@pytest.mark.parametrize(("m", "n", "w", "u"), [(2, 2, 5, 0.15), (2, 3, 6, 0.5), (3, 2, 7, 0.3), (1, 3, 4, 0.2)])
def test_noise_agrees_as_bayes_rule_says_start_by_start(m, n, w, u):
    """Word z of W is the right one of dialect z, whatever its place."""
    total = 0.0
    for start in itertools.product(range(w), repeat=n):
        weight = np.array([np.prod([u * (word == z) + (1 - u) / w for word in start]) for z in range(m)])
        total += ((weight / weight.sum()) ** n).sum() / w**n
    assert dialects.agree_from_noise(m, n, w, u) == pytest.approx(total)


def test_without_evidence_noise_is_a_mask():
    assert dialects.agree_from_noise(3, 4, 20, 0.0) == pytest.approx(dialects.agree_by_chance(3, 4))
    more = [dialects.agree_from_noise(2, 6, 36, u) for u in (0.0, 0.15, 0.5, 0.9)]
    assert more == sorted(more)


def test_what_cannot_be():
    with pytest.raises(ArgumentError, match="unmask"):
        dialects.agree_from_noise(2, 3, 10, 1.0)
    with pytest.raises(ArgumentError, match="vocabulary"):
        dialects.agree_from_noise(4, 3, 3, 0.1)
    with pytest.raises(ArgumentError, match="words"):
        dialects.agree_by_chance(2, 0)
    with pytest.raises(ArgumentError, match="must be ≤"):
        dialects.agree_from_noise(12, 12, 30, 0.1)
