"""Accuracies, scratchpads, attention and curves of automata, against loops written out."""

import math
from dataclasses import replace

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.models import LSTM, Stack, Transformer
from sandtable.probes import automata as probe
from sandtable.worlds.automata import Bernoulli, Counted, fixture

PARITY = replace(fixture("C2"), length=7)
GRID = replace(fixture("GRID4"), length=9)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def net(vocab=2, outputs=2, seed=0, **options):
    make = dict(layers=2, heads=2, width=8, mlp=8, norm="pre", causal=True, tied=False, biases=True)
    options = dict(positions="sinusoidal", longest=60) | options
    return Transformer(vocab, outputs=outputs, **make, **options).initialise(rng(seed), 25.0)


@pytest.mark.parametrize("make", [net, lambda seed: LSTM(2, width=4, hidden=4).initialise(rng(seed), 3.0)])
def test_accuracies_are_shares_of_right_answers(make):
    models = [make(seed=i) for i in range(3)]
    stack = Stack.of(*models)
    batch = PARITY.sample(50, rng(1))
    right = probe.correct(stack, PARITY, rows=50, generator=rng(1))
    for i, model in enumerate(models):
        one = model(batch.x).argmax(-1) == batch.latents["state"]
        assert torch.equal(right[i], one)
        torch.testing.assert_close(probe.accuracy_by_position(right)[i], one.double().mean(0))
        assert torch.equal(probe.answers(model, batch.x)[0], model(batch.x).argmax(-1))
    for law, found in (
        (Bernoulli(0.2), probe.accuracy_by_rate(stack, PARITY, [0.2], rows=40, generator=rng(5))),
        (Counted(3), probe.accuracy_by_count(stack, PARITY, [3], rows=40, generator=rng(5))),
    ):
        same = probe.correct(stack, replace(PARITY, law=law), rows=40, generator=rng(5))
        torch.testing.assert_close(found[:, 0], same.double().mean((1, 2)))
    long = probe.accuracy_by_length(stack, PARITY, [4, 20], rows=30, generator=rng(6))
    again = rng(6)
    for column, length in enumerate((4, 20)):
        same = probe.correct(stack, replace(PARITY, length=length), rows=30, generator=again)
        torch.testing.assert_close(long[:, column], same.double().mean((1, 2)))


@pytest.mark.parametrize("options", [dict(), dict(positions="alibi", longest=None), dict(positions=None, longest=None)])
def test_states_are_written_as_if_everything_were_read_again_each_time(options):
    models = [net(6, 4, seed=i, **options).double() for i in range(2)]
    x = torch.randint(2, (5, 8), generator=rng(2))
    found = probe.write_states(Stack.of(*models), x)
    for model, states in zip(models, found, strict=True):
        for row, written in zip(x.tolist(), states.tolist(), strict=True):
            text = []
            for token, state in zip(row, written, strict=True):
                text.append(token)
                assert int(model(torch.tensor([text]))[0, -1].argmax()) == state
                text.append(2 + state)


def test_what_cannot_write_is_refused():
    with pytest.raises(ArgumentError, match="only a Transformer"):
        probe.write_states(LSTM(2), torch.zeros(1, 3, dtype=torch.long))
    with pytest.raises(ArgumentError, match="no room for tokens"):
        probe.write_states(net(2, 2), torch.zeros(1, 3, dtype=torch.long))


def test_attention_to_walls():
    stack = Stack.of(net(outputs=4), net(outputs=4, seed=1))
    batch = GRID.sample(6, rng(3))
    states = batch.latents["state"]
    seen = probe.patterns(stack, batch.x, layer=1)
    assert seen.shape == (2, 6, 2, 9, 9)
    torch.testing.assert_close(seen.sum(-1), torch.ones(2, 6, 2, 9))
    wall = probe.latest(states, (0, 3))
    on, before, flat, shares = [], [], [], []
    for row in range(6):
        for t in range(9):
            if t > 0:
                p = seen[:, row, :, t, : t + 1].double()
                flat.append(-(p * p.clamp_min(1e-300).log()).sum(-1) / math.log(t + 1))
            visits = [s for s in range(t + 1) if states[row, s] in (0, 3)]
            assert int(wall[row, t]) == (visits[-1] if visits else -1)
            if visits:
                on.append(seen[:, row, :, t, visits[-1]])
                before.append(seen[:, row, :, t, : visits[-1]].sum(-1))
                shares.append(1 / (t + 1))
    torch.testing.assert_close(probe.entropy_ratio(seen), torch.stack(flat).mean(0))
    torch.testing.assert_close(probe.mass_on(seen, wall), torch.stack(on).double().mean(0))
    torch.testing.assert_close(probe.mass_before(seen, wall), torch.stack(before).double().mean(0))
    assert probe.random_mass(wall) == pytest.approx(sum(shares) / len(shares))
    uniform = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
    everywhere = uniform.expand(1, 6, 1, 9, 9)
    assert probe.entropy_ratio(everywhere).item() == pytest.approx(1.0)
    assert probe.mass_on(everywhere, wall).item() == pytest.approx(probe.random_mass(wall))


def test_falls_of_curves():
    curves = torch.rand(4, 30, generator=rng(4)).double()
    for curve, fall, when, count in zip(
        curves.tolist(),
        probe.drawdown(curves).tolist(),
        probe.crossing(curves, 0.97).tolist(),
        probe.drops(curves, 0.4).tolist(),
        strict=True,
    ):
        assert fall == pytest.approx(max(max(curve[: t + 1]) - y for t, y in enumerate(curve)))
        assert when == next((t for t, y in enumerate(curve) if y >= 0.97), math.inf)
        best, falls = curve[0], 0
        for y in curve:
            if best - y > 0.4:
                falls, best = falls + 1, y
            best = max(best, y)
        assert count == falls
    assert probe.drawdown(torch.tensor([[0.1, 0.2, 0.9]])).tolist() == [0.0]
    torch.testing.assert_close(probe.smooth(curves, 7)[:, 1], curves[:, 7:14].mean(1))


def test_whole_rows():
    right = torch.rand(3, 40, 3, generator=rng(5)) < 0.8
    expected = [sum(all(row) for row in model) / 40 for model in right.tolist()]
    assert probe.accuracy_of_rows(right).tolist() == pytest.approx(expected)
    assert max(expected) < 1


def test_best_less_median():
    assert probe.best_less_median(torch.tensor([0.5, 0.9, 0.6])).item() == pytest.approx(0.3)
    apart = probe.best_less_median(torch.tensor([[0.5, 1.0], [0.9, 1.0], [0.6, 1.0], [0.8, 1.0]]))
    assert apart.tolist() == pytest.approx([0.2, 0.0])
