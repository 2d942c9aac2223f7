"""The verifier finds what was planted: a wrong weight, a wrong model, answers wrong on few inputs; it counts right."""

import copy
import math

import numpy as np
import pytest
import torch
from small_automata import words
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Stack, Transformer
from sandtable.theory.automata import compile, nasty, softness, verify
from sandtable.worlds.automata import cyclic, dihedral, fixture, flip_flop, grid, memory, observed


def damaged(compiled, name, by):
    """The same with one weight changed, the largest of that parameter."""
    model = copy.deepcopy(compiled.model)
    weight = dict(model.named_parameters())[name]
    with torch.no_grad():
        weight.view(-1)[weight.abs().argmax()] += by
    object.__setattr__(changed := copy.copy(compiled), "model", model)
    return changed


def test_counts():
    found = verify(compile(grid(3), 4), length=4)
    assert (found.exhaustive, found.inputs, found.wrong, found.tokens_wrong) == (True, 3 * 2**4, 0, 0)
    assert found.exact
    assert found.accuracy == 1
    assert found.first_wrong is None
    assert found.residual < 0.01
    assert set(found.softness) == {(1, head) for head in range(5)}  # the first layer counts
    assert 0 < found.softest < 0.1
    assert found.sizes.depth == 2
    assert max(found.over_bound.values()) <= 1


@pytest.mark.parametrize(
    ("name", "by"),
    [("embed.W_E", 1.0), ("blocks.0.attn.W_V", 1.0), ("blocks.0.mlp.W_1", 1.0), ("unembed.W_U", 1.0)],
)
def test_a_wrong_weight(name, by):
    compiled = compile(dihedral(3), 4)
    found = verify(damaged(compiled, name, by))
    assert not found.exact
    assert 0 < found.wrong <= found.inputs == 6 * 2**4
    start, word = found.first_wrong
    changed = damaged(compiled, name, by)
    inputs = torch.tensor([word])
    assert not changed.simulate(inputs, start).equal(compiled.automaton.simulate(inputs, start))
    assert verify(compiled).exact


def test_wrong_tokens_are_counted():
    """Against a loop over all words and start states."""
    compiled = damaged(compile(dihedral(3), 4), "blocks.1.mlp.W_1", 1.0)
    automaton, wrong, tokens = compiled.automaton, 0, 0
    for start in range(6):
        inputs = torch.tensor(words(automaton, 4))
        errors = compiled.simulate(inputs, start) != automaton.simulate(inputs, start)
        wrong += int(errors.any(1).sum())
        tokens += int(errors.sum())
    found = verify(compiled)
    assert (found.wrong, found.tokens_wrong) == (wrong, tokens)
    assert wrong > 0
    assert found.accuracy == pytest.approx(1 - tokens / (6 * 16 * 4))


def test_weights_that_are_no_numbers():
    found = verify(damaged(compile(dihedral(3), 4), "unembed.W_U", math.nan))
    assert not found.exact
    assert found.residual == math.inf


def test_soft_heads_are_seen():
    compiled = compile(memory(3), 5)
    sharp = softness(compiled, torch.tensor(words(memory(3), 5)))[0, 0]
    blurred = damaged(compiled, "blocks.0.attn.W_Q", 1.5)
    assert softness(blurred, torch.tensor(words(memory(3), 5)))[0, 0] > 10 * sharp > 0


@pytest.mark.parametrize(
    ("automaton", "longest", "length"),
    [(cyclic(5, tokens=[1]), 6, 6), (cyclic(3), 1, 1), (cyclic(2), 400, 5)],
    ids=["one word", "short", "row by row"],
)
def test_networks_without_a_hard_head(automaton, longest, length):
    """Counters look at no single position; one input in all, odd batches, batches of one row."""
    compiled = compile(automaton, longest)
    assert not any(any(heads) for heads in compiled.hard)
    assert compiled.batch(400) == 1 or longest < 400
    assert softness(compiled, torch.zeros(3, longest, dtype=torch.long)) == {}
    found = verify(compiled, length=length)
    assert found.exact
    assert (found.softness, found.softest) == ({}, 0.0)


def test_another_automaton_of_the_same_shape():
    found = verify(compile(cyclic(3), 4), cyclic(3, tokens=(0, 2, 1)), length=3)
    assert not found.exact
    assert found.first_wrong == (0, (0, 0, 1))


def test_bigger_input_spaces_are_drawn():
    compiled = compile(grid(3), 24)
    found = verify(compiled, samples=20)
    assert not found.exhaustive
    assert found.exact
    assert found.inputs == 3 * (40 + len(nasty(grid(3), 24)))
    assert verify(compiled, samples=20) == found


def test_nasty_inputs_find_what_chance_does_not():
    automaton = flip_flop()

    def forgets(rows):
        """A write at the first place, with nothing behind it, is forgotten after 40 tokens."""
        only = (rows[:, :1] > 0) & (rows[:, 1:] == 0).all(1, keepdim=True)
        states = automaton.simulate(rows)
        return torch.where(only & (torch.arange(50) > 40), 1 - states, states)

    found = verify(forgets, automaton, length=50, samples=200)
    assert found.wrong == 2
    assert not found.exhaustive


def test_nasty_inputs():
    rows = {tuple(row) for row in nasty(grid(3), 5).tolist()}
    for a, b in ((0, 1), (1, 0)):
        assert (a,) * 5 in rows
        assert (a, b, a, b, a) in rows
        assert all(tuple(b if i == t else a for i in range(5)) in rows for t in range(5))
        assert all(tuple(a if i < t else b for i in range(5)) in rows for t in range(5))
    assert len(nasty(fixture("S5"), 100)) == 2_000


# -- models that were not compiled -------------------------------------------------------------------------------------


class Table(nn.Module):
    """Scores by running the automaton; with dropout, which must be off while it is judged."""

    def __init__(self, automaton, rate=0.9):
        super().__init__()
        self.automaton, self.drop, self.scale = automaton, nn.Dropout(rate), nn.Parameter(torch.ones(()))

    def forward(self, rows):
        scores = nn.functional.one_hot(self.automaton.simulate(rows), self.automaton.n_states) * self.scale
        return self.drop(scores)


def test_modules_and_functions():
    automaton = grid(4)
    model = Table(automaton).train()
    found = verify(model, automaton, length=6)
    assert found.exact
    assert found.exhaustive
    assert found.inputs == 2**6
    assert model.training
    assert (found.residual, found.sizes, found.softness, found.over_bound) == (None, None, {}, {})
    assert not verify(Table(memory(4)), grid(4), length=6).exact
    assert verify(automaton.simulate, automaton, length=6).exact
    untrained = Transformer(2, outputs=4, tied=False, width=8, layers=1, heads=2, causal=True, longest=6)
    assert not verify(untrained, automaton, length=6).exact


WALLS = observed(grid(4), lambda q: int(q in (0, 3)))


def test_labels_instead_of_states():
    labels = lambda rows: WALLS.labels(WALLS.simulate(rows))  # noqa: E731
    assert verify(labels, WALLS, length=6, of="label").exact
    assert not verify(labels, WALLS, length=6).exact
    two = Transformer(2, outputs=2, tied=False, width=8, layers=1, heads=2, causal=True, longest=6)
    found, said = verify(two, WALLS, length=6, of="label"), two(torch.tensor(words(WALLS, 6))).argmax(-1)
    assert found.tokens_wrong == int((said != labels(torch.tensor(words(WALLS, 6)))).sum())
    assert verify(compile(WALLS, 4), of="label").exact
    moved = compile(cyclic(4, tokens=(0, 1)), 4)  # right on parities of places, wrong on places
    even = observed(cyclic(4, tokens=(0, 3)), lambda q: q % 2)
    assert verify(moved, even, of="label").exact
    assert not verify(moved, even).exact


def test_answers_as_lists_and_arrays():
    for kind in (torch.Tensor.tolist, np.asarray):
        assert verify(lambda rows, kind=kind: kind(grid(4).simulate(rows)), "GRID4", length=5).exact


COMPILED = compile(grid(3), 4)
REFUSED = {
    "no automaton": (lambda: verify(lambda rows: rows), "automaton=None: only a compiled model knows"),
    "more states": (lambda: verify(COMPILED, grid(4)), "a model for 3 states and 2 tokens: the automaton has 4 and 2"),
    "too long": (lambda: verify(COMPILED, length=5), "length=5: the model was compiled for at most length=4"),
    "no length": (lambda: verify(COMPILED, length=0), "length=0"),
    "no samples": (lambda: verify(COMPILED, samples=0), "samples=0"),
    "no model": (lambda: verify(3, grid(3)), "model=3: must be compiled, a module, or a function"),
    "fewer tokens": (
        lambda: verify(Transformer(2, width=4, outputs=3, tied=False, causal=True), memory(3), length=3),
        "a model that reads 2 tokens: the automaton has 4",
    ),
    "fewer states": (
        lambda: verify(Transformer(4, width=4, outputs=2, tied=False, causal=True), memory(3), length=3),
        "a model that scores 2 states: the automaton has 3",
    ),
    "labels as states": (
        lambda: verify(Transformer(2, width=4, outputs=2, tied=False, causal=True), WALLS, length=3),
        'a model that scores 2 states: the automaton has 4; of="label" compares labels',
    ),
    "unknown answers": (lambda: verify(COMPILED, of="states"), "of='states': must be one of state, label"),
    "a stack": (
        lambda: verify(Stack.of(Transformer(2, width=4, outputs=3, tied=False)), grid(3), length=3),
        "model: a stack of 1 models; one is verified at a time, give model[i]",
    ),
    "nothing": (lambda: verify(lambda rows: None, grid(3), length=3), "answers of type NoneType: must be a tensor"),
    "unknown name": (lambda: verify(COMPILED, "GRID44"), "'GRID44'"),
    "a number": (lambda: verify(COMPILED, 3), "automaton=3: must be an Automaton, or the name of one"),
    "shape": (
        lambda: verify(lambda rows: rows[:, :1], grid(3), length=3),
        "answers of shape (8, 1): must be (8, 3), one per token",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_misfits(name):
    call, message = REFUSED[name]
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# -- one run for many start states -------------------------------------------------------------------------------------


def test_start_states_that_share_their_runs():
    """Groups are decoded differently, and read the same; maps with pads of their own are not."""
    assert len(compile("S5-POINTS", 4).kin(range(5))) == 1
    assert len(compile(cyclic(5), 4).kin(range(5))) == 1
    assert compile(grid(3), 4, method="log").kin(range(3)) == [[0], [1], [2]]
    compiled = compile("D8", 4, method="log")
    inputs = torch.tensor(words(compiled.automaton, 3))
    together = {q: (states, residual) for q, states, residual in compiled.simulate_from(inputs, range(8))}
    assert list(together) == list(range(8))
    for q, (states, residual) in together.items():
        alone = compiled.decode(compiled.model(compiled.encode(inputs, q)), q)
        assert states.equal(alone)
        assert states.equal(compiled.automaton.simulate(inputs, q))
        assert residual == compiled.simulate_closely(inputs, q)[1]
