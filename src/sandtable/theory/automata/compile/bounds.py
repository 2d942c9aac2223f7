"""The theorem's sizes of simulators, as its lemmas add them up (Lemmas 15 to 20, Theorem 16)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """Sizes of a simulator; `code` is the length of an element's code, `entry` the size of its entries."""

    depth: int = 0
    width: int = 0
    heads: int = 0
    head_width: int = 0
    mlp_width: int = 0
    norm: float = 0.0
    code: int = 0
    entry: int = 0

    @property
    def record(self) -> dict[str, float]:
        """By the names of `Sizes`."""
        names = ("depth", "width", "heads", "head_width", "mlp_width", "norm")
        return {name: getattr(self, name) for name in names}


def counter_bound(n: int, length: int) -> Bound:
    """C_n (Lemma 15)."""
    return Bound(1, 3, 1, 1, 4 * n * length, 4 * n * length + 2, 1, n)


def memory_norm(states: int, length: int) -> float:
    """2T·log(|Q|T), where |Q|T ≥ 16 as Lemma 16 needs but does not say; below, T·log(16|Q|T)."""
    return length * math.log(states * length * max(16, states * length))


def abelian_bound(orders: Sequence[int], length: int) -> Bound:
    """C_{n_1} × … × C_{n_r} (Lemma 17)."""
    parts = [counter_bound(n, length) for n in orders]
    return Bound(
        max(p.depth for p in parts),
        sum(p.width for p in parts),
        sum(p.heads for p in parts),
        max(p.head_width for p in parts),
        sum(p.mlp_width for p in parts),
        max(p.norm for p in parts),
        sum(p.code for p in parts),
        max(p.entry for p in parts),
    )


def semidirect_bound(inner: Bound, p: int, order: int, length: int) -> Bound:
    """N⋊C_p (Lemma 18)."""
    outer = counter_bound(p, length)
    entry = max(inner.entry, outer.entry)
    return Bound(
        inner.depth + outer.depth + 2,
        inner.width + outer.width,
        max(inner.heads, outer.heads),
        max(inner.head_width, outer.head_width),
        max(inner.mlp_width, outer.mlp_width, 4 * order),
        max(inner.norm, outer.norm, 6 * entry, inner.code + outer.code),
        inner.code + outer.code,
        entry,
    )


def wreath_bound(inner: Bound, p: int, kernel: int, length: int) -> Bound:
    """N≀C_p (Lemma 19)."""
    outer = counter_bound(p, length)
    return Bound(
        inner.depth + outer.depth + 2,
        p * inner.width + outer.width,
        max(p * inner.heads, outer.heads),
        max(inner.head_width, outer.head_width),
        max(p * inner.mlp_width, outer.mlp_width, 5 * p * p * kernel),
        max(inner.norm, outer.norm, 6 * p),
        p * inner.code + 1,
        max(inner.entry, outer.entry),
    )


def solvable_bound(order: int, degree: int, length: int) -> Bound:
    """A solvable group of permutations of n points (Theorem 16)."""
    return Bound(
        max(1, math.floor(3 * math.log2(order))),
        2 * order,
        2 * order,
        1,
        20 * degree * length * order,
        6 * degree * length,
        2 * order,
        degree,
    )


def reset_bound(group: Bound, order: int, states: int, length: int) -> Bound:
    """A permutation-reset automaton (Lemma 20, by its "=" expressions)."""
    return Bound(
        group.depth + 2,
        group.width + group.code + 4,
        group.heads + 1,
        group.head_width + 2 + group.code,
        group.mlp_width + 4 * states + order**2 * states,
        max(group.norm, 6 * states, memory_norm(states, length)),
    )


def cascade_bound(states: int, tokens: int, semigroup: float, length: int) -> dict[str, float]:
    """Any solvable automaton (Theorem 11), with the term of Lemma 21 that its norm leaves out.

    The width of heads is not among these: the theorem has no heads that fetch what stood one place before.
    """
    subsets = 2.0**states if states < 1000 else math.inf
    log_t = math.log(max(length, 2))
    tables = subsets * float(states) ** subsets * tokens if subsets * math.log(states) < 690 else math.inf
    return dict(
        depth=3 * states**2 * math.log2(max(states, 2)) + 7 * states,
        width=subsets * (semigroup + states + 4) + 1,
        heads=2 * subsets * (semigroup + 1),
        mlp_width=tables + subsets * states * semigroup * length * 20,
        norm=max(6 * states * length * log_t, subsets * (semigroup + 5 * states)) + 6 * max(states, tokens),
    )
