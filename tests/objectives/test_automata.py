"""States at every position, hidden labels, scratchpads and shifts, against sums written out."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from sandtable.arguments import ArgumentError
from sandtable.models import LSTM, Tokens, Transformer
from sandtable.objectives import EveryState, RandomShift, RevealedStates, Scratchpad
from sandtable.training import Adam, Recipe, fit
from sandtable.worlds.automata import fixture, observed
from sandtable.worlds.base import Batch

GRID = observed(fixture("GRID4"), lambda q: int(q in (0, 3)))


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def model(vocab, outputs, **options):
    make = dict(layers=2, heads=2, width=8, mlp=8, norm="pre", causal=True, tied=False, biases=True)
    options = dict(positions="sinusoidal", longest=60) | options
    return Transformer(vocab, outputs=outputs, **make, **options).initialise(rng(3), 20.0)


def value(objective, net, batch, seed=0):
    params = dict(net.named_parameters())
    example = objective.draw(batch, rng(seed), 0)
    return *objective.loss(lambda p, x: functional_call(net, p, (x,)), params, example), example


def test_the_loss_at_every_position_row_by_row():
    batch, net = GRID.sample(5, rng(1)), model(2, 4, longest=100)
    for of in ("state", "label"):
        loss, metrics, _ = value(EveryState(of), net, batch)
        errors = [F.cross_entropy(net(x[None])[0], q) for x, q in zip(batch.x, batch.latents[of], strict=True)]
        assert torch.allclose(loss, torch.stack(errors).mean())
        right = net(batch.x).argmax(-1) == batch.latents[of]
        assert float(metrics["accuracy"]) == pytest.approx(float(right.float().mean()))
        assert float(metrics["last"]) == pytest.approx(float(right[:, -1].float().mean()))


def test_padding_counts_for_nothing():
    x = torch.randint(2, (3, 6), generator=rng(2))
    states, lengths = GRID.simulate(x), torch.tensor([6, 2, 4])
    real = torch.arange(6) < lengths[:, None]
    net = model(2, 4)
    loss, metrics, _ = value(EveryState("state"), net, Batch(x, mask=real, latents={"state": states}))
    parts = [
        F.cross_entropy(net(r[None, :n])[0], q[:n], reduction="sum") for r, q, n in zip(x, states, lengths, strict=True)
    ]
    assert torch.allclose(loss, torch.stack(parts).sum() / 12)
    right = (net(x).argmax(-1) == states).float()
    assert float(metrics["last"]) == pytest.approx(float(right[torch.arange(3), lengths - 1].mean()))
    assert float(metrics["accuracy"]) == pytest.approx(float(right[real].mean()))


def test_only_revealed_labels_count():
    batch, net = GRID.sample(40, rng(1)), model(2, 4, longest=100)
    loss, metrics, example = value(RevealedStates(of="state", reveal=0.2), net, batch)
    known = example["known"]
    assert abs(float(known.float().mean()) - 0.2) < 0.03
    errors = F.cross_entropy(net(batch.x).transpose(1, 2), batch.latents["state"], reduction="none")
    assert torch.allclose(loss, errors[known].mean())
    everything, whole, _ = value(RevealedStates(of="state", reveal=1.0), net, batch)
    plain, _, _ = value(EveryState("state"), net, batch)
    assert torch.allclose(everything, plain)
    assert metrics["accuracy"] == whole["accuracy"]


def test_a_scratchpad_writes_states_between_tokens_and_is_asked_at_tokens():
    batch, net = GRID.sample(4, rng(1))[:, :5], model(6, 4)
    x, q = batch.x, batch.latents["state"]
    loss, _, example = value(Scratchpad(tokens=2), net, batch)
    assert example["inputs"][1].tolist() == [
        int(v) for t in range(5) for v in ((x[1, t], 2 + q[1, t]) if t < 4 else (x[1, t],))
    ]
    logits = net(example["inputs"])
    errors = [F.cross_entropy(logits[:, 2 * t], q[:, t]) for t in range(5)]
    assert torch.allclose(loss, torch.stack(errors).mean())


def test_a_shift_is_one_number_for_the_whole_batch():
    batch, net = GRID.sample(4, rng(1))[:, :5], model(2, 4)
    objective = RandomShift(EveryState("state"), most=40)
    loss, _, example = value(objective, net, batch)
    start = example["start"]
    assert start.ndim == 0
    logits = net(Tokens(batch.x, None, start))
    assert torch.allclose(loss, F.cross_entropy(logits.flatten(0, 1), batch.latents["state"].flatten()))
    block = objective.draw_block(batch.map(lambda t: t[None].expand(300, *t.shape)), rng(4), range(300))
    assert block["start"].shape == (300,)
    assert (int(block["start"].min()), int(block["start"].max())) == (0, 40)
    still = RandomShift(EveryState("state"), most=0)
    assert torch.allclose(value(still, net, batch)[0], value(EveryState("state"), net, batch)[0])


@pytest.mark.parametrize(
    ("net", "objective"),
    [
        (LSTM(2, width=4, hidden=5, outputs=4), EveryState("state")),
        (LSTM(2, width=4, hidden=5, outputs=4), RevealedStates(of="state", reveal=0.3)),
        (model(2, 4), RandomShift(EveryState("state"), 30)),
        (model(6, 4, positions="alibi", longest=None), Scratchpad(tokens=2)),
        (model(2, 4, positions="linear"), RandomShift(RevealedStates(of="state"), 30)),
    ],
)
def test_stacked_training_is_that_of_one_after_another(net, objective):
    world = replace(GRID, length=6)
    recipe = Recipe(
        net, world, objective, 4, batch_size=3, optimizer=Adam(0.01), chunk=2, clip=1.0, ema=0.9, dtype="float64"
    )
    together, singly = recipe.train(2), replace(recipe, stacked=False).train(2)
    for name, value in together.models.params.items():
        torch.testing.assert_close(value, singly.models.params[name], atol=1e-9, rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="nothing to shift"):
        fit(LSTM(2, outputs=4), GRID, RandomShift(), steps=1, batch_size=2)
    with pytest.raises(ArgumentError, match="below longest=60"):
        fit(model(2, 4), GRID, RandomShift(most=60), steps=1, batch_size=2)
    with pytest.raises(ArgumentError, match="reveal=0"):
        RevealedStates(reveal=0.0)
    with pytest.raises(ArgumentError, match="knows no such latent, only state, label"):
        EveryState("stat").draw(GRID.sample(2, rng()), rng(), 0)
