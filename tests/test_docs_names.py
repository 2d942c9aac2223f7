"""Names in the documentation exist: a reader can type them after `import sandtable as st`."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import sandtable as st
from sandtable.lab import load

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = "worlds|models|objectives|training|theory|probes|decoding|bridges"  # `lab.fit` is a method of the lab in hand
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def names(text):
    """`st.a.b` anywhere, and `room.a.b` where it is set as code."""
    found = re.findall(r"\bst\.((?:\w+\.)*\w+)", text)
    return sorted({*found, *re.findall(rf"`((?:{ROOMS})\.(?:\w+\.)*\w+)", FENCE.sub("", text))})


def resolved(name):
    """The object of this name. A part of a package must be in its `__all__`, or be a module that the package imports.

    Whether a module happens to be loaded by someone else does not count.
    """
    value = st
    for part in name.split("."):
        package = inspect.ismodule(value) and hasattr(value, "__all__")
        if package and part not in value.__all__:
            inside = rf"^from {re.escape(value.__name__)}\.{part} import"
            assert re.search(inside, inspect.getsource(value), re.MULTILINE), f"{name}: {part} is not exported"
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_after_import_resolve(page):
    for name in names(page.read_text()):
        resolved(name)


def test_a_name_that_is_not_there_is_found():
    assert names("`worlds.Nothing(1)` and\n```py\nst.theory.dyck.nobody(2)\n```\n") == [
        "theory.dyck.nobody",
        "worlds.Nothing",
    ]
    with pytest.raises(AssertionError, match="Nothing is not exported"):
        resolved("worlds.Nothing")


def test_what_people_use_most_is_there():
    """The last column of the map of rooms, and the first one of the table of worlds."""
    rooms = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", (ROOT / "docs/rooms.md").read_text(), re.MULTILINE)
    assert len(rooms) == 10
    for room, used in rooms:
        for name in re.findall(r"`([\w.]+)`", used) if room != "claims" else ():
            resolved(f"{room}.{name}")
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/worlds.md").read_text(), re.MULTILINE)
    for name in re.findall(r"`([\w.]+)", " ".join(table)):
        resolved(name if name.startswith("bridges.") else f"worlds.{name}")


CODE = [
    pytest.param(page, code, id=f"{page.name}-{kind}-{i}")
    for page in PAGES
    for i, (kind, code) in enumerate(FENCE.findall(page.read_text()))
    if kind in ("py", "python")
]


@pytest.mark.parametrize(("page", "code"), CODE)
def test_code_parses_and_takes_names_that_exist(page, code):
    """Also what cannot run here, such as a model of many gigabytes."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sandtable":
            package = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(package, alias.name), f"{page.name}: {node.module} has no {alias.name}"
        if isinstance(node, ast.Call) and re.fullmatch(r"st(\.\w+)+", called := ast.unparse(node.func)):
            known = inspect.signature(resolved(called.removeprefix("st."))).parameters
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in known.values()):
                given = {keyword.arg for keyword in node.keywords} - {None}
                assert given <= set(known), f"{page.name}: {called} takes no {given - set(known)}"


def test_claims_exist():
    """`line/name` set as code is a claim, `line/*` the claims of a line."""
    known = set(load())
    lines = "|".join(sorted({name.split("/")[0] for name in known}))
    for page in PAGES:
        for name in re.findall(rf"(?<![\w/.-])((?:{lines})/[a-z0-9-]+)(?![\w/*…-]|\.py)", page.read_text()):
            if not (ROOT / "src/sandtable" / name).exists() and not any((ROOT / "src/sandtable").glob(f"*/{name}*")):
                assert name in known, f"{page.name}: no claim is called {name}"
