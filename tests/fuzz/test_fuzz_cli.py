"""Whatever is typed for any option of any command: it is done (status 0 or 1), or refused in one line (status 2)."""

import contextlib
import io
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import TooLong, limited

from sandtable import cli
from sandtable.lab import registry

TOYS = str(Path(__file__).parents[1] / "lab" / "toy_claims.py")
PARALLEL = [str(Path(__file__)), "--target", str(Path(__file__))]
GOOD = {
    "list": ["--from", TOYS],
    "show": ["toy/average", "--from", TOYS],
    "verify": ["toy/average", "--scale", "smoke", "--seeds", "6", "--from", TOYS, "-q"],
    "report": ["--from", TOYS],
    "sample": ["dyck", "-n", "2"],
    "topics": ["--corpus", "corpus.txt", "--topics", "2", "--passes", "1", "--documents", "2", "-q"],
    "pretrain": ["--corpus", "corpus.txt", "-o", "bert", "--steps", "1", "--layers", "1", "--heads", "1",
                 "--width", "8", "--vocab", "40", "--length", "8", "--batch-size", "2", "-q"],
    "decode": ["--task", "dyck", "--steps", "2", "-n", "2", "--repeats", "1", "--verifier", "truth", "-q"],
    "translate": ["--task", "drop", "--steps", "1", "-n", "2", "--layers", "1", "--heads", "1", "--width", "8",
                  "--model", "sequential", "--beams", "1", "-q"],
    "automaton list": [],
    "automaton show": ["parity"],
    "automaton check": ["compiled.safetensors", "--samples", "5"],
    "compile": ["parity", "-o", "compiled.safetensors", "--length", "6"],
    "dyck build": ["-o", "built.safetensors", "--types", "1", "--depth", "2", "--longest", "2", "--long", "0"],
    "dyck check": ["built.safetensors"],
}  # fmt: skip
"""A call of every command that does little and goes well."""
WORDS = (
    "", " ", "a", "αβγ", "\u202e", "\x1b[31m", "a\nb", "x" * 5000, "-", "--", "-1", "0", "1", "2", "3", "1.5", "-0.0",
    "nan", "inf", "-inf", "1e309", "1e-300", "9" * 30,
    "9" * 5000, "1000000000000", "none", "True", "()", "(1,2)", "1,2",
    ",", "=", "a=", "=a", "a=b", "mean=nan", "length=0", "types=10000000000",
    "top_p=nan", "quota=-1", "*", "[", "toy/*",
    "..", "/proc/nowhere", "/dev/null/x", "/proc/self/mem", ".", "~no-such-person/x", "cuda", "cuda:9", "cdua", "smoke",
    "corpus.txt", "built.safetensors", "data.json", "folder", "{}", "$(touch x)", "'; import os", "%s%n", "nul\0byte",
)  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=12),
    st.integers().map(str),
    st.floats().map(str),
    st.tuples(st.sampled_from(["types", "depth", "length", "topics", "n", "q", "quota"]), st.sampled_from(WORDS)).map(
        "=".join
    ),
)
SECONDS = 60.0
"""Of the processor; a claim or a fit begun by a good call takes a few."""


def commands(group, prefix=""):
    """Every command by its name, with its options as they are typed."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", [(p.opts[-1], p.param_type_name, p.is_flag) if p.param_type_name == "option"
                                      else ("", "argument", False) for p in command.params]  # fmt: skip


COMMANDS = dict(commands(typer.main.get_command(cli.app)))
OPTIONS = [
    (name, option)
    for name, options in COMMANDS.items()
    for option, _, is_flag in options
    if not is_flag and name in GOOD  # the test below misses the others
]


def test_every_command_has_a_good_call():
    assert set(COMMANDS) == set(GOOD)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a few files, in which what is trained once stays known."""
    folder = tmp_path_factory.mktemp("door") / "inside"  # so that ".." is a folder of our own as well
    folder.mkdir()
    (folder / "corpus.txt").write_text(
        "\n\n".join(["the cat and the dog sat on a log near the old green bog " * 3] * 30)
    )
    (folder / "data.json").write_text("{}")
    (folder / "folder").mkdir()
    return folder


@pytest.fixture(autouse=True)
def inside(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("SANDTABLE_HOME", str(place / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setattr(registry, "_entry_points", lambda: [])
    monkeypatch.setattr("webbrowser.open", lambda *_: None)


def complaint(words):
    """What is wrong with how the command line answered; None where nothing is."""
    out, err = io.StringIO(), io.StringIO()
    said = f"sandtable {' '.join(words)[:300]!r}: "
    try:
        with limited(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main(words)
    except SystemExit as stop:
        status = stop.code or 0
    except TooLong as error:
        return said + str(error)
    except BaseException as error:
        return f"{said}{type(error).__name__}: {error}"
    else:
        status = 0
    lines = [line for line in err.getvalue().splitlines() if line.strip() and "warning:" not in line]
    if "Traceback" in err.getvalue() and "toy/" not in err.getvalue():
        return said + err.getvalue()[-300:]
    if status not in (0, 1, 2):
        return f"{said}status {status}"
    usage = any(line.startswith("Usage:") for line in lines)  # what the parser itself says has lines before the last
    if status == 2 and not usage and len(lines) != 1:
        return f"{said}{len(lines)} lines: {lines[:4]}"
    return None


def changed(command, option, value):
    """The good call with one option, or the argument, replaced."""
    words = list(GOOD[command])
    if not option:
        return [*command.split(), value, *(words[1:] if not words[0].startswith("-") else words)]
    while option in words:
        at = words.index(option)
        del words[at : at + 2]
    return [*command.split(), *words, option, value]


def wrong(found):
    return "\n".join(line for line in found if line)


@pytest.mark.parametrize("command", GOOD)
def test_good_calls_go_well(command):
    written = {"dyck check": "dyck build", "automaton check": "compile"}
    if command in written:
        assert complaint([*written[command].split(), *GOOD[written[command]], "--force"]) is None
    if command in written.values():
        Path(GOOD[command][GOOD[command].index("-o") + 1]).unlink(missing_ok=True)
    assert complaint([*command.split(), *GOOD[command]]) is None


@pytest.mark.parametrize("command", GOOD)
def test_every_option_refuses_what_it_cannot_use(command):
    options = [option for name, option in OPTIONS if name == command]
    values = [
        (option, WORDS[(place * 7 + i * 29) % len(WORDS)]) for place, option in enumerate(options) for i in range(2)
    ]
    assert not wrong(complaint(changed(command, option, value)) for option, value in values)


QUIET = dict(deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=60, derandomize=True, **QUIET)
@given(st.sampled_from(OPTIONS), TEXT)
def test_options_at_random(option, value):
    assert not complaint(changed(*option, value))


@settings(max_examples=60, derandomize=True, **QUIET)
@given(
    st.lists(st.one_of(st.sampled_from([*COMMANDS, "--help", "--version", "-q", "--json", "--set"]), TEXT), max_size=4)
)
def test_words_at_random(words):
    if "--json" in words or any(word in words for word in ("verify", "report")):
        words = [*words, "--from", TOYS]
    assert not complaint([part for word in words for part in (word.split() if word in COMMANDS else [word])])


@pytest.mark.slow
@settings(max_examples=2_000, **QUIET)
@given(st.sampled_from(OPTIONS), TEXT)
def test_two_thousand_options(option, value):
    assert not complaint(changed(*option, value))
