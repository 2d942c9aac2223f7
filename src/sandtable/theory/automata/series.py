"""Subnormal series of permutation groups: prime steps of a solvable group, normal subgroups, composition factors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.permutations import (
    PermutationGroup,
    derived_series,
    inverse,
    power,
    row_keys,
    times,
)
from sandtable.worlds.automata import Map


@dataclass(frozen=True, eq=False)
class PrimeStep:
    """G ▷ N of prime index p: every g is xᵏ·n for one k < p and one n ∈ N."""

    group: PermutationGroup
    subgroup: PermutationGroup
    prime: int
    x: Map

    @cached_property
    def transversal(self) -> tuple[Map, ...]:
        """t(k) = xᵏ."""
        return tuple(power(self.x, k) for k in range(self.prime))

    def split(self, g: Map) -> tuple[int, Map]:
        """(k, n) with g = xᵏ·n."""
        for k, t in enumerate(self.transversal):
            if (n := times(inverse(t), g)) in self.subgroup:
                return k, n
        raise ArgumentError(f"element {g}: is not in the group of order {self.group.order}")

    def digit(self, g: Map) -> int:
        """The k with x⁻ᵏ·g ∈ N."""
        return self.split(g)[0]


def prime_series(group: PermutationGroup) -> list[PrimeStep]:
    """G ▷ N₁ ▷ … ▷ {e}, all of prime index; an error that names the obstacle where G is not solvable.

    N is found above D = [G, G] and all p-th powers, p the least prime of |G/D|: G/⟨D, p-th powers⟩ is a vector space
    over F_p, of which N is a hyperplane.
    """
    steps = []
    while group.order > 1:
        derived = group.derived
        if derived.order == group.order:
            raise ArgumentError(
                f"a group of order {group.order} is its own derived subgroup: not solvable, so it has no prime series"
            )
        prime = least_prime(group.order // derived.order)
        below = group.subgroup([*derived.generators, *(power(g, prime) for g in group.generators)])
        for g in group.generators:
            wider = group.subgroup([*below.generators, g])
            if wider.order < group.order:
                below = wider
        x = next(g for g in group.generators if g not in below)
        below = PermutationGroup.from_elements(below.array)  # few generators
        steps.append(PrimeStep(group, below, prime, x))
        group = below
    return steps


def least_prime(n: int) -> int:
    """The least prime factor of n ≥ 2."""
    return next((d for d in range(2, int(n**0.5) + 1) if n % d == 0), n)


def is_prime_power(n: int) -> bool:
    """n = pᵏ with k ≥ 1."""
    if n < 2:
        return False
    p = least_prime(n)
    while n % p == 0:
        n //= p
    return n == 1


def normal_subgroups(group: PermutationGroup) -> list[PermutationGroup]:
    """All of them, smallest first: joins of the normal closures of single elements."""
    found: dict[bytes, PermutationGroup] = {}

    def keep(subgroup: PermutationGroup) -> bool:
        key = subgroup.array.astype(np.uint16).tobytes()
        new = key not in found
        found.setdefault(key, subgroup)
        return new

    keep(group.subgroup(()))
    single = [group.normal_closure([tuple(row)]) for row in group.array[conjugacy_class_firsts(group)].tolist()]
    queue = [subgroup for subgroup in single if keep(subgroup)]
    while queue:
        one = queue.pop()
        for other in single:
            join = group.subgroup([*one.generators, *other.generators])
            if keep(join):
                queue.append(join)
    return sorted(found.values(), key=lambda subgroup: subgroup.order)


def conjugacy_classes(group: PermutationGroup) -> Int[np.ndarray, " element"]:
    """The number of every element's class."""
    rows, place = group.array, {key: i for i, key in enumerate(row_keys(group.array))}
    size = len(rows)
    edges = [np.arange(size)]
    for g in map(np.array, group.generators):
        moved = g[rows[:, np.argsort(g)]]  # g·x·g⁻¹
        edges.append(np.array([place[key] for key in row_keys(moved)]))
    columns = np.concatenate(edges)
    graph = coo_array((np.ones(len(columns), dtype=bool), (np.tile(np.arange(size), len(edges)), columns)))
    return connected_components(graph, directed=False)[1]


def conjugacy_class_firsts(group: PermutationGroup) -> Int[np.ndarray, " conjugacy_class"]:
    """The number of one element of every class."""
    return np.unique(conjugacy_classes(group), return_index=True)[1]


def is_simple(group: PermutationGroup) -> bool:
    """Nothing but {e} and the group itself is normal."""
    return group.order > 1 and len(normal_subgroups(group)) == 2


def composition_factors(group: PermutationGroup) -> tuple[int, ...]:
    """Orders of the simple quotients of a composition series from the top: primes, and orders of non-abelian ones."""
    perfect = derived_series(group)[-1]
    if perfect.order == 1:
        return tuple(step.prime for step in prime_series(group))
    if perfect.order < group.order:
        return (*_primes_above(group, perfect), *composition_factors(perfect))
    below = next(n for n in reversed(normal_subgroups(group)) if n.order < group.order)
    return (group.order // below.order, *composition_factors(below))


def _primes_above(group: PermutationGroup, normal: PermutationGroup) -> tuple[int, ...]:
    """Prime factors of a solvable quotient, smallest first."""
    left, found = group.order // normal.order, []
    while left > 1:
        found.append(least_prime(left))
        left //= found[-1]
    return tuple(found)
