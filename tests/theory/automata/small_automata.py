"""Small automata, drawn or listed, and their runs by a plain loop: what algebra and compiler are held against."""

import itertools

import torch
from hypothesis import strategies as st

from sandtable.worlds.automata import from_permutations, from_table


def automata(states=4, tokens=3):
    """Any automaton of at most so many states and tokens."""

    def table(shape):
        n, k = shape
        row = st.lists(st.integers(0, n - 1), min_size=k, max_size=k)
        return st.lists(row, min_size=n, max_size=n)

    shapes = st.tuples(st.integers(1, states), st.integers(1, tokens))
    return shapes.flatmap(table).map(from_table)


def permuting(points=5, tokens=3):
    """Any automaton whose tokens permute its states."""

    def of(n):
        return st.lists(st.permutations(range(n)), min_size=1, max_size=tokens)

    return st.integers(1, points).flatmap(of).map(from_permutations)


def all_maps(n):
    """All maps on n points, from a cycle, a swap and one that joins two points."""
    cycle, swap = [*range(1, n), 0], [1, 0, *range(2, n)]
    return from_table(list(zip(cycle, swap, [0, 0, *range(2, n)], strict=True)))


def run(automaton, word, start):
    """q_1 … q_T, one token after the other."""
    found = []
    for token in word:
        start = automaton.table[start][token]
        found.append(start)
    return found


def induced(automaton, word):
    """The map of a word."""
    return tuple(run(automaton, word, q)[-1] for q in range(automaton.n_states))


def words(automaton, length):
    return list(itertools.product(range(automaton.n_tokens), repeat=length))


def all_runs(automaton, length):
    """Every word of a length as a tensor and, for every start state, the right answers."""
    inputs = words(automaton, length)
    for start in range(automaton.n_states):
        yield start, torch.tensor(inputs), torch.tensor([run(automaton, word, start) for word in inputs])


def closure(maps):
    """Everything that can be made by one map after another, by trying all pairs until nothing is new."""
    found = set(maps)
    while new := {tuple(b[x] for x in a) for a in found for b in maps} - found:
        found |= new
    return found
