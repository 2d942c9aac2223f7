"""The report: every verdict of a store on one self-contained HTML page, readable without network and script."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
from markupsafe import Markup

from sandtable.lab.keys import canonical
from sandtable.lab.store import Store

ClaimCard = Mapping[str, Any]
"""A claim as plain JSON (`registry.card`): `id`, `statement`, `source`, `expected`, `erratum`, `corrected`."""

VERDICTS = ("holds", "refuted", "inconclusive", "error")
SIGNS = {"agrees": "≈", "exact": "=", "exceeds": ">", "below": "<", "bounded": "≤"}
_RANK = {"paper": 0, "desk": 1, "smoke": 2}


@dataclass(frozen=True)
class Run:
    """One verdict record: a claim judged at one scale."""

    record: Mapping[str, Any]
    anchor: str
    figures: tuple[tuple[str, Markup], ...]
    missing: tuple[str, ...]

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
    def checks(self) -> list[Mapping[str, Any]]:
        return self.record.get("checks") or []

    @property
    def leading(self) -> Mapping[str, Any] | None:
        """The check that decided: the first one whose verdict is that of the claim."""
        return next((c for c in self.checks if c.get("verdict") == self.verdict), next(iter(self.checks), None))


@dataclass
class Entry:
    """A claim with its latest run at each scale, the largest scale first."""

    claim: str
    anchor: str
    card: ClaimCard = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def told(self, key: str) -> Any:
        """What the latest records say of the claim, else what its card says."""
        for teller in (*(run.record for run in self.runs), self.card):
            if teller.get(key):
                return teller[key]
        return None

    @property
    def line(self) -> str:
        return self.claim.partition("/")[0]

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
    def search(self) -> str:
        return " ".join((self.claim, self.told("statement") or "", self.source)).lower()


def write_report(store_root: Path, *, claims: Sequence[ClaimCard] = (), out: Path | None = None) -> Path:
    """Write the page of all records in `store_root/verdicts` and return its path, `store_root/report.html` by default.

    `claims` adds those never run. Records that cannot be read are left out and named at the foot of the page.
    """
    root = Path(store_root)
    entries, damaged = _gather(root / "verdicts", claims)
    anchors = {entry.claim: entry.anchor for entry in entries}
    dates = [run.record.get("date") or "" for entry in entries for run in entry.runs]
    page = _template().render(
        entries=entries,
        errata=[entry for entry in entries if entry.told("expected") == "refuted"],
        anchors=anchors,
        by_claim={entry.claim: entry for entry in entries},
        lines=sorted({entry.line for entry in entries}),
        verdicts=[*VERDICTS, "not run"],
        counts={
            status: sum(entry.status == status for entry in entries)
            for status in ("as expected", "unexpected", "inconclusive", "not run")
        },
        latest=max(dates, default="")[:10],
        damaged=damaged,
        signs=SIGNS,
    )
    path = Path(out) if out is not None else root / "report.html"
    Store(path.parent).write_text(path, page)
    return path


def _gather(folder: Path, cards: Sequence[ClaimCard]) -> tuple[list[Entry], list[str]]:
    """All claims in the order of their ids, and the names of the files that could not be read."""
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    damaged = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = _read(path)
        except (OSError, ValueError, RecursionError) as error:
            damaged.append(f"{path.name} ({error})")
            continue
        key = (record["claim"], record.get("scale") or "desk")
        if key not in latest or (record.get("date") or "") >= (latest[key].get("date") or ""):
            latest[key] = record
    known = {str(card["id"]): card for card in cards}
    anchors = _anchors({claim for claim, _ in latest} | set(known))
    entries = {claim: Entry(claim, anchor, known.get(claim, {})) for claim, anchor in anchors.items()}
    for (claim, scale), record in sorted(latest.items(), key=lambda item: _RANK.get(item[0][1], 3)):
        anchor = f"{anchors[claim]}--{_slug(scale)}"
        figures, missing = _figures(folder, record, anchor)
        entries[claim].runs.append(Run(record, anchor, figures, missing))
    return list(entries.values()), damaged


def _read(path: Path) -> dict[str, Any]:
    """One record whose parts have the shapes that the page relies on, or a `ValueError` that says what is wrong."""
    record = json.loads(path.read_bytes())
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    expected = record.pop("sha256", None)
    if expected is not None and expected != hashlib.sha256(canonical(record).encode()).hexdigest():
        raise ValueError("its checksum does not match")
    _texts(record, "claim", "verdict", "scale", "expected", "statement", "erratum", "corrected", "command", "date")
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
    for key in ("settings", "tables"):
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


def _texts(content: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if not isinstance(content.get(key), str | None):
            raise ValueError(f"{key!r} is not text")


def _figures(
    folder: Path, record: Mapping[str, Any], anchor: str
) -> tuple[tuple[tuple[str, Markup], ...], tuple[str, ...]]:
    """The record's drawings, made safe, and the names of those that are not there or not ours."""
    drawn, missing = [], []
    for index, figure in enumerate(record.get("figures") or []):
        name = figure.get("name") or f"figure {index + 1}"
        try:
            path = (folder / (figure.get("file") or "")).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ValueError("outside the store")
            drawn.append((name, clean_svg(path.read_text(encoding="utf-8"), prefix=f"{anchor}-{index}-")))
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


# --- drawings -------------------------------------------------------------------------------------------------------

_ELEMENT = re.compile(
    "svg|g|defs|path|use|clipPath|rect|circle|ellipse|line|polyline|polygon|text|tspan|title|desc|image"
)
_PAINT = (
    "color|opacity|fill|fill-opacity|fill-rule|clip-path|clip-rule|"
    "stroke|stroke-(?:width|opacity|dasharray|dashoffset|linecap|linejoin|miterlimit)|"
    "font|font-(?:size|family|style|weight)|text-anchor|image-rendering|white-space"
)
_STYLE = re.compile(_PAINT)
_ATTRIBUTE = re.compile(
    "id|d|x|y|x1|x2|y1|y2|cx|cy|r|rx|ry|dx|dy|width|height|points|viewBox|preserveAspectRatio|transform|role|"
    f"clipPathUnits|style|href|{_PAINT}"
)
_PLAIN = re.compile(r"[\w\s#.,%+'\-]*(?:\([\d\s.,%+\-]*\))?")
_OWN = re.compile(r"url\(['\"]?#([\w.\-]+)['\"]?\)")
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
_DEPTH = 64


def clean_svg(text: str, *, prefix: str) -> Markup:
    """An SVG drawing made fit to stand inside the page: nothing that runs or reaches out, ids that no other one has.

    Only elements, attributes and style properties on a list of harmless ones are kept; references must stay inside
    the drawing. A document type (entities may multiply without end) or anything that is no SVG is a `ValueError`.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("declares a document type")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"not well-formed: {error}") from error
    if _local(root.tag) != "svg":
        raise ValueError("not an SVG drawing")
    return Markup("".join(_emit(root, prefix, depth=0)))


def _emit(element: ElementTree.Element, prefix: str, *, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        raise ValueError("nested too deeply")
    tag = _local(element.tag)
    if not _ELEMENT.fullmatch(tag):
        return
    attributes = ""
    for key, value in element.attrib.items():
        name = _local(key)
        kept = _attribute(name, value, prefix) if _ATTRIBUTE.fullmatch(name) else None
        if kept is not None:
            attributes += f' {name}="{html.escape(kept)}"'
    yield f"<{tag}{attributes}>"
    keeps_text = tag in ("text", "tspan", "title", "desc")
    if keeps_text:
        yield html.escape(element.text or "")
    for child in element:
        yield from _emit(child, prefix, depth=depth + 1)
        if keeps_text:
            yield html.escape(child.tail or "")
    yield f"</{tag}>"


def _attribute(name: str, value: str, prefix: str) -> str | None:
    """The attribute's safe value with ids prefixed, or None where it must go."""
    if name == "id":
        return prefix + value
    if name == "href":
        if value.startswith("#"):
            return f"#{prefix}{value[1:]}"
        return value if _PICTURE.fullmatch(value) else None
    if name == "style":
        declarations = (part.partition(":")[::2] for part in value.split(";"))
        kept = {
            key.strip(): _value(text.strip(), prefix) for key, text in declarations if _STYLE.fullmatch(key.strip())
        }
        return "; ".join(f"{key}: {text}" for key, text in kept.items() if text is not None)
    if name in ("d", "points", "transform"):
        return value
    return _value(value, prefix)


def _value(text: str, prefix: str) -> str | None:
    own = _OWN.fullmatch(text)
    if own:
        return f"url(#{prefix}{own[1]})"
    return text if _PLAIN.fullmatch(text) else None


def _local(tag: Any) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


# --- the template's vocabulary --------------------------------------------------------------------------------------


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(show=show, strip=strip, digest=_digest)
    return environment.from_string(resources.files("sandtable.lab").joinpath("report.html.j2").read_text("utf-8"))


def show(value: Any) -> str:
    """A value for a reader: four significant digits, powers of ten written out, a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        mantissa, _, exponent = f"{value:.4g}".replace("-", "−").partition("e")
        return f"{mantissa} × 10{_raised(exponent)}" if exponent else mantissa
    if isinstance(value, int):
        return str(value).replace("-", "−")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def strip(check: Mapping[str, Any]) -> dict[str, float] | None:
    """Where measurement, interval and prediction lie on a line from 0 to 100, or None where one cannot draw them.

    The line spans at least a tenth of the largest value, so that what agrees looks so. An end that the interval does
    not have runs to the end of the line.
    """
    measured, predicted, low, high = (_number(check.get(key)) for key in ("measured", "predicted", "low", "high"))
    if measured is None or predicted is None:
        return None
    seen = [value for value in (measured, predicted, low, high) if value is not None]
    centre, span = (min(seen) + max(seen)) / 2, max(max(seen) - min(seen), 0.1 * max(map(abs, seen)))

    def place(value: float) -> float:
        return round(50.0 + 80.0 * (value - centre) / span, 2) if span else 50.0

    bare = low is None and high is None
    return {
        "measured": place(measured),
        "predicted": place(predicted),
        "low": place(measured) if bare else 0.0 if low is None else place(low),
        "high": place(measured) if bare else 100.0 if high is None else place(high),
    }


def _raised(exponent: str) -> str:
    sign = "⁻" if exponent.startswith("−") else ""
    return sign + exponent.lstrip("+−0").translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
