"""Simulation by tokens and by words against a plain loop; samples, labels, names."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.worlds.automata import Automaton, fixture, from_table, grid, running


def drawn(states, tokens, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(states, (states, tokens), generator=generator)
    return from_table(table.tolist()), torch.randint(tokens, shape, generator=generator)


def by_loop(automaton, inputs, start=None):
    """One token after the other, rows side by side."""
    table, rows = np.array(automaton.table), inputs.numpy()
    state = np.full(rows.shape[:-1], automaton.start) if start is None else np.broadcast_to(start, rows.shape[:-1])
    found = []
    for t in range(rows.shape[-1]):
        state = table[state, rows[..., t]]
        found.append(state)
    return np.stack(found, -1)


PATHS = {
    "few": (4, 2, 5, 20),
    "one token": (3, 1, 4, 6),
    "by tokens: many states": (300, 2, 500, 150),
    "by tokens: many tokens": (5, 300, 500, 150),
    "words of eight": (9, 2, 700, 101),
    "words of four": (9, 5, 700, 103),
    "words of two": (24, 8, 700, 101),
    "256 states": (256, 2, 700, 98),
    "several blocks of rows": (4, 2, 9000, 11),
    "several blocks of rows, by tokens": (300, 3, 9000, 9),
    "one long row": (4, 2, 1, 70_001),
    "few long rows": (7, 3, 3, 40_007),
    "long rows, more states": (60, 2, 2, 40_000),
    "long rows, many states": (300, 2, 2, 40_000),
}


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_the_plain_loop(path):
    states, tokens, rows, length = PATHS[path]
    automaton, inputs = drawn(states, tokens, rows, length)
    found = automaton.simulate(inputs)
    assert found.dtype == torch.long
    assert (found.numpy() == by_loop(automaton, inputs)).all()
    start = torch.arange(rows) % states
    assert (automaton.simulate(inputs, start=start).numpy() == by_loop(automaton, inputs, start.numpy())).all()
    last = states - 1
    assert (automaton.simulate(inputs, start=last).numpy() == by_loop(automaton, inputs, last)).all()


def test_the_paths_are_taken(monkeypatch):
    taken = []
    for name in ("_by_token", "_by_words", "_one_by_one"):
        plain = getattr(running, name)
        monkeypatch.setattr(running, name, lambda *a, plain=plain, name=name: taken.append((name, *a[3:])) or plain(*a))
    wanted = {
        "few": ("_by_token",),
        "by tokens: many states": ("_by_token",),
        "by tokens: many tokens": ("_by_token",),
        "words of eight": ("_by_words", 8),
        "words of four": ("_by_words", 4),
        "words of two": ("_by_words", 2),
        "one long row": ("_one_by_one", 8),
        "few long rows": ("_one_by_one", 8),
        "long rows, more states": ("_one_by_one", 8),
        "long rows, many states": ("_one_by_one", 1),
    }
    for path, first in wanted.items():
        states, tokens, rows, length = PATHS[path]
        automaton, inputs = drawn(states, tokens, rows, length)
        taken.clear()
        automaton.simulate(inputs)
        assert taken[0] == first, path


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_automaton_any_shape(data):
    states, tokens = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    row = st.tuples(*[st.integers(0, states - 1)] * tokens)
    table = data.draw(st.tuples(*[row] * states))
    shape = [*data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=2)), data.draw(st.integers(1, 9))]
    seed, kind = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([torch.long, torch.int32, torch.uint8]))
    automaton = Automaton(table, start=data.draw(st.integers(0, states - 1)))
    inputs = torch.randint(tokens, shape, generator=torch.Generator().manual_seed(seed)).to(kind)
    found = automaton.simulate(inputs)
    state = {(): automaton.start}
    for place in np.ndindex(*shape):
        before = state.get(place[:-1], automaton.start) if place[-1] else automaton.start
        state[place[:-1]] = table[before][int(inputs[place])]
        assert int(found[place]) == state[place[:-1]]


def test_starts_for_batches_of_batches():
    automaton, inputs = drawn(5, 3, 2, 3, 7)
    start = torch.tensor([[0, 1, 2], [3, 4, 0]])
    assert (automaton.simulate(inputs, start=start).numpy() == by_loop(automaton, inputs, start.numpy())).all()
    column = torch.tensor([[1], [4]])
    assert (automaton.simulate(inputs, start=column).numpy() == by_loop(automaton, inputs, column.numpy())).all()


def test_inputs_are_not_touched_and_may_be_views():
    automaton, inputs = drawn(5, 3, 60, 2000)
    kept, view = inputs.clone(), inputs[::2, 1::3]
    assert (automaton.simulate(view).numpy() == by_loop(automaton, view)).all()
    transposed = inputs.T
    assert (automaton.simulate(transposed).numpy() == by_loop(automaton, transposed)).all()
    assert torch.equal(inputs, kept)


def test_no_tokens_no_states():
    assert grid(4).simulate(grid(4).word("")).shape == (0,)
    assert grid(4).simulate(torch.zeros(3, 0, dtype=torch.long)).shape == (3, 0)
    assert grid(4).simulate(torch.zeros(0, 3, dtype=torch.long)).shape == (0, 3)


def test_samples_know_their_states_and_labels():
    automaton = fixture("ABAB")
    batch = automaton.sample(50, torch.Generator().manual_seed(0))
    assert batch.x.shape == (50, 100)
    assert (batch.latents["state"].numpy() == by_loop(automaton, batch.x)).all()
    assert torch.equal(batch.latents["label"], (batch.latents["state"] == 3).long())
    assert automaton.n_labels == 2
    again = automaton.sample(50, torch.Generator().manual_seed(0))
    assert torch.equal(batch.x, again.x)
    plain = fixture("GRID9").sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(plain.latents["state"], plain.latents["label"])


def test_random_lengths_are_uniform():
    automaton = grid(4, length=6, shortest=3)
    mask = automaton.sample(8000, torch.Generator().manual_seed(0)).mask
    lengths = mask.sum(1)
    assert torch.equal(mask, torch.arange(6) < lengths[:, None])
    counts = torch.bincount(lengths, minlength=7)
    assert counts[:3].sum() == 0
    assert (counts[3:] / 8000 - 0.25).abs().max() < 0.03


def test_names_and_words():
    automaton = fixture("DYCK")
    assert automaton.word("[ ( )").tolist() == automaton.word("[()").tolist()
    named = from_table({"off": {"push": "on", "wait": "off"}, "on": {"push": "off", "wait": "on"}})
    states = named.simulate(named.word("push wait push"), start="on")
    assert [named.state_name(q) for q in states] == ["off", "off", "on"]
    assert named.state("on") == named.state(1) == 1
    assert named.token("wait") == 1


def test_tables_of_numpy_are_tables():
    array = np.array([[1, 0], [0, 1]])
    assert from_table(array).table == ((1, 0), (0, 1))
    assert from_table(torch.tensor(array)).table == ((1, 0), (0, 1))


@pytest.mark.parametrize("length", [1, 2, 6, 8, 9])
def test_many_short_rows(length):
    """Rows of a single word, and of one more token; in any order of memory."""
    inputs = torch.randint(2, (length, 30_000), generator=torch.Generator().manual_seed(0)).T
    world = from_table([[0, 1], [1, 0]])
    assert torch.equal(world.simulate(inputs), inputs.cumsum(1) % 2)
    assert torch.equal(world.simulate(inputs.contiguous()), inputs.cumsum(1) % 2)
