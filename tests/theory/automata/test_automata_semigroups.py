"""Semigroups of maps against closures by trial, Green's classes by their definitions, words by listing all words."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from small_automata import all_maps, automata, closure, induced, permuting, words
from sympy.combinatorics import Permutation
from sympy.combinatorics import PermutationGroup as Reference

from sandtable.arguments import ArgumentError
from sandtable.theory.automata import (
    algebra,
    closed_forms,
    egg_boxes,
    holonomy,
    is_aperiodic,
    is_solvable,
    nasty,
    obstacle,
    semigroup,
)
from sandtable.theory.automata.egg_box import covers
from sandtable.theory.automata.semigroup import most_maps
from sandtable.worlds.automata import dyck, fixture, from_table, grid

DRAWN = settings(max_examples=40, deadline=None)
SOME = [grid(4), fixture("ABAB"), dyck(2, 2), all_maps(3), fixture("Q8"), fixture("FLIPFLOP"), from_table([[0]])]


def then(one, other):
    return tuple(other[x] for x in one)


@DRAWN
@given(automata())
def test_closure(automaton):
    found = semigroup(automaton)
    maps = list(map(tuple, found.maps.tolist()))
    assert len(set(maps)) == len(maps) == found.order
    assert set(maps) == closure(automaton.maps)
    for i, j in itertools.product(range(found.order), range(automaton.n_tokens)):
        assert maps[found.right[i, j]] == then(maps[i], automaton.maps[j])
        assert maps[found.left[i, j]] == then(automaton.maps[j], maps[i])
    assert [found.index(image) for image in maps] == list(range(found.order))
    assert found.has_identity == (tuple(range(automaton.n_states)) in maps)


@DRAWN
@given(automata(states=3))
def test_words_are_the_first_of_the_shortest(automaton):
    first = {}
    for length in (1, 2, 3, 4):
        for word in words(automaton, length):
            first.setdefault(induced(automaton, word), word)
    found = semigroup(automaton)
    named = {tuple(found.maps[i].tolist()): found.word(i) for i in range(found.order)}
    assert {image: word for image, word in named.items() if len(word) <= 4} == first
    assert all(induced(automaton, word) == image for image, word in named.items())
    lengths = [len(word) for word in named.values()]
    assert lengths == sorted(lengths)


def green(maps):
    """R- and L-classes: a = b, or a = b·u and b = a·v (a = u·b and b = v·a)."""
    right = {a: {a} | {then(a, b) for b in maps} for a in maps}
    left = {a: {a} | {then(b, a) for b in maps} for a in maps}
    return tuple({(a, b) for a in maps for b in maps if a in side[b] and b in side[a]} for side in (right, left))


@pytest.mark.parametrize("automaton", SOME, ids=lambda a: a.name or str(a.n_states))
def test_greens_classes(automaton):
    found = semigroup(automaton)
    maps = list(map(tuple, found.maps.tolist()))
    r, left = green(maps)
    d = {(a, b) for a, c in r for e, b in left if c == e}
    for relation, classes in ((r, found.r_class), (left, found.l_class), (d, found.d_class)):
        assert relation == {(maps[i], maps[j]) for i, j in np.argwhere(classes[:, None] == classes).tolist()}
    assert {maps[i] for i in found.idempotents} == {a for a in maps if then(a, a) == a}
    assert found.ranks.tolist() == [len(set(a)) for a in maps]
    assert found.is_group == (len(r) == len(left) == len(maps) ** 2)


def maximal_subgroup(maps, e):
    """{s: es = s = se, s permutes the image of e}, as permutations of that image."""
    image = sorted(set(e))
    inside = [s for s in maps if then(e, s) == s == then(s, e) and sorted({s[x] for x in image}) == image]
    return {tuple(image.index(s[x]) for x in image) for s in inside}


@DRAWN
@given(automata())
def test_subgroups_and_what_they_say(automaton):
    """The criterion by maximal subgroups, sympy judging the groups, against holonomy."""
    found = semigroup(automaton)
    maps = list(map(tuple, found.maps.tolist()))
    orders, solvable = {}, True
    for i in found.idempotents.tolist():
        expected = maximal_subgroup(maps, maps[i])
        assert set(found.maximal_subgroup(i).elements) == expected
        orders[i] = len(expected)
        solvable &= Reference([Permutation(list(g)) for g in expected]).is_solvable
    aperiodic = set(orders.values()) == {1}
    assert found.is_aperiodic == is_aperiodic(automaton) == aperiodic
    assert found.is_solvable == is_solvable(automaton) == solvable
    assert sorted(group.order for _, group in found.maximal_subgroups()) == sorted(
        {int(found.d_class[i]): order for i, order in orders.items()}.values()
    )


@settings(max_examples=25, deadline=None)
@given(permuting())
def test_solvable_groups(automaton):
    reference = Reference([Permutation(list(g)) for g in automaton.maps])
    assert semigroup(automaton).is_group
    assert is_solvable(automaton) == reference.is_solvable
    found = obstacle(automaton)
    assert (found is None) == reference.is_solvable
    if found is not None:
        assert found.perfect.order == 60


def test_not_a_group_but_with_an_unsolvable_one_inside():
    automaton = all_maps(5)
    assert not semigroup(automaton).is_group
    assert not is_solvable(automaton)
    found = obstacle(automaton)
    assert (found.group.order, found.perfect.order, len(found.tiles)) == (120, 60, 5)
    assert found.text(automaton) == (
        "words permute 5 sets of states by a group with the perfect subgroup A_5, of order 60 (inside a group of order "
        "120)"
    )
    assert obstacle(holonomy(all_maps(4))) is None


def test_group_whose_identity_is_only_a_power():
    assert semigroup(fixture("C5")).is_group
    found = semigroup(from_table([[1], [2], [0]]))
    assert found.is_group
    assert found.has_identity
    assert not semigroup(from_table([[1], [2], [1]])).has_identity


def test_many_tokens_that_do_the_same():
    """As many edges from one map to another as a byte cannot count."""
    found = semigroup(from_table([[1] * 256, [0] * 256]))
    assert found.order == 2
    assert found.is_group


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("n", range(2, 10))
def test_orders_of_corridors(n, stay):
    expected = [2, 7, 17, 34, 60, 97, 147, 212][n - 2] + stay
    assert semigroup(grid(n, stay=stay)).order == closed_forms.grid_order(n, stay=stay) == expected


@pytest.mark.parametrize(("n", "k", "expected"), [(1, 2, 10), (2, 2, 59), (3, 2, 284), (4, 2, 1245), (2, 1, 14)])
def test_orders_of_stacks(n, k, expected):
    assert semigroup(dyck(n, k)).order == closed_forms.dyck_order(n, k) == expected


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_maps(n):
    found = semigroup(all_maps(n))
    assert found.order == n**n
    groups = sorted((group.order for _, group in found.maximal_subgroups()), reverse=True)
    assert groups == [*closed_forms.full_orders(n), 1]


# -- egg boxes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("automaton", SOME, ids=lambda a: a.name or str(a.n_states))
def test_egg_boxes(automaton):
    found = semigroup(automaton)
    maps = list(map(tuple, found.maps.tolist()))
    r, left = green(maps)
    boxes = egg_boxes(found)
    assert sorted(i for box in boxes for i in box.elements.tolist()) == list(range(found.order))
    assert [box.rank for box in boxes] == sorted((box.rank for box in boxes), reverse=True)
    for box in boxes:
        inside = {maps[i] for i in box.elements}
        cells = {frozenset(b for b in inside if (a, b) in r and (a, b) in left) for a in inside}
        assert {len(cell) for cell in cells} == {box.cell}
        assert len(cells) == box.stars.size
        assert box.idempotents == sum(then(a, a) == a for a in inside)
        for row, column in np.ndindex(*box.stars.shape):
            a, b = maps[box.rows[row]], maps[box.columns[column]]
            (cell,) = (c for c in cells if (a, min(c)) in r and (b, min(c)) in left)
            assert box.stars[row, column] == any(then(x, x) == x for x in cell)
            blocks = [tuple(x for x in range(len(a)) if a[x] == value) for value in set(a)]
            assert sorted(map(tuple, box.kernel(row))) == sorted(blocks)
            assert box.image(column) == sorted(set(b))
        assert (box.group is not None) == box.is_regular
        if box.group is not None:
            assert box.group.order == box.cell


@pytest.mark.parametrize("automaton", SOME[:5], ids=lambda a: a.name or str(a.n_states))
def test_covers_of_egg_boxes(automaton):
    found = semigroup(automaton)
    boxes = egg_boxes(found)
    maps = list(map(tuple, found.maps.tolist()))
    sides = [tuple(range(automaton.n_states)), *maps]
    ideals = [{then(then(u, maps[box.elements[0]]), v) for u in sides for v in sides} for box in boxes]
    below = {(i, j) for i in range(len(boxes)) for j in range(len(boxes)) if i != j and ideals[j] < ideals[i]}
    right_below = {(i, j) for i, j in below if not any((i, k) in below and (k, j) in below for k in range(len(boxes)))}
    assert set(covers(found, boxes)) == right_below


def test_many_states_have_few_maps_listed():
    """Maps that are listed where no cap is given have fifty million entries at most."""
    assert most_maps(fixture("GRID4"), None) == 100_000
    many = fixture("DYCK48")
    assert most_maps(many, None) * many.n_states <= 50_000_000
    cycle = from_table([[(q + 1) % 20_000, (q // 2)] for q in range(20_000)])
    with pytest.raises(ArgumentError, match="cap=2500: the semigroup of this automaton is larger"):
        semigroup(cycle)
    assert any("cap=2500" in limit for limit in algebra(cycle).limits)


def test_names_are_automata():
    for known in (semigroup, holonomy):
        assert known("GRID4").automaton == fixture("GRID4")
    assert is_solvable("A4")
    assert is_aperiodic("GRID4")
    assert obstacle("A5-POINTS").perfect.order == 60
    assert closed_forms.chance("D8") == closed_forms.chance(fixture("D8"))
    assert closed_forms.label_laws("ABAB", 3).equal(closed_forms.label_laws(fixture("ABAB"), 3))
    assert nasty("GRID4", 5).equal(nasty(fixture("GRID4"), 5))
    with pytest.raises(ArgumentError, match="automaton=3: must be an Automaton, or the name of one"):
        is_solvable(3)
