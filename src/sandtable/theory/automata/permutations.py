"""Permutation groups: elements, order, membership, subgroups, quotients.

A permutation is a tuple of images; the product a·b is "b, then a", x ↦ a[b[x]], as tokens of a group automaton multiply
from the left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.schreier import Chain
from sandtable.worlds.automata import Automaton, Map
from sandtable.worlds.automata.making import permutation

MOST_ELEMENTS = 100_000


def smallest_kind(n: int) -> type[np.unsignedinteger]:
    """The smallest type of integers that holds the numbers below n."""
    return np.uint8 if n <= 2**8 else np.uint16 if n <= 2**16 else np.uint32


def row_keys(rows: np.ndarray) -> list[bytes]:
    """Every row as bytes, which can be looked up."""
    rows = np.ascontiguousarray(rows)
    return rows.view(np.dtype((np.void, rows.shape[1] * rows.itemsize))).ravel().tolist()


def times(a: Map, b: Map) -> Map:
    """a·b: b, then a."""
    return tuple(a[x] for x in b)


def inverse(a: Map) -> Map:
    found = [0] * len(a)
    for x, y in enumerate(a):
        found[y] = x
    return tuple(found)


def power(a: Map, k: int) -> Map:
    """a·a·…·a, k times; the inverse's power if k < 0."""
    base, found = (a, tuple(range(len(a)))) if k >= 0 else (inverse(a), tuple(range(len(a))))
    k = abs(k)
    while k:
        found = times(found, base) if k % 2 else found
        base, k = times(base, base), k // 2
    return found


def commutator(a: Map, b: Map) -> Map:
    """a·b·a⁻¹·b⁻¹."""
    return times(times(a, b), times(inverse(a), inverse(b)))


def order_of(a: Map) -> int:
    """The least k ≥ 1 with aᵏ = identity: the least common multiple of the cycles' lengths."""
    return math.lcm(*map(len, cycles(a)))


def cycles(a: Map) -> list[tuple[int, ...]]:
    """Cycles of a permutation, fixed points included."""
    met, found = [False] * len(a), []
    for x in range(len(a)):
        cycle, y = [], x
        while not met[y]:
            met[y] = True
            cycle.append(y)
            y = a[y]
        if cycle:
            found.append(tuple(cycle))
    return found


def cycle_text(a: Map) -> str:
    """A permutation by its cycles, points counted from 0; the identity is "e"."""
    return "".join(f"({' '.join(map(str, c))})" for c in cycles(a) if len(c) > 1) or "e"


@dataclass(frozen=True, eq=False)
class PermutationGroup:
    """The group that permutations of the same points generate."""

    generators: tuple[Map, ...]
    degree: int

    @classmethod
    def generated(cls, generators: Iterable[Sequence[int]], degree: int | None = None) -> PermutationGroup:
        """The group of some permutations; `degree` is needed only where there are none."""
        maps = tuple(dict.fromkeys(permutation(g) for g in generators))
        if not maps and degree is None:
            raise ArgumentError("generators: must be at least one permutation")
        points = len(maps[0]) if degree is None else degree
        for g in maps:
            if len(g) != points:
                raise ArgumentError(f"generators: {g} acts on {len(g)} points, not {points}")
        return cls(tuple(g for g in maps if g != tuple(range(points))), points)

    @classmethod
    def from_elements(cls, rows: Int[np.ndarray, "element point"]) -> PermutationGroup:
        """The group whose elements these are, with few of them as generators."""
        group = cls((), rows.shape[1])
        for row in rows:
            if group.order == len(rows):
                break
            if tuple(row.tolist()) not in group:
                group = cls((*group.generators, tuple(row.tolist())), rows.shape[1])
        if group.order != len(rows):
            raise ArgumentError(f"{len(rows)} permutations generate {group.order}: they are no group")
        return group

    @classmethod
    def of(cls, automaton: Automaton) -> PermutationGroup:
        """The group of an automaton whose tokens are all bijections."""
        for token, image in enumerate(automaton.maps):
            if len(set(image)) < len(image):
                raise ArgumentError(f"token {automaton.vocab.tokens[token]!r}: is no permutation of the states")
        return cls.generated(automaton.maps)

    @property
    def identity(self) -> Map:
        return tuple(range(self.degree))

    @cached_property
    def chain(self) -> Chain:
        """Base and strong generating set (Schreier and Sims)."""
        return Chain.of(self.generators, self.degree)

    @property
    def order(self) -> int:
        return self.chain.order

    def __contains__(self, element: Sequence[int]) -> bool:
        return self.chain.contains(element)

    @cached_property
    def array(self) -> Int[np.ndarray, "element point"]:
        """All elements, the identity first, then in lexicographic order."""
        if self.order > MOST_ELEMENTS:
            raise ArgumentError(f"a group of {self.order:,} elements: at most {MOST_ELEMENTS:,} are listed")
        return self.chain.elements()

    @cached_property
    def elements(self) -> tuple[Map, ...]:
        return tuple(map(tuple, self.array.tolist()))

    @cached_property
    def places(self) -> dict[Map, int]:
        """The number of every element."""
        return {element: i for i, element in enumerate(self.elements)}

    def subgroup(self, generators: Iterable[Sequence[int]]) -> PermutationGroup:
        return PermutationGroup.generated(generators, self.degree)

    def normal_closure(self, elements: Iterable[Map]) -> PermutationGroup:
        """The least normal subgroup with these elements in it."""
        chain, chosen, queue = Chain(self.degree, []), [], list(elements)
        while queue:
            element = queue.pop()
            if chain.add(element):
                chosen.append(element)
                queue += [conjugate(g, element) for g in self.generators]
        found = PermutationGroup(tuple(chosen), self.degree)
        found.__dict__["chain"] = chain  # what `found.chain` would work out once more
        return found

    def is_normal(self, subgroup: PermutationGroup) -> bool:
        """Whether gN = Ng for every g, N being a subgroup of this group."""
        return self.contains_group(subgroup) and all(
            conjugate(g, n) in subgroup for g in self.generators for n in subgroup.generators
        )

    def contains_group(self, other: PermutationGroup) -> bool:
        return all(g in self for g in other.generators)

    # -- what kind of group ------------------------------------------------------------------------------------------

    @cached_property
    def derived(self) -> PermutationGroup:
        """[G, G], which the commutators generate: the normal closure of those of the generators."""
        gens = self.generators
        return self.normal_closure(commutator(a, b) for i, a in enumerate(gens) for b in gens[:i])

    @cached_property
    def is_abelian(self) -> bool:
        gens = self.generators
        return all(times(a, b) == times(b, a) for i, a in enumerate(gens) for b in gens[:i])

    @cached_property
    def is_solvable(self) -> bool:
        """Derived subgroups come down to the identity."""
        return derived_series(self)[-1].order == 1

    @cached_property
    def is_perfect(self) -> bool:
        """The group is its own derived subgroup."""
        return self.derived.order == self.order


def conjugate(g: Map, x: Map) -> Map:
    """g·x·g⁻¹."""
    return times(times(g, x), inverse(g))


def derived_series(group: PermutationGroup) -> list[PermutationGroup]:
    """G, [G, G], … down to the first that is its own derived subgroup: {e} exactly where G is solvable."""
    found = [group]
    while (below := found[-1].derived).order < found[-1].order:
        found.append(below)
    return found


def derived_orders(group: PermutationGroup) -> list[int]:
    return [part.order for part in derived_series(group)]
