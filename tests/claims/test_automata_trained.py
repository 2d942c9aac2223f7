"""What the claims on trained nets measure, after two steps of training and against counting once more."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.claims.automata import corridors, trained
from sandtable.claims.automata.trained import (
    attention,
    depth,
    length,
    measures,
    parity,
    positions,
    stability,
    supervision,
)
from sandtable.claims.automata.trained.nets import (
    BRACKETS,
    DESK,
    DESK_LSTM,
    PAPER_BRACKETS,
    PAPER_PARITY,
    PARITY,
    Recurrent,
)
from sandtable.lab import Lab, Store, judge

TINY = replace(DESK, width=8, heads=2, mlp=8, batch=2)
LSTM = replace(DESK_LSTM, width=4, mlp=4, batch=2)
FEW = dict(length=5, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2, pad_steps=2)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(seeds=(0, 1), store=Store(tmp_path_factory.mktemp("store")))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("sandtable.claims.automata.trained.nets.CHUNK", {"desk": 2})
    monkeypatch.setattr(measures, "ROWS", {"desk": 10})
    monkeypatch.setattr(parity, "OFTEN", 0.01)
    monkeypatch.setattr(parity, "SELDOM", 0.1)


SMALL = {
    "automata/ood-parity": parity.Rates(**FEW),
    "automata/ood-parity-counts": parity.Counts(**FEW),
    "automata/parity-coverage": parity.Met(**FEW),
    "automata/length-generalisation": length.Lengths(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/depth-sweep": depth.Sweep(depths=(1, 2, 3), length=4, size=TINY, steps=2),
    "automata/attention-heads": attention.Heads(length=12, size=TINY, steps=2),
    "automata/indirect": supervision.Indirect(length=4, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2),
    "automata/printed-linear-positions": positions.Positions(length=4, layers=1, size=TINY, steps=2),
    "automata/incomplete": supervision.Incomplete(
        reveals=(1.0, 0.5), length=4, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2
    ),
    "automata/instability": stability.Curves(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/ema": stability.Curves(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/positions": positions.Positions(length=4, layers=1, size=TINY, steps=2),
    "automata/printed-positions-on-words": positions.Positions(length=4, layers=1, size=TINY, steps=2),
}


def published(settings):
    return replace(settings, published=True) if hasattr(settings, "published") else settings


@pytest.mark.parametrize("claim", trained.CLAIMS, ids=lambda claim: claim.id)
def test_claims_run_for_two_steps(lab, claim):
    evidence = claim(published(SMALL[claim.id]), lab)
    names = {check.name for check in evidence.checks}
    controlled = {name for control in claim.controls for name in control.refutes}
    assert controlled == (names if claim.expected == "holds" else set())
    if claim is not depth.depth_sweep:  # its paper scale is what ten minutes train: less than was published
        assert all(settings == published(settings) for scale, settings in claim.scales.items() if scale == "paper")
    for draw in evidence.figures.values():
        assert draw().axes


def test_published_sizes_can_be_built():
    nets = [PAPER_PARITY.gpt, PAPER_PARITY.shifted, PAPER_PARITY.pad, PAPER_BRACKETS.recurrent]
    for net in nets:
        recipe = net.recipe()
        assert recipe.source.length == net.length
        width = 64 if isinstance(net, Recurrent) else 512
        assert recipe.model.embed.W_E.shape[1] == width


MISTAKES = {
    "task='GRID44'": lambda: supervision.Indirect(tasks=("GRID44", "ABAB-HALF")),
    "1 and 2 among them": lambda: depth.Sweep(depths=(2, 4)),
    "depths=17": lambda: depth.Sweep(depths=(1, 2, 17)),
    "hard='A5'": lambda: depth.Sweep(hard="A5"),
    "judged=2.5": lambda: length.Lengths(judged=2.5),
    "head='top'": lambda: attention.Heads(head="top"),
    "few=21": lambda: parity.Counts(few=21),
    "task='GRID5'": lambda: positions.Positions(grid="GRID5"),
    "states=1": lambda: corridors.Corridors(states=(1,)),
    "C2 is no corridor": lambda: corridors.Corridors(long=("C2",)),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_settings_that_cannot_be_judged_are_refused_before_training(message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        MISTAKES[message]()


def test_linear_positions_start_as_large_as_embeddings():
    model = positions.DESK.net(positions.WORD, "linear").recipe().model.initialise(torch.Generator().manual_seed(0))
    token = float(model.embed.W_E.norm(dim=1).mean())
    assert float(model.pos_embed(15)[14].norm()) == pytest.approx(token, rel=0.5)
    assert model.longest > 2 * 14


def by_heart(stack, x):
    """Parity, but wrong wherever two ones have been read."""
    ones = x.cumsum(-1)
    return torch.where(ones == 2, 1 - ones % 2, ones % 2).expand(2, *x.shape)


def test_pairs_are_told_apart(lab, monkeypatch):
    monkeypatch.setattr(measures, "_answer", lambda net: by_heart)
    found = measures.by_pair(lab, replace(PARITY, **FEW).gpt)["accuracy"]
    for t in range(5):
        expected = [1.0, 1.0, 0.0, 1.0, 1.0, 1.0][: t + 2] + [np.nan] * (4 - t)
        np.testing.assert_array_equal(found[:, t], [expected] * 2)


def test_other_rows_are_asked_with_their_own_number_of_ones(lab, monkeypatch):
    monkeypatch.setattr(measures, "_answer", lambda net: by_heart)
    found = measures.by_count(lab, replace(PARITY, **FEW).gpt, (0, 1, 5))
    np.testing.assert_allclose(found["overall"], [[1, 1, 0.8]] * 2)
    np.testing.assert_array_equal(found["last"], [[1, 1, 1]] * 2)


def test_kinds_of_pairs(monkeypatch):
    settings = parity.Met(length=8, steps=100)
    monkeypatch.setattr(parity, "SELDOM", 0.01)
    rare, common = parity.kinds(settings).values()
    rows = np.array(list(itertools.product((0, 1), repeat=8))).cumsum(1)
    visits = np.array([[(rows[:, t] == c).mean() for c in range(9)] for t in range(8)]) * 100 * settings.size.batch
    seldom = visits.sum(0) < 0.01 * visits.sum()
    for t, c in itertools.product(range(8), range(9)):
        assert rare[t, c] == (c <= t + 1 and not seldom[c] and visits[t, c] < 5)
        assert common[t, c] == (c <= t + 1 and seldom[c] and visits[t, c] > parity.OFTEN)


def test_times_and_falls_of_curves():
    values = np.array([[0.5, 0.96, 0.9, 0.99], [0.5, 0.6, 0.4, 0.7]])
    np.testing.assert_array_equal(stability.times([0, 10, 20, 30], values, 0.95), [10, 30])
    np.testing.assert_allclose(stability.falls(values), [0.06, 0.2])


def test_sufficient_depth_beside_the_published_one():
    cells = {1: np.array([0.3, 0.5]), 2: np.array([0.8, 0.999]), 3: np.array([1.0, 1.0])}
    table = depth._sufficient(depth.Sweep(), {"C2": cells, "S5": {1: np.array([0.2]), 2: np.array([0.3])}})
    assert table.rows == [["C2", "2", "2"], ["S5", "more than 2", "13"]]


NETS = {
    "GRID4": {1: [0.97, 0.98], 2: [1.0, 1.0], 4: [1.0, 1.0]},
    "C2": {1: [0.6, 0.7], 2: [0.999, 0.8], 4: [1.0, 0.85]},
    "D8": {1: [0.4, 0.4], 2: [0.98, 0.992], 4: [1.0, 1.0]},
    "Q8": {1: [0.4, 0.4], 2: [0.6, 0.7], 4: [0.98, 1.0]},
    "S5": {1: [0.1, 0.1], 2: [0.2, 0.2], 4: [0.5, 0.9], 8: [0.97, 0.993]},
}


def of_best(change=None, **settings):
    nets = {task: {8: [1.0, 0.9], **cells} for task, cells in NETS.items()} | (change or {})
    cells = {task: {depth: np.array(values) for depth, values in found.items()} for task, found in nets.items()}
    return judge(depth._of_best(depth.Sweep(depths=(1, 2, 4, 8), **settings), cells)).results


def test_best_nets_as_published():
    best, fewer, apart = of_best()
    assert (best.verdict, fewer.verdict) == ("holds", "holds")
    assert (fewer.check.measured, apart.check.measured) == (0.9, 0.5)  # one of two nets falls short of the other
    late = {"Q8": {**NETS["Q8"], 4: [0.98, 0.98], 8: [1.0, 1.0]}}
    assert of_best(late)[0].verdict == "refuted"  # known by the deepest nets alone, as only S5 may be
    early = {"S5": {**NETS["S5"], 4: [0.5, 0.991]}}
    assert of_best(early)[1].verdict == "refuted"
    exchanged = of_best(exchanged=True)
    assert exchanged[1].verdict == "refuted"
    assert exchanged[2].check.measured == 0


def test_heads_at_the_latest_wall_and_nothing_before():
    walls = {"own": np.full(16, 6.0), "another row's": np.full(16, 2.0)}
    walls |= {"before": np.full(16, 0.02), "before another row's": np.full(16, 0.4)}
    for exchanged, verdict in ((False, "holds"), (True, "refuted")):
        assert [r.verdict for r in judge(attention._published(walls, exchanged)).results] == [verdict] * 2


def test_heads_are_those_that_look_at_walls():
    found = {"wall": np.array([[1.0, 3.0], [5.0, 2.0]]), "other wall": np.array([[4.0, 2.0], [1.0, 6.0]])}
    found |= {"before": np.array([[0.1, 0.2], [0.3, 0.4]]), "other before": np.array([[0.5, 0.6], [0.7, 0.8]])}
    wanted = {"own": [3, 5], "another row's": [2, 1], "before": [0.2, 0.3], "before another row's": [0.6, 0.7]}
    for name, expected in wanted.items():
        np.testing.assert_array_equal(attention.at_walls(found)[name], expected)
