"""Walks in corridors by prefix sums and by clamped maps, against walking them."""

import pytest
import torch

from sandtable.theory.automata.corridors import clamped, last_states
from sandtable.worlds.automata import grid
from sandtable.worlds.finite import all_states


def walked(moves, last, start):
    """Every state, one step after the other."""
    rows = []
    for row in moves.tolist():
        place, states = start, []
        for move in row:
            place = min(max(place + move, 0), last)
            states.append(place)
        rows.append(states)
    return torch.tensor(rows)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_both_readings_end_where_the_walk_ends(last):
    moves = all_states(3, 5) - 1
    for start in range(last + 1):
        states = walked(moves, last, start)
        assert torch.equal(clamped(moves, last, start=start), states)
        found = last_states(moves, last, start=start)
        assert found.defined.all()
        assert torch.equal(found.states, states[:, -1])
        assert (found.span == last).all()


def test_clamped_maps_on_a_long_walk():
    moves = torch.randint(-1, 2, (20, 301), generator=torch.Generator().manual_seed(0))
    for start in (0, 5):
        assert torch.equal(clamped(moves, 8, start=start), grid(9, stay=True).simulate(moves + 1, start))


def test_as_many_moves_to_the_left_as_printed_are_too_few():
    """S = 2, all walks of up to eight moves from 0: how many never take three values, counted one by one."""
    missing = seen = 0
    for length in range(1, 9):
        moves = all_states(3, length) - 1
        found = last_states(moves, 2, padding=2)
        z = torch.cat([torch.tensor([[-1, -1]]).expand(len(moves), -1), moves], 1).cumsum(1)
        few = torch.tensor([len(set(row)) < 3 for row in z.tolist()])
        assert torch.equal(~found.defined, few)
        missing, seen = missing + int(few.sum()), seen + len(moves)
    assert (missing, seen) == (510, 9840)


def test_without_a_window_the_walls_disagree():
    found = last_states(all_states(3, 6) - 1, 2, window="all")
    assert (found.branches[:, 0] != found.branches[:, 1]).any()
