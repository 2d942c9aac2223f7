"""The claims on test cases run their code path on a code model of two steps."""

import dataclasses

import numpy as np
import pytest

from sandtable.claims.verifier import code
from sandtable.claims.verifier.code import setting
from sandtable.claims.verifier.code.setting import Code, Method
from sandtable.lab import Lab
from sandtable.lab.store import Store

TINY = dict(layers=1, width=16, heads=2, steps=2, batch=4, layer=1, generations=12, functions=2, repeats=2)
CODE = Code(**TINY)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(seeds=(3,), store=Store(tmp_path_factory.mktemp("runs")), threads=1)


@pytest.mark.parametrize("claim", code.CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_runs_and_every_check_has_a_control(claim, lab):
    evidence = claim.measure(dataclasses.replace(claim.scales["desk"], **TINY), lab)
    names = [check.name for check in evidence.checks]
    assert len(set(names)) == len(names)
    named = {name for control in claim.controls for name in control.refutes}
    assert named == set(names) or claim.expected == "refuted"
    for draw in evidence.figures.values():
        assert draw().axes
    for table in evidence.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert "paper" in claim.scales


def test_runs_that_share_a_model_share_its_number(lab):
    numbers = [id(lm) for _, lm in setting.models(lab.only((3, 4, 5)), CODE)]
    assert numbers[0] != numbers[1] == numbers[2]


def test_what_a_run_costs_is_what_its_completions_cost(lab):
    plain = lab.measure(setting.runs, CODE, Method())
    truth = lab.measure(setting.runs, CODE, Method(verifier="truth", quota=2))
    for found in (plain, truth):
        assert found["spent"].shape == (1, TINY["functions"] * TINY["repeats"])
        assert found["spent"][0, -1] == found["queries"][0]
        assert np.all(np.diff(found["gained"]) >= 0)
        assert found["accuracy"][0] == found["gained"][0, -1] / (8 * TINY["functions"] * TINY["repeats"])
    assert plain["backtracks"][0] == 0 < truth["backtracks"][0] <= 2


def test_prefixes_for_verifiers_end_where_they_should(lab):
    found = lab.only((0,)).measure(setting.collected, CODE)
    wrong, right, closes, before = found["ends"][0].T
    known = wrong >= 0
    assert known.any()
    assert np.all(right[known] < wrong[known])
    assert np.all(before[known] < closes[known])
    assert np.all(wrong[known] <= closes[known])


def test_the_large_stand_in_is_larger():
    def size(code):
        return sum(parameter.numel() for parameter in setting.recipe(code).model.parameters())

    assert size(Code(**setting.LARGE)) > 10 * size(Code())
