"""The house keeps its order: imports only point up the list of rooms, and the front door is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sandtable

HOUSE = Path(sandtable.__file__).parent
DOOR = "cli"  # the front door reads everyone, and nobody reads it
HALL = {"arguments", "inputs"}  # read by everyone, reads nobody
ABOVE = {
    "worlds": set(),
    "models": set(),
    "objectives": {"worlds"},
    "training": {"models", "objectives", "worlds"},
    "theory": {"worlds", "models"},
    "probes": {"worlds", "models"},
    "decoding": {"worlds", "models", "probes"},
    "bridges": {"worlds", "models", "objectives", "training", "theory", "probes", "decoding"},
    "lab": {"training"},
    "claims": {"worlds", "models", "objectives", "training", "theory", "probes", "decoding", "bridges", "lab"},
}


def imported(path):
    """(line, dotted name) of every module of sandtable that a file imports, anywhere in it."""
    package = ["sandtable", *path.relative_to(HOUSE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # "from sandtable import worlds" names the room in the alias.
            names = [f"{stem}.{alias.name}" for alias in node.names] if stem == "sandtable" else [stem]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "sandtable")


ROOMS = sorted(room for room in ABOVE if (HOUSE / room).is_dir())


@pytest.mark.parametrize("room", ROOMS)
def test_imports_only_point_up(room):
    wrong = []
    for path in sorted((HOUSE / room).rglob("*.py")):
        for line, name in imported(path):
            target = name.split(".")[1] if "." in name else ""
            if target in ABOVE and target != room and target not in ABOVE[room]:
                wrong.append(f"{path.relative_to(HOUSE)}:{line} imports {name}")
            elif target not in ABOVE and target not in HALL and target != "__version__":
                wrong.append(f"{path.relative_to(HOUSE)}:{line} imports {name or 'sandtable'}")
    assert not wrong


@pytest.mark.parametrize("module", sorted(HALL))
def test_the_hall_reads_nobody(module):
    place = HOUSE / module
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    names = {name for path in files for _, name in imported(path)}
    assert [name for name in names if not f"{name}.".startswith(f"sandtable.{module}.")] == []


def test_every_room_is_in_the_table():
    rooms = {path.parent.name for path in HOUSE.glob("*/__init__.py")}
    assert rooms <= {*ABOVE, *HALL, DOOR}


def test_there_is_no_utils():
    assert not list(HOUSE.rglob("util*.py"))


def test_importing_sandtable_does_not_import_torch():
    script = "import sys, sandtable; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'scipy', 'matplotlib')))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_rooms_open_on_first_use():
    script = "import sandtable as st, sys; st.worlds.TopicModel; st.fit; sys.exit('torch' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    with pytest.raises(AttributeError, match="wrolds"):
        _ = sandtable.wrolds
