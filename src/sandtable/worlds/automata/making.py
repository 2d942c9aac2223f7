"""Automata from tables, from permutations, and from the regular representation of a group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, TypeVar

from sandtable.arguments import ArgumentError, flag, instance, items, names, typed
from sandtable.worlds.automata.automaton import Automaton, Map

State = TypeVar("State", bound=Hashable)


@typed
def from_table(table: Sequence[Sequence[int]] | Mapping[str, Mapping[str, str]], **fields: Any) -> Automaton:
    """δ as rows of next states; or, with names, as {state: {token: next state}}, the first state being the start."""
    if not isinstance(table, Mapping):
        rows = (items("table", row, "next states") for row in items("table", table, "rows"))
        return Automaton(tuple(tuple(map(_plain, row)) for row in rows), **fields)
    states = names("table", table.keys())
    for row in table.values():
        instance("table", row, Mapping, "a mapping of states to mappings of tokens to states")
    tokens = tuple(dict.fromkeys(token for row in table.values() for token in row))
    for state, row in table.items():
        for token in tokens:
            if token not in row:
                raise ArgumentError(f"table: state {state!r} has no next state on token {token!r}; it must be total")
            if row[token] not in states:
                raise ArgumentError(f"table: state {state!r} goes to {row[token]!r}, which is no state of it")
    rows = tuple(tuple(states.index(row[token]) for token in tokens) for row in table.values())
    return Automaton(rows, states=states, tokens=tokens, **fields)


@typed
def from_permutations(
    generators: Sequence[Sequence[int]] | Mapping[str, Sequence[int]], *, identity: bool = False, **fields: Any
) -> Automaton:
    """The automaton on points whose tokens permute them; with `identity`, token 0 keeps every point."""
    known = tuple(generators) if isinstance(generators, Mapping) else ()
    given = generators.values() if isinstance(generators, Mapping) else items("generators", generators, "permutations")
    maps = [permutation(p) for p in given]
    if not maps:
        raise ArgumentError("generators: must be at least one permutation")
    for p in maps:
        if len(p) != len(maps[0]):
            raise ArgumentError(f"generators: {p} acts on {len(p)} points, the first one on {len(maps[0])}")
    if flag("identity", identity):
        maps = [tuple(range(len(maps[0]))), *maps]
        known = ("e", *known) if known else ()
    return Automaton(tuple(zip(*maps, strict=True)), tokens=fields.pop("tokens", known), **fields)


def permutation(images: Sequence[int]) -> Map:
    """`images` as a permutation x ↦ images[x], or an `ArgumentError`."""
    try:
        found = tuple(map(index, images))
    except TypeError:
        found = ()
    if not found or set(found) != set(range(len(found))):
        raise ArgumentError(f"generator {images!r}: must be a permutation, every number from 0 to n−1 once")
    return found


def reached(
    start: State, step: Mapping[str, Callable[[State], State]], *, states: Iterable[State] = (), **fields: Any
) -> Automaton:
    """All states that tokens lead to, in the order in which they are found (or as listed in `states`)."""
    found = list(dict.fromkeys([*states, start]))
    place = {state: i for i, state in enumerate(found)}
    rows = []
    for state in found:
        after = [move(state) for move in step.values()]
        for new in after:
            if new not in place:
                place[new] = len(found)
                found.append(new)
        rows.append(tuple(place[new] for new in after))
    known = tuple(state if isinstance(state, str) else _short(state) for state in found)
    return Automaton(tuple(rows), start=place[start], tokens=tuple(step), states=known, **fields)


def regular(
    elements: Sequence[State],
    multiply: Callable[[State, State], State],
    tokens: Sequence[State],
    *,
    spell: Callable[[State], str] = str,
    **fields: Any,
) -> Automaton:
    """The canonical automaton of a group: Q = G, δ(q, σ) = σ·q, start at the identity, which comes first.

    `spell` gives the names of elements.
    """
    place = {element: i for i, element in enumerate(elements)}
    rows = tuple(tuple(place[multiply(token, element)] for token in tokens) for element in elements)
    return Automaton(rows, states=tuple(map(spell, elements)), tokens=tuple(map(spell, tokens)), **fields)


def observed(automaton: Automaton, label: Callable[[int], int]) -> Automaton:
    """The same automaton seen through φ(q) = label(q)."""
    return replace(automaton, observe=tuple(label(q) for q in range(automaton.n_states)))


def _plain(value: Any) -> Any:
    """numpy's and torch's whole numbers as Python's; anything else as it is, to be refused by name."""
    return value.__index__() if hasattr(value, "__index__") and not isinstance(value, bool) else value


def _short(state: object) -> str:
    return "".join(map(str, state)) if isinstance(state, tuple) else str(state)
