"""The worked examples and training tasks against definitions of their own: integers, matrices, stacks, `re`."""

import itertools
import re

import numpy as np
import pytest
import torch

from sandtable.theory.automata import PermutationGroup
from sandtable.theory.automata.permutations import commutator, order_of, power, times
from sandtable.worlds.automata import (
    TASKS,
    abab,
    alternating,
    cyclic,
    cyclic_power,
    dihedral,
    dyck,
    fixture,
    fixtures,
    flip_flop,
    from_permutations,
    grid,
    grid_2d,
    memory,
    parity,
    quaternion,
    rubik,
    stack_top,
    symmetric,
    symmetric_tokens,
)


def same_machine(automaton, start, step, name, count=None):
    """The automaton moves as `step(state, token name)` does, on every state that is reached from the start."""
    assert automaton.state_name(automaton.start) == name(start)
    queue, seen = [start], {name(start)}
    for state in queue:
        for number, token in enumerate(automaton.vocab.tokens):
            after = step(state, token)
            assert name(after) == automaton.state_name(automaton.table[automaton.state(name(state))][number])
            if name(after) not in seen:
                seen.add(name(after))
                queue.append(after)
    assert len(seen) == (automaton.n_states if count is None else count)


def clamp(x, n):
    return sorted((0, x, n - 1))[1]


@pytest.mark.parametrize("n", range(1, 9))
def test_counters(n):
    same_machine(cyclic(n), 0, lambda q, token: (q + int(token)) % n, str)
    if n > 1:
        same_machine(cyclic(n, tokens=(1,)), 0, lambda q, _: (q + 1) % n, str)


def test_parity_toggles_on_one():
    same_machine(parity(), False, lambda q, token: q != (token == "1"), lambda q: "01"[q])


@pytest.mark.parametrize(("n", "copies"), [(2, 2), (2, 3), (3, 2)])
def test_counters_side_by_side(n, copies):
    def step(q, token):
        return tuple((x + int(y)) % n for x, y in zip(q, token, strict=True))

    same_machine(cyclic_power(n, copies), (0,) * copies, step, lambda q: "".join(map(str, q)))


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_memories_keep_what_was_written_last(n):
    same_machine(memory(n), "1", lambda q, token: q if token == "⊥" else token, str)
    assert memory(2).table == flip_flop().table


@pytest.mark.parametrize("stay", [False, True])
@pytest.mark.parametrize("n", [1, 2, 4, 9])
def test_corridors(n, stay):
    moves = {"L": -1, "R": 1, "⊥": 0}
    same_machine(grid(n, stay=stay), 0, lambda q, token: clamp(q + moves[token], n), str)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (2, 4), (1, 3)])
def test_rooms(n, m):
    moves = {"←": (-1, 0), "→": (1, 0), "↓": (0, -1), "↑": (0, 1), "⊥": (0, 0)}

    def step(q, token):
        dx, dy = moves[token]
        return clamp(q[0] + dx, n), clamp(q[1] + dy, m)

    same_machine(grid_2d(n, m), (0, 0), step, lambda q: f"{q[0]},{q[1]}")


@pytest.mark.parametrize("n", [3, 4, 5])
def test_cars_on_a_circle(n):
    def step(q, token):
        s, b = q
        return {"drive": ((s + b) % n, b), "toggle": (s, -b), "stay": q}[token]

    automaton = dihedral(n, tokens=("drive", "toggle", "stay"))
    same_machine(automaton, (0, 1), step, lambda q: f"{q[0]}{'+' if q[1] > 0 else '-'}")
    assert [automaton.state(f"{s}{d}") for d in "+-" for s in range(n)] == list(range(2 * n))


def test_quaternions_are_complex_matrices():
    units = {
        "1": np.eye(2),
        "i": np.diag([1j, -1j]),
        "j": np.array([[0, 1], [-1, 0]]),
        "k": np.array([[0, 1j], [1j, 0]]),
    }
    units |= {f"-{name}": -matrix for name, matrix in units.items()}

    def name(q):
        (found,) = [name for name, unit in units.items() if np.array_equal(unit, q)]
        return found

    for tokens in (("1", "i", "j", "k"), tuple(units)):
        same_machine(quaternion(tokens=tokens), np.eye(2), lambda q, token: units[token] @ q, name)


def matrix_of(text):
    """The permutation with these images, counted from 1, as a matrix of columns."""
    return np.eye(len(text), dtype=int)[:, [int(x) - 1 for x in text]]


def text_of(matrix):
    return "".join(str(int(row) + 1) for row in matrix.argmax(0))


@pytest.mark.parametrize(
    "automaton", [symmetric(4), symmetric(5), symmetric(3, tokens=3), alternating(4), fixture("A5")]
)
def test_permutations_multiply_from_the_left(automaton):
    identity = np.eye(len(automaton.states[0]), dtype=int)
    same_machine(automaton, identity, lambda q, token: matrix_of(token) @ q, text_of)


def test_tokens_of_permutation_tasks():
    assert symmetric(4).tokens == ("1234", "2341", "1243", "1324", "1342", "1423", "1432", "2134")
    assert symmetric(5, tokens=3).tokens == ("12345", "23451", "21345")
    assert symmetric(5, tokens=5).tokens == ("12345", "23451", "12354", "12435", "12453")
    assert alternating(5).tokens == ("23145", "24315", "25341")
    assert alternating(4, identity=True).tokens == ("1234", "2314", "2431")
    assert all(round(np.linalg.det(matrix_of(state))) == 1 for state in alternating(5).states)
    assert len(set(symmetric_tokens(4, 24))) == 24


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 1), (2, 2), (4, 2), (2, 5)])
def test_stacks(n, k):
    automaton = dyck(n, k)
    opening, closing = automaton.tokens[:k], automaton.tokens[k:]

    def step(stack, token):
        if stack is None:
            return None
        if token in opening:
            return (*stack, token) if len(stack) < n else None
        return stack[:-1] if stack and stack[-1] == opening[closing.index(token)] else None

    def name(stack):
        return "trap" if stack is None else "".join(stack) or "∅"

    same_machine(automaton, (), step, name)
    assert automaton.n_states == sum(k**depth for depth in range(n + 1)) + 1
    tops = stack_top(n, k)
    for state, top in zip(automaton.states, tops, strict=True):
        pieces = re.findall("|".join(map(re.escape, opening)), state)
        assert top == (1 + opening.index(pieces[-1]) if pieces else 0)


def test_abab_is_the_expression():
    automaton = abab()
    accepting = fixture("ABAB")
    assert accepting.observe == (0, 0, 0, 1, 0)
    for length in range(1, 9):
        for letters in itertools.product("ab", repeat=length):
            states = automaton.simulate(automaton.word("".join(letters))).tolist()
            for t in range(1, length + 1):
                prefix = "".join(letters[:t])
                alive = ("abab" * t).startswith(prefix)
                assert automaton.state_name(states[t - 1]) == (str((3 + t) % 4) if alive else "trap")
                assert (states[t - 1] == 3) == bool(re.fullmatch("(abab)*", prefix))


def test_the_nineteen_tasks():
    sizes = {
        **{f"C{n}": (n, n) for n in range(2, 9)},
        **{"C2x2": (4, 4), "C2x2x2": (8, 8), "D6": (6, 2), "D8": (8, 2), "Q8": (8, 4), "A4": (12, 2), "A5": (60, 3)},
        **{"S4": (24, 8), "S5": (120, 8), "GRID4": (4, 2), "GRID9": (9, 2), "DYCK": (32, 4)},
    }
    assert len(TASKS) == 19
    assert {name: (fixture(name).n_states, fixture(name).n_tokens) for name in TASKS} == sizes
    assert all(fixture(name).state_name(fixture(name).start) for name in fixtures())
    assert fixture("DYCK48").n_states == 4682
    assert fixture("DYCK48").n_labels == 9


def test_names_are_found_however_they_are_written():
    assert fixture("grid 9") == fixture("Grid_9") == fixture("GRID9")


def test_points_and_elements_have_the_same_group():
    for points, elements in (("A5-POINTS", "A5"), ("S5-POINTS", "S5")):
        assert PermutationGroup.of(fixture(points)).order == PermutationGroup.of(fixture(elements)).order
    by_name = from_permutations({"turn": (1, 2, 0)}, identity=True)
    assert by_name.tokens == ("e", "turn")
    assert by_name.maps == ((0, 1, 2), (1, 2, 0))


# -- the cube --------------------------------------------------------------------------------------------------------


def turns():
    cube = rubik()
    return dict(zip(cube.tokens, cube.maps, strict=True))


def moves(word):
    """Turns one after the other; ′ undoes one."""
    found = tuple(range(54))
    for piece in word.split():
        found = times(power(turns()[piece[0]], -1 if piece.endswith("'") else len(piece)), found)
    return found


def test_a_turn_moves_twenty_stickers_and_comes_back_after_four():
    for name, turn in turns().items():
        assert sum(x != y for x, y in enumerate(turn)) == 20
        assert order_of(turn) == 4
        assert turn[rubik().state(f"{name}5")] == rubik().state(f"{name}5")  # the centre
    centres = [rubik().state(f"{name}5") for name in turns()]
    assert all(turn[c] == c for turn in turns().values() for c in centres)


def test_well_known_orders_of_the_cube():
    assert PermutationGroup.of(rubik()).order == 43_252_003_274_489_856_000
    assert order_of(commutator(turns()["R"], turns()["U"])) == 6
    assert commutator(turns()["U"], turns()["D"]) == tuple(range(54))
    assert order_of(moves("R U")) == 105
    assert order_of(moves("R U'")) == 63
    assert order_of(moves("R UU D' B D'")) == 1260  # the largest there is
    assert PermutationGroup.generated([moves(2 * face) for face in turns()]).order == 663_552
    assert PermutationGroup.of(rubik(tokens=("R", "U"))).order == 73_483_200


def test_the_whole_cube_at_once():
    cube = rubik()
    word = torch.randint(6, (30,), generator=torch.Generator().manual_seed(0))
    states = cube.simulate(word.expand(54, -1), start=torch.arange(54))
    assert all(len(set(column.tolist())) == 54 for column in states.T)
    expected = tuple(range(54))
    for token in word.tolist():
        expected = times(cube.maps[token], expected)
    assert tuple(states[:, -1].tolist()) == expected


@pytest.mark.parametrize(
    "made", [cyclic(3, name="mine"), dihedral(3, name="mine"), quaternion(name="mine"), symmetric(4, name="mine")]
)
def test_groups_take_a_name(made):
    assert made.name == "mine"


@pytest.mark.parametrize("n", [2, 3, 4])
def test_small_symmetric_groups_have_no_more_tokens_than_elements(n):
    automaton = symmetric(n)
    assert automaton.n_tokens == min(8, automaton.n_states)
    assert len(set(automaton.maps)) == automaton.n_tokens
