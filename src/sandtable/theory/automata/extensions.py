"""Extensions of N by H = G/N: cosets, cocycle, complements, and the embedding into N ≀ H (Krasner & Kaloujnine).

Cosets are numbered, N itself 0. With a transversal t, t(0) = e, every g is t(h)·n. Along a product g_t = σ_t·g_{t−1},

    h_t = σ̄_t·h_{t−1},    n_t = c(σ_t, h_{t−1})·n_{t−1},    c(σ, h) = t(σ̄·h)⁻¹·σ·t(h) ∈ N,

so a run of G is a run of H and one of N that reads it, whether the extension splits or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.permutations import PermutationGroup, inverse, power, times
from sandtable.theory.automata.products import Wreath, wreath_product
from sandtable.worlds.automata import Map

MOST_LIFTS = 200_000


@dataclass(frozen=True, eq=False)
class Extension:
    """G with a normal subgroup N."""

    group: PermutationGroup
    normal: PermutationGroup

    def __post_init__(self) -> None:
        if not self.group.contains_group(self.normal) or not self.group.is_normal(self.normal):
            raise ArgumentError(
                f"a subgroup of order {self.normal.order} is not normal in this group of {self.group.order}"
            )

    @property
    def index(self) -> int:
        """|G/N|."""
        return self.group.order // self.normal.order

    @cached_property
    def _coset_of(self) -> dict[Map, int]:
        found: dict[Map, int] = {}
        below = self.normal.array
        for g in self.group.elements:
            if g not in found:
                number = len(found) // len(below)
                found |= {tuple(row): number for row in np.array(g)[below].tolist()}
        return found

    def coset(self, g: Map) -> int:
        """The number of g·N."""
        if g not in self._coset_of:
            raise ArgumentError(f"element {g}: is not in the group of order {self.group.order}")
        return self._coset_of[g]

    @cached_property
    def transversal(self) -> tuple[Map, ...]:
        """t(h): the first element of every coset, e of N."""
        first: dict[int, Map] = {}
        for g in self.group.elements:
            first.setdefault(self._coset_of[g], g)
        return tuple(first[h] for h in range(self.index))

    def image(self, g: Map) -> Map:
        """ḡ: h ↦ ḡ·h, cosets permuted from the left."""
        return tuple(self.coset(times(g, t)) for t in self.transversal)

    @cached_property
    def quotient(self) -> PermutationGroup:
        """G/N, acting on the cosets."""
        return PermutationGroup.generated(map(self.image, self.group.generators), self.index)

    def split(self, g: Map) -> tuple[int, Map]:
        """(h, n) with g = t(h)·n."""
        h = self.coset(g)
        return h, times(inverse(self.transversal[h]), g)

    def join(self, h: int, n: Map) -> Map:
        """t(h)·n."""
        return times(self.transversal[h], n)

    def cocycle(self, sigma: Map, h: int) -> Map:
        """c(σ, h) = t(σ̄·h)⁻¹·σ·t(h), in N."""
        moved = times(sigma, self.transversal[h])
        return times(inverse(self.transversal[self.coset(moved)]), moved)

    # -- does it split? ----------------------------------------------------------------------------------------------

    @cached_property
    def complement(self) -> PermutationGroup | None:
        """A subgroup that meets N in {e} and every coset of N; None where there is none, searched over all lifts."""
        if self.index == 1:
            return self.group.subgroup(())
        lifts = [[times(t, n) for n in self.normal.elements] for t in self._quotient_generators]
        for choice in lifts:
            choice[:] = [g for g in choice if power(g, self._order_above(g)) == self.group.identity]
        if np.prod([len(choice) for choice in lifts], dtype=object) > MOST_LIFTS:
            raise ArgumentError(f"complement: more than {MOST_LIFTS:,} lifts of the quotient's generators to try")
        for chosen in product(*lifts):
            found = self.group.subgroup(chosen)
            if found.order == self.index:
                return found
        return None

    @property
    def is_split(self) -> bool:
        """Whether G is a semidirect product of N and a complement."""
        return self.complement is not None

    @cached_property
    def _quotient_generators(self) -> list[Map]:
        chosen, covered = [], self.normal
        for g in self.transversal:
            if g not in covered:
                chosen.append(g)
                covered = self.group.subgroup([*covered.generators, g])
        return chosen

    def _order_above(self, g: Map) -> int:
        """The order of ḡ."""
        k, h = 1, g
        while h not in self.normal:
            k, h = k + 1, times(h, g)
        return k

    # -- Krasner and Kaloujnine --------------------------------------------------------------------------------------

    @cached_property
    def wreath(self) -> Wreath:
        """N ≀ H."""
        return wreath_product(self.normal, self.quotient)

    def embed(self, g: Map) -> tuple[tuple[Map, ...], Map]:
        """(f_g, ḡ) in N ≀ H, f_g(k) = t(k)·g·t(k·ḡ)⁻¹, indexed by the elements k of H: an injective homomorphism."""
        keys = self.quotient.elements
        functions = [times(times(self._at(k), g), inverse(self._at(times(k, self.image(g))))) for k in keys]
        return tuple(functions), self.image(g)

    def unembed(self, functions: tuple[Map, ...], h: Map) -> Map:
        """f(e)·t(h)."""
        return times(functions[self.quotient.places[self.quotient.identity]], self._at(h))

    def _at(self, h: Map) -> Map:
        """t of an element of H, which is known by where it takes the coset N."""
        return self.transversal[h[0]]
