"""Every command line of the documentation is one: it parses, names what exists, and the quick ones run."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import typer

from sandtable import worlds
from sandtable.arguments import ArgumentError
from sandtable.cli import WORLDS, app, main
from sandtable.cli.decode import Arm, parse_arms
from sandtable.cli.settings import parse_setting
from sandtable.lab import SCALES, load, registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"^(?:uv run )?(?:\w+=\S+ )*(?:accelerate launch .*? -m )?sandtable (?=[a-z])")
AFTER = re.compile(r"Go on: (?=sandtable )")
QUICK = ("list", "show", "sample", "report", "compile", "automaton list", "automaton show", "automaton check",
         "dyck build", "dyck check")  # fmt: skip
FEWER = {"automaton check": ["--samples", "1"]}  # a hundred words of a hundred tokens take a minute
ELSEWHERE = {"mine/concentration", "coins/run-length"}  # claims of the documentation itself
CLICK_ERROR = typer.BadParameter.__mro__[2]  # the base of all mistakes in a call


def words_of(line):
    """The words after `sandtable` in a line of a shell, None where it is another command."""
    line = AFTER.split(line)[-1].strip()
    if CALL.match(line) is None:
        return None
    line = re.sub(r"\$\(\(.*?\)\)|(?<=--seed-base )B\b", "8", CALL.sub("", line))
    return shlex.split(re.sub(r"\s>\s.*", "", line), comments=True)


def commands(text):
    """All of a page: lines of blocks, then what is set as code in a sentence, but for what is left out with "…"."""
    found = []
    for kind, block in FENCE.findall(text):
        if kind not in ("py", "python", "toml"):
            found += [words_of(line) for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    for span in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        found.append(words_of(re.sub(r"\s+", " ", span)))
    return [words for words in found if words and "…" not in words]


def parsed(words):
    """(path of the command, its parameters), or a usage error."""
    command, path = typer.main.get_command(app), []
    rest = list(words)
    while hasattr(command, "commands"):
        assert rest[0] in command.commands, f"no command {rest[0]!r}"
        path.append(rest.pop(0))
        command = command.commands[path[-1]]
    with command.make_context(" ".join(path), list(rest)) as context:
        return " ".join(path), context.params


def check(words):
    path, given = parsed(words)
    if path in ("list", "show", "verify"):
        known = load()
        patterns = [given["claim"]] if path == "show" else given["patterns"] or ["*"]
        chosen = registry.match([name for name in patterns if not _placeholder(name)], [*known, *ELSEWHERE])
        settings = [parse_setting(text)[0] for text in given.get("settings") or ()]
        sizes = [size for name in chosen if name in known for size in known[name].scales.values()]
        fields = {field.name for size in sizes for field in dataclasses.fields(size)}
        assert set(settings) <= fields, f"no claim has {set(settings) - fields}"
        assert given.get("scale") in (None, *SCALES)
        assert given.get("lacks") in (None, *SCALES)
    elif path == "sample" and not _placeholder(given["world"]):
        make = getattr(worlds, WORLDS[given["world"]][0])
        own = () if given["world"] == "automaton" else tuple(make.__dataclass_fields__)
        for text in given["settings"] or ():
            parse_setting(text, own or None)
    elif path == "decode":
        own = {name: value for name, value in map(parse_setting, given["settings"] or ()) if name != "threshold"}
        if given["compare"] is None:
            Arm(given["method"] or "backtrack", own)
        else:
            parse_arms(given["compare"], given["task"], own)
    return path, given


def _placeholder(word):
    return word.rpartition("/")[2] in ("NAME", "FILE")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_lines_are_right(page):
    for words in commands(page.read_text()):
        try:
            check(words)
        except (CLICK_ERROR, ArgumentError, AssertionError) as error:
            pytest.fail(f"{page.name}: sandtable {shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    "words",
    [
        ["verfy"], ["verify", "--sede", "3"], ["verify", "topics/nothing"], ["list", "nobody/*"], ["show"],
        ["verify", "topics/*", "--set", "nothing=1"], ["verify", "--seeds", "many"], ["sample", "nothing"],
        ["sample", "topics", "--set", "x=1"], ["dyck", "bild"], ["automaton", "show", "S4", "--fig", "s4.svg"],
        ["decode", "--task", "dyck", "--method", "backtrak"], ["decode", "--task", "dyck", "--compare", "vgb n=2"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_ones_are_found(words):
    with pytest.raises((CLICK_ERROR, ArgumentError, AssertionError, KeyError)):
        check(words)


def test_all_kinds_of_blocks_are_read():
    page = (
        "`uv run sandtable list` and `sandtable\nverify topics/NAME`\n```bash\nA=1 sandtable show x  # why\n```\n"
        "```\naccelerate launch --cpu -m sandtable pretrain -o a\n```\n```text\nGo on: sandtable verify 'a/*'\n```\n"
        "```python\nsandtable nothing\n```\n"
    )
    assert commands(page) == [
        ["show", "x"], ["pretrain", "-o", "a"], ["verify", "a/*"], ["list"], ["verify", "topics/NAME"],
    ]  # fmt: skip
    assert sum(len(commands(page.read_text())) for page in PAGES) > 90


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The index of claims is made once for all pages."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quick_ones_run(page, cache, tmp_path, monkeypatch, capsys):
    """In a folder per page, one after the other: a file is written under a free name, and read under that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SANDTABLE_HOME", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    (claims,) = (block for kind, block in FENCE.findall((ROOT / "docs/claims.md").read_text()) if kind == "python")
    Path("my_claims.py").write_text(claims)
    done = set()
    for words in commands(page.read_text()):
        line, text = shlex.join(words), page.read_text()
        path = next((quick for quick in QUICK if f"{line} ".startswith(f"{quick} ")), None)
        if path is None or line in done or any(map(_placeholder, words[1:2])) or any("coins/" in w for w in words):
            continue
        done.add(line)
        refused = re.search(rf"sandtable {re.escape(line)} +# refused", text) is not None
        with pytest.raises(SystemExit) as stop:
            main([*words, *FEWER.get(path, ())])
        told = capsys.readouterr()
        assert (stop.value.code or 0) == (2 if refused else 0), f"{page.name}: sandtable {line}: {told.err}"
        assert told.out or refused
