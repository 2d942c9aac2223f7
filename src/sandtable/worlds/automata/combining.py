"""Products of automata: side by side, and in a cascade where later ones read the states of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product as tuples
from typing import Any

from sandtable.arguments import ArgumentError, flag, instance, items, names, typed, whole
from sandtable.worlds.automata.automaton import Automaton, require_few

Wire = Callable[[tuple[int, ...], int], int]
"""φ(states of the earlier components, σ): the token that a component reads."""


@typed
def product(*automata: Automaton, idle: bool = True, **fields: Any) -> Automaton:
    """Q × Q′ × …, every token a token of each; with `idle`, a token e that keeps is adjoined to each first.

    Its semigroup is the product of theirs, where they have identities (and `idle` gives them). Tokens and states are
    numbered with the last component changing fastest.
    """
    if not automata:
        raise ArgumentError("product: needs at least one automaton")
    for one in automata:
        instance("product", one, Automaton, "automata")
    idle = flag("idle", idle)
    require_few("product", math.prod(a.n_states for a in automata), math.prod(a.n_tokens + idle for a in automata))
    maps = [(tuple(range(a.n_states)),) * idle + a.maps for a in automata]
    words = [("e",) * idle + a.vocab.tokens for a in automata]
    states = list(tuples(*(range(a.n_states) for a in automata)))
    place = {state: i for i, state in enumerate(states)}
    chosen = list(tuples(*maps))
    rows = tuple(
        tuple(place[tuple(m[q] for m, q in zip(moves, state, strict=True))] for moves in chosen) for state in states
    )
    fields.setdefault("tokens", tuple("|".join(pair) for pair in tuples(*words)))
    return _named(automata, states, rows, fields)


@typed
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
    for one in items("components", components, "automata"):
        instance("components", one, Automaton, "automata")
    count = math.prod(a.n_states for a in components)
    if isinstance(tokens, int):
        require_few(f"tokens={tokens}", count, whole("tokens", tokens))
        named = tuple(map(str, range(tokens)))
    else:
        named = names("tokens", tokens)
    require_few("components", count, len(named))
    updated = flag("updated", updated)
    if len(wires) != len(components) - 1:
        raise ArgumentError(f"wires: {len(wires)} functions for {len(components)} components; must be one fewer")
    states = list(tuples(*(range(a.n_states) for a in components)))
    place = {state: i for i, state in enumerate(states)}
    rows = []
    for state in states:
        row = []
        for sigma in range(len(named)):
            after: list[int] = []
            for i, component in enumerate(components):
                seen = tuple(after) if updated else state[:i]
                token = wires[i - 1](seen, sigma) if i else sigma
                if not 0 <= token < component.n_tokens:
                    raise ArgumentError(
                        f"wire {i} gives token {token!r} on states {seen} and input {named[sigma]!r}; component {i} "
                        f"has the tokens 0 to {component.n_tokens - 1}"
                    )
                after.append(component.table[state[i]][token])
            row.append(place[tuple(after)])
        rows.append(tuple(row))
    fields.setdefault("tokens", named)
    return _named(components, states, tuple(rows), fields)


def _named(
    parts: Sequence[Automaton], states: list[tuple[int, ...]], rows: tuple[tuple[int, ...], ...], fields: dict[str, Any]
) -> Automaton:
    start = states.index(tuple(part.start for part in parts))
    named = tuple(",".join(p.state_name(q) for p, q in zip(parts, state, strict=True)) for state in states)
    return Automaton(rows, **{"start": start, "states": named, **fields})
