"""What is not installed is asked for by name, in one way: the extras are those of pyproject.toml."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import sandtable as st
from sandtable.arguments import ArgumentError, missing

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMES_WITH = {"pyarrow": "datasets"}  # not named by the extra, but needed by what it names
CALLS = [
    pytest.param(*(ast.literal_eval(argument) for argument in node.exc.args[1:3]), id=f"{path.name}:{node.lineno}")
    for path in sorted((ROOT / "src").rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "missing"
]


def test_the_message_names_package_extra_and_way():
    said = str(missing("--on ray", "ray", "ray"))
    assert said == (
        "--on ray: needs the package ray; in a clone of sandtable, `uv sync --extra ray` or `pip install '.[ray]'`"
    )


@pytest.mark.parametrize(("package", "extra"), CALLS)
def test_the_extra_has_the_package(package, extra):
    named = [re.match(r"[\w-]+", line)[0] for line in EXTRAS[extra]]
    assert COMES_WITH.get(package, package) in named


def test_there_are_such_calls():
    assert len(CALLS) > 10


def test_nothing_sends_to_the_package_index():
    """A package of this name there is a stranger's."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    wrong = re.compile(r"pip install\s+[\"']?sandtable|sandtable\[[a-z-]+\]|uv add\s+sandtable")
    assert [str(file) for file in files if wrong.search(file.read_text())] == []


def test_every_extra_named_in_the_docs_exists():
    for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert set(re.findall(r"--extra ([\w-]+)|\.\[([\w-]+)\]'", file.read_text())) <= {
            pair for extra in EXTRAS for pair in ((extra, ""), ("", extra))
        }, file


def test_a_table_without_pandas_says_how_to_get_it(monkeypatch):
    world = st.worlds.TopicModel(topics=2, words=2, length=4, present=1)
    fit = st.fit(st.models.Transformer(world.vocab, width=4), world, st.objectives.MaskedLM(), steps=1, batch_size=2)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ArgumentError, match="uv sync --extra frames"):
        fit.to_frame()
