"""Every claim: judged with its controls where it has a smoke scale, otherwise run for a few steps without judging."""

import runpy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError
from sandtable.bridges import corpus
from sandtable.claims.dyck import nets
from sandtable.lab import Lab, Store, load, verify
from sandtable.lab.changes import changed

CLAIMS = load()
DOCS = Path(__file__).parents[2] / "docs"
GALLERY = [(stem, *draw.args) for stem, draw in runpy.run_path(str(DOCS / "make_gallery.py"))["DRAWN"].items()
           if getattr(draw, "args", ())]  # fmt: skip
SMOKE = sorted(name for name, claim in CLAIMS.items() if "smoke" in claim.scales)
OTHERS = sorted(
    name for name, claim in CLAIMS.items() if "smoke" not in claim.scales and not name.startswith("automata/")
)  # nets on automata are run for two steps in test_automata_trained


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("name", SMOKE)
def test_verdict_is_the_expected_one(name, store):
    (outcome,) = verify([CLAIMS[name]], scale="smoke", store=store)
    assert outcome.ok, outcome
    for stem, claim, figure in GALLERY:
        if claim == name:  # the gallery shows what the claim draws
            place = store.verdict(name, "smoke")
            (file,) = (each["file"] for each in store.read_json(place)["figures"] if each["name"] == figure)
            assert told(place.with_name(file)) == told(DOCS / "figures" / f"{stem}.svg")


def told(file):
    """The words of a drawing, and how many marks and lines it has."""
    drawing = ElementTree.parse(file).getroot()
    count = {kind: len(drawing.findall(f".//{{*}}{kind}")) for kind in ("use", "path")}
    return ["".join(part.itertext()).split() for part in drawing.findall(".//{*}text")], count


@pytest.mark.parametrize("name", CLAIMS)
def test_settings_are_what_they_are_declared_as(name):
    """A control sets what `--set` could; and of masks and decoding every text is one of those that are declared."""
    claim = CLAIMS[name]
    for settings in claim.scales.values():
        assert changed(settings, ((f.name, getattr(settings, f.name)) for f in fields(settings) if f.init)) == settings
        for control in claim.controls:
            assert changed(settings, control.change.items()) == replace(settings, **control.change)
        texts = [f.name for f in fields(settings) if f.type == "str"]
        assert not name.startswith("gmlm/") or texts in ([], ["asked"]), texts


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("tensorisation-bounds-joint", {"constant": "zzz"}, "must be 'tensorisation', 'Poincaré' or 'a tenth'"),
        ("blocks-cover", {"reads": "zzz"}, "must be 'cover' or 'partition'"),
        ("two-stages", {"setting": "foo"}, "must be 'stages', 'unmask' or 'positional'"),
        ("stutter-self-attention", {"asked": "self-avg"}, "did you mean 'self avg'?"),
        ("hitting-times", {"instead": 20}, "instead=20: must be a whole number from 1 to 10"),
        ("hitting-times", {"k_off": -4}, "k_off=-4: must be a whole number from -3 to 10"),
        ("hitting-times", {"parallel_coupling": 7.0}, "parallel_coupling=7.0: must be one of `shown` and `judged`"),
    ],
)
def test_settings_that_no_claim_knows_are_refused_before_any_work(name, changes, words, tmp_path):
    with pytest.raises(ArgumentError) as stop:
        verify([CLAIMS[f"gmlm/{name}"]], changes=changes, store=Store(tmp_path))
    assert words in str(stop.value)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A small corpus of real text: docstrings of the standard library."""
    path = tmp_path_factory.mktemp("text") / "stdlib.jsonl"
    return corpus.load(packages=["stdlib"], limit=400).save(path) and str(path)


FEW = dict(
    steps=2, collected=30, kept=8, prompts=20, repeats=1, splits=2, completions=3, rows=200, walk_steps=60,
    generations=3, functions=2
)  # fmt: skip
"""Sizes of claims on generation, and of the models they train (their setting `trained`)."""
TINY = dict(steps=2, distilled_steps=2, inputs=40, chunk=2, batch=8, width=8, heads=2)
"""Of nets that translate (their setting `size`)."""
SMALL = dict(topics=10, documents=40, vocab=2500, width=16, layers=2, heads=2, length=20, longest=64, batch=4, draws=2)


@pytest.mark.parametrize("name", OTHERS)
def test_code_path_runs(name, store, request, monkeypatch):
    claim = CLAIMS[name]
    settings = claim.scales["desk"]
    known = [f.name for f in fields(settings)]
    few = {name: 12 for name in known if name.endswith("steps") and getattr(settings, name) is not None}
    if "corpus" in known:
        few |= {name: value for name, value in SMALL.items() if name in known} | {"steps": 20}
        few["corpus"] = request.getfixturevalue("text")
    if name.startswith("dyck/"):
        few = dict.fromkeys(few, 2)
        monkeypatch.setattr(nets, "LONG_ROWS", 2)
    if name.startswith(("verifier/", "vgb/")):
        few |= {name: value for name, value in FEW.items() if name in known}
    if is_dataclass(getattr(settings, "trained", None)):
        inside = {f.name for f in fields(settings.trained)}
        few["trained"] = replace(settings.trained, **{n: v for n, v in FEW.items() if n in inside})
    if name.startswith("gmlm/"):
        few |= {name: value for name, value in {"repetitions": 30, "chains": 20}.items() if name in known}
    if is_dataclass(getattr(settings, "size", None)):
        few = {name: TINY["inputs"] for name in known if name == "inputs"}
        few["size"] = replace(settings.size, **TINY)
    assert few, f"{name}: without a smoke scale a claim needs a setting that makes it short"
    evidence = claim(replace(settings, **few), Lab(seeds=range(2), store=store))
    named = {check.name for check in evidence.checks}
    assert claim.expected == "refuted" or {name for c in claim.controls for name in c.refutes} == named
    for draw in evidence.figures.values():
        assert isinstance(draw(), Figure)
