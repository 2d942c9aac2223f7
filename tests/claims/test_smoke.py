"""Every claim: judged with its controls where it has a smoke scale, otherwise run for a few steps without judging."""

from dataclasses import fields, replace

import pytest
from matplotlib.figure import Figure

from sandtable.bridges import corpus
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


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small corpus of real text: docstrings of the standard library."""
    path = tmp_path_factory.mktemp("text") / "stdlib.jsonl"
    return corpus.load(packages=["stdlib"], limit=400).save(path) and str(path)


SMALL = dict(topics=10, documents=40, vocab=2500, width=16, layers=2, heads=2, length=20, longest=64, batch=4, draws=2)


@pytest.mark.parametrize("name", OTHERS)
def test_code_path_runs(name, store, request):
    claim = CLAIMS[name]
    settings = claim.scales["desk"]
    known = [f.name for f in fields(settings)]
    few = {name: 12 for name in known if name.endswith("steps") and getattr(settings, name) is not None}
    if "corpus" in known:
        few |= {name: value for name, value in SMALL.items() if name in known} | {"steps": 20}
        few["corpus"] = request.getfixturevalue("text")
    assert few, f"{name}: without a smoke scale a claim needs a setting that makes it short"
    evidence = claim(replace(settings, **few), Lab(seeds=range(2), store=store))
    named = {check.name for check in evidence.checks}
    assert claim.expected == "refuted" or {name for c in claim.controls for name in c.refutes} == named
    for draw in evidence.figures.values():
        assert isinstance(draw(), Figure)
