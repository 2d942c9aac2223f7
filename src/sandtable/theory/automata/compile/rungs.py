"""Normal subgroups with abelian quotients, and how elements are written by them: the ladder that compilers climb."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.permutations import PermutationGroup, inverse, power, times
from sandtable.theory.automata.series import is_prime_power, least_prime, prime_series
from sandtable.worlds.automata import Map


@dataclass(frozen=True, eq=False)
class Rung:
    """N ◁ G with G/N = C_{n_1} × … × C_{n_r}: every g is x_1^{k_1} ⋯ x_r^{k_r}·n with digits k and n ∈ N."""

    group: PermutationGroup
    kernel: PermutationGroup
    lifts: tuple[Map, ...]
    """x_1 … x_r."""
    orders: tuple[int, ...]
    """n_1 … n_r, the orders of the x_i modulo N."""

    @cached_property
    def transversal(self) -> dict[tuple[int, ...], Map]:
        """t(k) = x_1^{k_1} ⋯ x_r^{k_r} for all digits k; t(0) = e."""
        found = {}
        for digits in product(*map(range, self.orders)):
            element = self.group.identity
            for lift, k in zip(self.lifts, digits, strict=True):
                element = times(element, power(lift, k))
            found[digits] = element
        return found

    @cached_property
    def digits(self) -> dict[Map, tuple[int, ...]]:
        """The digits of every element of G."""
        return {times(element, n): digits for digits, element in self.transversal.items() for n in self.kernel.elements}

    def rest(self, g: Map) -> Map:
        """n = t(k)⁻¹·g."""
        return times(inverse(self.transversal[self.digits[g]]), g)


def derived_rung(group: PermutationGroup) -> Rung:
    """N = [G, G], so that the quotient is as large as an abelian one can be."""
    return rung(group, group.derived)


def prime_rung(group: PermutationGroup) -> Rung:
    """N of prime index, the first step of the prime series."""
    step = prime_series(group)[0]
    return Rung(group, step.subgroup, (step.x,), (step.prime,))


def prime_rungs(group: PermutationGroup) -> Iterator[Rung]:
    """Every normal subgroup of prime index, primes ascending: kernels of maps Σ a_i k_i mod p of the digits."""
    whole = derived_rung(group)
    for p in sorted({p for n in whole.orders for p in range(2, n + 1) if n % p == 0 and least_prime(p) == p}):
        for weights in product(*(range(p if n % p == 0 else 1) for n in whole.orders)):
            first = next((a for a in weights if a), 0)
            if first != 1:
                continue  # none, or a multiple of one that was met
            inside = [
                g
                for g, digits in whole.digits.items()
                if sum(a * k for a, k in zip(weights, digits, strict=True)) % p == 0
            ]
            kernel = PermutationGroup.from_elements(np.array(inside))
            lift = next(x for x in group.elements if x not in kernel.places)
            yield Rung(group, kernel, (lift,), (p,))


def rung(group: PermutationGroup, kernel: PermutationGroup) -> Rung:
    """Independent generators of G/N, of the highest prime powers as orders, each meeting those before in N only.

    A prime power divides the order of a permutation only if one of its cycles is as long: no n_i exceeds the points.
    """
    if group.order == kernel.order:
        raise ArgumentError(f"a perfect group of order {group.order}: no step down has an abelian quotient")
    lifts: list[Map] = []
    orders: list[int] = []
    reached = kernel
    ranked = sorted(
        ((_order_mod(x, kernel), i) for i, x in enumerate(group.elements)), key=lambda pair: (-pair[0], pair[1])
    )
    for n, i in ranked:
        if reached.order == group.order:
            break
        x = group.elements[i]
        if x in reached or not is_prime_power(n):
            continue
        wider = PermutationGroup((*reached.generators, x), group.degree)
        if wider.order == reached.order * n:
            lifts.append(x)
            orders.append(n)
            reached = wider
    if prod(orders) * kernel.order != group.order:
        raise ArgumentError("the quotient of this group by this subgroup is not abelian")
    return Rung(group, kernel, tuple(lifts), tuple(orders))


def _order_mod(x: Map, kernel: PermutationGroup) -> int:
    k, y = 1, x
    while y not in kernel:
        k, y = k + 1, times(y, x)
    return k
