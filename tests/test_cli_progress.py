"""While work goes on: a live line on a terminal, plain lines elsewhere; and what an interruption leaves."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors
from rich.console import Console

from sandtable import cli
from sandtable.cli.progress import Status, Watched
from sandtable.lab import registry
from sandtable.lab.store import Store

LAB = Path(__file__).parent / "lab"
SLOW = LAB / "slow_claims.py"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def outcome(claim, verdict="holds", **more):
    return SimpleNamespace(claim=claim, verdict=verdict, expected="holds", seconds=1.25, trace="", **more)


def on_terminal(shown, width=60):
    """`shown`, as if stderr were a terminal of this width."""
    shown.console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False, markup=False)
    shown.watched = True
    return shown


def text_of(shown):
    """What one drawing of the live lines looks like."""
    paper = Console(file=io.StringIO(), width=shown.console.width)
    paper.print(shown._shown())
    return paper.file.getvalue()


def test_a_terminal_shows_what_runs_and_for_how_long():
    with on_terminal(Status()) as say:
        say("step 5/10 [bold] · loss 0.5")
        text = text_of(say)
        say("x" * 500)
        assert len(text_of(say).splitlines()) == 1
    assert "step 5/10 [bold] · loss 0.5" in text
    assert "0:00:00" in text


def test_a_terminal_shows_how_many_claims_are_finished():
    with on_terminal(Watched()) as watched:
        watched.begins(4)
        watched.done(outcome("toy/a"))
        watched.doing("toy/b · step 1/2")
        text = text_of(watched)
    assert "1 of 4 claims" in text
    assert "toy/b · step 1/2" in text
    assert "[1/4] toy/a: holds (1.2 s)" in watched.console.file.getvalue()


def test_nobody_watching_sees_a_line_per_claim_and_quiet_none(capsys):
    for quiet in (False, True):
        with Watched(quiet=quiet) as watched:
            watched.begins(2)
            watched.doing("toy/a · step 1/2")
            watched.done(outcome("toy/a"))
            watched.done(outcome("toy/b", "refuted"))
        lines = capsys.readouterr().err.splitlines()
        expected = ["[1/2] toy/a: holds (1.2 s)", "[2/2] toy/b: refuted, expected holds (1.2 s)"]
        assert lines == ([] if quiet else expected)
    with Status() as say:
        say("step 1/2")
    assert capsys.readouterr().err == ""


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Call the command line in this process, with the claims of one file: (exit status, stdout, stderr)."""
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "_entry_points", lambda: [])

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


def test_output_into_a_file_is_clean(run):
    _, out, err = run("verify", "toy/average", "toy/few", "--from", str(LAB / "toy_claims.py"))
    assert not CONTROL.search(out + err)
    assert [line.partition(":")[0] for line in err.splitlines()] == ["[1/2] toy/average", "[2/2] toy/few"]
    _, out, err = run("verify", "toy/average", "--quiet", "--json", "--from", str(LAB / "toy_claims.py"))
    assert err == ""
    assert json.loads(out)


def test_sigterm_stops_a_command_as_ctrl_c_does(monkeypatch, capsys):
    def leave(*_, **__):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(registry, "cards", leave)
    monkeypatch.setattr(sys, "argv", ["sandtable", "show", "toy/a b"])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stop.value.code == 130
    assert capsys.readouterr().err == "sandtable: interrupted\n"  # it keeps nothing that could be gone on with


def step_of(root):
    """The step that the one checkpoint in a store stands at."""
    (place,) = root.rglob("*.checkpoint/0/0.safetensors")
    with safetensors.safe_open(place, framework="pt") as file:
        return int(file.get_tensor("step"))


def start(root, tmp_path, *words):
    """The command line in a process group of its own, as a terminal would have it."""
    script = (
        "from sandtable import cli; from sandtable.lab import registry; registry._entry_points = lambda: []; cli.main()"
    )
    environment = {**os.environ, "SANDTABLE_HOME": str(root), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_training(root, count=1):
    until = time.monotonic() + 120
    while len(list(root.glob("stepping-*"))) < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ctrl_c_leaves_what_the_told_command_goes_on_with(run, tmp_path, monkeypatch):
    root = tmp_path / "runs"
    words = ["verify", "slow/first", "--threads", "1", "--from", str(SLOW)]
    process = start(root, tmp_path / "cache", *words, "--fresh")
    wait_for_training(root)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("sandtable: interrupted; what is finished is kept. Go on: sandtable verify slow/first")
    assert 0 < step_of(root) < 200
    told = shlex.split(last.partition("Go on: ")[2])
    assert told[1 : len(words) + 1] == words
    assert told[len(words) + 1] == "--fresh-since"
    status, _, err = run(*told[1:])
    assert status == 0, err
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "undisturbed"))
    run(*words)
    (again, straight) = (Store(tmp_path / name).last_verdict("slow/first") for name in ("runs", "undisturbed"))
    assert again["checks"] == straight["checks"]
    assert not list(root.rglob("*.checkpoint"))


def test_ctrl_c_is_passed_on_to_jobs(tmp_path):
    root = tmp_path / "runs"
    process = start(
        root,
        tmp_path / "cache",
        "verify",
        "--scale",
        "desk",
        "--jobs",
        "2",
        "--set",
        "steps=20000",
        "--from",
        str(SLOW),
    )
    wait_for_training(root, count=2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert len(list(root.rglob("*.checkpoint/0/0.safetensors"))) == 2
