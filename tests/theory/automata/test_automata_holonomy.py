"""Holonomy: encoded, stepped and decoded against the automaton on every state and token; levels and groups known."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from small_automata import all_maps, all_runs, automata, induced, words

from sandtable.arguments import ArgumentError
from sandtable.theory.automata import (
    algebra,
    closed_forms,
    composition_factors,
    group_name,
    holonomy,
    is_aperiodic,
    semigroup,
)
from sandtable.worlds.automata import abab, cyclic, dyck, fixture, flip_flop, from_table, grid, memory, rubik

DRAWN = settings(max_examples=60, deadline=None)


def reached(cascade):
    """All coordinates that any start state leads to."""
    found = dict.fromkeys(cascade.encode(q) for q in range(cascade.automaton.n_states))
    for coordinates in (queue := list(found)):
        for token in range(cascade.automaton.n_tokens):
            after = cascade.step(coordinates, token)
            if after not in found:
                found[after] = None
                queue.append(after)
    return list(found)


def follows(cascade):
    """Decoding turns every step of the cascade into the automaton's."""
    automaton = cascade.automaton
    assert all(cascade.decode(cascade.encode(q)) == q for q in range(automaton.n_states))
    for coordinates, token in itertools.product(reached(cascade), range(automaton.n_tokens)):
        state = cascade.decode(coordinates)
        assert cascade.decode(cascade.step(coordinates, token)) == automaton.table[state][token]


@DRAWN
@given(automata(states=5))
def test_any_automaton(automaton):
    cascade = holonomy(automaton)
    follows(cascade)
    for component in cascade.components:
        assert component.group.degree == component.size == len(component.tiles) > 1
        assert frozenset().union(*component.tiles) == component.representative
    for start, inputs, right in itertools.islice(all_runs(automaton, 3), 3):
        assert cascade.simulate(inputs, start).equal(right)


SOME = (grid(2), grid(4), grid(9), flip_flop(), memory(4), abab(), dyck(2, 2), dyck(3, 2), all_maps(3), all_maps(4))
GROUPS = tuple(map(fixture, ("Q8", "S4", "A5-POINTS")))


@pytest.mark.parametrize("automaton", [*SOME, *GROUPS], ids=lambda a: a.name or f"{a.n_states} states")
def test_fixtures(automaton):
    follows(holonomy(automaton))


@DRAWN
@given(automata(states=4))
def test_components_permute_or_reset_by_what_stands_above(automaton):
    """A component's action is decided by the token and by old and new coordinates of the levels above, and its own
    permutations lie in its group."""
    cascade, decided = holonomy(automaton), {}
    for old in reached(cascade):
        for token in range(automaton.n_tokens):
            for number, action in cascade.actions(old, token).items():
                component = cascade.components[number]
                above = [i for i, c in enumerate(cascade.components) if c.level < component.level]
                key = (number, token, *(old[i] for i in above))
                assert decided.setdefault(key, action) == action
                if action.reset is None and action.permutation is not None:
                    assert action.permutation in component.group
                else:
                    assert 0 <= action.reset < component.size


@DRAWN
@given(automata(states=4))
def test_component_groups_are_what_words_do_to_tiles(automaton):
    """By brute force over the semigroup: maps that carry a representative onto itself permute its tiles."""
    found = semigroup(automaton)
    identity = tuple(range(automaton.n_states))
    maps = {identity, *map(tuple, found.maps.tolist())}
    for component in holonomy(automaton).components:
        states, tiles = component.representative, component.tiles
        permuted = {
            tuple(tiles.index(frozenset(image[x] for x in tile)) for tile in tiles)
            for image in maps
            if {image[x] for x in states} == states
        }
        assert set(component.group.elements) == permuted


@DRAWN
@given(automata(states=4, tokens=2))
def test_image_sets_and_tiles(automaton):
    """Members are images of all states, tiles the largest of those, and of single states, strictly inside."""
    everything = frozenset(range(automaton.n_states))
    images = {everything, *(frozenset([q]) for q in everything)}
    images |= {frozenset(induced(automaton, word)) for n in range(1, 9) for word in words(automaton, n)}
    members = [member for component in holonomy(automaton).components for member in component.members]
    assert len(members) == len(set(members))
    assert set(members) == {image for image in images if len(image) > 1}
    for component in holonomy(automaton).components:
        inside = [image for image in images if image < component.representative]
        assert set(component.tiles) == {image for image in inside if not any(image < other for other in inside)}


# -- what is known -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 10))
def test_corridors_are_elevators(n):
    """n − 1 levels, each a flip-flop."""
    cascade = holonomy(grid(n))
    assert [len(level) for level in cascade.levels] == [1] * (n - 1)
    assert cascade.sizes == (2,) * (n - 1)
    assert cascade.is_aperiodic
    assert {component.group.order for component in cascade.components} == {1}


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_stacks(n):
    cascade = holonomy(dyck(n, 2))
    assert len(cascade.levels) == n + 1
    assert max(cascade.sizes) <= 3
    assert cascade.is_aperiodic


def test_known_cascades():
    assert [c.group.order for c in holonomy(all_maps(4)).components] == [24, 6, 2] == [*closed_forms.full_orders(4)]
    cascade = holonomy(abab())
    assert len(cascade.levels) == 2
    assert sorted(c.group.order for c in cascade.components)[-1] == 2
    assert sum(c.group.order == 2 for c in cascade.components) == 1
    for name in ("C6", "D8", "Q8", "A4", "S4", "S5"):
        (component,) = holonomy(fixture(name)).components
        assert component.size == component.group.order == fixture(name).n_states
    assert holonomy(from_table([[0]])).components == ()
    assert holonomy(from_table([[0]])).decode(()) == 0


def test_levels_and_tiles_can_be_more_than_states():
    """The printed bounds of the decomposition theorem, |Q| levels and |Q| states a component, fail for heights."""
    assert len(holonomy(from_table([[0, 1, 0], [1, 0, 3], [2, 3, 2], [0, 1, 3]])).levels) == 7
    twos = [m for m in itertools.product(range(4), repeat=4) if len(set(m)) == 2]
    assert max(holonomy(from_table(list(zip(*twos, strict=True)))).sizes) == 6


@pytest.mark.parametrize("n", [3, 4])
def test_group_of_everything(n):
    top = holonomy(all_maps(n)).components[0].group
    assert group_name(top) == f"S_{n}"
    assert not is_aperiodic(all_maps(n))


def test_coordinates_out_of_range():
    cascade = holonomy(grid(3))
    with pytest.raises(ArgumentError, match="coordinate=2: must be a whole number from 0 to 1"):
        cascade.decode((2, 0))
    with pytest.raises(ArgumentError, match="must be 2 numbers"):
        cascade.step((0,), "L")
    assert cascade.coordinates == 4


# -- everything at once ------------------------------------------------------------------------------------------------


def test_algebra_of_a_corridor():
    found = algebra(grid(4))
    assert (found.order, found.is_aperiodic, found.is_solvable, found.group, found.limits) == (17, True, True, None, ())
    assert found.obstacle is found.composition is None


def test_algebra_of_groups():
    found = algebra(cyclic(6))
    assert (found.order, found.is_aperiodic, found.is_solvable, found.composition) == (6, False, True, (2, 3))
    found = algebra(fixture("S5"))
    assert (found.order, found.is_solvable, found.composition) == (120, False, (2, 60))
    assert found.obstacle.perfect.order == 60


def test_algebra_says_what_it_left_out():
    found = algebra(rubik(), cap=100)
    assert found.semigroup is None
    assert found.order == closed_forms.rubik_order() == closed_forms.rubik_bound() // 12
    assert found.is_solvable is found.is_aperiodic is False
    assert found.composition is None
    assert any("cap=100" in limit for limit in found.limits)
    found = algebra(fixture("DYCK48"), cap=10)
    assert found.order is found.is_aperiodic is found.is_solvable is None
    assert len(found.limits) == 2


@pytest.mark.parametrize(
    ("name", "percent"),
    {
        **{"C5": 20.0, "D6": 17.2, "D8": 25.3, "Q8": 12.8, "A4": 9.4, "A5": 2.3, "S4": 4.5, "S5": 1.3},
        **{"GRID4": 26.0, "GRID9": 15.3, "DYCK": 11.1},
    }.items(),
)
def test_what_position_alone_tells(name, percent):
    assert 100 * closed_forms.chance(fixture(name), 100) == pytest.approx(percent, abs=0.06)


def test_laws_of_states_by_listing_all_inputs():
    automaton = dyck(2, 2)
    law, laws = automaton.token_law(), torch.zeros(4, automaton.n_states, dtype=torch.float64)
    for word in words(automaton, 4):
        state, p = automaton.start, 1.0
        for t, token in enumerate(word):
            p *= float(law[state, token])
            state = automaton.table[state][token]
            laws[t, state] += p / automaton.n_tokens ** (3 - t)  # as often as words go on from here
    # Words that go on differently share their first tokens: each prefix is met once for every ending.
    assert torch.allclose(closed_forms.state_laws(automaton, 4), laws)


def test_composition_of_components():
    assert [composition_factors(c.group) for c in holonomy(all_maps(4)).components] == [(2, 3, 2, 2), (2, 3), (2,)]
