"""Dropout: masks against numpy, nothing changes on average, alike in any stack, and only in training."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from sandtable.arguments import ArgumentError
from sandtable.models import LSTM, Seq2Seq, Transformer
from sandtable.objectives import Dropout, EveryState, NextBracket, RandomShift, Refinement
from sandtable.objectives.dropout import uniform
from sandtable.training import Adam, fit
from sandtable.training.streams import Supply, stream
from sandtable.worlds import DyckPrefixes, translation_task
from sandtable.worlds.automata import fixture
from sandtable.worlds.bits import numpy_bits

GRID = fixture("GRID4")
BRACKETS = DyckPrefixes(length=6)
NET = Transformer(
    GRID.n_tokens, outputs=GRID.n_states, layers=2, heads=2, width=8, mlp=16, norm="pre", causal=True, tied=False
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def apply(model, params, inputs, want=(), edits=None):
    return functional_call(model, dict(params), (inputs,), {"want": want, "edits": edits})


def own(model):
    return {name: p.detach() for name, p in model.named_parameters()}


def test_numbers_are_those_of_numpy():
    seed = torch.tensor(1234567890123456789)
    bits = numpy_bits(np.array([int(seed)]), 1000).view(np.uint64)[0]
    assert np.array_equal(uniform(seed, 1000).numpy(), (bits >> np.uint64(40)).astype(np.float32) / 2**24)


def test_the_loss_is_that_of_dropped_activations():
    objective, batch = Dropout(EveryState("state"), 0.3), GRID.sample(5, rng())
    model = NET.initialise(rng(1), 20.0)
    example = objective.draw(batch, rng(2), 0)
    found = objective.loss(partial(apply, model), own(model), example)[0]

    seeds = numpy_bits(np.array([int(example["key"])]), 4)[0]  # attention and MLP of two layers, in their order
    names = [f"blocks.{i}.hook_{part}_out" for i in range(2) for part in ("attn", "mlp")]
    masks = {}
    for name, seed in zip(names, seeds, strict=True):
        numbers = (numpy_bits(seed[None], batch.x.numel() * 8).view(np.uint64) >> np.uint64(40)) / 2**24
        masks[name] = torch.from_numpy(numbers >= 0.3).view(*batch.x.shape, 8) / 0.7
    edits = {name: (lambda x, name=name: x * masks[name]) for name in names}
    logits = model(batch.x, edits=edits)
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.latents["state"].flatten())
    torch.testing.assert_close(found, wanted)
    kept = torch.cat([mask.flatten() for mask in masks.values()]) > 0
    assert abs(float(kept.double().mean()) - 0.7) < 0.02


def test_on_average_an_activation_stays_what_it_is_and_masks_differ():
    seen, batch = [], GRID.sample(1, rng())

    def spy(params, inputs, want=(), edits=None):
        seen.extend(edits["*hook_*_out"](torch.full((500,), 2.0)) for _ in range(2))
        return torch.zeros(*inputs.shape, GRID.n_states)

    objective = Dropout(EveryState("state"), 0.25)
    for seed in range(40):
        objective.loss(spy, {}, objective.draw(batch, rng(seed), 0))
    values = torch.stack(seen)
    assert sorted(values.unique().tolist()) == [0.0, pytest.approx(2.0 / 0.75)]
    assert abs(float(values.mean()) - 2.0) < 0.03
    between = torch.corrcoef((values > 0).double())[~torch.eye(80, dtype=torch.bool)]
    assert abs(float(between.mean())) < 0.005
    assert float(between.abs().max()) < 0.25


@pytest.mark.parametrize(
    ("model", "world", "objective"),
    [
        (NET, GRID, Dropout(EveryState("state"), 0.2)),
        (NET, GRID, Dropout(Dropout(EveryState("state"), 0.2), 0.5, "hook_embed")),
        (NET.replace(positions="linear", longest=60), GRID, RandomShift(Dropout(EveryState("state"), 0.2), 5)),
        (NET.replace(positions="linear", longest=60), GRID, Dropout(RandomShift(EveryState("state"), 5), 0.2)),
        (LSTM(GRID.n_tokens, width=4, hidden=6, outputs=GRID.n_states), GRID, Dropout(EveryState("state"), 0.2, "*h")),
        (
            Transformer(len(BRACKETS.vocab), width=8, heads=2, mlp=8, causal=True, tied=False),
            BRACKETS,
            Dropout(NextBracket(contrast=0.3), 0.2, "*hook_pattern"),
        ),
    ],
    ids=["branches", "embedding too", "inside a shift", "around a shift", "LSTM", "attention weights"],
)
def test_models_train_alike_in_stacks_of_any_size_and_resume_alike(model, world, objective):
    train = partial(fit, model, world, objective, batch_size=4, block=4, seeds=3, optimizer=Adam(0.01))
    together, alone = train(steps=6, chunk=3), train(steps=6, chunk=1)
    plain = fit(model, world, _inner(objective), batch_size=4, block=4, seeds=3, optimizer=Adam(0.01), steps=6)
    for name in together.models.params:
        torch.testing.assert_close(together.models[name], alone.models[name], rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(together.models[name], plain.models[name], atol=1e-3) for name in plain.models.params)
    longer = train(steps=3, chunk=3).resume(steps=6)
    for name in together.models.params:
        assert torch.equal(longer.models[name], together.models[name])


def _inner(objective):
    """Without dropout."""
    if isinstance(objective, Dropout):
        return _inner(objective.objective)
    return RandomShift(_inner(objective.objective), objective.most) if isinstance(objective, RandomShift) else objective


def test_refiners_and_both_of_their_passes():
    world = translation_task("drop", symbols=6, length=4)
    model = Seq2Seq(world.vocab, layers=1, heads=2, width=8, longest=8, longest_target=8)
    assert {"decoder.0.hook_cross_out", "decoder.0.hook_positional_out", "encoder.0.hook_mlp_out"} <= set(
        model.hook_names()
    )
    made = fit(model, world, Dropout(Refinement(), 0.1), steps=3, batch_size=4, seeds=2)
    assert bool(made.history["loss"].isfinite().all())


def test_a_rate_of_zero_is_no_dropout():
    train = partial(fit, NET, GRID, batch_size=4, block=4, seeds=2, steps=5)
    # The noise stream is not read by EveryState itself: its data are the same with and without a key.
    none, plain = train(Dropout(EveryState("state"), 0.0)), train(EveryState("state"))
    for name in plain.models.params:
        assert torch.equal(none.models[name], plain.models[name])


def test_keys_are_drawn_where_the_data_are():
    pairs = [(stream("data", seed), stream("noise", seed)) for seed in range(3)]
    block = Supply(BRACKETS, Dropout(NextBracket()), 4).draw_each(0, 5, pairs, "meta")
    assert {leaf.device.type for leaf in tree_leaves(block)} == {"meta"}
    assert block["key"].shape == (5, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dropout(EveryState(), 1.0), r"rate=1\.0"),
        (lambda: Dropout(EveryState(), -0.1), r"rate=-0\.1"),
        (lambda: Dropout(3), "objective=3"),
        (lambda: Dropout(EveryState(), 0.1, ("a", "b")), "where="),
        (lambda: fit(NET, GRID, Dropout(EveryState("state"), 0.1, "hook_embbed"), steps=1, batch_size=2), "hook_embed"),
        (lambda: fit(torch.nn.Linear(2, 2), GRID, Dropout(EveryState()), steps=1, batch_size=2), "Linear"),
    ],
)
def test_mistakes_are_one_line(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
