"""Parameters in one piece of memory are trained as they are one at a time."""

from dataclasses import dataclass

import pytest
import torch

from sandtable.models import Transformer
from sandtable.objectives import NextBracket
from sandtable.training import SGD, Adam, Cosine, NormalisedGD, Stages, fit
from sandtable.training.parcels import pack
from sandtable.training.schedules import Frozen
from sandtable.worlds import DyckPrefixes

WORLD = DyckPrefixes(length=6)
MODEL = Transformer(len(WORLD.vocab), layers=1, heads=2, width=8, mlp=8, causal=True, tied=False, biases=True)
STAGES = Stages(((3, ("*.W_K", "*.W_Q")), (2, ("*.b_*",))), repeat=True)


class AdamAlone(Adam):
    """Says nothing of its own about shapes."""


class SGDAlone(SGD):
    pass


class NormalisedAlone(NormalisedGD):
    pass


def train(optimizer, **options):
    settings = dict(steps=11, batch_size=4, block=4, seeds=3, chunk=3, ema=0.9, schedule=Cosine(warmup=2))
    return fit(MODEL, WORLD, NextBracket(), optimizer=optimizer, **{**settings, **options})


@pytest.mark.parametrize("options", [{}, {"clip": 0.5}, {"frozen": STAGES}, {"frozen": "*.W_V", "tol": 1e-9}])
@pytest.mark.parametrize(
    ("together", "alone"),
    [
        (Adam(0.01, weight_decay=0.1), AdamAlone(0.01, weight_decay=0.1)),
        (SGD(0.1, momentum=0.9, nesterov=True), SGDAlone(0.1, momentum=0.9, nesterov=True)),
        (NormalisedGD(0.1), NormalisedAlone(0.1)),
    ],
)
def test_together_or_one_at_a_time(together, alone, options):
    ours, theirs = train(together, **options), train(alone, **options)
    for a, b in ((ours.models, theirs.models), (ours.averaged, theirs.averaged)):
        for name in a.params:
            torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-6)
    (mine, _), (other, _) = ours.groups[0].parts[0], theirs.groups[0].parts[0]
    assert mine.state.keys() == other.state.keys()
    assert all(mine.state[key].shape == other.state[key].shape for key in other.state)


def params():
    return {name: torch.stack([p.detach()] * 2) for name, p in MODEL.named_parameters()}


def test_only_what_is_frozen_together_comes_together():
    before, names = params(), list(params())
    parcels = pack(before, names, Adam(), STAGES, 100)
    assert sorted(name for parcel in parcels for name in parcel.names) == sorted(names)
    kinds = {frozenset(name.rpartition(".")[2][:3] in ("W_K", "W_Q") for name in p.names) for p in parcels}
    assert kinds == {frozenset({True}), frozenset({False})}
    assert len(parcels) == 3  # keys and queries, biases, the rest
    assert len(pack(before, names, Adam(), Frozen(), 100)) == 1
    for parcel in parcels:
        for name, part in parcel.spread(parcel.values, before).items():
            assert torch.equal(part, before[name])


def test_large_ones_stay_alone(monkeypatch):
    monkeypatch.setattr("sandtable.training.parcels._MOST", {"cpu": 2 * 8 * 8})
    parcels = pack(params(), list(params()), Adam(), Frozen(), 100)
    assert all(len(p.names) == 1 or p.values.numel() <= 2 * 8 * 8 for p in parcels)
    assert {len(p.names) > 1 for p in parcels} == {True, False}


@dataclass(frozen=True)
class Rows:
    """Moves every matrix along the signs of its row sums: not a matter of single numbers."""

    lr: float = 0.1
    settings = ("lr",)

    def start(self, parameter):
        return {}

    def update(self, parameter, grad, state, rate, per_model):
        assert parameter.shape == grad.shape
        parameter.sub_(0.1 * grad.sum(-1, keepdim=True).sign() * torch.ones_like(grad))
        Rows.seen.append(tuple(parameter.shape[1:]))


def test_other_optimisers_see_parameters_in_their_shapes():
    Rows.seen = []
    train(Rows(), steps=1, ema=0.0)
    assert sorted(Rows.seen) == sorted(tuple(p.shape) for p in MODEL.parameters())
