"""Products of permutation groups: direct, semidirect, wreath — again as permutation groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.permutations import PermutationGroup, inverse, times
from sandtable.worlds.automata import Map


def direct_product(*groups: PermutationGroup) -> PermutationGroup:
    """G₁ × G₂ × …, acting on the disjoint union of their points."""
    degree, offset, generators = sum(group.degree for group in groups), 0, []
    for group in groups:
        for g in group.generators:
            after = range(offset + group.degree, degree)
            generators.append((*range(offset), *(offset + x for x in g), *after))
        offset += group.degree
    return PermutationGroup.generated(generators, degree)


@dataclass(frozen=True, eq=False)
class Semidirect:
    """N ⋊ H, (g, h)(g′, h′) = (g·φ_h(g′), h·h′): acts on N by x ↦ g·φ_h(x), and beside it on H's points."""

    normal: PermutationGroup
    acting: PermutationGroup
    automorphism: Callable[[Map], Map]
    """φ: for h the permutation of the numbers of N's elements."""
    group: PermutationGroup

    def element(self, g: Map, h: Map) -> Map:
        """(g, h) as a permutation."""
        return _affine(self.normal, self.automorphism, g, h)

    def pair(self, element: Map) -> tuple[Map, Map]:
        """(g, h) of a permutation: g is where it takes N's identity."""
        size, identity = self.normal.order, self.normal.places[self.normal.identity]
        return self.normal.elements[element[identity]], tuple(x - size for x in element[size:])

    def act(self, h: Map, g: Map) -> Map:
        """φ_h(g)."""
        return self.normal.elements[self.automorphism(h)[self.normal.places[g]]]


def semidirect_product(
    normal: PermutationGroup, acting: PermutationGroup, action: Callable[[Map, Map], Map]
) -> Semidirect:
    """N ⋊ H for `action(h, g)` = φ_h(g), which must be a homomorphism from H to the automorphisms of N."""
    cache: dict[Map, Map] = {}

    def automorphism(h: Map) -> Map:
        if h not in cache:
            images = [action(h, g) for g in normal.elements]
            if any(image not in normal.places for image in images):
                raise ArgumentError(f"action: φ_h leaves the normal factor for h = {h}")
            cache[h] = tuple(normal.places[image] for image in images)
            _require_automorphism(normal, cache[h], h)
        return cache[h]

    for h in acting.generators:
        for k in acting.elements:
            if automorphism(times(h, k)) != times(automorphism(h), automorphism(k)):
                raise ArgumentError(f"action: φ_hk is not φ_h∘φ_k for h = {h}, k = {k}")
    generators = [_affine(normal, automorphism, g, acting.identity) for g in normal.generators]
    generators += [_affine(normal, automorphism, normal.identity, h) for h in acting.generators]
    group = PermutationGroup.generated(generators, normal.order + acting.degree)
    return Semidirect(normal, acting, automorphism, group)


@dataclass(frozen=True, eq=False)
class Wreath:
    """N ≀ H = N^H ⋊ H, φ_h(f)(k) = f(k·h): |N|^|H|·|H| elements (f, h), f being indexed by the elements of H.

    It acts on pairs (k, x) of an element of H and a point of N by (f, h)(k, x) = (k·h⁻¹, f(k·h⁻¹)(x)).
    """

    normal: PermutationGroup
    acting: PermutationGroup
    group: PermutationGroup

    @property
    def order(self) -> int:
        return self.normal.order**self.acting.order * self.acting.order

    def element(self, functions: Sequence[Map], h: Map) -> Map:
        """(f, h) as a permutation; pair (k, x) is point k·degree + x."""
        return _imprimitive(self.normal, self.acting, functions, h)

    def shift(self, h: Map, functions: Sequence[Map]) -> tuple[Map, ...]:
        """φ_h(f): the copies re-ordered, k ↦ f(k·h)."""
        places = self.acting.places
        return tuple(functions[places[times(k, h)]] for k in self.acting.elements)

    def multiply(self, one: tuple[Sequence[Map], Map], other: tuple[Sequence[Map], Map]) -> tuple[tuple[Map, ...], Map]:
        """(f, h)(f′, h′) = (f·φ_h(f′), h·h′)."""
        (f, h), (g, k) = one, other
        return tuple(times(a, b) for a, b in zip(f, self.shift(h, g), strict=True)), times(h, k)


def wreath_product(normal: PermutationGroup, acting: PermutationGroup) -> Wreath:
    """N ≀ H, H permuting |H| copies of N from the right."""
    copies = acting.order
    trivial = (normal.identity,) * copies
    generators = [
        _imprimitive(normal, acting, (*trivial[:i], g, *trivial[i + 1 :]), acting.identity)
        for g in normal.generators
        for i in range(copies)
    ]
    generators += [_imprimitive(normal, acting, trivial, h) for h in acting.generators]
    return Wreath(normal, acting, PermutationGroup.generated(generators, copies * normal.degree))


def _affine(normal: PermutationGroup, automorphism: Callable[[Map], Map], g: Map, h: Map) -> Map:
    moved = tuple(normal.places[times(g, normal.elements[x])] for x in automorphism(h))
    return (*moved, *(normal.order + x for x in h))


def _imprimitive(normal: PermutationGroup, acting: PermutationGroup, functions: Sequence[Map], h: Map) -> Map:
    back, places, found = inverse(h), acting.places, []
    for k in acting.elements:
        to = places[times(k, back)]
        found += [to * normal.degree + x for x in functions[to]]
    return tuple(found)


def _require_automorphism(normal: PermutationGroup, image: Map, h: Map) -> None:
    array = [normal.elements[i] for i in image]
    for g in normal.generators:
        for x in normal.elements:
            product = image[normal.places[times(g, x)]]
            if normal.elements[product] != times(array[normal.places[g]], array[normal.places[x]]):
                raise ArgumentError(f"action: φ_h is no automorphism of the normal factor for h = {h}")
