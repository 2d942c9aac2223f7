"""Optimisers and schedules against PyTorch's, on the same gradients, in float64."""

import math

import pytest
import torch
from torch import nn

import sandtable as st
from sandtable.arguments import ArgumentError
from sandtable.training import SGD, AdaFactor, Adam, Cosine, Drops, Flat, Frozen, Linear, NormalisedGD, Stages
from sandtable.training.optimizers import defaults

MODELS, STEPS = 3, 25


def trajectories(optimizer, per_model, shapes=((4, 3), (5,))):
    """Every model's parameters after every step, under our broadcast update; gradients are 25 random draws."""
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(MODELS, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    grads = [[torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in start] for _ in range(STEPS)]
    params = [p.clone() for p in start]
    states = [optimizer.start(p) for p in params]
    numbers = {name: torch.full((MODELS,), value, dtype=torch.float64) for name, value in defaults(optimizer).items()}
    numbers |= {name: torch.tensor(values, dtype=torch.float64) for name, values in per_model.items()}
    out = []
    for step in grads:
        numbers["gradient_norm"] = sum(g.reshape(MODELS, -1).square().sum(1) for g in step).sqrt()
        for parameter, grad, state in zip(params, step, states, strict=True):
            optimizer.update(parameter, grad, state, numbers["lr"], numbers)
        out.append([p.clone() for p in params])
    return start, grads, out


def agree(optimizer, per_model, theirs):
    """`theirs(params, model)` builds PyTorch's optimiser for one model."""
    start, grads, ours = trajectories(optimizer, per_model)
    for m in range(MODELS):
        params = [nn.Parameter(p[m].clone()) for p in start]
        other = theirs(params, m)
        for step in range(STEPS):
            for parameter, grad in zip(params, grads[step], strict=True):
                parameter.grad = grad[m].clone()
            other.step()
            for mine, parameter in zip(ours[step], params, strict=True):
                torch.testing.assert_close(mine[m], parameter.detach(), rtol=1e-10, atol=1e-10)


RATES = [0.01, 0.1, 0.5]


def test_sgd():
    agree(SGD(), dict(lr=RATES), lambda params, m: torch.optim.SGD(params, lr=RATES[m]))


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov):
    momentum = [0.5, 0.9, 0.99]
    agree(
        SGD(nesterov=nesterov),
        dict(lr=RATES, momentum=momentum),
        lambda params, m: torch.optim.SGD(params, lr=RATES[m], momentum=momentum[m], nesterov=nesterov),
    )


def test_adam():
    beta1, beta2, eps = [0.0, 0.9, 0.99], [0.9, 0.999, 0.95], [1e-8, 1e-3, 1e-6]
    agree(
        Adam(),
        dict(lr=RATES, beta1=beta1, beta2=beta2, eps=eps),
        lambda params, m: torch.optim.Adam(params, lr=RATES[m], betas=(beta1[m], beta2[m]), eps=eps[m]),
    )


def test_adamw():
    decay = [0.0, 0.1, 1.0]
    agree(
        Adam(),
        dict(lr=RATES, weight_decay=decay),
        lambda params, m: torch.optim.AdamW(params, lr=RATES[m], weight_decay=decay[m]),
    )


def test_sgd_with_decoupled_decay():
    _, grads, ours = trajectories(SGD(), dict(lr=RATES, weight_decay=[0.0, 0.1, 1.0], momentum=[0.9] * 3))
    start, _, _ = trajectories(SGD(), {})
    for m, decay in enumerate([0.0, 0.1, 1.0]):
        theta, velocity = start[0][m].clone(), 0.0
        for step in range(STEPS):
            velocity = 0.9 * velocity + grads[step][0][m]
            theta = theta - RATES[m] * decay * theta - RATES[m] * velocity
        torch.testing.assert_close(ours[-1][0][m], theta, rtol=1e-12, atol=1e-12)


def test_normalised_gradient_descent():
    start, _, ours = trajectories(NormalisedGD(), dict(lr=RATES))
    before = start
    for after in ours:
        moved = torch.cat([(a - b).reshape(MODELS, -1) for a, b in zip(after, before, strict=True)], dim=1)
        torch.testing.assert_close(moved.norm(dim=1), torch.tensor(RATES, dtype=torch.float64), rtol=1e-10, atol=0)
        before = after


CLIP, DECAY = [0.5, 1.0, 2.0], [0.8, 0.6, 1.0]


def test_adafactor_is_that_of_transformers():
    """Factored where both sides are long enough: against theirs, which sees all other parameters as one vector."""
    theirs = pytest.importorskip("transformers.optimization").Adafactor
    shapes = ((6, 5), (2, 7, 4), (3, 9), (5,))

    def build(params, m):
        options = dict(scale_parameter=True, relative_step=False, warmup_init=False)
        return theirs(params, lr=RATES[m], clip_threshold=CLIP[m], decay_rate=-DECAY[m], **options)

    start, grads, ours = trajectories(AdaFactor(factored=4), dict(lr=RATES, clip=CLIP, decay=DECAY), shapes)
    for m in range(MODELS):
        flat = [len(shape) < 2 or min(shape[-2:]) < 4 for shape in shapes]
        params = [nn.Parameter(p[m].flatten() if f else p[m].clone()) for p, f in zip(start, flat, strict=True)]
        other = build(params, m)
        for step in range(STEPS):
            for parameter, grad in zip(params, grads[step], strict=True):
                parameter.grad = grad[m].view_as(parameter).clone()
            other.step()
            for mine, parameter in zip(ours[step], params, strict=True):
                torch.testing.assert_close(mine[m], parameter.detach().view_as(mine[m]), rtol=1e-10, atol=1e-10)


def test_adafactor_is_torchs_while_its_own_limit_of_the_rate_is_not_reached():
    rates = [0.01, 0.1, 1 / math.sqrt(STEPS)]  # torch takes min(lr, 1/√t)
    agree(
        AdaFactor(factored=1, eps=1e-60),
        dict(lr=rates, clip=[1.0, 1.2, 3.0], decay=DECAY),
        lambda params, m: torch.optim.Adafactor(
            params, lr=rates[m], d=[1.0, 1.2, 3.0][m], beta2_decay=-DECAY[m], eps=(1e-60, 1e-3)
        ),
    )


def test_adafactor_trains_a_stack_as_it_trains_each_model():
    """Models of a stack do not meet in its means, and a run that is resumed goes on where it was."""
    world = st.worlds.DropTask(symbols=4, length=2)
    model = st.models.Seq2Seq(world.vocab, layers=1, heads=2, width=8, longest=3, longest_target=3)
    objective, settings = st.objectives.Refinement(), dict(batch_size=8, chunk=2, optimizer=AdaFactor(factored=4))
    both = st.fit(model, world, objective, steps=6, seeds=2, grid={"lr": [0.01, 0.1]}, **settings)
    alone = st.fit(model, world, objective, steps=6, seeds=2, grid={"lr": [0.1]}, **settings)
    torch.testing.assert_close(both.losses[2:], alone.losses, rtol=1e-4, atol=1e-5)
    halfway = st.fit(model, world, objective, steps=3, seeds=2, grid={"lr": [0.1]}, **settings).resume(steps=6)
    torch.testing.assert_close(halfway.losses, alone.losses, rtol=1e-4, atol=1e-5)


def test_a_zero_gradient_moves_nothing():
    theta = torch.ones(2, 3)
    numbers = {"lr": torch.ones(2), "gradient_norm": torch.zeros(2)}
    NormalisedGD().update(theta, torch.zeros(2, 3), {}, numbers["lr"], numbers)
    assert torch.equal(theta, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SGD(-0.1), "lr=-0.1"),
        (lambda: SGD(math.nan), "lr=nan"),
        (lambda: SGD(momentum=1.5), "momentum=1.5"),
        (lambda: Adam("fast"), "lr='fast'"),
        (lambda: Adam(beta1=-1), "beta1=-1"),
        (lambda: Adam(beta2=2), "beta2=2"),
        (lambda: Adam(eps=-1), "eps=-1"),
        (lambda: Adam(weight_decay=-1), "weight_decay=-1"),
        (lambda: NormalisedGD(-1), "lr=-1"),
        (lambda: AdaFactor(-1), "lr=-1"),
        (lambda: AdaFactor(decay=0), "decay=0"),
        (lambda: AdaFactor(clip=0), "clip=0"),
        (lambda: AdaFactor(least_scale=0), "least_scale=0"),
        (lambda: AdaFactor(factored=0), "factored=0"),
        (lambda: Cosine(warmup=-1), "warmup=-1"),
        (lambda: Linear(warmup=-1), "warmup=-1"),
        (lambda: Linear(final=-0.1), "final=-0.1"),
        (lambda: Drops((1.5,)), "at=1.5"),
        (lambda: Drops((0.5,), by=0), "by=0"),
        (lambda: Stages(()), "at least one stage"),
        (lambda: Stages(((0, ()),)), "stage steps=0"),
    ],
)
def test_bad_settings(make, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


# -- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "make"),
    [
        (Cosine(final=0.1), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=40, eta_min=0.1)),
        (Linear(final=0.1), lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=40)),
    ],
)
def test_decays_are_torchs(ours, make):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = make(optimizer)
    for step in range(40):
        assert ours.factor(step, 40) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_warm_up_drops_and_flat():
    assert [Cosine(warmup=4).factor(s, 100) for s in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert [Linear(warmup=4).factor(s, 12) for s in range(12)] == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, *(1 - k / 8 for k in range(8))]
    )
    assert [Drops((0.5, 0.8), by=0.1).factor(s, 10) for s in (0, 4, 5, 7, 8, 9)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert Flat().factor(7, 10) == 1.0


def test_what_is_frozen_when():
    stages = Stages(((2, ("a",)), (3, ("b",))))
    assert [stages.frozen(s)[0] for s in range(8)] == list("aabbbbbb")
    again = Stages(((2, ("a",)), (3, ("b",))), repeat=True)
    assert [again.frozen(s)[0] for s in range(8)] == list("aabbbaab")
    assert Frozen(("a",)).frozen(9) == ("a",)
