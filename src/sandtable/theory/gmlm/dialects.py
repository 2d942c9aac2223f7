"""All words at once when the target has several dialects: how often the words agree.

A source has M right translations of N words, one in each dialect, all alike. Every word is drawn from its own marginal.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from sandtable.arguments import ArgumentError, probability, whole

MOST_COUNTS = 2**20
"""Of words seen by chance, over all dialects."""


def agree_by_chance(dialects: int, words: int) -> float:
    """M^(1 − N): the words of one dialect throughout, where every marginal is uniform over the dialects."""
    return float(whole("dialects", dialects)) ** (1 - whole("words", words))


def evidence(unmask: float, vocabulary: int) -> float:
    """What a right word of a dialect at its place does to the odds of this dialect: 1 + u W / (1 − u).

    Each word of the start is the target's with probability u, and else uniform over W words.
    """
    if probability("unmask", unmask) == 1:
        raise ArgumentError("unmask=1.0: must be below 1, or the start is the target")
    return 1 + unmask * whole("vocabulary", vocabulary) / (1 - unmask)


def agree_from_noise(dialects: int, words: int, vocabulary: int, unmask: float) -> float:
    """E Σ_z p_z^N from a start of N uniform words out of W, for the Bayes-optimal decoder trained with share u shown.

    Noise has m_z words that are right in dialect z by chance, m ~ Multinomial(N; 1/W, …, 1/W), and the posterior
    p_z ∝ (1 + u W/(1 − u))^{m_z} is the same at every position: noise is shared randomness, which marginals lack.
    """
    m, n, w = whole("dialects", dialects), whole("words", words), whole("vocabulary", vocabulary, least=dialects)
    if (n + 1) ** m > MOST_COUNTS:
        raise ArgumentError(f"dialects={m}, words={n}: (N + 1)^M = {(n + 1) ** m} must be ≤ {MOST_COUNTS}")
    weight = math.log(evidence(unmask, w))
    counts = np.array([c for c in itertools.product(range(n + 1), repeat=m) if sum(c) <= n])
    rest = n - counts.sum(1)
    ways = math.factorial(n) / (_factorials(counts).prod(1) * _factorials(rest))
    chance = ways * (1 / w) ** counts.sum(1) * (1 - m / w) ** rest
    posterior = np.exp(weight * (counts - counts.max(1, keepdims=True)))
    posterior /= posterior.sum(1, keepdims=True)
    return float(chance @ (posterior**n).sum(1))


def _factorials(counts: np.ndarray) -> np.ndarray:
    return np.array([math.factorial(i) for i in range(int(counts.max()) + 1)], dtype=float)[counts]
