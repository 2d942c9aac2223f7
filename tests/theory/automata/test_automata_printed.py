"""Printed forms of the constructions that do not work, each beside the corrected one on all inputs."""

import pytest
from small_automata import all_maps, all_runs

from sandtable.theory.automata import PermutationGroup, compile, verify
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.cascade import Cascade, compile_cascade
from sandtable.theory.automata.compile.counter import counter
from sandtable.theory.automata.compile.grid import grid as grid_network
from sandtable.theory.automata.compile.groups import from_simulator
from sandtable.theory.automata.compile.krohn_rhodes import holonomy_cascade, single_component
from sandtable.theory.automata.compile.log_depth import log_depth
from sandtable.theory.automata.compile.memory import memory as memory_network
from sandtable.theory.automata.compile.simulators import semidirect
from sandtable.theory.automata.image_sets import Action
from sandtable.worlds.automata import alternating, cyclic, dihedral, from_table, grid, memory, parity


def accuracy(compiled, length):
    found = verify(compiled, length=length)
    assert found.exhaustive
    return found.accuracy


# -- logarithmic depth -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "printed",
    [dict(turn=-1), dict(values="earlier"), dict(read="any"), dict(product="f(q)")],
    ids=lambda printed: next(iter(printed)),
)
def test_log_depth(printed):
    """Keys turned the other way, W_V from the wrong map, any coordinate, the product displayed: T a power of two."""
    automaton = grid(3)
    assert accuracy(log_depth(automaton, 4), 4) == 1
    assert accuracy(log_depth(automaton, 4, **printed), 4) < 1


def test_any_coordinate_is_wrong_at_powers_of_two_only():
    """There the window of the last position holds no pad."""
    assert accuracy(log_depth(parity(), 5, read="any"), 5) == 1
    assert accuracy(log_depth(parity(), 8, read="any"), 8) == pytest.approx(7 / 8)


# -- base cases --------------------------------------------------------------------------------------------------------


def test_counter():
    found = recognise.counting(cyclic(3))
    shape = dict(order=found.order, powers=found.powers, states=found.states)
    assert accuracy(counter(cyclic(3), 5, **shape), 5) == 1
    assert accuracy(counter(cyclic(3), 5, **shape, factor=1.0), 5) < 0.6
    assert accuracy(counter(cyclic(3), 5, **shape, with_start=False), 5) == pytest.approx(1 / 3)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_memory_with_either_factor(factor):
    writes = recognise.writes(memory(3))
    assert accuracy(memory_network(memory(3), 6, writes=writes, factor=factor), 6) == 1


# -- permutations, resets, cascades ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3])
def test_resets_need_a_first_token(n):
    """Counters with resets: without ⊥ the memory head looks at t itself, and gives q_0 where g_{≤t}(q_0) is right."""
    automaton = from_table([[(q + s) % n for s in range(n)] + list(range(n)) for q in range(n)])
    cascade = single_component(automaton)
    assert accuracy(compile_cascade(cascade, automaton, 4, "test"), 4) == 1
    assert accuracy(compile_cascade(cascade, automaton, 4, "test", pad=False), 4) < 0.95


def test_components_read_what_was_before_the_token():
    """A memory that drives a parity bit: "1, 1" and "2, 1" end alike, but the bit turned in the second only."""
    table = [[2 * w + (b ^ (m == 1)) for w in (0, 1)] for m in (0, 1) for b in (0, 1)]
    automaton = from_table(table)
    flip = Action(permutation=(1, 0))
    cascade = Cascade(
        levels=((0,), (1,)),
        sizes=(2, 2),
        actions=lambda old, token: (Action(reset=token), flip if old[0] == 1 else Action()),
        starts=tuple((m, b) for m in (0, 1) for b in (0, 1)),
        decode=lambda old: 2 * old[0] + old[1],
    )
    assert accuracy(compile_cascade(cascade, automaton, 6, "test"), 6) == 1
    assert accuracy(compile_cascade(cascade, automaton, 6, "test", shifted=False), 6) < 1


def test_holonomy_cascades_as_well():
    cascade = holonomy_cascade(all_maps(3))
    assert accuracy(compile_cascade(cascade, all_maps(3), 4, "test"), 4) == 1
    assert accuracy(compile_cascade(cascade, all_maps(3), 4, "test", shifted=False), 4) < 1


@pytest.mark.parametrize(("automaton", "length"), [(dihedral(3), 5), (alternating(4), 4)], ids=["D6", "A4"])
def test_third_stage_of_a_semidirect_product(automaton, length):
    """It runs the simulator of N; with that of H, as the text has it, products are wrong."""
    group = PermutationGroup.of(automaton)

    def by(third):
        return from_simulator(automaton, length, semidirect(group, length, third=third), "semidirect")

    assert accuracy(by("N"), length) == 1
    assert accuracy(by("H"), length) < 1


# -- corridors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "length"), [(2, 5), (3, 4)])
def test_corridors(last, length):
    """S moves of padding, heads that find nothing taken to look at t, the last formula, W_Q transposed."""
    automaton = grid(last + 1, stay=True)
    found = recognise.corridor(automaton)

    def by(**printed):
        return accuracy(grid_network(automaton, length, order=found.order, moves=found.moves, **printed), length)

    assert by() == 1
    assert by(padding=last) < 1
    assert by(sentinel=False) < 0.9
    assert by(final="printed") < 1
    assert by(turn=-1) < 0.9


def test_corridor_heads_find_the_latest_visit_to_a_boundary():
    """For every t behind the first visit some head of layer 2 sits on it, from every start state."""
    automaton = grid(4)
    compiled = compile(automaton, 6)
    for start, inputs, states in all_runs(automaton, 6):
        name = "blocks.1.attn.hook_pattern"
        pattern = compiled.model(compiled.encode(inputs, start), want=(name,))[1][name]
        sharpest = pattern[..., compiled.pads :, compiled.pads :].amax(1)
        for row, visited in enumerate(states.tolist()):
            last = None
            for t, state in enumerate(visited):
                last = t if state in (0, 3) else last
                if last is not None:
                    assert float(sharpest[row, t, last]) > 0.99
