"""Stacked training against one model at a time, written out with PyTorch's own tools."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Stack, Transformer
from sandtable.objectives import MaskedLM, OneForward
from sandtable.training import SGD, Adam, Cosine, NormalisedGD, Stages, evaluate, fit, stream
from sandtable.training.streams import Supply
from sandtable.worlds import Batch, Expectation, TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
OBJECTIVE = MaskedLM(form="types")
MODEL = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})


def train(model=MODEL, source=WORLD, objective=OBJECTIVE, **options):
    return fit(model, source, objective, **{**dict(steps=12, batch_size=4, dtype="float64", block=5), **options})


def same_models(a, b, *, atol=None):
    assert a.params.keys() == b.params.keys()
    for name in a.params:
        if atol is None:
            assert torch.equal(a[name], b[name]), name
        else:
            torch.testing.assert_close(a[name], b[name], rtol=0, atol=atol)


class Regression(OneForward):
    """Squared error of a linear map on pairs (x[:, :-1], x[:, -1]); reports a checksum of the data it saw."""

    noisy = False

    def draw(self, batch, generator, step):
        return {"inputs": batch.x[:, :-1], "target": batch.x[:, -1]}

    def loss(self, apply, params, example):
        wrong = apply(params, example["inputs"])[:, 0] - example["target"]
        return wrong.square().mean(), {"seen": example["target"].sum()}


def data(n=30, seed=0):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[:, -1] = x[:, :3] @ torch.tensor([1.0, -2.0, 0.5]).double() + 0.1 * x[:, -1]
    return Batch(x)


# -- the whole step, written out -------------------------------------------------------------------------------------


def by_hand(optimizer, *, seed, steps=12, l2=0.0, clip=None, ema=0.0, scale=1.0, schedule=None):
    """One model, one step at a time: the same streams, PyTorch's autograd, optimiser and clipping."""
    net = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
    net = net.initialise(stream("init", seed), scale).double()
    opt = optimizer(net.parameters())
    averaged = {n: p.detach().clone() for n, p in net.named_parameters()}
    rates = [group["lr"] for group in opt.param_groups]
    supply, losses = Supply(WORLD, OBJECTIVE, 4), []
    generators = stream("data", seed), stream("noise", seed)
    for first in range(0, steps, 5):
        block = supply.draw(first, 5, *generators)
        for s in range(min(5, steps - first)):
            example = torch.utils._pytree.tree_map(
                lambda t, s=s, block=block: t[s].double() if t.is_floating_point() else t[s], block
            )
            loss, _ = OBJECTIVE.loss(
                lambda params, inputs: functional_call(net, params, (inputs,)), dict(net.named_parameters()), example
            )
            opt.zero_grad()
            (loss + l2 * sum(p.square().sum() for p in net.parameters())).backward()
            if clip is not None:
                norm = torch.cat([p.grad.flatten() for p in net.parameters()]).norm()
                for p in net.parameters():
                    p.grad.mul_(min(1.0, clip / float(norm)))
            for group, rate in zip(opt.param_groups, rates, strict=True):
                group["lr"] = rate * (schedule.factor(first + s, steps) if schedule else 1.0)
            opt.step()
            losses.append(float(loss.detach()))
            for name, p in net.named_parameters():
                averaged[name].mul_(ema).add_((1 - ema) * p.detach())
    return net, torch.tensor(losses, dtype=torch.float64), averaged


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
        (SGD(0.2, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9)),
        (SGD(0.2, momentum=0.9, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, nesterov=True)),
        (Adam(0.03), lambda p: torch.optim.Adam(p, lr=0.03)),
        (Adam(0.03, weight_decay=0.5), lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=0.5)),
    ],
)
def test_every_optimiser_takes_torchs_path(ours, theirs):
    result = train(optimizer=ours, seeds=3, schedule=Cosine(warmup=3))
    for seed in range(3):
        net, losses, _ = by_hand(theirs, seed=seed, schedule=Cosine(warmup=3))
        torch.testing.assert_close(result.losses[seed], losses, rtol=1e-9, atol=1e-10)
        for name, p in net.named_parameters():
            torch.testing.assert_close(result[seed].get_parameter(name), p, rtol=1e-8, atol=1e-10)


def test_normalised_descent_moves_a_fixed_distance():
    result = train(optimizer=NormalisedGD(0.05), seeds=2, snapshots=(0, 1, 2), clip=1e-3)
    for a, b in ((0, 1), (1, 2)):
        moved = [(result.snapshot(b)[n] - result.snapshot(a)[n]).flatten(1) for n in result.models.params]
        torch.testing.assert_close(
            torch.cat(moved, 1).norm(dim=1), torch.full((2,), 0.05, dtype=torch.float64), rtol=1e-9, atol=0
        )


def test_every_model_has_its_own_numbers():
    """A grid over learning rate, initial scale, penalty, clipping and averaging equals runs written out one by one."""
    grid = dict(lr=[0.1, 0.7], init_scale=[1.0, 0.2], l2=[0.0, 0.05], clip=[0.01, 1e9], ema=[0.0, 0.9])
    result = train(optimizer=SGD(), grid=grid, seeds=[1, 4], chunk=7)
    assert len(result) == len(result.rows) == 64
    for i in range(0, 64, 5):
        row = result.rows[i]
        net, losses, averaged = by_hand(
            lambda p, row=row: torch.optim.SGD(p, lr=row["lr"]),
            seed=row["seed"], l2=row["l2"], clip=row["clip"], ema=row["ema"], scale=row["init_scale"],
        )  # fmt: skip
        torch.testing.assert_close(result.losses[i], losses, rtol=1e-9, atol=1e-10)
        for name, p in net.named_parameters():
            torch.testing.assert_close(result[i].get_parameter(name), p, rtol=1e-9, atol=1e-10)
            torch.testing.assert_close(result.averaged[name][i], averaged[name], rtol=1e-9, atol=1e-10)


# -- streams ---------------------------------------------------------------------------------------------------------


class Checksum(MaskedLM):
    """The masked objective, which also reports what it was given."""

    def loss(self, apply, params, example):
        loss, _ = super().loss(apply, params, example)
        ids = example["inputs"].ids.to(loss.dtype)
        places = torch.arange(1, ids.numel() + 1, dtype=loss.dtype).reshape(ids.shape)
        return loss, {
            "data": (ids * places).sum(),
            "mask": (example["inputs"].rows * example["target"]).sum().to(loss.dtype),
        }


def test_initial_weights_and_data_are_the_same_bits_at_any_stack_size():
    results = [
        train(objective=Checksum(), seeds=5, chunk=chunk, snapshots=(0,), dtype="float32") for chunk in (1, 3, 8)
    ]
    results.append(train(objective=Checksum(), seeds=5, stacked=False, snapshots=(0,), dtype="float32"))
    for other in results[1:]:
        same_models(other.snapshot(0), results[0].snapshot(0))
        for name in ("data", "mask"):
            assert torch.equal(other.history[name], results[0].history[name])
        torch.testing.assert_close(other.losses, results[0].losses, rtol=1e-4, atol=1e-5)
    assert len({tuple(row.tolist()) for row in results[0].history["data"]}) == 5


def test_more_seeds_do_not_change_the_first_ones():
    """The last chunk is padded, so three seeds of eight are computed in a stack of the same size: same bits."""
    few, many = train(seeds=3, dtype="float32"), train(seeds=8, dtype="float32")
    same_models(few.models, many.select(range(3)).models)
    assert torch.equal(few.losses, many.losses[:3])
    same_models(train(seeds=[5, 2], dtype="float32").models, many.models.select([5, 2]))


def test_arms_share_streams_and_streams_can_be_shared():
    arms = train(grid=dict(lr=[0.0, 0.1]), objective=Checksum(), seeds=2, snapshots=(0,))
    same_models(arms.where(lr=0.0).snapshot(0), arms.where(lr=0.1).snapshot(0))
    assert torch.equal(arms.where(lr=0.0).history["data"], arms.where(lr=0.1).history["data"])
    shared = train(objective=Checksum(), seeds=3, streams={"data": 7, "noise": 7}, snapshots=(0,))
    assert (shared.history["data"] == shared.history["data"][0]).all()
    assert not torch.equal(shared.snapshot(0)["blocks.0.attn.W_V"][0], shared.snapshot(0)["blocks.0.attn.W_V"][1])
    some = train(objective=Checksum(), seeds=3, streams={"data": 7}, snapshots=(0,))
    assert not torch.equal(some.history["mask"][0], some.history["mask"][1])
    alike = train(seeds=3, streams={"init": 1}, snapshots=(0,)).snapshot(0)
    assert torch.equal(alike["blocks.0.attn.W_V"][0], alike["blocks.0.attn.W_V"][2])


def test_training_leaves_the_model_and_the_global_generator_alone():
    before = {n: p.clone() for n, p in MODEL.named_parameters()}
    state = torch.random.get_rng_state()
    result = train(seeds=2)
    evaluate(result.models, WORLD, OBJECTIVE, batches=2)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[n], p) and p.dtype == torch.float32 for n, p in MODEL.named_parameters())


# -- sources ---------------------------------------------------------------------------------------------------------


def linear():
    return nn.Linear(3, 1)


def test_full_batch_descent_reaches_least_squares():
    batch = data()
    result = fit(linear(), batch, Regression(), steps=3000, optimizer=SGD(0.2), dtype="float64", seeds=2)
    x = torch.cat([batch.x[:, :3], torch.ones(30, 1).double()], 1)
    exact = torch.linalg.lstsq(x, batch.x[:, 3:]).solution[:, 0]
    for i in range(2):
        found = torch.cat([result[i].weight[0], result[i].bias]).detach()
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-8)
    assert torch.equal(result.history["seen"], batch.x[:, 3].sum().expand(2, 3000))


@pytest.mark.parametrize("block", [2, 4, 32])
def test_epochs_visit_everything_once(block):
    """Batches of 5 out of 30: any six steps that make an epoch see every point once, whatever the block length."""
    batch = Batch(torch.randn(30, 4, dtype=torch.float64))
    batch.x[:, 3] = 2.0 ** torch.arange(30)
    result = fit(
        linear(),
        batch,
        Regression(),
        steps=24,
        batch_size=5,
        optimizer=SGD(1e-22),
        dtype="float64",
        block=block,
        seeds=2,
    )
    seen = result.history["seen"].unflatten(1, (4, 6))
    assert (seen.sum(2) == 2.0**30 - 1).all()
    assert not torch.equal(seen[0, 0], seen[0, 1])  # shuffled anew
    assert not torch.equal(seen[0, 0], seen[1, 0])


def test_the_block_length_does_not_change_the_epochs():
    runs = [
        fit(linear(), data(), Regression(), steps=20, batch_size=7, optimizer=SGD(0.1), block=b).history["seen"]
        for b in (1, 8)
    ]
    assert torch.equal(*runs)


def test_an_exact_expectation():
    world = TopicModel(3, 2, present=1)
    result = train(source=world.infinite(), optimizer=SGD(0.5), seeds=2, batch_size=None)
    for seed in range(2):
        net = Transformer(world.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
        net = net.initialise(stream("init", seed)).double()
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        for step in range(12):
            example = OBJECTIVE.expect(world.infinite())
            loss, _ = OBJECTIVE.loss(lambda params, inputs, net=net: net(inputs), {}, example)
            assert float(result.losses[seed, step]) == pytest.approx(float(loss.detach()), rel=1e-10)
            opt.zero_grad()
            loss.backward()
            opt.step()
        final = OBJECTIVE.loss(lambda params, inputs, net=net: net(inputs), {}, OBJECTIVE.expect(world.infinite()))[0]
        held_out = evaluate(result.models, world.infinite(), OBJECTIVE)[seed]
        assert float(held_out) == pytest.approx(float(final.detach()), rel=1e-10)


def test_the_default_expectation_hands_over_its_weights():
    class Weighted(OneForward):
        def score(self, outputs, example):
            return (example["weights"] * (outputs[:, 0] - 1.0).square()).sum()

    points = Expectation(Batch(torch.eye(3, dtype=torch.float64)), torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    result = fit(
        nn.Linear(3, 1, bias=False), points, Weighted(), steps=500, optimizer=SGD(0.5), dtype="float64", seeds=2
    )
    assert torch.allclose(result.models["weight"][:, 0, :2], torch.ones(2, 2).double(), atol=1e-6)
    assert (result.models["weight"][:, 0, 2] != 1).all()


def test_evaluation_is_the_mean_loss_on_shared_fresh_data():
    result = train(seeds=3)
    found = evaluate(result.models, WORLD, OBJECTIVE, batches=4, batch_size=6, seed=2)
    drawn = Supply(WORLD, OBJECTIVE, 6).draw(0, 4, stream("evaluation", 2), stream("evaluation-noise", 2))
    for i in range(3):
        total = 0.0
        for b in range(4):
            example = torch.utils._pytree.tree_map(
                lambda t, b=b: t[b].double() if t.is_floating_point() else t[b], drawn
            )
            total += float(OBJECTIVE.loss(lambda params, inputs, i=i: result[i](inputs), {}, example)[0].detach()) / 4
        assert float(found[i]) == pytest.approx(total, rel=1e-10)


# -- stages, stopping, watching --------------------------------------------------------------------------------------


def test_frozen_parameters_do_not_move_by_a_bit():
    stages = Stages(((4, ("*.W_Q", "*.W_K")), (3, ("*.W_[VO]",))), repeat=True)
    result = train(frozen=stages, seeds=2, snapshots=tuple(range(13)), l2=0.1, optimizer=Adam(0.05, weight_decay=0.1))
    for step in range(12):
        first = step % 7 < 4
        for name in result.models.params:
            still = torch.equal(result.snapshot(step)[name], result.snapshot(step + 1)[name])
            assert still == (name.endswith(("W_Q", "W_K")) == first), (step, name)


def test_frozen_throughout_by_pattern_or_by_the_model():
    for options in (dict(frozen="*.W_V"), dict(model=MODEL.replace().freeze("*.W_V"))):
        result = train(seeds=2, snapshots=(0,), **options)
        for name in result.models.params:
            assert torch.equal(result.snapshot(0)[name], result.models[name]) == name.endswith("W_V")


def test_a_model_stops_once_its_gradient_is_small():
    result = fit(
        linear(), data(), Regression(), steps=400, optimizer=SGD(), grid=dict(lr=[0.3, 0.001]), tol=1e-3,
        dtype="float64", snapshots=(399, 400), block=10,
    )  # fmt: skip
    fast, slow = result.where(lr=0.3), result.where(lr=0.001)
    assert result.stopped.tolist() == [True, False]
    same_models(fast.snapshot(399), fast.snapshot(400))
    assert not torch.equal(slow.snapshot(399)["weight"], slow.snapshot(400)["weight"])
    model = fast[0]
    loss = (model(data().x[:, :3])[:, 0] - data().x[:, 3]).square().mean()
    grad = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert 0 < float(grad.norm()) <= 1e-3


def test_stacks_that_stop_at_different_times_can_be_read_together():
    result = fit(
        linear(), data(), Regression(), steps=60, optimizer=SGD(), grid=dict(lr=[0.3, 0.05]), tol=0.1, dtype="float64",
        block=5, chunk=1, watch={"bias": lambda params: params["bias"][:, 0]}, watch_every=7, snapshots=(0, 60),
    )  # fmt: skip
    both = [part.step for part, _ in result.groups[0].parts]
    assert both[0] < 60
    assert result.losses.shape == (2, max(both))
    assert bool(result.losses.isfinite().all())
    assert result.watched["bias"].shape == (2, len(result.watched_at))
    assert torch.equal(result.watched["bias"][:, -1], result.models["bias"][:, 0])
    assert torch.equal(result.snapshot(60)["bias"], result.models["bias"])
    assert result.select([0]).losses.shape == (2, max(both))


def test_snapshots_and_watches():
    seen = lambda params: params["blocks.0.attn.W_V"].square().flatten(1).sum(1)  # noqa: E731
    result = train(seeds=2, steps=11, snapshots=(0, 3, 11), watch={"size": seen}, watch_every=4, chunk=2)
    assert result.watched_at == [0, 4, 8, 11]
    assert result.watched["size"].shape == (2, 4)
    torch.testing.assert_close(result.watched["size"][:, 0], seen(result.snapshot(0).params))
    torch.testing.assert_close(result.watched["size"][:, -1], seen(result.models.params))
    same_models(result.snapshot(11), result.models)
    same_models(result.snapshot(3), train(seeds=2, steps=3, chunk=2).models)
    for i in range(2):
        start = MODEL.replace().initialise(stream("init", i)).double()
        assert torch.equal(result.snapshot(0)["blocks.0.attn.W_Q"][i], start.blocks[0].attn.W_Q)
    with pytest.raises(ArgumentError, match=r"snapshot 4.*\[0, 3, 11\]"):
        result.snapshot(4)


def test_progress_is_reported():
    calls = []
    train(seeds=3, chunk=2, progress=lambda *call: calls.append(call))
    assert [step for step, _, _, _ in calls if step == 12] == [12, 12]  # the end of each of the two stacks, at least
    assert all(0 < step <= steps == 12 for step, steps, _, _ in calls)
    assert all(speed > 0 and math.isfinite(loss) for _, _, speed, loss in calls)


# -- models that cannot be stacked -----------------------------------------------------------------------------------


def test_one_at_a_time_is_the_same():
    grid = dict(lr=[0.01, 0.1], l2=[0.0, 0.1])
    stacked, single = (
        train(seeds=2, grid=grid, clip=0.5, ema=0.9),
        train(seeds=2, grid=grid, clip=0.5, ema=0.9, stacked=False),
    )
    same_models(stacked.models, single.models, atol=1e-9)
    same_models(stacked.averaged, single.averaged, atol=1e-9)
    torch.testing.assert_close(stacked.losses, single.losses, rtol=1e-8, atol=1e-10)


class NextToken(OneForward):
    """Next-token cross-entropy for any module whose output has `logits`."""

    def loss(self, apply, params, example):
        ids = example["inputs"]
        logits = apply(params, ids).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), {}


def test_a_hugging_face_model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=7, n_positions=6, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    world = TopicModel(3, 2, length=6, present=1)
    result = fit(model, world, NextToken(), steps=6, batch_size=4, stacked=False, optimizer=SGD(0.1), block=3, seeds=2,
                 snapshots=(0,))  # fmt: skip
    assert bool(result.losses.isfinite().all())
    net = result.snapshot(0)[1]
    assert type(net) is type(model)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = stream("data", 1)
    for first in (0, 3):
        for ids in world.sample(12, generator).x.reshape(3, 4, 6):
            loss = nn.functional.cross_entropy(net(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            assert float(result.losses[1, first]) == pytest.approx(float(loss.detach()), rel=1e-5)
            opt.zero_grad()
            loss.backward()
            opt.step()
            first += 1
    for name, p in net.named_parameters():
        torch.testing.assert_close(result[1].get_parameter(name), p, rtol=1e-4, atol=1e-6)
    assert isinstance(result.models, Stack)
