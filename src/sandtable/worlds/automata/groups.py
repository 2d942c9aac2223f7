"""Automata whose tokens are bijections: counters, cars, quaternions, permutations, puzzles.

States of a group automaton are the group's elements, and tokens multiply from the left: q_t = σ_t q_{t−1}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice, permutations, product
from typing import Any

from sandtable.arguments import ArgumentError, capped_power, flag, items, names, one_of, typed, whole, wholes
from sandtable.worlds.automata.automaton import MOST_ENTRIES, Automaton, Map, require_few
from sandtable.worlds.automata.making import permutation, regular


@typed
def cyclic(n: int, *, tokens: Sequence[int] | None = None, **fields: Any) -> Automaton:
    """The counter modulo n: δ(q, σ) = q + σ; all n numbers are tokens unless `tokens` names some."""
    whole("n", n)
    chosen = range(n) if tokens is None else wholes("tokens", tokens, least=0, most=n - 1)
    require_few(f"n={n}", n, len(chosen))
    return regular(range(n), lambda a, b: (a + b) % n, chosen, **fields)


def parity(**fields: Any) -> Automaton:
    """Token 1 toggles, 0 keeps."""
    return cyclic(2, **fields)


@typed
def cyclic_power(n: int, copies: int, **fields: Any) -> Automaton:
    """C_n × … × C_n, all elements as tokens."""
    whole("n", n)
    whole("copies", copies)
    size = capped_power(n, copies) if n > 1 else 1
    require_few(f"n={n}, copies={copies}", size, size * copies)
    elements = list(product(range(n), repeat=copies))
    return regular(
        elements, lambda a, b: tuple((x + y) % n for x, y in zip(a, b, strict=True)), elements, spell=_joined, **fields
    )


@typed
def dihedral(n: int, *, tokens: Sequence[str] = ("drive", "toggle"), **fields: Any) -> Automaton:
    """D_{2n}, the car on a circle of n places: "drive" goes one place ahead, "toggle" turns it round, "stay" keeps.

    State (b, s), direction and place, is number n·b + s.
    """
    whole("n", n)
    moves = {"drive": lambda b, s: (b, (s + (-1) ** b) % n), "toggle": lambda b, s: (1 - b, s), "stay": lambda *q: q}
    tokens = names("tokens", tokens)
    for token in tokens:
        one_of("tokens", token, moves)
    require_few(f"n={n}", 2 * n, len(tokens))
    states = list(product(range(2), range(n)))
    rows = tuple(tuple(n * b + s for b, s in (moves[token](*state) for token in tokens)) for state in states)
    return Automaton(rows, states=tuple(f"{s}{'+-'[b]}" for b, s in states), tokens=tuple(tokens), **fields)


QUATERNIONS = ("1", "-1", "i", "-i", "j", "-j", "k", "-k")


def quaternion_product(a: str, b: str) -> str:
    """The product of two unit quaternions, i² = j² = k² = ijk = −1."""
    sign = (-1) ** (a.startswith("-") + b.startswith("-"))
    x, y = a.lstrip("-"), b.lstrip("-")
    if "1" in (x, y):
        out = x if y == "1" else y
    elif x == y:
        sign, out = -sign, "1"
    else:
        (out,) = set("ijk") - {x, y}
        sign *= 1 if x + y in ("ij", "jk", "ki") else -1
    return out if sign == 1 else f"-{out}"


@typed
def quaternion(*, tokens: Sequence[str] = ("1", "i", "j", "k"), **fields: Any) -> Automaton:
    """Q_8: the eight unit quaternions, multiplied from the left by the tokens."""
    tokens = names("tokens", tokens)
    for token in tokens:
        one_of("tokens", token, QUATERNIONS)
    return regular(QUATERNIONS, quaternion_product, tokens, **fields)


@typed
def symmetric_tokens(n: int, count: int = 8) -> tuple[Map, ...]:
    """Identity, the shift by one, then the transposition of the first two (three tokens), or permutations of n items
    in lexicographic order without those two (more than three)."""
    whole("n", n, least=2, most=MOST_ENTRIES)
    whole("tokens", count)
    identity, shift = tuple(range(n)), (*range(1, n), 0)
    if count <= 3:
        return (identity, shift, (1, 0, *range(2, n)))[: whole("tokens", count)]
    whole("tokens", count, most=min(math.factorial(min(n, 12)), MOST_ENTRIES))
    rest = (p for p in permutations(range(n)) if p not in (identity, shift))
    return (identity, shift, *islice(rest, count - 2))


@typed
def symmetric(n: int, *, tokens: int | Sequence[Sequence[int]] | None = None, **fields: Any) -> Automaton:
    """S_n with all n! permutations as states; `tokens` as permutations, or so many of `symmetric_tokens`: eight, or all
    where there are fewer."""
    whole("n", n, least=2, most=8)
    elements = list(permutations(range(n)))
    count = min(8, len(elements)) if tokens is None else tokens
    chosen = symmetric_tokens(n, count) if isinstance(count, int) else _of_size(n, count)
    return regular(elements, after, chosen, spell=one_line, **fields)


@typed
def alternating(
    n: int, *, tokens: Sequence[Sequence[int]] | None = None, identity: bool = False, **fields: Any
) -> Automaton:
    """A_n with all even permutations as states; tokens are the 3-cycles (1 2 i), after the identity if asked for."""
    whole("n", n, least=3, most=8)
    chosen = [three_cycle(n, i) for i in range(2, n)] if tokens is None else _of_size(n, tokens)
    chosen = [tuple(range(n))] * flag("identity", identity) + list(chosen)
    for p in chosen:
        if not even(p):
            raise ArgumentError(f"token {p}: must be an even permutation")
    return regular([p for p in permutations(range(n)) if even(p)], after, chosen, spell=one_line, **fields)


def three_cycle(n: int, i: int) -> Map:
    """(0 1 i): 0 → 1 → i → 0."""
    images = list(range(n))
    images[0], images[1], images[i] = 1, i, 0
    return tuple(images)


def after(second: Map, first: Map) -> Map:
    """The product second·first: x ↦ second[first[x]]."""
    return tuple(second[x] for x in first)


def even(p: Sequence[int]) -> bool:
    """Whether the number of inversions is even."""
    return sum(p[i] > p[j] for i in range(len(p)) for j in range(i + 1, len(p))) % 2 == 0


def one_line(p: Sequence[int]) -> str:
    """A permutation of up to nine points by its images, counted from 1."""
    return "".join(str(x + 1) for x in p)


def _of_size(n: int, tokens: Sequence[Sequence[int]]) -> tuple[Map, ...]:
    chosen = tuple(permutation(p) for p in items("tokens", tokens, "permutations"))
    for p in chosen:
        if len(p) != n:
            raise ArgumentError(f"token {p}: must permute {n} points")
    if not chosen:
        raise ArgumentError("tokens=(): must be at least one permutation")
    return chosen


def _joined(element: Sequence[int]) -> str:
    return "".join(map(str, element))
