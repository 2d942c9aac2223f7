"""Permutation groups against sympy; series, products and extensions against their definitions on every element."""

import itertools
from collections import Counter
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_automata import closure
from sympy import factorint
from sympy.combinatorics import Permutation
from sympy.combinatorics import PermutationGroup as Reference

from sandtable.arguments import ArgumentError
from sandtable.theory.automata import (
    Extension,
    PermutationGroup,
    composition_factors,
    derived_orders,
    direct_product,
    group_name,
    is_simple,
    normal_subgroups,
    prime_series,
    semidirect_product,
    wreath_product,
)
from sandtable.theory.automata.permutations import commutator, conjugate, cycle_text, inverse, order_of, power, times
from sandtable.worlds.automata import fixture

DRAWN = settings(max_examples=30, deadline=None)
GROUPS = ("C6", "C2x2x2", "D6", "D8", "Q8", "A4", "S4", "A5")


def group_of(name):
    return PermutationGroup.of(fixture(name))


def reference(group):
    gens = group.generators or (group.identity,)
    return Reference([Permutation(list(g)) for g in gens])


def generators(points=6, count=3):
    return st.integers(2, points).flatmap(
        lambda n: st.lists(st.permutations(range(n)).map(tuple), min_size=1, max_size=count)
    )


# -- permutations ------------------------------------------------------------------------------------------------------


@DRAWN
@given(st.permutations(range(7)), st.permutations(range(7)), st.integers(-9, 9))
def test_permutations(a, b, k):
    a, b = tuple(a), tuple(b)
    p, q = Permutation(a), Permutation(b)
    assert times(a, b) == tuple(a[x] for x in b) == tuple((q * p).array_form)
    assert inverse(a) == tuple((~p).array_form)
    assert power(a, k) == tuple((p**k).array_form)
    assert order_of(a) == p.order()
    assert conjugate(a, b) == tuple((p**-1 * q * p).array_form)
    assert commutator(a, b) == times(times(times(a, b), inverse(a)), inverse(b))
    shown = [[int(x) for x in c.split()] for c in cycle_text(a)[1:-1].split(")(")] if a != tuple(range(7)) else []
    assert Permutation(shown, size=7) == p
    assert cycle_text(tuple(range(7))) == "e"


def test_order_of_long_cycles_side_by_side():
    """The orders' common multiple is beyond 64 bits."""
    primes, image = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53), []
    for p in primes:
        image += [len(image) + (i + 1) % p for i in range(p)]
    assert order_of(tuple(image)) == prod(primes) > 2**64


@DRAWN
@given(generators(), st.permutations(range(6)))
def test_groups(gens, other):
    group, known = PermutationGroup.generated(gens), Reference([Permutation(list(g)) for g in gens])
    assert group.order == known.order()
    assert set(group.elements) == closure([*gens, tuple(range(len(gens[0])))])
    assert group.elements[0] == group.identity
    assert (tuple(other) in group) == (len(other) == group.degree and known.contains(Permutation(other)))
    assert group.is_abelian == known.is_abelian
    assert group.is_solvable == known.is_solvable
    assert derived_orders(group) == [part.order() for part in known.derived_series()]
    assert set(group.derived.elements) == {tuple(g.array_form) for g in known.derived_subgroup().elements}
    assert PermutationGroup.from_elements(group.array).order == group.order


@pytest.mark.parametrize("n", [12, 24])
def test_groups_that_are_not_listed(n):
    rng = np.random.default_rng(n)
    gens = [tuple(rng.permutation(n).tolist()) for _ in range(2)]
    assert PermutationGroup.generated(gens).order == Reference([Permutation(list(g)) for g in gens]).order()


def test_cube():
    group = group_of("RUBIK")
    assert group.order == reference(group).order() == 43_252_003_274_489_856_000
    assert derived_orders(group) == [group.order, group.order // 2]
    with pytest.raises(ArgumentError, match="a group of 43,252,003,274,489,856,000 elements: at most 100,000 are"):
        _ = group.elements


def test_what_is_no_group():
    with pytest.raises(ArgumentError, match="2 permutations generate 3: they are no group"):
        PermutationGroup.from_elements(np.array([[0, 1, 2], [1, 2, 0]]))
    with pytest.raises(ArgumentError, match="acts on 2 points, not 3"):
        PermutationGroup.generated([(1, 0)], 3)
    with pytest.raises(ArgumentError, match="at least one permutation"):
        PermutationGroup.generated([])
    with pytest.raises(ArgumentError, match="a group on 3,000 points: at most 2,000"):
        _ = PermutationGroup.generated([(*range(1, 3000), 0)]).order


# -- normal subgroups and series ---------------------------------------------------------------------------------------


def subsets_that_are_normal(group):
    """Unions of conjugacy classes that are closed under multiplication."""
    left, classes = set(group.elements), []
    while left:
        x = min(left)
        classes.append({conjugate(g, x) for g in group.elements})
        left -= classes[-1]
    (one,) = (c for c in classes if group.identity in c)
    rest = [c for c in classes if c is not one]
    for chosen in itertools.product((0, 1), repeat=len(rest)):
        union = one.union(*(c for c, taken in zip(rest, chosen, strict=True) if taken))
        if group.order % len(union) == 0 and all(times(a, b) in union for a in union for b in union):
            yield frozenset(union)


@pytest.mark.parametrize("name", GROUPS)
def test_normal_subgroups(name):
    group = group_of(name)
    found = normal_subgroups(group)
    assert {frozenset(n.elements) for n in found} == set(subsets_that_are_normal(group))
    assert len(found) == len({frozenset(n.elements) for n in found})
    assert all(group.is_normal(n) for n in found)
    assert is_simple(group) == (len(found) == 2)


def test_what_is_not_normal():
    group = group_of("S4")
    swap = next(g for g in group.elements if order_of(g) == 2 and group.subgroup([g]).order == 2)
    below = group.subgroup([swap])
    assert any({g, times(g, swap)} != {g, times(swap, g)} for g in group.elements)
    assert not group.is_normal(below)
    with pytest.raises(ArgumentError, match="a subgroup of order 2 is not normal in this group of 24"):
        Extension(group, below)


@pytest.mark.parametrize(
    ("name", "orders", "primes"),
    [
        ("C8", [8, 1], (2, 2, 2)),
        ("C2x2x2", [8, 1], (2, 2, 2)),
        ("D6", [6, 3, 1], (2, 3)),
        ("D8", [8, 2, 1], (2, 2, 2)),
        ("Q8", [8, 2, 1], (2, 2, 2)),
        ("A4", [12, 4, 1], (3, 2, 2)),
        ("S4", [24, 12, 4, 1], (2, 3, 2, 2)),
    ],
)
def test_series_of_the_tasks(name, orders, primes):
    group = group_of(name)
    assert derived_orders(group) == orders
    assert composition_factors(group) == primes


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "A5"])
def test_prime_steps(name):
    group = group_of(name)
    steps = prime_series(group)
    assert steps[0].group.order == group.order
    assert steps[-1].subgroup.order == 1
    for step, below in itertools.pairwise([*steps, None]):
        assert step.group.order == step.prime * step.subgroup.order
        assert factorint(step.prime) == {step.prime: 1}
        assert step.group.is_normal(step.subgroup)
        assert below is None or set(below.group.elements) == set(step.subgroup.elements)
        for g in step.group.elements:
            k, n = step.split(g)
            assert times(power(step.x, k), n) == g
            assert n in step.subgroup
            assert step.digit(g) == k < step.prime
        outside = [g for g in group.elements if g not in step.group]
        for g in outside[:1]:
            with pytest.raises(ArgumentError, match="is not in the group of order"):
                step.split(g)


@DRAWN
@given(generators(points=6, count=2))
def test_composition_factors(gens):
    group = PermutationGroup.generated(gens)
    known = Reference([Permutation(list(g)) for g in gens])
    series = [part.order() for part in known.composition_series()] if known.is_solvable else None
    found = composition_factors(group)
    assert prod(found) == group.order
    if series is not None:
        assert sorted(found) == sorted(a // b for a, b in itertools.pairwise([*series, 1]) if a != b)
    else:
        assert {60, 360} & set(found)


def test_non_solvable_groups_have_no_prime_series():
    assert composition_factors(group_of("S5")) == (2, 60)
    assert composition_factors(direct_product(group_of("A5"), group_of("C3"))) == (3, 60)
    assert composition_factors(direct_product(PermutationGroup.of(fixture("A5-POINTS")), cycle(2))) == (2, 60)
    assert is_simple(group_of("A5"))
    with pytest.raises(ArgumentError, match="a group of order 60 is its own derived subgroup: not solvable"):
        prime_series(group_of("S5"))


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"C{n}", f"C_{n}") for n in range(2, 9)),
        ("C2x2", "C_2 × C_2"),
        ("C2x2x2", "C_2 × C_2 × C_2"),
        ("D6", "S_3"),
        ("D8", "D_8"),
        ("Q8", "Q_8"),
        ("A4", "A_4"),
        ("A5", "A_5"),
        ("S4", "S_4"),
        ("S5", "S_5"),
        ("A5-POINTS", "A_5"),
        ("S5-POINTS", "S_5"),
        ("RUBIK", "order 43,252,003,274,489,856,000"),
    ],
)
def test_names(name, expected):
    assert group_name(group_of(name)) == expected


def cycle(n):
    return PermutationGroup.generated([(*range(1, n), 0)])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((2, 3), "C_6"),
        ((2, 6), "C_2 × C_6"),
        ((4, 6), "C_2 × C_12"),
        ((2, 4, 8), "C_2 × C_4 × C_8"),
        ((9, 3, 5), "C_3 × C_45"),
        ((1,), "trivial"),
    ],
)
def test_names_of_abelian_groups(parts, expected):
    """n_1 divides n_2 divides …: counted from how many elements have each order."""
    group = direct_product(*map(cycle, parts))
    assert group_name(group) == expected
    orders = Counter(map(order_of, group.elements))
    named = direct_product(*(cycle(int(part[2:])) for part in expected.split(" × "))) if "_" in expected else cycle(1)
    assert Counter(map(order_of, named.elements)) == orders


def test_groups_like_named_ones_are_not_named():
    not_s5 = direct_product(group_of("A5"), cycle(2))
    assert group_name(not_s5) == "order 120"
    assert group_name(direct_product(group_of("D6"), cycle(2))) == "D_12"
    assert group_name(direct_product(group_of("Q8"), cycle(3))) == "order 24"


# -- products ----------------------------------------------------------------------------------------------------------


def test_direct_products():
    one, other = group_of("D6"), group_of("Q8")
    found = direct_product(one, other)
    assert found.order == 48
    assert set(found.elements) == {(*a, *(6 + x for x in b)) for a in one.elements for b in other.elements}


def pairs_multiply(product, pairs, multiply):
    """(g, h) ↦ the permutation is an injective homomorphism onto the whole group."""
    table = {pair: product.element(*pair) for pair in pairs}
    assert len(set(table.values())) == len(table) == product.group.order
    return all(table[multiply(a, b)] == times(table[a], table[b]) for a in table for b in table)


def test_semidirect_products():
    """A_4 = V ⋊ C_3, D_8 = C_4 ⋊ C_2 and, with the trivial action, C_3 × C_2."""
    v = PermutationGroup.generated([(1, 0, 3, 2), (2, 3, 0, 1)])
    turn = PermutationGroup.generated([(0, 2, 3, 1)])
    for normal, acting, action, name in (
        (v, turn, conjugate, "A_4"),
        (cycle(4), cycle(2), lambda h, g: g if h[0] == 0 else inverse(g), "D_8"),
        (cycle(3), cycle(2), lambda h, g: g, "C_6"),
    ):
        found = semidirect_product(normal, acting, action)

        def multiply(a, b, found=found):
            return times(a[0], found.act(a[1], b[0])), times(a[1], b[1])

        pairs = list(itertools.product(normal.elements, acting.elements))
        assert pairs_multiply(found, pairs, multiply)
        assert all(found.pair(found.element(*pair)) == pair for pair in pairs)
        assert group_name(found.group) == name


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda h, g: (0, 2, 1), "leaves the normal factor"),
        (lambda h, g: (1, 2, 0), "is no automorphism"),
        (lambda h, g: inverse(g), "is not φ_h∘φ_k"),
    ],
)
def test_actions_that_are_none(action, message):
    with pytest.raises(ArgumentError, match=message):
        semidirect_product(cycle(3), cycle(2), action)


def test_wreath_products():
    for normal, acting in ((cycle(2), cycle(3)), (cycle(3), cycle(2)), (cycle(2), cycle(2))):
        found = wreath_product(normal, acting)
        assert found.group.order == found.order == normal.order**acting.order * acting.order
        functions = list(itertools.product(normal.elements, repeat=acting.order))
        pairs = list(itertools.product(functions, acting.elements))
        places = {k: i for i, k in enumerate(acting.elements)}

        def multiply(a, b, acting=acting, places=places):
            (f, h), (g, k) = a, b
            return tuple(times(f[i], g[places[times(x, h)]]) for i, x in enumerate(acting.elements)), times(h, k)

        assert pairs_multiply(found, pairs, multiply)
        assert all(found.multiply(a, b) == multiply(a, b) for a in pairs[:20] for b in pairs)


def test_copies_move_in_one_order_of_factors_only():
    """(g, e)(e, h) = (g, h), and (e, h)(g, e) = (φ_h(g), h)."""
    found = wreath_product(cycle(3), cycle(2))
    one, turn, h = (0, 1, 2), (1, 2, 0), (1, 0)
    g, e = (turn, one), (one, one)
    assert found.multiply((g, (0, 1)), (e, h)) == (g, h)
    assert found.multiply((e, h), (g, (0, 1))) == ((one, turn), h)


# -- extensions --------------------------------------------------------------------------------------------------------


def normal_of_order(name, order, **which):
    group = group_of(name)
    found = [n for n in normal_subgroups(group) if n.order == order]
    return Extension(group, found[which.get("number", 0)])


EXTENSIONS = {
    "Q8 over C4": (normal_of_order("Q8", 4), False, 32),
    "Q8 over its centre": (normal_of_order("Q8", 2), False, 64),
    "S4 over A4": (normal_of_order("S4", 12), True, 288),
    "D8 over its centre": (normal_of_order("D8", 2), False, 64),
    "A4 over V": (normal_of_order("A4", 4), True, 192),
    "C4 over C2": (normal_of_order("C4", 2), False, 8),
    "C6 over C2": (normal_of_order("C6", 2), True, 24),
    "D6 over itself": (normal_of_order("D6", 6), True, 6),
    "D6 over nothing": (normal_of_order("D6", 1), True, 6),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_cosets_and_cocycles(name):
    extension, splits, order = EXTENSIONS[name]
    group, t = extension.group, extension.transversal
    below = set(extension.normal.elements)
    assert t[0] == group.identity
    for g in group.elements:
        h, n = extension.split(g)
        assert extension.join(h, n) == g
        assert n in below
        assert {times(g, x) for x in below} == {times(t[h], x) for x in below}
    for sigma in group.elements:
        for h in range(extension.index):
            c, after = extension.cocycle(sigma, h), extension.image(sigma)[h]
            assert c in below
            assert times(sigma, t[h]) == times(t[after], c)
    assert extension.quotient.order == extension.index == group.order // len(below)
    assert extension.wreath.order == order
    assert extension.is_split == splits == has_complement(extension)


def has_complement(extension):
    """Some subgroup of two generators meets N in e alone and has the order of the quotient: enough for all of these."""
    elements, below = extension.group.elements, set(extension.normal.elements)
    for pair in itertools.combinations_with_replacement(elements, 2):
        found = closure([*pair, extension.group.identity])
        if len(found) == extension.index and len(found & below) == 1:
            return True
    return False


@pytest.mark.parametrize("name", EXTENSIONS)
def test_embedding_in_the_wreath_product(name):
    extension, _, _ = EXTENSIONS[name]
    wreath, elements = extension.wreath, extension.group.elements
    codes = {g: extension.embed(g) for g in elements}
    assert len(set(codes.values())) == len(elements)
    assert all(set(functions) <= set(extension.normal.elements) for functions, _ in codes.values())
    assert all(codes[times(a, b)] == wreath.multiply(codes[a], codes[b]) for a in elements for b in elements)
    assert all(extension.unembed(*codes[g]) == g for g in elements)


def test_runs_of_an_extension():
    """g_t ⋯ g_1 = t(h_t)·n_t with h and n run side by side."""
    extension, rng = EXTENSIONS["Q8 over C4"][0], np.random.default_rng(0)
    elements = extension.group.elements
    right, h, n = extension.group.identity, 0, extension.group.identity
    for i in rng.integers(0, 8, 50):
        sigma = elements[i]
        right = times(sigma, right)
        h, n = extension.image(sigma)[h], times(extension.cocycle(sigma, h), n)
        assert extension.join(h, n) == right


def test_symmetric_groups_have_the_order_of_all_permutations():
    assert [PermutationGroup.generated([(*range(1, n), 0), (1, 0, *range(2, n))]).order for n in range(2, 9)] == [
        factorial(n) for n in range(2, 9)
    ]
