import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sandtable
from sandtable import cli
from sandtable.cli.settings import parse_value
from sandtable.lab import registry

TOYS = Path(__file__).parent / "lab" / "toy_claims.py"


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Call the command line in this process, with the toy claims only: (exit status, stdout, stderr)."""
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_entry_points", lambda: [])

    def call(*words: str, toys: bool = True):
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, *(["--from", str(TOYS)] if toys else [])])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_list_and_show(run):
    status, out, _ = run("list")
    assert status == 0
    assert "toy/average *" in out
    assert "Toy & Toy 2024, theorem 1" in out
    assert "toy/* (5)" in out
    assert "not even [mask]" in out
    run("verify", "toy/average", "--scale", "smoke")
    status, out, _ = run("list", "toy/av*", "--json")
    (card,) = json.loads(out)
    assert card["last"]["verdict"] == "holds"
    status, out, _ = run("show", "toy/average")
    assert status == 0
    for word in (
        "The average of draws",
        "theorem 1",
        "draws around zero (mean=0.0) refutes average",
        "last verdict: holds",
    ):
        assert word in out
    status, out, _ = run("show", "toy/printed-average")
    assert "erratum: The printed value is one too large." in out
    assert "corrected: toy/average" in out


def test_thresholds_are_asked_and_predictions_predicted(run):
    _, out, _ = run("verify", "toy/average", "--scale", "smoke", "-q")
    assert "predicted ≈ 1 " in out
    assert "asked > 0.5 " in out
    assert "asked > 0.5 " in run("show", "toy/average")[1]


def test_a_variation_is_told_and_leaves_the_list_alone(run):
    run("verify", "toy/average", "--scale", "smoke", "-q")
    status, out, _ = run("verify", "toy/average", "--scale", "smoke", "-q", "--set", "mean=0", "--seed-base", "3")
    assert status == 1
    assert "toy/average: a variation, not what it declares: mean=0.0, first seed=3" in out
    (card,) = json.loads(run("list", "toy/average", "--json")[1])
    assert card["last"]["verdict"] == "holds"


@pytest.mark.parametrize(
    ("words", "marked"), [(["--seeds", "25"], False), (["--seeds", "8"], True), (["--seed-base", "8"], True)]
)
def test_where_nothing_is_declared_the_list_shows_more_seeds_as_a_run_and_others_as_variations(run, words, marked):
    run("verify", "toy/average", "--scale", "smoke", "-q", *words)
    (card,) = json.loads(run("list", "toy/average", "--json")[1])
    assert card["last"]["verdict"] == "holds"
    assert ("variation: " in run("show", "toy/average")[1]) is marked
    page = Path(run("report")[1].strip()).read_text()
    assert ('data-claim="toy/average" data-verdict="not run"' in page) is marked
    assert ("smoke, variation: " in page) is marked
    assert "Last run" in page


def test_list_by_scale(run):
    status, out, _ = run("list", "--scale", "smoke", "--json")
    assert (status, len(json.loads(out))) == (0, 4)
    status, out, _ = run("list", "--lacks", "smoke")
    assert status == 0
    assert "toy/few" in out
    assert "toy/average" not in out
    assert "1 claims without a smoke scale" in out
    assert "did you mean 'smoke'?" in run("list", "--lacks", "smoky")[2]


def test_json_is_all_there_is_on_stdout(run):
    status, out, err = run("verify", "--scale", "smoke", "--json", "--quiet")
    assert status == 1
    outcomes = json.loads(out)
    assert [outcome["claim"] for outcome in outcomes] == [
        "toy/average", "toy/deaf", "toy/printed-average", "toy/raises",
    ]  # fmt: skip
    assert set(outcomes[0]) == {
        "claim", "scale", "expected", "verdict", "seeds", "seconds", "device", "version", "settings_hash", "controls",
        "checks",
    }  # fmt: skip
    assert set(outcomes[0]["checks"][0]) == {
        "name", "kind", "verdict", "unit", "n", "measured", "low", "high", "predicted",
    }  # fmt: skip
    assert err.splitlines()[0] == "skipped, for want of a smoke scale: toy/few"
    assert "ZeroDivisionError: by design" in err


@pytest.mark.parametrize(
    ("claim", "status", "words"),
    [
        ("toy/average", 0, ["holds", "3/3 refuted", "1 of 1 claims are as expected", "sandtable report"]),
        ("toy/printed-average", 0, ["refuted"]),
        ("toy/few", 1, ["inconclusive, expected holds", "3 seeds: at least 5 are needed"]),
        ("toy/deaf", 1, ["0/1 refuted", "control 'more draws' should be refuted, but: holds"]),
        ("toy/raises", 1, ["error, expected holds", "ZeroDivisionError: by design"]),
    ],
)
def test_exit_status_and_table(run, claim, status, words):
    got, out, _ = run("verify", claim, "--quiet")
    assert got == status
    for word in words:
        assert word in out


def test_the_tour_ends_with_the_report(run, tmp_path):
    status, out, _ = run("verify", "--seeds", "20")
    assert status == 0
    assert "toy/average" in out
    assert "toy/deaf" not in out
    path = tmp_path / "runs" / "report.html"
    assert out.strip().endswith(f"report: {path}")
    page = path.read_text()
    assert "toy/average" in page
    assert "toy/deaf" in page
    status, out, _ = run("report")
    assert (status, out.strip()) == (0, str(path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "toy/averge"], "no claim fits 'toy/averge'; did you mean 'toy/average'?"),
        (["show", "toy/nothing-of-the-kind"], "no claim fits"),
        (["list", "toys/*"], "did you mean 'toy/*'?"),
        (["verify", "toy"], "did you mean 'toy/*'?"),
        (["verify", "--scale", "smok"], "did you mean 'smoke'?"),
        (["verify", "toy/average", "--device", "cdua"], "did you mean 'cuda'?"),
        (["verify", "toy/average", "--seeds", "0"], "--seeds=0: must be a whole number ≥ 1"),
        (["verify", "toy/average", "--seeds", "9" * 20], "must be a whole number from 1 to 9223372036854775807"),
        (["verify", "toy/average", "--seed-base", "-1"], "--seed-base=-1"),
        (["verify", "toy/average", "--jobs", "0"], "--jobs=0"),
        (["verify", "toy/average", "--threads", "0"], "--threads=0"),
        (["verify", "toy/average", "--store", str(TOYS)], "is not writable"),
        (["report", "--store", str(TOYS)], "is not writable"),
        (["verify", "toy/average", "--fresh-since", "noon"], "--fresh-since='noon': must be a date or a time such as"),
        (["verify", "toy/average", "--fresh-since", "9999-01-01"], "must be a moment in the past"),
        (["verify", "toy/average", "--fresh", "--fresh-since", "2020-01-01"], "choose one"),
        (["verify", "toy/average", "--store", "/proc/nowhere"], "is not writable"),
        (["list", "--from", "nowhere.py"], "no such file"),
        (["verify", "toy/average", "--set", "mean"], "--set 'mean': must be NAME=VALUE"),
        (["verify", "toy/average", "--set", "maen=2"], "no chosen claim has such a setting; did you mean 'mean'?"),
        (["verify", "toy/average", "--set", "draws=abc"], "--set draws='abc': must be a whole number"),
        (["verify", "toy/average", "--set", "draws=1.5"], "--set draws=1.5: must be a whole number"),
        (["verify", "toy/average", "--set", "mean=1,2"], "--set mean=(1, 2): must be a number"),
    ],
)
def test_mistakes_are_one_line_and_status_two(run, words, message):
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err.startswith("sandtable: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import math\nx = maths.pi\n", ":2: cannot be read: NameError: name 'maths' is not defined"),
        ("def f():\n    raise RuntimeError('one\\ntwo')\n\nf()\n", ":2: cannot be read: RuntimeError: one\n"),
        ("import no_such_thing\n", ":1: cannot be read: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = (\n", "mine.py: cannot be read: '(' was never closed (mine.py, line 1)"),
        ("raise SystemExit(0)\n", ":1: cannot be read: SystemExit: 0"),
    ],
)
def test_a_file_of_claims_that_fails_is_one_line_with_its_place(run, tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text)
    status, out, err = run("verify", "toy/average", "--from", str(tmp_path / "mine.py"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"sandtable: --from {tmp_path / 'mine.py'}")
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "topic"], "did you mean 'topics'?"),
        (["sample", "drops"], "did you mean 'drop'?"),
        (["sample", "dialect", "--set", "distilled=2"], "distilled=2: must be True or False"),
        (["sample", "topics", "-n", "0"], "-n=0"),
        (["sample", "topics", "--set", "topic=3"], "did you mean 'topics'?"),
        (["sample", "topics", "--set", "topics"], "must be NAME=VALUE"),
        (["sample", "topics", "--set", "topics=-3"], "topics=-3"),
        (["sample", "topics", "--set", "length=(3,x)"], "length[1]='x': must be a whole number"),
        (["sample", "topics", "--set", "length=,"], "numbers or words with commas between"),
        (["sample", "topics", "--set", "present=11", "--set", "dirichlet=none"], "present=11"),
    ],
)
def test_mistakes_in_sample(run, words, message):
    status, out, err = run(*words, toys=False)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_unknown_options_and_commands_are_usage_errors(run):
    assert run("verify", "--sedes", "3")[0] == 2
    assert run("verfy", toys=False)[0] == 2
    assert run("verify", "--seeds", "three")[0] == 2


def test_sample_shows_documents(run):
    status, out, _ = run("sample", "topics", "-n", "3", "--set", "length=(4,4)", "--set", "topics=2", toys=False)
    assert status == 0
    lines = out.splitlines()
    assert [len(line.split()) for line in lines] == [4, 4, 4]
    assert run("sample", "topics", "-n", "3", "--set", "length=4,4", "--set", "topics=2", toys=False)[1] == out
    assert run("sample", "topics", "-n", "3", "--set", "length=4,4", "--seed", "1", toys=False)[1] != out


def test_sample_shows_translations(run):
    status, out, _ = run("sample", "drop", "-n", "4", "--set", "distilled=true", "--set", "keep=1.0", toys=False)
    assert status == 0
    for line in out.splitlines():
        source, target = line.split(" → ")
        assert target == source.replace("s", "a") + " ⟨eos⟩"
    assert len(out.splitlines()) == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("(2, 5)", (2, 5)),
        ("2,5", (2, 5)),
        ("3,", (3,)),
        ("1e-8,1e-6", (1e-8, 1e-6)),
        ("(a, none)", ("a", None)),
        ("none", None),
        ("True", True),
        ("false", False),
        ("a", "a"),
    ],
)
def test_values_are_parsed_not_evaluated(text, value):
    found = parse_value(text)
    assert (type(found), found) == (type(value), value)


def test_interruption_is_status_130(run, monkeypatch):
    from sandtable.lab import run as lab_run

    monkeypatch.setattr(lab_run, "run_claim", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    status, out, err = run("verify", "toy/av*", "--json", "--fresh", "--set", "mean=2")
    assert (status, json.loads(out)) == (130, [])
    said, _, time = err.splitlines()[-1].partition(" --fresh-since ")
    time, _, rest = time.partition(" ")
    assert said == "sandtable: interrupted; what is finished is kept. Go on: sandtable verify 'toy/av*' --json"
    assert rest == f"--set mean=2 --from {TOYS}"
    status, _, err = run("verify", "toy/av*", "--fresh-since", time)
    assert (status, err.splitlines()[-1].partition(" --fresh-since ")[2].split()[0]) == (130, time)


def test_what_goes_on_with_a_fresh_run_computes_the_rest_anew(run, monkeypatch, tmp_path):
    from sandtable.lab import run as lab_run

    once = lab_run.run_claim

    def second_never(claim, *more):
        if claim.id != "toy/average":
            raise KeyboardInterrupt
        return once(claim, *more)

    def written():
        return {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}

    run("verify", "toy/average", "toy/deaf", "-q")
    stored = written()
    with monkeypatch.context() as stopping:
        stopping.setattr(lab_run, "run_claim", second_never)
        err = run("verify", "toy/average", "toy/deaf", "-q", "--fresh")[2]
    stopped = written()
    (old,) = (file for file in stored if stopped[file] == stored[file])  # of the control of toy/deaf
    told = shlex.split(err.partition("Go on: ")[2])[1:]
    run(*told, toys=False)
    done = written()
    assert [file for file in done if done[file] != stopped[file]] == [old]
    run(*told, toys=False)
    assert written() == done


def test_an_interrupted_run_counts_what_was_not_run(run, monkeypatch):
    from sandtable.lab import run as lab_run

    once = lab_run.run_claim

    def second_never(claim, *more):
        if claim.id != "toy/average":
            raise KeyboardInterrupt
        return once(claim, *more)

    monkeypatch.setattr(lab_run, "run_claim", second_never)
    status, out, _ = run("verify", "toy/*", "-q")
    assert status == 130
    assert "1 of 5 claims are as expected; 4 not run; figures" in out


LISTING = """
import sys
from sandtable import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code
print([name for name in ("torch", "scipy", "matplotlib") if name in sys.modules], file=sys.stderr)
"""


def listing(tmp_path, *words):
    """(stdout, lines of stderr) of a fresh process with all installed claims; the last line names heavy modules."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING, *words],
        env={"XDG_CACHE_HOME": str(tmp_path), "SANDTABLE_HOME": str(tmp_path / "runs"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()


def test_list_and_show_do_not_import_torch(tmp_path):
    assert listing(tmp_path, "--version") == (f"sandtable {sandtable.__version__}\n", ["[]"])
    first, (said, heavy) = listing(tmp_path, "list", "--json")
    assert said.startswith("sandtable: reading the claims of installed packages")
    assert "torch" in heavy
    assert listing(tmp_path, "list", "--json") == (first, ["[]"])
    cards = json.loads(first)
    assert {"topics/value-matrix-limit", "vgb/amplification"} <= {card["id"] for card in cards}
    shown, err = listing(tmp_path, "show", "topics/value-matrix-limit")
    assert err == ["[]"]
    assert "must be refuted:" in shown
