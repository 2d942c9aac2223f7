"""What the claims on trained nets measure, after two steps of training and against counting once more."""

from dataclasses import replace

import pytest

from sandtable.claims.automata import trained
from sandtable.claims.automata.trained import depth, length, measures, parity, positions, stability, supervision
from sandtable.claims.automata.trained.nets import BRACKETS, DESK, DESK_LSTM, PARITY
from sandtable.lab import Lab, Store

TINY = replace(DESK, width=8, heads=2, mlp=8, batch=2)
LSTM = replace(DESK_LSTM, width=4, mlp=4, batch=2)
FEW = dict(length=5, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2, pad_steps=2)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(seeds=(0, 1), store=Store(tmp_path_factory.mktemp("store")))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("sandtable.claims.automata.trained.nets.CHUNK", 2)
    monkeypatch.setattr(measures, "ROWS", {"desk": 10})
    monkeypatch.setattr(parity, "OFTEN", 0.01)
    monkeypatch.setattr(parity, "SELDOM", 0.1)


SMALL = {
    "automata/ood-parity": parity.Rates(**FEW),
    "automata/ood-parity-counts": parity.Counts(**FEW),
    "automata/parity-coverage": parity.Met(**FEW),
    "automata/length-generalisation": length.Lengths(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/depth-sweep": depth.Sweep(depths=(1, 2, 3), length=4, size=TINY, steps=2),
    "automata/indirect": supervision.Indirect(length=4, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2),
    "automata/incomplete": supervision.Incomplete(
        reveals=(1.0, 0.5), length=4, layers=1, size=TINY, steps=2, lstm=LSTM, lstm_steps=2
    ),
    "automata/instability": stability.Curves(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/ema": stability.Curves(replace(PARITY, **FEW), replace(BRACKETS, **FEW)),
    "automata/positions": positions.Positions(length=4, layers=1, size=TINY, steps=2),
}


@pytest.mark.parametrize("claim", trained.CLAIMS, ids=lambda claim: claim.id)
def test_claims_run_for_two_steps(lab, claim):
    evidence = claim(SMALL[claim.id], lab)
    names = {check.name for check in evidence.checks}
    assert {name for control in claim.controls for name in control.refutes} == names
    for draw in evidence.figures.values():
        assert draw().axes
