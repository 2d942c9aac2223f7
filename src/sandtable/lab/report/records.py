"""What the store says of every claim: its verdict records, read with care, beside the cards of the known claims."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sandtable.lab.changes import as_declared, in_words
from sandtable.lab.keys import MARK, canonical, fingerprint, sources_of
from sandtable.lab.report.drawings import clean_svg

ClaimCard = Mapping[str, Any]
"""A claim as plain JSON (`registry.card`): `id`, `statement`, `source`, `expected`, `erratum`, `corrected`."""

VERDICTS = ("holds", "refuted", "inconclusive", "error")
STATUSES = ("as expected", "unexpected", "inconclusive", "not run")
_SIZE = re.compile(r'^<svg[^>]* viewBox="[-\d.]+ [-\d.]+ (\d+(?:\.\d+)?) ')
_RANK = {"paper": 0, "desk": 1, "smoke": 2}


USUAL_WIDTH = 4.4 * 72
"""Of a drawing, in points: `figures.style.WIDTH`."""


@dataclass(frozen=True)
class Figure:
    """A drawing made safe, and its width in points."""

    name: str
    drawing: Markup
    width: float

    @property
    def wide(self) -> bool:
        """Whether its letters would be too small in the place of a usual one."""
        return self.width > 1.1 * USUAL_WIDTH


@dataclass(frozen=True)
class Run:
    """One verdict record: a claim judged at one scale."""

    record: Mapping[str, Any]
    anchor: str
    figures: tuple[Figure, ...]
    missing: tuple[str, ...]
    stale: bool
    """The sources that this run depended on are not what they were."""

    @property
    def changed(self) -> str:
        """What was done otherwise than the claim declares, in one line; nothing in records of older versions."""
        return in_words(self.record.get("variation") or {})

    @property
    def scale(self) -> str:
        return self.record.get("scale") or "desk"

    @property
    def verdict(self) -> str:
        return self.record["verdict"]

    @property
    def expected(self) -> str:
        return self.record.get("expected") or "holds"

    @property
    def date(self) -> str:
        return self.record.get("date") or ""

    @property
    def controls(self) -> list[Mapping[str, Any]]:
        return self.record.get("controls") or []

    @property
    def refuted_controls(self) -> int:
        return sum(control.get("verdict") == "refuted" for control in self.controls)

    @property
    def ok(self) -> bool:
        """The claim has its expected verdict and every control is refuted."""
        said = self.record.get("ok")
        if isinstance(said, bool):
            return said
        return self.verdict == self.expected and self.refuted_controls == len(self.controls)

    @property
    def status(self) -> str:
        return "as expected" if self.ok else "inconclusive" if self.verdict == "inconclusive" else "unexpected"

    @property
    def checks(self) -> list[dict[str, Any]]:
        """As recorded, each with its target region, where the record tells it."""
        targets = self.record.get("targets") or {}
        return [check | {"target": targets.get(check.get("name"))} for check in self.record.get("checks") or []]

    @property
    def beside(self) -> bool:
        """Whether the figures leave room for the checks beside them."""
        return 0 < len(self.figures) <= 2 and not any(figure.wide for figure in self.figures)

    @property
    def deciding(self) -> list[dict[str, Any]]:
        """The checks whose verdict is that of the claim; all, where there are none."""
        return [check for check in self.checks if check.get("verdict") == self.verdict] or self.checks


@dataclass
class Entry:
    """A claim with its latest run at each scale, the largest scale first; and its runs with other settings or seeds.

    A run with more seeds than declared counts where that with the declared number is missing.
    """

    claim: str
    anchor: str
    card: ClaimCard = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    variations: list[Run] = field(default_factory=list)

    def told(self, key: str) -> Any:
        """What the latest records say of the claim, else what its card says."""
        for teller in (*(run.record for run in self.runs), self.card, *(run.record for run in self.variations)):
            if teller.get(key):
                return teller[key]
        return None

    @property
    def shown(self) -> Run | None:
        """The run that stands for the claim on the scoreboard; where there is none, the newest variation."""
        return self.runs[0] if self.runs else max(self.variations, key=lambda run: run.date, default=None)

    @property
    def line(self) -> str:
        return self.claim.partition("/")[0]

    @property
    def expected(self) -> str:
        return self.told("expected") or "holds"

    @property
    def source(self) -> str:
        source = self.told("source")
        if not isinstance(source, Mapping):
            return str(source or "")
        printed = " ".join(str(source[key]) for key in ("authors", "year") if source.get(key))
        return ", ".join(filter(None, (printed, str(source.get("where") or ""))))

    @property
    def verdict(self) -> str:
        return self.runs[0].verdict if self.runs else "not run"

    @property
    def status(self) -> str:
        if not self.runs:
            return "not run"
        if all(run.ok for run in self.runs):
            return "as expected"
        return "inconclusive" if all(run.ok or run.verdict == "inconclusive" for run in self.runs) else "unexpected"

    @property
    def stale(self) -> bool:
        return any(run.stale for run in self.runs)


def gather(folder: Path, cards: Sequence[ClaimCard]) -> tuple[list[Entry], list[str]]:
    """All claims in the order of their ids, and the names of the files that could not be read."""
    latest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    damaged = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = _read(path)
        except (OSError, ValueError, RecursionError) as error:
            damaged.append(f"{path.name} ({error})")
            continue
        key = (record["claim"], record.get("scale") or "desk", in_words(record.get("variation") or {}))
        if key not in latest or (record.get("date") or "") >= (latest[key].get("date") or ""):
            latest[key] = record
    damaged += [f"{path.name} (set aside by an earlier command)" for path in sorted(folder.glob("*.damaged"))]
    known = {str(card["id"]): card for card in cards}
    anchors = _anchors({claim for claim, _, _ in latest} | set(known))
    entries = {claim: Entry(claim, anchor, known.get(claim, {})) for claim, anchor in anchors.items()}
    sources = functools.cache(_sources)
    counted = _counted(latest)
    for (claim, scale, changed), record in sorted(latest.items(), key=lambda item: _RANK.get(item[0][1], 3)):
        anchor = f"{anchors[claim]}--{_slug(scale)}" + (f"--{fingerprint(changed)[:8]}" if changed else "")
        figures, missing = _figures(folder, record, anchor)
        then, now = record.get("sources"), sources(record.get("module"))
        runs = entries[claim].runs if counted[claim, scale] == changed else entries[claim].variations
        runs.append(Run(record, anchor, figures, missing, stale=bool(then and now and then != now)))
    return list(entries.values()), damaged


def _counted(latest: Mapping[tuple[str, str, str], Mapping[str, Any]]) -> dict[tuple[str, str], str | None]:
    """Which of the runs of a claim at a scale counts: the declared one, else the newest with more seeds."""
    dates: dict[tuple[str, str], dict[str, str]] = {}
    for (claim, scale, changed), record in latest.items():
        counting = dates.setdefault((claim, scale), {})
        if as_declared(record):
            counting[changed] = record.get("date") or ""
    return {key: "" if "" in found else max(found, key=found.__getitem__, default=None) for key, found in dates.items()}


def _read(path: Path) -> dict[str, Any]:
    """One record whose parts have the shapes that the page relies on, or a `ValueError` that says what is wrong."""
    record = json.loads(path.read_bytes())
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    expected = record.pop("sha256", None)
    if expected is not None and expected != hashlib.sha256(canonical(record).encode()).hexdigest():
        raise ValueError("its checksum does not match")
    _texts(record, "claim", "verdict", "scale", "expected", "statement", "erratum", "corrected", "command", "date")
    _texts(record, "traceback", "module", "sources")
    if not record.get("claim"):
        raise ValueError("names no claim")
    if record.get("verdict") not in VERDICTS:
        raise ValueError("has no verdict")
    for key in ("checks", "controls", "figures"):
        value = record.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError(f"{key!r} is not a list of objects")
        for item in value:
            _texts(item, "name", "kind", "verdict", "unit", "file")
    for key in ("settings", "tables", "messages", "targets", "variation"):
        if not isinstance(record.get(key) or {}, dict):
            raise ValueError(f"{key!r} is not an object")
    for name, table in (record.get("tables") or {}).items():
        rows = table.get("rows") if isinstance(table, dict) else None
        if not isinstance(rows, list) or not isinstance(table.get("columns"), list):
            raise ValueError(f"table {name!r} lacks columns or rows")
        if not all(isinstance(row, list) for row in rows):
            raise ValueError(f"table {name!r} has a row that is not a list")
    if not isinstance(record.get("notes") or [], list):
        raise ValueError("'notes' is not a list")
    return record


def _sources(module: str | None) -> str | None:
    """What the sources of a record's module are now, where that can be told."""
    try:
        return sources_of(module) if module else None
    except (OSError, ValueError, SyntaxError):
        return None


def _texts(content: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if not isinstance(content.get(key), str | None):
            raise ValueError(f"{key!r} is not text")


def _figures(folder: Path, record: Mapping[str, Any], anchor: str) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """The record's drawings, and the names of those that are not there, not ours or not as they were drawn."""
    drawn, missing = [], []
    for index, figure in enumerate(record.get("figures") or []):
        name = figure.get("name") or f"figure {index + 1}"
        try:
            path = (folder / (figure.get("file") or "")).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ValueError("outside the store")
            text = path.read_bytes().decode()
            if path.stem.rpartition("-")[2] != fingerprint(text)[:MARK]:
                raise ValueError("not what was drawn")
            drawing = clean_svg(text, prefix=f"{anchor}-{index}-")
            size = _SIZE.search(drawing)
            drawn.append(Figure(name, drawing, float(size[1]) if size else USUAL_WIDTH))
        except (OSError, ValueError) as error:
            missing.append(f"{name} ({error.strerror if isinstance(error, OSError) else error})")
    return tuple(drawn), tuple(missing)


def _anchors(claims: Iterable[str]) -> dict[str, str]:
    taken: dict[str, str] = {}
    for claim in sorted(claims):
        anchor = f"claim-{_slug(claim.replace('/', '--'))}"
        while anchor in taken.values():
            anchor += "-x"
        taken[claim] = anchor
    return taken


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower())
