"""Masked language modelling against plain loops: the loss, the mask law, the exact expectation, the penalty."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch.func import functional_call

from sandtable.arguments import ArgumentError
from sandtable.inputs import Bag, Documents, Tokens
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM, l2_penalty
from sandtable.training import SGD, fit
from sandtable.worlds import Batch, Expectation, TopicModel, Vocab

WORLD = TopicModel(4, 3, length=(6, 14), present=2)
SIZE = WORLD.vocab_size


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def model(seed=0, **options):
    return Transformer(SIZE, embedding="one-hot", initial={"*": Normal(0.7)}, **options).initialise(rng(seed)).double()


def doubled(example):
    return torch.utils._pytree.tree_map(lambda t: t.double() if t.is_floating_point() else t, example)


def loss_of(objective, net, example):
    def apply(params, inputs, want=()):
        return functional_call(net, params, (inputs,))

    return objective.loss(apply, dict(net.named_parameters()), doubled(example))[0]


def draw(form, batch, seed=3, **options):
    """The objective and its Example; the same seed gives the same masks whatever the form and the error."""
    objective = MaskedLM(form=form, **options)
    return objective, objective.draw(batch, rng(seed), 0)


def visible_documents(batch, seed=3, **options):
    """(true, shown, selected, keys) of every document, read off the positional Example."""
    _, example = draw("positions", batch, seed, **options)
    inputs = example["inputs"]
    selected = torch.zeros(batch.x.shape, dtype=torch.bool)
    document, place = (example["weight"] > 0).nonzero(as_tuple=True)
    selected[document, inputs.rows[document, place]] = True
    return batch.x, inputs.ids, selected, inputs.mask


def by_hand(net, batch, error, seed=3, **options):
    """(1/n) Σ_documents (1/|M|) Σ_{j∈M} ℓ(f(X̃)_j, X_j), document by document and position by position."""
    total = 0.0
    for true, shown, selected, keys in zip(*visible_documents(batch, seed, **options), strict=True):
        inside = 0.0
        # Every document alone, hidden keys cut out instead of masked: query j sees the visible words and nothing else.
        for j in selected.nonzero()[:, 0].tolist():
            context = shown[keys]
            net_in = torch.cat([context, shown[j : j + 1]])[None]
            mask = torch.ones(net_in.shape, dtype=torch.bool)
            mask[0, -1] = False
            out = net(Tokens(net_in, mask))[0, -1]
            if error == "squared":
                target = torch.zeros(SIZE, dtype=torch.float64)
                target[true[j]] = 1
                inside += float((out - target).square().sum())
            else:
                inside += -float(out.log_softmax(-1)[true[j]])
        total += inside / int(selected.sum())
    return total / len(batch)


# -- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_all_forms_are_the_loop(error, hide):
    batch = WORLD.sample(12, rng())
    options = dict(error=error, hide_selected=hide, select=0.3, keep=0.2, random=0.3)
    for attention, residual in itertools.product(("softmax", "uniform"), (False, True)):
        net = model(attention=attention, residual=residual)
        expected = by_hand(net, batch, **options)
        forms = ["positions", "types"] + ["documents"] * (attention == "uniform" and not residual)
        for form in forms:
            # The weights 1/|M| travel in single precision.
            objective, example = draw(form, batch, **options)
            assert float(loss_of(objective, net, example).detach()) == pytest.approx(expected, rel=3e-7)


@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_all_forms_have_the_same_gradient(error):
    batch = WORLD.sample(40, rng(1))
    net = model(attention="uniform", residual=False)
    grads = []
    for form in ("positions", "types", "documents"):
        objective, example = draw(form, batch, error=error)
        grads.append(torch.autograd.grad(loss_of(objective, net, example), list(net.parameters())))
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


def test_a_block_is_its_steps():
    """Many steps at once give the loss of every step alone: rows are packed without mixing steps."""
    batch = WORLD.sample(5 * 7, rng(2))
    net = model()
    for form in ("positions", "types"):
        objective = MaskedLM(form=form)
        block = objective.draw_block(batch.fold(5), rng(4), range(5))
        for step in range(5):
            example = torch.utils._pytree.tree_map(lambda t, step=step: t[step], block)
            assert math.isfinite(float(loss_of(objective, net, example)))
            weights = example["weight"].sum() + (example["soft"].sum() if form == "types" else 0)
            assert float(weights) == pytest.approx(1.0, rel=1e-6)  # each document weighs 1/n
    by_position = MaskedLM().draw_block(batch.fold(5), rng(4), range(5))
    by_type = MaskedLM(form="types").draw_block(batch.fold(5), rng(4), range(5))
    for step in range(5):
        pick = [torch.utils._pytree.tree_map(lambda t, step=step: t[step], block) for block in (by_position, by_type)]
        a = loss_of(MaskedLM(), net, pick[0])
        assert float(a) == pytest.approx(float(loss_of(MaskedLM(form="types"), net, pick[1])), rel=1e-6)


def test_padding_is_never_selected_nor_attended():
    batch = WORLD.sample(200, rng(5))
    _, _, selected, keys = visible_documents(batch)
    assert not (selected & ~batch.mask).any()
    assert torch.equal(keys, batch.mask)
    assert (selected.sum(1) >= 1).all()


def test_hidden_selected_keys():
    batch = WORLD.sample(200, rng(5))
    _, _, selected, keys = visible_documents(batch, hide_selected=True)
    assert torch.equal(keys, batch.mask & ~selected)
    _, example = draw("documents", batch, hide_selected=True)
    assert torch.equal(example["inputs"].counts.sum(1), keys.sum(1).float())


def test_something_is_always_left_to_see():
    """Hiding every key would leave attention nothing to attend to (0/0)."""
    short = TopicModel(4, 3, length=2, present=2)
    batch = short.sample(400, rng())
    for form in ("positions", "types", "documents"):
        objective, example = draw(form, batch, hide_selected=True, select=0.5)
        net = model(attention="uniform", residual=False)
        assert math.isfinite(float(loss_of(objective, net, example)))
    with pytest.raises(ArgumentError, match="hide_selected"):
        draw("types", TopicModel(4, 3, length=(1, 3), present=2).sample(50, rng()), hide_selected=True)
    with pytest.raises(ArgumentError, match="hide_selected"):
        MaskedLM(1.0, hide_selected=True)


def test_the_same_generator_gives_the_same_masks():
    batch = WORLD.sample(50, rng())
    a, b, c = (draw("positions", batch, seed)[1] for seed in (1, 1, 2))
    assert torch.equal(a["inputs"].ids, b["inputs"].ids)
    assert torch.equal(a["inputs"].rows, b["inputs"].rows)
    assert not torch.equal(a["inputs"].ids, c["inputs"].ids)


# -- the mask law ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "keep", "random"),
    [(0.15, 0.1, 0.1), (0.5, 0.0, 0.6), (0.9, 0.5, 0.5), (1.0, 0.0, 0.0), (0.02, 1.0, 0.0)],
)
@pytest.mark.parametrize("mask_id", [0, 5])
def test_masks_follow_the_scheme(select, keep, random, mask_id):
    """Joint law of (true word, selected?, shown token) against its table; M is drawn again while it is empty."""
    length, documents, size = 25, 4000, 8
    vocab = Vocab(tuple("abcdefgh"), mask=mask_id)
    words = [w for w in range(size) if w != mask_id]
    x = torch.tensor(words)[torch.randint(size - 1, (documents, length), generator=rng(9))]
    batch = Batch(x, vocab=vocab)
    true, shown, selected, _ = visible_documents(batch, 11, select=select, keep=keep, random=random)
    assert torch.equal(true[~selected], shown[~selected])
    chosen = select / (1 - (1 - select) ** length)
    table = np.zeros((2, size, size))
    for w in words:
        table[0, w, w] = (1 - chosen) / (size - 1)
        table[1, w, w] += chosen * keep / (size - 1)
        table[1, w, mask_id] += chosen * (1 - keep - random) / (size - 1)
        for u in words:
            table[1, w, u] += chosen * random / (size - 1) ** 2
    cells = (selected.long() * size + true) * size + shown
    seen = np.bincount(cells.flatten(), minlength=2 * size * size) / cells.numel()
    n = cells.numel()
    bound = 0.5 * math.sqrt(np.count_nonzero(table) / n) + math.sqrt(math.log(1e9) / (2 * n))
    assert 0.5 * np.abs(seen - table.flatten()).sum() <= bound


def test_the_number_selected_is_binomial_given_that_it_is_not_zero():
    batch = Batch(torch.ones(40_000, 6, dtype=torch.long), vocab=WORLD.vocab)
    _, _, selected, _ = visible_documents(batch)
    law = binom.pmf(np.arange(1, 7), 6, 0.15)
    law /= law.sum()
    seen = np.bincount(selected.sum(1), minlength=7)[1:] / 40_000
    assert 0.5 * np.abs(seen - law).sum() <= 0.5 * math.sqrt(6 / 40_000) + math.sqrt(math.log(1e9) / 80_000)


# -- the exact expectation -------------------------------------------------------------------------------------------


def expected_by_hand(net, world, masking, error, hide):
    """Σ over topic sets, true words and shown tokens, attention over the exact law of the visible document."""
    total, sets = 0.0, list(itertools.combinations(range(world.topics), world.present))
    words = range(1, world.vocab_size)
    select, keep, random = masking
    for chosen in sets:
        law = torch.zeros(world.vocab_size, dtype=torch.float64)
        for t in chosen:
            law[1 + t * world.words : 1 + (t + 1) * world.words] = 1 / (world.present * world.words)
        seen = torch.zeros_like(law)
        for w in words:
            seen[w] += law[w] * (1 - select)
            if not hide:
                seen[w] += law[w] * select * keep
                seen[0] += law[w] * select * (1 - keep - random)
                for u in words:
                    seen[u] += law[w] * select * random / len(words)
        seen = seen / seen.sum()
        for w, q in itertools.product(words, range(world.vocab_size)):
            chance = float(law[w]) * ((q == w) * keep + (q > 0) * random / len(words) + (q == 0) * (1 - keep - random))
            if chance == 0:
                continue
            out = net(Bag(seen[None], torch.tensor([0]), torch.tensor([q])))[0]
            target = torch.eye(world.vocab_size, dtype=torch.float64)[w]
            ell = (out - target).square().sum() if error == "squared" else -out.log_softmax(-1)[w]
            total += chance * float(ell) / len(sets)
    return total


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_the_expectation_is_the_sum(error, hide):
    world, masking = TopicModel(4, 3, present=2), (0.3, 0.2, 0.15)
    with torch.no_grad():
        for attention in ("softmax", "uniform"):
            net = model(attention=attention, residual=False)
            expected = expected_by_hand(net, world, masking, error, hide)
            for form in ["types"] + ["documents"] * (attention == "uniform"):
                objective = MaskedLM(*masking, error=error, form=form, hide_selected=hide)
                example = objective.expect(world.infinite())
                assert isinstance(example["inputs"], Documents if form == "documents" else Bag)
                assert float(loss_of(objective, net, example)) == pytest.approx(expected, rel=1e-12)


def test_long_documents_approach_the_expectation():
    net = model(residual=False)
    errors = []
    with torch.no_grad():
        for length in (20, 2000):
            world = TopicModel(4, 3, length=length, present=2)
            limit = MaskedLM(form="types")
            exact = float(loss_of(limit, net, limit.expect(world.infinite())))
            batch = world.sample(120_000 // length, rng(6))
            objective = MaskedLM(form="positions" if length < 100 else "types")
            sampled = loss_of(objective, net, objective.draw(batch, rng(7), 0))
            errors.append(abs(float(sampled) - exact))
    assert errors[1] < 0.02
    assert errors[1] < errors[0]


# -- the penalty -----------------------------------------------------------------------------------------------------


def test_the_penalty_reaches_the_gradient():
    """One SGD step with λ against the step written out; a penalty on detached parameters would miss 2 η λ θ."""
    world, rate, strength = TopicModel(4, 3, length=8, present=2), 0.2, 0.3
    net = Transformer(SIZE, embedding="one-hot", residual=False, initial={"*": Normal(0.5)})
    objective = MaskedLM(error="squared", form="types")
    expectation = world.infinite()
    options = dict(steps=1, optimizer=SGD(rate), dtype="float64", snapshots=(0,), seeds=2)
    plain = fit(net, expectation, objective, **options)
    decayed = fit(net, expectation, objective, l2=strength, **options)
    part = fit(net, expectation, objective, l2=strength, l2_on=("*.W_V",), **options)
    for i in range(2):
        start = plain.snapshot(0)[i]
        grads = torch.autograd.grad(loss_of(objective, start, objective.expect(expectation)), list(start.parameters()))
        for (name, theta), grad in zip(start.named_parameters(), grads, strict=True):
            assert float(theta.detach().abs().max()) > 0.1
            step = theta - rate * (grad + 2 * strength * theta)
            torch.testing.assert_close(decayed[i].get_parameter(name), step, rtol=1e-12, atol=1e-12)
            detached = theta - rate * grad
            torch.testing.assert_close(plain[i].get_parameter(name), detached, rtol=1e-12, atol=1e-12)
            assert float((decayed[i].get_parameter(name) - detached).abs().max().detach()) > 0.01
            only = step if name.endswith("W_V") else detached
            torch.testing.assert_close(part[i].get_parameter(name), only, rtol=1e-12, atol=1e-12)
    # The recorded loss is the data's: the penalty is not in it.
    assert torch.equal(plain.losses, decayed.losses)


def test_the_penalty_is_the_sum_of_squares_per_model():
    params = {"a": torch.randn(3, 2, 2, requires_grad=True), "b": torch.randn(3, 4)}
    weight = torch.tensor([0.0, 1.0, 2.0])
    penalty = l2_penalty(params, weight, ["a", "b", "elsewhere"])
    torch.testing.assert_close(penalty, weight * (params["a"].square().sum((1, 2)) + params["b"].square().sum(1)))
    (grad,) = torch.autograd.grad(penalty.sum(), [params["a"]])
    torch.testing.assert_close(grad, 2 * weight[:, None, None] * params["a"].detach())
    assert torch.equal(l2_penalty(params, weight, []), torch.zeros(3))


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(select=0.0), "select=0"),
        (dict(select=1.2), "select=1.2"),
        (dict(keep=-0.1), "keep=-0.1"),
        (dict(keep=0.6, random=0.6), r"keep \+ random = 1\.2"),
        (dict(error="square"), "did you mean 'squared'"),
        (dict(form="type"), "did you mean 'types'"),
    ],
)
def test_bad_settings(options, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        MaskedLM(**options)
    assert "\n" not in str(caught.value)


def test_bad_data():
    tokens = torch.ones(2, 3, dtype=torch.long)
    for batch in (Batch(tokens), Batch(tokens, vocab=Vocab(("a", "b"))), Batch(torch.ones(2, 3), vocab=WORLD.vocab)):
        with pytest.raises(ArgumentError, match="MaskedLM"):
            MaskedLM().draw(batch, rng(), 0)
    empty = Batch(tokens, torch.tensor([[True, True, True], [False, False, False]]), vocab=WORLD.vocab)
    with pytest.raises(ArgumentError, match="without words"):
        MaskedLM().draw(empty, rng(), 0)
    with pytest.raises(ArgumentError, match="no positions"):
        MaskedLM().expect(WORLD.infinite())
    with pytest.raises(ArgumentError, match="word distributions"):
        MaskedLM(form="types").expect(Expectation(Batch(tokens, vocab=WORLD.vocab), torch.ones(2) / 2))
