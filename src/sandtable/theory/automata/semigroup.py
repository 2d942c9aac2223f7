"""The transition semigroup of an automaton: all maps that words induce, with shortest words, and its subgroups.

A map s is a row of an integer array, s[q] the image of q; "s then t" is t[s]. No identity is adjoined: the semigroup
holds the maps of words of length at least one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sandtable.arguments import ArgumentError, whole
from sandtable.theory.automata.permutations import PermutationGroup, row_keys, smallest_kind
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton

CAP, ENTRIES = 100_000, 50_000_000
"""Most maps, and most numbers that maps may have together, where no cap is given."""
_BLOCK = 1 << 22
"""Entries of new maps that are looked at together."""


@dataclass(frozen=True, eq=False)
class Semigroup:
    """Maps of an automaton's states, in the order of their shortest words (by length, then by tokens)."""

    automaton: Automaton
    maps: Int[np.ndarray, "element state"]
    right: Int[np.ndarray, "element token"]
    """Element after which token: the number of "element then token"."""
    parent: Int[np.ndarray, " element"]
    """The element that a shortest word has before its last token; −1: none."""
    last: Int[np.ndarray, " element"]

    @property
    def order(self) -> int:
        return len(self.maps)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {key: i for i, key in enumerate(row_keys(self.maps))}

    def index(self, image: Sequence[int]) -> int | None:
        """The number of a map, or None where no word induces it."""
        return self._places.get(np.asarray(image, dtype=self.maps.dtype).tobytes())

    def indices(self, maps: Int[np.ndarray, "row state"]) -> Int[np.ndarray, " row"]:
        """Numbers of maps that are all in the semigroup."""
        return np.array([self._places[key] for key in row_keys(maps.astype(self.maps.dtype))], dtype=np.int64)

    def word(self, element: int) -> tuple[int, ...]:
        """A shortest word that induces the element, the first of them in the order of tokens."""
        found = []
        while element >= 0:
            found.append(int(self.last[element]))
            element = int(self.parent[element])
        return tuple(reversed(found))

    def word_text(self, element: int) -> str:
        """A shortest word, as text."""
        return self.automaton.vocab.text(self.word(element))

    # -- structure ---------------------------------------------------------------------------------------------------

    @cached_property
    def left(self) -> Int[np.ndarray, "element token"]:
        """The number of "token then element"."""
        first = np.array(self.automaton.maps)
        return np.stack([self.indices(self.maps[:, token]) for token in first], axis=1)

    @cached_property
    def ranks(self) -> Int[np.ndarray, " element"]:
        """Sizes of images."""
        return image_sizes(self.maps)

    @cached_property
    def idempotents(self) -> Int[np.ndarray, " idempotent"]:
        """Numbers of the elements with e then e = e."""
        return np.flatnonzero((np.take_along_axis(self.maps, self.maps.astype(np.int64), 1) == self.maps).all(1))

    @cached_property
    def r_class(self) -> Int[np.ndarray, " element"]:
        """Green's R: elements that reach one another by words appended."""
        return _strong(self.right)

    @cached_property
    def l_class(self) -> Int[np.ndarray, " element"]:
        """Green's L: elements that reach one another by words put in front."""
        return _strong(self.left)

    @cached_property
    def d_class(self) -> Int[np.ndarray, " element"]:
        """Green's D, the join of R and L."""
        size = self.order
        columns = np.concatenate([size + self.r_class, size + self.r_class.max() + 1 + self.l_class])
        rows = np.tile(np.arange(size), 2)
        total = int(columns.max()) + 1
        graph = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(total, total))
        return _renumbered(connected_components(graph, directed=False)[1][:size])

    @cached_property
    def has_identity(self) -> bool:
        return self.index(range(self.automaton.n_states)) is not None

    @cached_property
    def is_group(self) -> bool:
        """One H-class: everything can be undone, on a common image."""
        return int(self.r_class.max()) == 0 and int(self.l_class.max()) == 0

    def subgroup_elements(self, idempotent: int) -> Int[np.ndarray, " element"]:
        """The H-class of an idempotent: the largest subgroup that it is the identity of."""
        same = (self.r_class == self.r_class[idempotent]) & (self.l_class == self.l_class[idempotent])
        return np.flatnonzero(same)

    def maximal_subgroup(self, idempotent: int) -> PermutationGroup:
        """The subgroup at an idempotent, as permutations of its image."""
        image = np.unique(self.maps[idempotent])
        elements = self.maps[self.subgroup_elements(idempotent)][:, image]
        return PermutationGroup.from_elements(np.searchsorted(image, elements))

    def maximal_subgroups(self) -> list[tuple[int, PermutationGroup]]:
        """(idempotent, its maximal subgroup), one for every D-class that has any: others there are isomorphic."""
        first = {int(self.d_class[e]): int(e) for e in self.idempotents[::-1]}
        return [(e, self.maximal_subgroup(e)) for e in sorted(first.values())]

    @cached_property
    def is_aperiodic(self) -> bool:
        """Every subgroup is trivial, in other words no two elements share both their R- and their L-class."""
        pairs = self.r_class * (int(self.l_class.max()) + 1) + self.l_class
        return len(np.unique(pairs)) == self.order

    @cached_property
    def is_solvable(self) -> bool:
        """Every subgroup is solvable."""
        return all(group.is_solvable for _, group in self.maximal_subgroups())


def most_maps(automaton: Automaton, cap: int | None) -> int:
    """`cap`, or as many maps as are listed where none is given: fewer where there are many states."""
    return max(1, min(CAP, ENTRIES // automaton.n_states)) if cap is None else whole("cap", cap)


def semigroup(automaton: Automaton | str, *, cap: int | None = None) -> Semigroup:
    """All maps of words, by closing the tokens' maps under "then token"; stops with an error beyond `cap` maps, for
    which 100,000 are taken, or fewer where they have more than fifty million entries together."""
    automaton = as_automaton(automaton)
    cap = most_maps(automaton, cap)
    tokens = np.array(automaton.maps, dtype=smallest_kind(automaton.n_states))
    count, n = tokens.shape
    seen: dict[bytes, int] = {}
    numbers, fresh = _place(tokens, seen)
    maps, parents, lasts, rights = [tokens[fresh]], [np.full(len(fresh), -1)], [fresh], []
    length, first, frontier = 1, 0, tokens[fresh]
    while len(frontier):
        length, new = length + 1, []
        step = max(1, _BLOCK // (count * n))
        for begin in range(first, first + len(frontier), step):
            part = frontier[begin - first : begin - first + step]
            rows = tokens[:, part].swapaxes(0, 1).reshape(-1, n)
            numbers, fresh = _place(rows, seen)
            rights.append(numbers.reshape(-1, count))
            new.append(rows[fresh])
            parents.append(begin + fresh // count)
            lasts.append(fresh % count)
            if len(seen) > cap:
                raise ArgumentError(
                    f"cap={cap}: the semigroup of {automaton.name or 'this automaton'} is larger; words of up to "
                    f"{length} tokens alone induce {len(seen)} maps"
                )
        first += len(frontier)
        frontier = np.concatenate(new)
        maps.append(frontier)
    return Semigroup(automaton, *(np.concatenate(part) for part in (maps, rights, parents, lasts)))


def _place(rows: np.ndarray, seen: dict[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
    """The number of every row, new ones being added to `seen`, and where each new one stands first."""
    before = len(seen)
    numbers = np.array([seen.setdefault(key, len(seen)) for key in row_keys(rows)], dtype=np.int64)
    found, where = np.unique(numbers, return_index=True)
    return numbers, where[found >= before]


def image_sizes(maps: Int[np.ndarray, "element state"]) -> Int[np.ndarray, " element"]:
    """How many states each map reaches."""
    ordered = np.sort(maps, axis=1)
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(1)


def _strong(table: Int[np.ndarray, "element token"]) -> Int[np.ndarray, " element"]:
    """Strongly connected components of the graph element → table[element, token]."""
    size, tokens = table.shape
    graph = coo_array((np.ones(table.size, dtype=bool), (np.repeat(np.arange(size), tokens), table.ravel())))
    graph.resize(size, size)
    return _renumbered(connected_components(graph, connection="strong")[1])


def _renumbered(classes: np.ndarray) -> Int[np.ndarray, " element"]:
    """Classes numbered by their first element."""
    _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
