"""Smaller automata that read the same tokens side by side and tell all states of a larger one.

A *congruence* joins states so that every token takes joined states to joined ones: its blocks are the states of a
quotient. Quotients by congruences θ_1, θ_2, … tell all states where no two are joined by each θ_i. Only the least
congruences, the atoms, need to be broken up: a family tells all states if and only if no atom lies in all of its
members. For every atom one of the coarsest that does not contain it is taken (Birkhoff's subdirect products): direct
products are taken apart so, and whatever else two views of the states suffice for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile import recognise
from sandtable.worlds.automata import Automaton, Map

Partition = tuple[int, ...]
"""The block of every state, blocks numbered by their first state."""
MOST_STATES = 500
"""Automata beyond this size are not taken apart."""
MOST_GENERATORS = 2_000
"""Pairs of states, none of them reached from another and back, that are followed."""


def factors(automaton: Automaton) -> list[Partition]:
    """Congruences whose quotients tell all states, as coarse as possible; the trivial one alone where none do.

    Memories stay whole, of which any partition is a congruence.
    """
    n = automaton.n_states
    alone = [tuple(range(n))]
    if n > MOST_STATES:
        raise ArgumentError(f"{n:,} states: at most {MOST_STATES} are looked at for factors")
    maps = tuple(dict.fromkeys(automaton.maps))
    generated = {joined(maps, n, [pair]): pair for pair in _pairs(maps, n)}
    # Coarse ones first, so that few have to be put together.
    least = sorted(generated, key=lambda one: (max(one), one))
    atoms = [one for one in least if not any(other != one and _within(other, one) for other in least)]
    if len(atoms) < 2:
        return alone
    found: list[Partition] = []
    for atom in atoms:
        a, b = generated[atom]
        if any(one[a] != one[b] for one in found):
            continue
        coarse = alone[0]
        for one in least:
            wider = _join(coarse, one)
            if wider[a] != wider[b]:
                coarse = wider
        found.append(coarse)
    return _memories_together(automaton, found)


def quotient(automaton: Automaton, blocks: Partition) -> Automaton:
    """The automaton on the blocks of a congruence, with one more token, the last, that keeps every state."""
    firsts = [blocks.index(block) for block in range(max(blocks) + 1)]
    rows = [(*(blocks[after] for after in automaton.table[q]), block) for block, q in enumerate(firsts)]
    return Automaton(tuple(rows), start=blocks[automaton.start])


def joined(maps: Sequence[Map], n: int, pairs: Iterable[tuple[int, int]]) -> Partition:
    """The finest partition that all maps respect and that joins these pairs."""
    parent = list(range(n))

    def root(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    queue = list(pairs)
    for x, y in queue:  # two states that are joined: so must be the images of both
        a, b = root(x), root(y)
        if a != b:
            parent[max(a, b)] = min(a, b)
            queue += [(image[x], image[y]) for image in maps]
    return _numbered(root(q) for q in range(n))


def _pairs(maps: Sequence[Map], n: int) -> list[tuple[int, int]]:
    """A pair of every strongly connected part of the graph of pairs: those of one part generate the same congruence."""
    first, second = np.triu_indices(n, 1)
    place = np.full((n, n), -1)
    place[first, second] = place[second, first] = np.arange(len(first))
    images = np.array(maps)
    after = place[images[:, first], images[:, second]]
    token, pair = np.nonzero(after >= 0)  # -1: the map joins the two
    graph = coo_array((np.ones(len(pair), dtype=bool), (pair, after[token, pair])), shape=(len(first),) * 2)
    parts, number = connected_components(graph, connection="strong")
    if parts > MOST_GENERATORS:
        raise ArgumentError(f"{parts:,} kinds of pairs of states: at most {MOST_GENERATORS:,} are followed")
    kept = np.unique(number, return_index=True)[1]
    return list(zip(first[kept].tolist(), second[kept].tolist(), strict=True))


def _within(fine: Partition, coarse: Partition) -> bool:
    """Whether every block of the one lies in a block of the other."""
    return len(set(zip(fine, coarse, strict=True))) == max(fine) + 1


def _join(one: Partition, other: Partition) -> Partition:
    """The finest partition that joins what either does; that of two congruences is one."""
    return joined((), len(one), [(blocks.index(block), q) for blocks in (one, other) for q, block in enumerate(blocks)])


def _memories_together(automaton: Automaton, found: list[Partition]) -> list[Partition]:
    """One memory for several that are written together: a head holds any number of states."""
    merged: list[Partition] = []
    for one in found:
        for i, other in enumerate(merged):
            both = _numbered(zip(one, other, strict=True))
            if recognise.writes(quotient(automaton, both)) is not None:
                merged[i] = both
                break
        else:
            merged.append(one)
    return merged


def _numbered(names: Iterable) -> Partition:
    """Blocks by their names, numbered as they come."""
    numbers: dict = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)
