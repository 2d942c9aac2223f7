"""What a net that knows parity only by heart gets right: the (position, count) pairs that it met in training.

A net that ties the number of ones to the position, as sums over a prefix read by an MLP do, can only know the pairs
(t, c) — c ones among the first t — that occurred in its N training sequences; on others it guesses.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import binom, hypergeom

from sandtable.arguments import fits_in_memory, number, probability, typed, whole

GUESS = 0.5
Pairs = Float[np.ndarray, "position count"]


@typed
def visits(length: int, sequences: float, *, rate: float = 0.5) -> Pairs:
    """N · P(c ones among the first t): how often a pair is met on average; t = 1 … T, c = 0 … T."""
    whole("length", length)
    number("sequences", sequences, least=0.0)
    return sequences * _binomial(length, probability("rate", rate))


@typed
def met(length: int, sequences: float, *, rate: float = 0.5) -> Pairs:
    """u(t, c) = 1 − (1 − P(c ones among the first t))^N: the probability that a pair is met at all."""
    whole("length", length)
    number("sequences", sequences, least=0.0)
    with np.errstate(divide="ignore"):
        return -np.expm1(sequences * np.log1p(-_binomial(length, probability("rate", rate))))


def known(pairs: Pairs) -> Pairs:
    """Accuracy at every pair that is met with this probability: u + (1 − u) / 2."""
    return pairs + GUESS * (1 - pairs)


@typed
def accuracy_by_rate(rates: Sequence[float], length: int, sequences: float, *, trained: float = 0.5) -> np.ndarray:
    """(1/T) Σ_t Σ_c Bin(t, p)(c) [u + (1 − u) / 2] for every rate p of ones."""
    right = known(met(length, sequences, rate=trained))
    return np.array([(_binomial(length, probability("rate", rate)) * right).sum() / length for rate in rates])


@typed
def accuracy_by_count(counts: Sequence[int], length: int, sequences: float, *, trained: float = 0.5) -> np.ndarray:
    """The same where exactly `count` ones lie anywhere in the row: c is then hypergeometric at every position."""
    right = known(met(length, sequences, rate=trained))
    position, c = np.arange(1, length + 1)[:, None], np.arange(length + 1)
    laws = [hypergeom.pmf(c, length, whole("count", count, least=0, most=length), position) for count in counts]
    return np.array([(law * right).sum() / length for law in laws])


def _binomial(length: int, rate: float) -> Pairs:
    fits_in_memory("length", length, 4.0 * length**2, size=8)
    return binom.pmf(np.arange(length + 1), np.arange(1, length + 1)[:, None], rate)
