"""Which special constructions an automaton admits: memory, counter, corridor, permutations, permutation-reset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sandtable.theory.automata.permutations import PermutationGroup, order_of, power
from sandtable.worlds.automata import Automaton, Map

MOST_ELEMENTS = 5_000
"""Counters beyond this order are not looked for."""


@dataclass(frozen=True)
class Counting:
    """Token σ is the `powers[σ]`-th power of one permutation of this order; `states[q][c]` is where its c-th leads."""

    order: int
    powers: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Corridor:
    """Token σ moves by −1, 0 or +1 along the states in this order, as far as the ends."""

    order: tuple[int, ...]
    moves: tuple[int, ...]


def writes(automaton: Automaton) -> tuple[int | None, ...] | None:
    """The state that every token writes, None for tokens that keep; None where a token does neither."""
    found: list[int | None] = []
    for image in automaton.maps:
        if image == tuple(range(automaton.n_states)):
            found.append(None)
        elif len(set(image)) == 1:
            found.append(image[0])
        else:
            return None
    return tuple(found)


def group_of(automaton: Automaton) -> PermutationGroup | None:
    """The group of an automaton whose tokens are all bijections."""
    if any(len(set(image)) < automaton.n_states for image in automaton.maps):
        return None
    return bijections(automaton)


def bijections(automaton: Automaton) -> PermutationGroup:
    """The group that those tokens generate which are bijections."""
    return _generated(
        tuple(image for image in automaton.maps if len(set(image)) == automaton.n_states), automaton.n_states
    )


@lru_cache(maxsize=8)
def _generated(images: tuple[Map, ...], states: int) -> PermutationGroup:
    """Kept, with what was worked out about it: every construction asks for the same group."""
    return PermutationGroup.generated(images, states)


def counting(automaton: Automaton) -> Counting | None:
    """One permutation of which every token is a power."""
    group = group_of(automaton)
    if group is None or not group.is_abelian or group.order > MOST_ELEMENTS:
        return None
    generator = next((g for g in group.elements if order_of(g) == group.order), None)
    if generator is None:
        return None
    powers = [power(generator, c) for c in range(group.order)]
    states = tuple(tuple(image[q] for image in powers) for q in range(automaton.n_states))
    return Counting(group.order, tuple(powers.index(image) for image in automaton.maps), states)


def corridor(automaton: Automaton) -> Corridor | None:
    """An order of the states along which every token moves by −1, 0 or +1."""
    n = automaton.n_states
    still = tuple(range(n))
    ahead = next((image for image in automaton.maps if image != still), None)
    if n < 2 or ahead is None:
        return None
    order = _walk(ahead)
    if order is None:
        return None
    place = {q: i for i, q in enumerate(order)}
    moves = []
    for image in automaton.maps:
        step = next(
            (s for s in (-1, 0, 1) if all(place[image[q]] == min(max(place[q] + s, 0), n - 1) for q in still)), None
        )
        if step is None:
            return None
        moves.append(step)
    return Corridor(order, tuple(moves))


def permutes_or_resets(automaton: Automaton) -> bool:
    """Every token is a bijection or constant."""
    return all(len(set(image)) in (1, automaton.n_states) for image in automaton.maps)


def _walk(image: Map) -> tuple[int, ...] | None:
    """The states from the one that the map does not reach to the one that it keeps, if that passes them all."""
    first = [q for q in range(len(image)) if q not in image]
    if len(first) != 1:
        return None
    order = first
    while image[order[-1]] not in order:
        order.append(image[order[-1]])
    return tuple(order) if len(order) == len(image) and image[order[-1]] == order[-1] else None
