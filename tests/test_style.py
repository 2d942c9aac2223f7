"""The whole tree passes the linter, the formatter and the type checker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = ["src", "tests", "benchmarks", "docs"]


def told(*command):
    run = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff_finds_nothing(command):
    status, said = told("ruff", *command, *PLACES)
    assert status == 0, said


def test_types_fit():
    status, said = told("pyright", "--pythonpath", sys.executable)
    if not re.search(r"\d+ errors?, \d+ warnings?", said):
        pytest.skip("pyright did not start: it fetches itself from the npm registry when it is first used")
    assert status == 0, said[-4000:]
