"""The Dyck claims run their code path on generators of two steps; their bookkeeping is what the trace says."""

import dataclasses

import numpy as np
import pytest
import torch

from sandtable.claims.verifier import dyck
from sandtable.claims.verifier.dyck import hard_prefixes, necessary, setting
from sandtable.claims.verifier.dyck.setting import Method, Trained
from sandtable.decoding import Random
from sandtable.lab import Lab
from sandtable.lab.store import Store

TINY = Trained(steps=2, collected=30, kept=8)
SMALL = {"trained": TINY, "prompts": 20, "repeats": 1, "splits": 2, "completions": 3}
TRAINED = [claim for claim in dyck.CLAIMS if hasattr(claim.scales["desk"], "trained")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(seeds=(3,), store=Store(tmp_path_factory.mktemp("runs")), threads=1)


def small(settings):
    fields = {field.name for field in dataclasses.fields(settings)}
    return dataclasses.replace(settings, **{name: value for name, value in SMALL.items() if name in fields})


@pytest.mark.parametrize("claim", TRAINED, ids=lambda claim: claim.id)
def test_every_claim_runs_and_every_check_has_a_control(claim, lab):
    evidence = claim.measure(small(claim.scales["desk"]), lab)
    names = [check.name for check in evidence.checks]
    assert len(set(names)) == len(names)
    named = {name for control in claim.controls for name in control.refutes}
    assert named == set(names) or claim.expected == "refuted"
    for draw in evidence.figures.values():
        assert draw().axes
    for table in evidence.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert "paper" in claim.scales


def test_the_published_generator_has_its_size():
    model = setting.recipe(setting.PUBLISHED).model
    assert 15e6 < sum(parameter.numel() for parameter in model.parameters()) < 17e6


def test_prefixes_are_cut_before_the_error_and_rights_are_right(lab):
    found = lab.measure(setting.error_prefixes, TINY, "test")
    wrong = setting.rows_of(found, 0, "wrong")
    assert 0 < len(wrong) <= TINY.kept
    for row in wrong:
        assert setting.WORLD.first_error(row[None]).position.item() == len(row) - 1
    for cut, side in ((1, "wrong"), (5, "wrong"), (0, "right")):
        for row in setting.rows_of(found, 0, side, cut=cut):
            assert setting.WORLD.accepts(row[None]).item()
    assert found["kinds"].sum() == TINY.collected


def test_the_recorder_sees_what_the_trace_says(lab):
    (_, lm), *_ = setting.generators(lab, TINY)
    rows = setting.WORLD.prompts(20, torch.Generator().manual_seed(0))
    recorder = necessary._Recorder(Random(5))
    made = setting.decode(lm, rows, Method(quota=2, stride=3, protect_prompt=False), recorder, torch.Generator())
    flagged, owners = recorder.prefixes(flagged=True)
    assert np.array_equal(np.bincount(owners, minlength=20), made.backtracks)
    assert int(made.verifier_calls.sum()) == len(flagged) + len(recorder.prefixes(flagged=False)[0])
    assert all(len(row) <= setting.READ for row in flagged)


def test_averages_by_owner():
    found = necessary._averages(np.array([1.0, 0.0, 1.0]), np.array([2, 2, 0]), 4)
    assert np.array_equal(found, [1.0, np.nan, 0.5, np.nan], equal_nan=True)


def test_units_of_all_models_without_empty_places():
    values = np.full((2, 3, 4), np.nan)
    values[0, :, :2] = np.arange(6).reshape(3, 2)
    values[1, :, :3] = 10 + np.arange(9).reshape(3, 3)
    expected = [[0, 1, 10, 11, 12], [2, 3, 13, 14, 15], [4, 5, 16, 17, 18]]
    assert np.array_equal(hard_prefixes.units(values), expected)
