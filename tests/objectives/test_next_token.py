"""Next-token prediction against a plain computation, its exact expectation, and training to the entropy of a world."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.func import functional_call

from sandtable.arguments import ArgumentError
from sandtable.models import Normal, Transformer
from sandtable.objectives import NextToken
from sandtable.training import Adam, fit
from sandtable.worlds import Batch, Expectation, Vocab


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def model(seed=0):
    make = dict(width=8, heads=2, mlp=8, norm="pre", causal=True, positions="learned", longest=9)
    return Transformer(7, initial={"*": Normal(0.5)}, **make).initialise(rng(seed)).double()


def loss_of(objective, net, example):
    def apply(params, inputs, want=()):
        return functional_call(net, params, (inputs,))

    return objective.loss(apply, dict(net.named_parameters()), example)


def by_hand(net, rows, on=()):
    """Mean surprise, and accuracy on tokens `on`, prefix by prefix."""
    errors, right = [], []
    for row in rows:
        for t in range(1, len(row)):
            logits = net(row[None, :t])[0, -1]
            errors.append(-torch.log_softmax(logits, 0)[row[t]])
            if row[t] in on:
                right.append(float(logits.argmax() == row[t]))
    return torch.stack(errors).mean(), sum(right) / max(1, len(right))


@pytest.mark.parametrize("lengths", [None, (9, 4, 2, 1, 6)])
def test_the_loss_is_the_mean_surprise_of_real_tokens(lengths):
    net, x = model(), torch.randint(7, (5, 9), generator=rng(3))
    mask = None if lengths is None else torch.arange(9) < torch.tensor(lengths)[:, None]
    objective = NextToken(metrics_on=(0, 2, 5, 6))
    loss, metrics = loss_of(objective, net, objective.draw(Batch(x, mask), rng(), 0))
    rows = [row if mask is None else row[m] for row, m in zip(x, x if mask is None else mask, strict=True)]
    want, accuracy = by_hand(net, rows, (0, 2, 5, 6))
    torch.testing.assert_close(loss, want, atol=1e-12, rtol=0)
    assert float(metrics["accuracy"]) == pytest.approx(accuracy)
    assert 0 < accuracy < 1
    assert loss_of(NextToken(), net, NextToken().draw(Batch(x, mask), rng(), 0))[1] == {}


def test_an_expectation_is_the_limit_of_large_batches():
    net, x = model(), torch.randint(7, (3, 6), generator=rng(1))
    mask = torch.arange(6) < torch.tensor([[6], [3], [4]])
    often = torch.tensor([1, 5, 2])
    exact = NextToken(metrics_on=(1, 3)).expect(Expectation(Batch(x, mask), often / often.sum().double()))
    drawn = NextToken(metrics_on=(1, 3)).draw(Batch(x, mask)[torch.arange(3).repeat_interleave(often)], rng(), 0)
    (a, one), (b, two) = loss_of(NextToken(), net, exact), loss_of(NextToken(), net, drawn)
    torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
    torch.testing.assert_close(one, two, atol=1e-12, rtol=0)
    whole = NextToken().expect(Expectation(Batch(x), often / often.sum().double()))
    drawn = NextToken().draw(Batch(x[torch.arange(3).repeat_interleave(often)]), rng(), 0)
    torch.testing.assert_close(loss_of(NextToken(), net, whole), loss_of(NextToken(), net, drawn), atol=1e-12, rtol=0)


@dataclass(frozen=True)
class Cycle:
    """Start anywhere, then always one further round: after the first token nothing is left to chance."""

    size: int = 5
    length: int = 8
    padded: bool = False

    @property
    def vocab(self):
        return Vocab(tuple("abcdefgh"[: self.size]))

    def sample(self, n, generator):
        start = torch.randint(self.size, (n, 1), generator=generator)
        x = (start + torch.arange(self.length)) % self.size
        length = torch.randint(2, self.length + 1, (n, 1), generator=generator)
        mask = torch.arange(self.length) < length if self.padded else None
        return Batch(x if mask is None else x.where(mask, 0), mask, vocab=self.vocab)


@pytest.mark.parametrize("padded", [False, True])
def test_training_learns_a_cycle(padded):
    net = Transformer(5, width=16, heads=2, causal=True, mlp=16, norm="pre", positions="learned", longest=8)
    result = fit(
        net, Cycle(padded=padded), NextToken(metrics_on=(0, 3)), steps=150, seeds=2, batch_size=16, optimizer=Adam(0.01)
    )
    for i in range(2):
        x = Cycle().sample(20, rng(9)).x
        loss = by_hand(result[i].double().requires_grad_(False), x)[0]
        assert float(loss) < 0.02
    assert float(result.history["accuracy"][:, -1].min()) == 1.0
    assert float(result.losses[:, 0].min()) > 0.9 * math.log(5)


def test_stacked_training_is_training_one_by_one():
    net = Transformer(
        5, width=8, heads=2, causal=True, mlp=6, mlp_kind="gated", norm="pre", norm_kind="rms", positions="rotary",
        longest=8,
    )  # fmt: skip
    options = dict(steps=5, seeds=2, batch_size=4, dtype="float64", chunk=2)
    stacked = fit(net, Cycle(padded=True), NextToken((1,)), **options)
    single = fit(net, Cycle(padded=True), NextToken((1,)), stacked=False, **options)
    for name in stacked.models.params:
        torch.testing.assert_close(stacked.models[name], single.models[name], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: NextToken((-1,)), "metrics_on=-1"),
        (lambda: NextToken().draw(Batch(torch.ones(2, 3)), rng(), 0), "needs integer tokens"),
        (lambda: NextToken().draw(Batch(torch.ones(2, 1, dtype=torch.long)), rng(), 0), "two at least in a row"),
        (
            lambda: NextToken().draw(
                Batch(torch.ones(1, 2, dtype=torch.long), torch.tensor([[True, False]])), rng(), 0
            ),
            "nothing to predict",
        ),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)
