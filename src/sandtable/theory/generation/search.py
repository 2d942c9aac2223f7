"""Closed forms for the toy oracles of Botta, Li, Mehta, Ash, Zhang & Risteski (2025): what finding a string costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sandtable.arguments import typed, whole
from sandtable.worlds import Knapsack


class SearchCost(NamedTuple):
    """Oracle calls to find a hidden prefix by trying candidates in random order."""

    mean: float
    mean_inferring: float
    """With the last candidate inferred instead of asked for: the least possible."""
    worst: float


@typed
def hidden_prefix_search(length: int) -> SearchCost:
    """(M+1)/2, (M−1)(M+2)/(2M) and M for the M = 2^(D−1) candidates of `HiddenPrefix`.

    Shorter queries tell nothing and each wrong candidate only itself, so no order beats another: by Yao's principle the
    second number is the least expected cost of any algorithm for its worst secret.
    """
    m = 2.0 ** (whole("length", length, least=2) - 1)
    return SearchCost((m + 1) / 2, (m - 1) * (m + 2) / (2 * m), m)


@typed
def hidden_prefix_rejection(length: int) -> float:
    """D·2^(D−1): whole strings until one is right."""
    return length * 2.0 ** (whole("length", length, least=2) - 1)


@typed
def hidden_prefix_tokenwise(length: int) -> float:
    """2(D−1) + 1: tokens with a verifier that knows the support; the last bit is never wrong."""
    return 2.0 * (whole("length", length, least=2) - 1) + 1


@typed
def zeros_rejection(length: int, *, abort: bool = False) -> float:
    """D·2^D, or 2^(D+1) − 2 if a string is given up at its first 1."""
    length = whole("length", length)
    return 2.0 ** (length + 1) - 2 if abort else length * 2.0**length


@typed
def zeros_tokenwise(length: int) -> float:
    """2D."""
    return 2.0 * whole("length", length)


@typed
def one_zero_tv(length: int) -> float:
    """(2^D − 2)/(2^D(2^D − 1)): tokenwise rejection gives 1^(D−1)0 twice its share."""
    n = 2.0 ** whole("length", length)
    return (n - 2) / (n * (n - 1))


@typed
def trap_tv(length: int) -> float:
    """½ − 1/(2^(D−1) + 1): tokenwise rejection gives 1^D half of all mass."""
    return 0.5 - 1 / (2.0 ** (whole("length", length) - 1) + 1)


def knapsack_rejection(world: Knapsack) -> float:
    """D·2^D/|A|."""
    return world.length * 2.0**world.length / world.solutions


def knapsack_tokenwise(world: Knapsack) -> float:
    """E_q Σ 1/Z of tokenwise rejection, over (position, sum so far) in place of prefixes: at most 2D.

    A bit costs two draws where only one of its values can be completed, one draw where both can.
    """
    mass, queries = {0: 1.0}, 0.0
    for i, weight in enumerate(world.weights):
        tail = world.tails[i + 1].sums
        after: dict[int, float] = {}
        for used, chance in mass.items():
            places = [used + bit * weight for bit in (0, 1)]
            good = [place for place in places if _has(tail, world.target - place)]
            queries += chance * 2 / len(good)
            for place in good:
                after[place] = after.get(place, 0.0) + chance / len(good)
        mass = after
    return queries


def _has(sums: np.ndarray, value: int) -> bool:
    place = int(np.searchsorted(sums, value))
    return place < len(sums) and int(sums[place]) == value
