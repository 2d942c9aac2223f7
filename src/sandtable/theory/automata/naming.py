"""Small groups by their usual names."""

from __future__ import annotations

import itertools
from collections import Counter
from math import factorial, lcm, prod

from sandtable.theory.automata.permutations import PermutationGroup, order_of, power
from sandtable.theory.automata.series import least_prime

NAMED = 5_000
"""Groups beyond this order are named only where their order tells the name."""
_BY_ORDERS = {
    (12, (1, 3, 8)): "A_4",
    (24, (1, 9, 8, 6)): "S_4",
}
"""By order and how many elements have the orders 1, 2, 3, 4, no element having another one."""


def group_name(group: PermutationGroup) -> str:
    """C_n and products of them, D_2n (order 2n), Q_8, S_n, A_n; "order 72" where none fits.

    A name is given only where it is certain: abelian groups, dihedral ones and those of order at most 8 by the orders
    of their elements, S_n and A_n as all and half the permutations of the points moved, S_4 … A_5 however they act.
    """
    if group.order == 1:
        return "trivial"
    moved = len({x for g in group.generators for x, y in enumerate(g) if x != y})
    if moved > 2 and group.order == factorial(moved):
        return f"S_{moved}"
    if moved > 3 and 2 * group.order == factorial(moved):
        return f"A_{moved}"
    if group.order > NAMED:
        return f"order {group.order:,}"
    orders = Counter(map(order_of, group.elements))
    if group.is_abelian:
        return " × ".join(f"C_{n}" for n in _invariant_factors(group.order, orders))
    return _non_abelian(group, orders) or f"order {group.order:,}"


def _non_abelian(group: PermutationGroup, orders: Counter[int]) -> str | None:
    n = group.order
    if n == 6:
        return "S_3"
    if _is_dihedral(group):
        return f"D_{n}"
    if n == 8:
        return "Q_8"
    if max(orders) <= 4 and (n, tuple(orders[k] for k in range(1, max(orders) + 1))) in _BY_ORDERS:
        return _BY_ORDERS[n, tuple(orders[k] for k in range(1, max(orders) + 1))]
    if n == 60 and group.is_perfect:
        return "A_5"
    # Above a perfect group of order 60 and index 2 there are S_5 and A_5 × C_2, which has elements of order 10.
    if n == 120 and group.derived.order == 60 and group.derived.is_perfect and not orders[10]:
        return "S_5"
    return None


def _is_dihedral(group: PermutationGroup) -> bool:
    """Some element has half the group as its powers, and all others are of order two."""
    half = group.order // 2
    turn = next((g for g in group.elements if order_of(g) == half), None)
    if turn is None or group.order % 2:
        return False
    turns = {power(turn, k) for k in range(half)}
    return all(order_of(g) == 2 for g in group.elements if g not in turns)


def _invariant_factors(order: int, orders: Counter[int]) -> list[int]:
    """n_1 | n_2 | … with G = C_{n_1} × C_{n_2} × …: for every prime p, elements of order dividing p^k number
    p^{Σ min(e_i, k)}, e_i being the exponents of p."""
    columns: list[list[int]] = []
    left = order
    while left > 1:
        p, powers, k = least_prime(left), [], 0
        while left % p == 0:
            left //= p
        dividing = [1]
        while k == 0 or dividing[-1] > dividing[-2]:
            k += 1
            dividing.append(sum(count for n, count in orders.items() if p**k % n == 0))
        exponents = [_exponent(b // a, p) for a, b in itertools.pairwise(dividing)]  # how many e_i ≥ k
        for i in range(exponents[0]):
            powers.append(p ** sum(count > i for count in exponents))
        columns.append(powers)
    longest = max(map(len, columns))
    found = [prod(powers[i] for powers in columns if i < len(powers)) for i in range(longest)]
    assert prod(found) == order
    assert lcm(*found) == max(orders)
    return found[::-1]


def _exponent(n: int, p: int) -> int:
    k = 0
    while n > 1:
        n, k = n // p, k + 1
    return k
