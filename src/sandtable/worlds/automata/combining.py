"""Products of automata: side by side, and in a cascade where later ones read the states of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as tuples
from typing import Any

from sandtable.arguments import ArgumentError
from sandtable.worlds.automata.automaton import Automaton

Wire = Callable[[tuple[int, ...], int], int]
"""φ(states of the earlier components, σ): the token that a component reads."""


def product(*automata: Automaton, idle: bool = True, **fields: Any) -> Automaton:
    """Q × Q′ × …, every token a token of each; with `idle`, a token e that keeps is adjoined to each first.

    Its semigroup is the product of theirs, where they have identities (and `idle` gives them). Tokens and states are
    numbered with the last component changing fastest.
    """
    if not automata:
        raise ArgumentError("product: needs at least one automaton")
    maps = [(tuple(range(a.n_states)),) * idle + a.maps for a in automata]
    names = [("e",) * idle + a.vocab.tokens for a in automata]
    states = list(tuples(*(range(a.n_states) for a in automata)))
    place = {state: i for i, state in enumerate(states)}
    chosen = list(tuples(*maps))
    rows = tuple(
        tuple(place[tuple(m[q] for m, q in zip(moves, state, strict=True))] for moves in chosen) for state in states
    )
    fields.setdefault("tokens", tuple("|".join(pair) for pair in tuples(*names)))
    return _named(automata, states, rows, fields)


def cascade(
    components: Sequence[Automaton],
    wires: Sequence[Wire],
    *,
    tokens: int | Sequence[str],
    updated: bool = False,
    **fields: Any,
) -> Automaton:
    """On σ the first component reads σ and component i the token φ_i(q_1, …, q_{i−1}, σ); all move at once.

    φ_i sees the states *before* the move, as the wreath product of semigroups asks (`wires` has one function for every
    component but the first); with `updated` it sees those after it, which is another machine.
    """
    names = tuple(map(str, range(tokens))) if isinstance(tokens, int) else tuple(tokens)
    if len(wires) != len(components) - 1:
        raise ArgumentError(f"wires: {len(wires)} functions for {len(components)} components; must be one fewer")
    states = list(tuples(*(range(a.n_states) for a in components)))
    place = {state: i for i, state in enumerate(states)}
    rows = []
    for state in states:
        row = []
        for sigma in range(len(names)):
            after: list[int] = []
            for i, component in enumerate(components):
                seen = tuple(after) if updated else state[:i]
                token = wires[i - 1](seen, sigma) if i else sigma
                if not 0 <= token < component.n_tokens:
                    raise ArgumentError(
                        f"wire {i} gives token {token!r} on states {seen} and input {names[sigma]!r}; component {i} "
                        f"has the tokens 0 to {component.n_tokens - 1}"
                    )
                after.append(component.table[state[i]][token])
            row.append(place[tuple(after)])
        rows.append(tuple(row))
    fields.setdefault("tokens", names)
    return _named(components, states, tuple(rows), fields)


def _named(
    parts: Sequence[Automaton], states: list[tuple[int, ...]], rows: tuple[tuple[int, ...], ...], fields: dict[str, Any]
) -> Automaton:
    start = states.index(tuple(part.start for part in parts))
    names = tuple(",".join(p.state_name(q) for p, q in zip(parts, state, strict=True)) for state in states)
    return Automaton(rows, **{"start": start, "states": names, **fields})
