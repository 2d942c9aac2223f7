"""Verdict records for the tests of the report."""

import json
from pathlib import Path
from typing import Any

from sandtable.lab.keys import MARK, fingerprint

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)> {{ 7 * 7 }}"""


def record(claim: str, **changes: Any) -> dict[str, Any]:
    check = {"name": "ratio", "kind": "agrees", "verdict": "holds", "unit": "seed", "n": 8, "measured": 1.5}
    return {
        "claim": claim,
        "scale": "desk",
        "expected": "holds",
        "verdict": "holds",
        "seeds": 8,
        "seconds": 1.25,
        "device": "cpu",
        "version": "0.1.0",
        "settings_hash": "abc",
        "controls": [{"name": "shuffled", "verdict": "refuted"}],
        "checks": [check | {"low": 1.4, "high": 1.6, "predicted": 1.52}],
        "statement": f"Statement of {claim}.",
        "source": {"authors": "Author", "year": 2023, "where": "Theorem 3"},
        "settings": {"topics": 10, "length": [100, 150]},
        "notes": ["a note"],
        "tables": {"grid": {"columns": ["a", "b"], "rows": [[1, 2.5], ["x", None]]}},
        "figures": [],
        "command": f"sandtable verify {claim}",
        "date": "2025-01-02T03:04:05Z",
        "ok": True,
    } | changes


def draw(root: Path, text: str) -> str:
    """Write a drawing as the lab does, and give its name."""
    folder = root / "verdicts"
    folder.mkdir(exist_ok=True, parents=True)
    file = f"drawing-{fingerprint(text)[:MARK]}.svg"
    (folder / file).write_text(text)
    return file


def put(root: Path, *records: dict[str, Any]) -> Path:
    folder = root / "verdicts"
    folder.mkdir(exist_ok=True, parents=True)
    for index, content in enumerate(records):
        (folder / f"{index:03}.json").write_text(json.dumps(content))
    return folder
