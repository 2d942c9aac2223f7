"""The page: the entries grouped by line of work, set into the template with its style and its little script."""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from sandtable import __version__
from sandtable.lab.asked import asked
from sandtable.lab.claim import SCALES
from sandtable.lab.report.records import STATUSES, VERDICTS, ClaimCard, Entry, gather
from sandtable.lab.report.words import duration, moment, show, span, strip
from sandtable.lab.store import Store

ERRATA = {"refuted": ("refuted",), "undecided": ("holds", "inconclusive", "error"), "not run": ("not run",)}
"""What the measurements say of printed statements that are expected to be refuted."""


@dataclass(frozen=True)
class Line:
    """The claims of one line of work."""

    name: str
    entries: Sequence[Entry]

    @property
    def counts(self) -> Counter[str]:
        return Counter(entry.status for entry in self.entries)


def write_report(store_root: Path, *, claims: Sequence[ClaimCard] = (), out: Path | None = None) -> Path:
    """Write the page of all records in `store_root/verdicts` and return its path, `store_root/report.html` by default.

    `claims` adds those never run. Records that cannot be read are left out and named at the foot of the page.
    """
    root = Path(store_root)
    entries, damaged = gather(root / "verdicts", claims)
    page = _render(entries, damaged, known={str(card["id"]) for card in claims}, store=Store(root))
    path = Path(out) if out is not None else root / "report.html"
    # A lone surrogate can come from damaged JSON and has no place in UTF-8.
    Store(path.parent).write_text(path, page.encode("utf-8", "replace").decode())
    return path


def _render(entries: Sequence[Entry], damaged: Sequence[str], *, known: set[str], store: Store) -> str:
    scales = {run.scale for entry in entries for run in entry.runs}
    runs = [run for entry in entries for run in (*entry.runs, *entry.variations)]
    return _template().render(
        entries=entries,
        lines=[Line(name, list(group)) for name, group in groupby(entries, key=lambda entry: entry.line)],
        errata={
            name: [entry for entry in entries if entry.expected == "refuted" and entry.verdict in verdicts]
            for name, verdicts in ERRATA.items()
        },
        by_claim={entry.claim: entry for entry in entries},
        known=known,
        call=lambda claim: shlex.join(["sandtable", "verify", claim, *store.words()]),
        statuses=STATUSES,
        verdicts=[*VERDICTS, "not run"],
        scales=[*(scale for scale in SCALES if scale in scales), *sorted(scales - set(SCALES))],
        counts=Counter(entry.status for entry in entries),
        stale=sum(entry.stale for entry in entries),
        seconds=sum(value for run in runs if isinstance(value := run.record.get("seconds"), int | float)),
        latest=max((run.date for run in runs), default=""),
        damaged=damaged,
        version=__version__,
        style=_part("page.css"),
        early=_part("early.js"),
        script=_part("page.js"),
        marks=dict(zip(STATUSES, "✓✗?–", strict=True)),
    )


def _part(name: str) -> Markup:
    """A file of this folder; it is ours, so it stands in the page as it is."""
    return Markup(resources.files(__package__ or __name__).joinpath(name).read_text("utf-8").strip())


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("sandtable.lab", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        asked=_asked, show=show, strip=strip, span=span, moment=moment, duration=duration, digest=_digest
    )
    return environment.get_template("page.html.j2")


def _asked(check: Mapping[str, Any]) -> tuple[str, str]:
    return asked(check, check.get("target"), show)


def _digest(script: Any) -> str:
    return base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
