"""Every claim: judged with its controls where it has a smoke scale, otherwise run for a few steps without judging."""

from dataclasses import fields, replace

import pytest
from matplotlib.figure import Figure

from sandtable.lab import Lab, Store, load, verify

CLAIMS = load()
SMOKE = sorted(name for name, claim in CLAIMS.items() if "smoke" in claim.scales)
OTHERS = sorted(name for name, claim in CLAIMS.items() if "smoke" not in claim.scales)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("name", SMOKE)
def test_verdict_is_the_expected_one(name, store):
    (outcome,) = verify([CLAIMS[name]], scale="smoke", store=store)
    assert outcome.ok, outcome


@pytest.mark.parametrize("name", OTHERS)
def test_code_path_runs(name, store):
    claim = CLAIMS[name]
    settings = claim.scales["desk"]
    few = {f.name: 12 for f in fields(settings) if f.name.endswith("steps") and getattr(settings, f.name) is not None}
    assert few, f"{name}: without a smoke scale a claim needs a setting that makes it short"
    evidence = claim(replace(settings, **few), Lab(seeds=range(2), store=store))
    named = {check.name for check in evidence.checks}
    assert {name for control in claim.controls for name in control.refutes} == named
    for draw in evidence.figures.values():
        assert isinstance(draw(), Figure)
