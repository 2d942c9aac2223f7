import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

import sandtable.training
from sandtable.arguments import ArgumentError, whole
from sandtable.lab import Claim, Control, Evidence, Lab, Source, Store, agrees, exact, load, registry, verify
from sandtable.lab.run import Progress

TOYS = Path(__file__).with_name("toy_claims.py")
JSON_KEYS = [
    "claim", "scale", "expected", "verdict", "seeds", "seconds", "device", "version", "settings_hash", "controls",
    "checks",
]  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture
def toys():
    return registry.from_files([TOYS])


class Log(Progress):
    def __init__(self):
        self.said, self.finished = [], []

    def say(self, text):
        self.said.append(text)

    def done(self, outcome):
        self.finished.append(outcome.claim)


# -- a recipe that writes down what it was asked to train


TRAINED: list[list[int]] = []


class FakeFit:
    def __init__(self, seeds, weights):
        self.seeds, self.weights = list(seeds), np.asarray(weights)

    def __len__(self):
        return 0  # an empty-looking fit is still a fit

    def save(self, folder):
        np.savez(folder / "w.npz", seeds=self.seeds, weights=self.weights)

    @staticmethod
    def load(folder, recipe):
        with np.load(folder / "w.npz", allow_pickle=False) as file:
            return FakeFit(file["seeds"].tolist(), file["weights"])

    def select(self, seeds):
        return FakeFit(seeds, self.weights[[self.seeds.index(seed) for seed in seeds]])

    @staticmethod
    def join(fits):
        return FakeFit([seed for fit in fits for seed in fit.seeds], np.concatenate([fit.weights for fit in fits]))


@dataclass(frozen=True)
class FakeRecipe:
    rate: float = 0.1
    chunk: int = 4
    die_at: int | None = None

    def describe(self):
        return {"rate": self.rate, "chunk": self.chunk}

    def train(self, seeds, *, device, checkpoint, progress):
        checkpoint.mkdir(parents=True, exist_ok=True)
        state = checkpoint / "step"
        first = int(state.read_text()) if state.exists() else 0
        for step in range(first, 10):
            if step == self.die_at:
                raise KeyboardInterrupt
            state.write_text(str(step))
            progress(step, 10, 100.0, 0.5)
        TRAINED.append([first, *seeds])
        return FakeFit(seeds, [[self.rate * seed] for seed in seeds])


@pytest.fixture
def trained(monkeypatch):
    monkeypatch.setattr(sandtable.training, "Fit", FakeFit)
    TRAINED.clear()
    return TRAINED


def test_fit_trains_whole_chunks_once(store, trained):
    lab = Lab(seeds=(2, 3, 5), store=store)
    fit = lab.fit(FakeRecipe())
    assert fit.seeds == [2, 3, 5]
    np.testing.assert_allclose(fit.weights[:, 0], [0.2, 0.3, 0.5])
    assert trained == [[0, 0, 1, 2, 3], [0, 4, 5, 6, 7]]
    lab.fit(FakeRecipe())
    Lab(seeds=range(8), store=store).fit(FakeRecipe())
    assert len(trained) == 2
    Lab(seeds=(1,), store=store).fit(FakeRecipe(rate=0.2))
    Lab(seeds=(1,), store=store, threads=lab.threads + 1).fit(FakeRecipe())
    assert len(trained) == 4
    assert not list(store.root.rglob("*.checkpoint"))


def test_fit_resumes_where_it_was_killed(store, trained):
    with pytest.raises(KeyboardInterrupt):
        Lab(store=store).fit(FakeRecipe(die_at=6))
    said = []
    Lab(store=store, progress=said.append).fit(FakeRecipe())
    assert trained == [[5, 0, 1, 2, 3]]
    assert said[0] == "step 5/10 · 100 model-steps/s · loss 0.5"


def test_fresh_trains_again_but_once(store, trained):
    Lab(store=store).fit(FakeRecipe())
    time.sleep(0.02)
    started = time.time()
    for _ in range(2):
        Lab(store=store, fresh=True, started=started).fit(FakeRecipe())
    assert len(trained) == 2


def test_a_damaged_fit_is_trained_again(store, trained):
    Lab(store=store).fit(FakeRecipe())
    (file,) = store.root.rglob("w.npz")
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert Lab(store=store).fit(FakeRecipe()).seeds == [0]
    assert len(trained) == 2


CALLS: list[tuple[int, ...]] = []


def squares(lab, power, *, offset=0.0):
    CALLS.append(lab.seeds)
    return {"value": torch.tensor(lab.seeds).double() ** power + offset, "pair": np.zeros((len(lab.seeds), 2))}


def wrong_rows(lab):
    return {"value": np.zeros(len(lab.seeds) + 1)}


def wrong_kind(lab):
    return [1.0]


def whatever_order(lab):
    both = {"a": np.zeros(len(lab.seeds)), "b": np.ones(len(lab.seeds))}
    return both if 0 in lab.seeds else dict(reversed(both.items()))


def test_names_may_come_in_any_order(store):
    Lab(seeds=(0,), store=store).measure(whatever_order)
    found = Lab(seeds=(1, 0), store=store).measure(whatever_order)
    assert {name: values.tolist() for name, values in found.items()} == {"a": [0, 0], "b": [1, 1]}


def test_measure_computes_only_new_seeds(store):
    CALLS.clear()
    Lab(seeds=(0, 1, 2), store=store).measure(squares, 2)
    found = Lab(seeds=(4, 2, 0), store=store).measure(squares, 2)
    assert CALLS == [(0, 1, 2), (4,)]
    np.testing.assert_array_equal(found["value"], [16, 4, 0])
    assert found["pair"].shape == (3, 2)
    Lab(seeds=(0,), store=store).measure(squares, 2, offset=1.0)
    Lab(seeds=(0,), store=store, scale="smoke").measure(squares, 2)
    assert CALLS[2:] == [(0,), (0,)]
    for file in store.root.rglob("seeds-0-2-*.npz"):
        file.write_bytes(b"gone")
    with pytest.warns(RuntimeWarning, match="damaged"):
        Lab(seeds=(0, 1, 4), store=store).measure(squares, 2)
    assert CALLS[-1] == (0, 1)


def shelf(say, place, name, *, copies=1):
    say("filling")
    CALLS.append(name)
    for i in range(copies):
        (place / f"{i}.txt").write_text(name)


def test_folders_are_made_once_and_again_when_damaged(store):
    CALLS.clear()
    said = []
    place = Lab(store=store, progress=said.append).folder(shelf, "a", copies=2)
    assert said == ["filling"]
    assert [file.read_text() for file in sorted(place.glob("*.txt"))] == ["a", "a"]
    assert Lab(store=store).folder(shelf, "a", copies=2) == place
    assert Lab(store=store).folder(shelf, "b") != place
    assert CALLS == ["a", "b"]
    (place / "0.txt").write_text("broken")
    with pytest.warns(RuntimeWarning, match="damaged"):
        Lab(store=store).folder(shelf, "a", copies=2)
    assert (place / "0.txt").read_text() == "a"
    assert CALLS == ["a", "b", "a"]


def test_settings_can_be_changed_for_all_claims_that_have_them(store, toys):
    changed = verify([toys["toy/average"], toys["toy/few"]], seeds=10, store=store, changes={"mean": 3.0})
    assert [round(outcome.checks[0]["measured"]) for outcome in changed] == [3, 3]
    varied = {"mean": "3.0", "number of seeds": "10"}
    assert [outcome.variation for outcome in changed] == [varied, varied]
    record = json.loads(store.verdict("toy/average", "desk", varied).read_text())
    assert record["settings"]["mean"] == "3.0"
    assert record["variation"] == varied
    assert record["command"].endswith("--set mean=3.0 --from " + str(TOYS))
    with pytest.raises(ArgumentError, match="--set maen: no chosen claim has such a setting; did you mean 'mean'"):
        verify([toys["toy/average"]], store=store, changes={"maen": 3.0})


@pytest.mark.parametrize(("function", "error"), [(wrong_rows, ValueError), (wrong_kind, TypeError)])
def test_measure_checks_what_it_gets(store, function, error):
    with pytest.raises(error, match=function.__name__):
        Lab(seeds=(0, 1), store=store).measure(function)


def test_generators_depend_on_seed_and_purpose_only(store):
    def numbers(seed, purpose, seeds=(0,)):
        return torch.rand(4, generator=Lab(seeds=seeds, store=store).generator(seed, purpose)).tolist()

    assert numbers(3, "data") == numbers(3, "data", seeds=(7, 8))
    assert len({tuple(numbers(seed, purpose)) for seed in (0, 1) for purpose in ("data", "noise")}) == 4


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"seeds": ()}, "at least one"),
        ({"seeds": (1, 1)}, "distinct"),
        ({"seeds": (-1,)}, "seed"),
        ({"scale": "desc"}, "did you mean 'desk'"),
        ({"device": "cdua"}, "did you mean 'cuda'"),
        ({"device": "cpu:1"}, "device"),
        ({"threads": 0}, "threads"),
    ],
)
def test_lab_refuses(fields, word):
    with pytest.raises(ArgumentError, match=word):
        Lab(**fields)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_one_line():
    with pytest.raises(ArgumentError, match="no CUDA device"):
        Lab(device="cuda")
    assert Lab(device="auto").device == "cpu"


# -- verify


def test_every_way_to_end(store, toys):
    log = Log()
    outcomes = {o.claim: o for o in verify(list(toys.values()), store=store, progress=log)}
    assert {name: o.verdict for name, o in outcomes.items()} == {
        "toy/average": "holds",
        "toy/deaf": "holds",
        "toy/few": "inconclusive",
        "toy/printed-average": "refuted",
        "toy/raises": "error",
    }
    assert [name for name, o in outcomes.items() if o.ok] == ["toy/average", "toy/printed-average"]
    assert log.finished == list(toys)
    assert outcomes["toy/average"].controls == [
        {"name": "draws around zero", "verdict": "refuted"},
        {"name": "prediction +20% [average]", "verdict": "refuted"},
        {"name": "prediction −20% [average]", "verdict": "refuted"},
    ]
    assert outcomes["toy/deaf"].controls == [{"name": "more draws", "verdict": "holds"}]
    assert outcomes["toy/few"].controls == [{"name": "draws around zero", "verdict": "inconclusive"}]
    assert outcomes["toy/printed-average"].controls == []
    assert outcomes["toy/raises"].notes == ["ZeroDivisionError: by design"]
    assert "by design" in outcomes["toy/raises"].trace


def test_record_holds_what_the_report_shows(store, toys):
    (outcome,) = verify([toys["toy/average"]], store=store, scale="smoke", seed_base=5)
    assert list(outcome.as_json()) == JSON_KEYS
    record = store.read_json(store.verdict("toy/average", "smoke", outcome.variation))
    assert outcome.variation == {"first seed": "5"}
    assert record is not None
    assert {key: record[key] for key in JSON_KEYS} == json.loads(json.dumps(outcome.as_json()))
    assert record["ok"] is True
    assert record["seeds"] == 20
    assert record["settings"] == {"mean": "1.0", "draws": "500"}
    assert "a toy" in record["notes"]
    assert record["tables"]["averages"]["columns"] == ["seed", "average"]
    assert record["tables"]["averages"]["rows"][0][0] == 5
    assert "--seed-base 5" in record["command"]
    assert str(TOYS) in record["command"]
    assert f" --store {store.root} " in record["command"]
    (figure,) = record["figures"]
    assert figure["name"] == "A line"
    assert "<svg" in (store.path("verdicts") / figure["file"]).read_text()
    for _ in range(2):
        verify([toys["toy/average"]], store=store, scale="smoke")
    assert len(list(store.path("verdicts").glob("*.svg"))) == 2  # of the variation, and of the run as declared


@pytest.mark.parametrize(
    "other", [{"seeds": 25}, {"seed_base": 7}, {"changes": {"mean": 0.0}}, {"changes": {"mean": 0.0}, "seeds": 25}]
)
def test_a_variation_never_stands_for_the_declared_run(store, toys, other):
    (declared,) = verify([toys["toy/average"]], store=store, scale="smoke")
    before = store.last_verdict("toy/average")
    (varied,) = verify([toys["toy/average"]], store=store, scale="smoke", **other)
    assert declared.variation == {}
    assert varied.variation != {}
    assert store.last_verdict("toy/average") == before
    assert len(list(store.path("verdicts").glob("*.json"))) == 2
    (again,) = verify([toys["toy/average"]], store=store, scale="smoke", seeds=20, changes={"mean": 1, "draws": 500})
    assert again.variation == {}
    assert len(list(store.path("verdicts").glob("*.json"))) == 2


def test_more_seeds_count_until_the_declared_run_is_made_and_the_newest_variation_where_nothing_counts(store, toys):
    def told(**record):
        record = {"seeds": 20, "declared_seeds": 20, "variation": {}, "date": "2025-01-01"} | record
        store.write_json(store.verdict("t/a", "desk", record["variation"]), record)
        return store.last_verdict("t/a")["date"]

    assert told(variation={"mean": "0.0"}, date="2025-01-07") == "2025-01-07"
    assert told(variation={"first seed": "8"}, date="2025-01-08") == "2025-01-08"
    assert told(variation={"mean": "1.0", "number of seeds": "30"}, seeds=30, date="2025-01-06") == "2025-01-08"
    assert told(variation={"number of seeds": "10"}, seeds=10, date="2025-01-05") == "2025-01-08"
    assert told(variation={"number of seeds": "30"}, seeds=30, date="2025-01-02") == "2025-01-02"
    assert told(variation={"number of seeds": "40"}, seeds=40, date="2025-01-03") == "2025-01-03"
    assert told(date="2025-01-01") == "2025-01-01"


def test_the_record_keeps_the_seconds_of_the_run_that_computed(store, toys):
    def seconds(**how):
        verify([toys["toy/average"]], store=store, scale="smoke", **how)
        return store.last_verdict("toy/average")["seconds"]

    seconds()
    place = store.verdict("toy/average", "smoke")
    store.write_json(place, store.read_json(place) | {"seconds": 800.0})
    assert seconds() == 800.0
    assert seconds(fresh=True) < 800.0
    store.write_json(place, store.read_json(place) | {"seconds": 800.0, "sources": "others"})
    assert seconds() < 800.0


def test_claims_share_measurements_and_reruns_keep_them(store, toys):
    pair = [toys["toy/average"], toys["toy/printed-average"]]
    first = verify(pair, store=store, scale="smoke")
    kept = {file: file.stat().st_mtime_ns for file in store.path("measures").rglob("*.npz")}
    assert len(kept) == 2  # means 1 and 0, both claims on the same draws
    again = verify(pair, store=store, scale="smoke")
    assert [o.checks for o in again] == [o.checks for o in first]
    more = verify(pair[:1], store=store, scale="smoke", seeds=25)
    assert more[0].seeds == 25
    now = {file: file.stat().st_mtime_ns for file in store.path("measures").rglob("*.npz")}
    assert {file: now[file] for file in kept} == kept
    assert len(now) == 4
    other = verify(pair[:1], store=store, scale="smoke", seed_base=100)
    assert other[0].checks[0]["measured"] != first[0].checks[0]["measured"]


def test_the_default_store_goes_without_saying(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    assert Store().words() == Store(tmp_path / "runs").words() == []
    assert Store(tmp_path / "other").words() == ["--store", str(tmp_path / "other")]


def test_a_claim_without_the_scale_is_skipped_by_name(store, toys):
    log = Log()
    assert verify([toys["toy/few"]], store=store, scale="smoke", progress=log) == []
    assert log.said == ["skipped, for want of a smoke scale: toy/few"]


@dataclass(frozen=True)
class Shape:
    width: int = 4
    rates: tuple[float, ...] = (0.1, 0.2)

    def __post_init__(self):
        whole("width", self.width)


@dataclass(frozen=True)
class Nested:
    shape: Shape = Shape()
    label: str = "true"
    reads: Literal["cover", "partition"] = "cover"
    names: tuple[str, ...] = ("a", "b")
    limit: float | None = None
    wrong: bool = False


def nested(settings, lab):
    if settings.label not in ("true", "shuffled"):
        raise ArgumentError(f"label={settings.label!r}: must be true or shuffled")
    return exact_only(Settings(wrong=settings.wrong), lab)


NESTED = Claim(
    id="toy/nested",
    statement="One is one.",
    source=Source("A", 2000, "p. 1"),
    scales={"desk": Nested()},
    measure=nested,
    controls=(Control("wrong", {"wrong": True}, ("identity",)),),
)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shape.width": 8}, {"shape.width": "8"}),
        ({"shape.rates": (1, 0.5)}, {"shape.rates": "(1.0, 0.5)"}),
        ({"limit": 3, "label": "shuffled"}, {"limit": "3.0", "label": "'shuffled'"}),
        ({"shape": Shape(9)}, {"shape.width": "9"}),
        ({"names": ("a",)}, {"names": "('a',)"}),
        ({"reads": "partition"}, {"reads": "'partition'"}),
        ({"shape.width": 4, "limit": None}, {}),
    ],
)
def test_settings_inside_settings_have_dotted_names(store, changes, told):
    (outcome,) = verify([NESTED], store=store, changes=changes)
    assert (outcome.ok, outcome.variation) == (True, told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": 3}, "set by its parts: shape.width, shape.rates"),
        ({"shape.width": "wide"}, "shape.width='wide': must be a whole number"),
        ({"shape.width": 0}, "width=0: must be a whole number ≥ 1"),
        ({"shape.rates": 3}, "each a number (one alone is written shape.rates=3,)"),
        ({"shape.rates": ("a",)}, "each a number"),
        ({"limit": "low"}, "limit='low': must be a number or None"),
        ({"wrong": 1}, "wrong=1: must be True or False"),
        ({"reads": "zzz"}, "reads='zzz': must be 'cover' or 'partition'"),
        ({"shape.wdth": 3}, "did you mean 'shape.width'?"),
        ({"label": "foo"}, "toy/nested with --set label=foo: label='foo': must be true or shuffled"),
    ],
)
def test_a_mistaken_setting_is_one_line_and_no_verdict(store, changes, words):
    with pytest.raises(ArgumentError) as stop:
        verify([NESTED], store=store, changes=changes)
    assert words in str(stop.value)
    assert not list(store.root.rglob("*.json"))


def test_progress_is_true_false_or_a_function(store, toys, capsys):
    told = []
    pair = [toys["toy/average"], toys["toy/deaf"]]
    verify(pair, store=store, scale="smoke", progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 2), (2, 2)]
    verify(pair, store=store, scale="smoke", progress=False)
    assert capsys.readouterr().err == ""
    verify(pair, store=store, scale="smoke", progress=True)
    assert capsys.readouterr().err == "2/2 claims\n"
    with pytest.raises(ArgumentError, match="progress='yes': must be True, False or a function"):
        verify(pair, store=store, progress="yes")  # pyright: ignore[reportArgumentType]


def test_one_file_of_claims_need_not_be_a_list():
    assert set(registry.from_files(str(TOYS))) == set(registry.from_files([TOYS]))
    assert "toy/average" in load(TOYS)


@dataclass(frozen=True)
class Settings:
    wrong: bool = False
    lost: bool = False


def exact_only(settings, lab):
    value = 2.0 if settings.wrong else 1.0
    checks = [exact("other" if settings.lost else "identity", np.array([value]), np.array([1.0]))]
    return Evidence(checks, figures={"broken": lambda: 1 / 0})


IDENTITY = Claim(
    id="toy/identity",
    statement="One is one.",
    source=Source("A", 2000, "p. 1"),
    scales={"desk": Settings()},
    measure=exact_only,
    controls=(Control("wrong", {"wrong": True}, ("identity",)),),
)


def test_an_exact_claim_needs_one_seed_and_a_broken_figure_is_a_note(store):
    (outcome,) = verify([IDENTITY], store=store)
    assert (outcome.verdict, outcome.ok, outcome.seeds) == ("holds", True, 1)
    assert outcome.notes == ["figure 'broken': ZeroDivisionError: division by zero"]


def test_a_check_that_no_control_refutes_is_an_error(store):
    (outcome,) = verify([replace(IDENTITY, controls=())], store=store)
    assert (outcome.verdict, outcome.ok) == ("error", False)
    assert any("no control refutes the check 'identity'" in note for note in outcome.notes)


def test_a_control_that_names_no_check_is_an_error(store):
    controls = (*IDENTITY.controls, Control("lost", {"lost": True}, ("identity",)))
    (outcome,) = verify([replace(IDENTITY, controls=controls)], store=store)
    assert outcome.verdict == "holds"
    assert not outcome.ok
    assert outcome.controls[1] == {"name": "lost", "verdict": "error"}
    assert any("control 'lost'" in note and "no check 'identity'" in note for note in outcome.notes)


def no_number(settings, lab):
    return Evidence([agrees("gap", [1.0, float("nan"), 1.0, 1.0, 1.1, 0.9], 1.0, within=0.1)])


def test_what_is_not_a_number_is_null(store):
    claim = replace(IDENTITY, measure=no_number, controls=(Control("wrong", {"wrong": True}, ("gap",)),))
    (outcome,) = verify([claim], store=store)
    assert outcome.verdict == "inconclusive"
    assert outcome.as_json()["checks"][0]["measured"] is None
    json.dumps(outcome.as_json(), allow_nan=False)


@pytest.mark.parametrize("change", [{"scale": "dsk"}, {"device": "gpu"}, {"seeds": 0}, {"jobs": 0}, {"seed_base": -1}])
def test_verify_refuses(store, toys, change):
    with pytest.raises(ArgumentError):
        verify([toys["toy/average"]], store=store, **change)
    assert not store.root.exists()


def test_interruption_keeps_what_is_finished(store, toys):
    def interrupted(settings, lab):
        raise KeyboardInterrupt

    log = Log()
    with pytest.raises(KeyboardInterrupt):
        verify([toys["toy/average"], replace(IDENTITY, measure=interrupted)], store=store, progress=log)
    assert log.finished == ["toy/average"]
    assert store.last_verdict("toy/average") is not None


def test_jobs_give_the_same_outcomes(store, tmp_path, toys):
    chosen = [toys["toy/deaf"], toys["toy/raises"]]
    log = Log()
    spread = verify(chosen, store=store, scale="smoke", jobs=2, threads=1, files=[TOYS], progress=log)
    alone = verify(chosen, store=tmp_path / "other", scale="smoke", threads=1)
    assert sorted(log.finished) == [claim.id for claim in chosen]
    assert [(o.claim, o.verdict, o.checks, o.controls) for o in spread] == [
        (o.claim, o.verdict, o.checks, o.controls) for o in alone
    ]
    assert store.last_verdict("toy/raises") is not None


KILLED = """
import os, sys
from sandtable.lab.store import Store

store = Store(sys.argv[1])
with store.lock(store.path("x")):
    os.kill(os.getpid(), 9)
"""


def test_a_killed_process_frees_its_locks(store):
    assert subprocess.run([sys.executable, "-c", KILLED, str(store.root)]).returncode == -9
    assert store.path("x.lock").exists()
    with store.lock(store.path("x"), waiting=lambda: pytest.fail("still locked")):
        pass
