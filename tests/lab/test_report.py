"""The report: one page that stands alone, escapes what it is given, leaves out what is damaged and lists the errata."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_records import HOSTILE, draw, put, record

from sandtable.arguments import ArgumentError
from sandtable.lab import figures
from sandtable.lab.asked import asked
from sandtable.lab.keys import canonical, sources_of
from sandtable.lab.report import clean_svg, show, strip, write_report
from sandtable.lab.report.records import USUAL_WIDTH
from sandtable.lab.report.words import duration, moment

VOID = {"meta", "input", "link", "br", "img"}


class Page(HTMLParser):
    """Every element with its attributes, the balance of tags, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(root: Path, **arguments: Any) -> Page:
    return Page(write_report(root, **arguments).read_text())


def test_stands_alone_and_is_well_formed(tmp_path: Path) -> None:
    file = draw(tmp_path, figures.svg(figures.heatmaps({"m": [[1.0, -1.0], [0.5, 0.0]]}, title="Map")))
    put(
        tmp_path,
        record("topics/a", figures=[{"name": "curve", "file": file}, {"name": "again", "file": file}]),
        record("topics/b", figures=[{"name": "curve", "file": file}]),
    )
    path = write_report(tmp_path)
    text = path.read_text()
    seen = Page(text)
    assert path == tmp_path / "report.html"
    assert not seen.open
    assert "http://" not in text
    assert "https://" not in text
    assert not {tag for tag, _ in seen.elements} & {"link", "iframe", "img", "object"}
    for _, attributes in seen.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "data:image/png;base64,"))
    assert len(seen.all("figure")) == 3
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    anchors = {"#" + str(name) for name in ids}
    for tag in ("a", "use"):
        assert {attributes["href"] for attributes in seen.all(tag)} <= anchors
    for expected in (
        "Statement of topics/a.",
        "Author 2023, Theorem 3",
        "[1.4, 1.6]",
        "sandtable verify topics/b",
        "a note",
    ):
        assert expected in seen.text
    assert write_report(tmp_path).read_text() == text


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    hostile = record(
        f"topics/{HOSTILE}",
        statement=HOSTILE,
        source={"authors": HOSTILE, "year": HOSTILE, "where": HOSTILE},
        scale=HOSTILE,
        settings={HOSTILE: HOSTILE},
        tables={HOSTILE: {"columns": [HOSTILE], "rows": [[HOSTILE]]}},
        controls=[{"name": HOSTILE, "verdict": HOSTILE}],
        checks=[
            dict.fromkeys(("name", "kind", "verdict", "unit", "n", "measured", "low", "high", "predicted"), HOSTILE)
        ],
        figures=[{"name": HOSTILE, "file": HOSTILE}],
        notes=[HOSTILE],
        command=HOSTILE,
        expected="refuted",
        erratum=HOSTILE,
        corrected=HOSTILE,
        device=HOSTILE,
        date=HOSTILE,
        ok=HOSTILE,
    )
    put(tmp_path, hostile)
    (tmp_path / "verdicts" / "<b onclick=x>.json").write_text("{")
    seen = page(tmp_path, claims=[{"id": f"z/{HOSTILE}", "statement": HOSTILE}])
    assert not seen.open
    assert len(seen.all("script")) == 2
    assert not seen.all("img")
    assert not seen.all("b") or all("onclick" not in attributes for attributes in seen.all("b"))
    assert not [name for _, attributes in seen.elements for name in attributes if name.startswith("on")]
    assert HOSTILE in seen.text
    assert "49" not in seen.text.replace(HOSTILE, "")


def test_errata_lead_to_the_corrected_claim(tmp_path: Path) -> None:
    wrong = record(
        "topics/printed", verdict="refuted", expected="refuted", erratum="Off by two.", corrected="topics/right"
    )
    other = record("topics/astray", verdict="inconclusive", expected="refuted", erratum="Off by three.", ok=False)
    put(tmp_path, wrong, other, record("topics/right"))
    text = write_report(tmp_path, claims=[{"id": "topics/unrun", "expected": "refuted", "erratum": "E."}]).read_text()
    section, rest = text.split('<h2 id="errata"')[1].split("<h3>Run, but not refuted</h3>")
    astray, unrun = rest.split("<footer>")[0].split("<h3>Not run yet</h3>")
    assert "<b>1</b><span>errata</span>" in text
    assert "topics/astray" in astray
    assert "This run did not refute it." in astray
    assert "topics/unrun" in unrun
    assert "topics/unrun" not in section + astray
    assert "Off by two." in section
    assert 'href="#claim-topics--right"' in section
    assert "Statement of topics/printed." in section
    assert 'id="erratum-claim-topics--right"' not in section


@pytest.mark.parametrize(
    "damaged",
    [
        '{"claim": "topics/b", ',
        "[]",
        "\udcff",
        json.dumps({"claim": "topics/b"}),
        json.dumps({"verdict": "holds"}),
        json.dumps(record("topics/b", verdict="fine")),
        json.dumps(record("topics/b", checks=[3])),
        json.dumps(record("topics/b", checks=[{"kind": ["agrees"]}])),
        json.dumps(record("topics/b", corrected={})),
        json.dumps(record("topics/b", tables={"t": {"columns": ["a"], "rows": [3]}})),
        json.dumps(record("topics/b", sha256="0" * 64)),
        "[" * 100_000,
    ],
)
def test_damaged_record_is_named_and_left_out(tmp_path: Path, damaged: str) -> None:
    folder = put(tmp_path, record("topics/a"))
    (folder / "broken.json").write_bytes(damaged.encode(errors="surrogateescape"))
    seen = page(tmp_path)
    assert "broken.json" in seen.text
    assert "topics/a" in seen.text
    assert "topics/b" not in seen.text
    assert (folder / "broken.json").exists()


def test_least_record_and_checksum(tmp_path: Path) -> None:
    least = {"claim": "topics/least", "verdict": "inconclusive", "checks": [{}], "controls": [{}], "figures": [{}]}
    signed = record("topics/signed")
    put(tmp_path, least, signed | {"sha256": hashlib.sha256(canonical(signed).encode()).hexdigest()})
    seen = page(tmp_path)
    assert "topics/least" in seen.text
    assert "topics/signed" in seen.text
    assert "Left out" not in seen.text


def test_counts_scales_and_claims_not_run(tmp_path: Path) -> None:
    put(
        tmp_path,
        record("topics/a", scale="smoke", date="2025-01-01"),
        record("topics/a", scale="paper", command="paper command"),
        record("topics/a", scale="smoke", date="2024-01-01", command="stale command"),
        record("topics/b", verdict="refuted", ok=False),
        record("topics/c", ok=None, controls=[{"name": "untrained", "verdict": "holds"}]),
        record("dyck/d", verdict="inconclusive", ok=False),
    )
    seen = page(
        tmp_path, claims=[{"id": "walks/e", "statement": "Not run."}, {"id": "topics/a"}], out=tmp_path / "o.html"
    )
    rows = {row["data-claim"]: row["data-outcome"] for row in seen.all("details") if "data-claim" in row}
    assert rows == {
        "dyck/d": "inconclusive",
        "topics/a": "as expected",
        "topics/b": "unexpected",
        "topics/c": "unexpected",
        "walks/e": "not run",
    }
    assert "a control was not refuted" in seen.text
    assert "stale command" not in seen.text
    assert seen.text.index("paper command") < seen.text.index("sandtable verify topics/a")
    assert not (tmp_path / "report.html").exists()


def test_empty_store_and_closed_folder(tmp_path: Path) -> None:
    assert "No verdicts yet" in page(tmp_path / "nothing").text
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="not writable"):
        write_report(tmp_path, out=tmp_path / "file" / "report.html")


def test_figure_outside_the_store_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "secret.svg").write_text("<svg><text>secret</text></svg>")
    names = ["../secret.svg", str(tmp_path / "secret.svg"), "absent.svg", "", "a\0b"]
    put(tmp_path, record("topics/a", figures=[{"name": f"f{i}", "file": file} for i, file in enumerate(names)]))
    seen = page(tmp_path)
    assert "secret" not in seen.text
    assert seen.text.count("Figure left out") == len(names)


def test_a_figure_that_was_edited_is_named_and_left_out(tmp_path: Path) -> None:
    whole, edited = (draw(tmp_path, f"<svg><text>{word}</text></svg>") for word in ("measured", "0.9"))
    (tmp_path / "verdicts" / edited).write_text("<svg><text>0.99</text></svg>")
    put(tmp_path, record("topics/a", figures=[{"name": "one", "file": whole}, {"name": "two", "file": edited}]))
    seen = page(tmp_path)
    assert len(seen.all("figure")) == 1
    assert "Figure left out: two (not what was drawn)" in seen.text


def test_wide_figures_are_told_by_their_width(tmp_path: Path) -> None:
    assert pytest.approx(figures.WIDTH * 72) == USUAL_WIDTH
    usual = figures.svg(figures.curves([1.0, 2.0], {"a": [1.0, 2.0]}))
    wide = figures.svg(figures.heatmaps({name: [[1.0, 0.0]] for name in "abc"}, columns=["one", "two"]))
    put(
        tmp_path,
        record("topics/a", figures=[{"name": "usual", "file": draw(tmp_path, usual)}]),
        record("topics/b", figures=[{"name": "wide", "file": draw(tmp_path, wide)}]),
    )
    seen = page(tmp_path)
    assert [figure.get("class") for figure in seen.all("figure")] == [None, "wide"]
    assert len([each for each in seen.all("div") if each.get("class") == "beside"]) == 1


def test_svg_is_stripped_of_all_that_acts_or_reaches_out() -> None:
    text = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
    onload="a()" viewBox="0 0 9 9">
    <script>alert(1)</script><style>*{color:red}</style><foreignObject><p>x</p></foreignObject>
    <a href="javascript:a()"><rect id="inner"/></a><image xlink:href="http://e.example/x.png"/>
    <image href="data:image/svg+xml;base64,AAAA"/><use xlink:href="http://e.example/#a"/><use xlink:href="#m"/>
    <path id="m" d="M 0 0" clip-path="url(#m)" style="fill: url(http://e.example/); stroke: #123456; position: fixed"/>
    <path fill="url(http://e.example/)" style="fill: \\75rl(x); stroke: rgb(1, 2, 3)" onclick="a()"/>
    <animate attributeName="href" to="javascript:a()"/>
    <text style="font: 9px 'DejaVu Sans', serif">a &lt;b&gt; &amp; c</text></svg>"""
    clean = str(clean_svg(text, prefix="p-"))
    for gone in ("script", "alert", "style>", "foreignObject", "javascript", "example", "onload", "onclick", "svg+xml"):
        assert gone not in clean
    for gone in ("animate", "position", "75rl", "xmlns", "inner"):
        assert gone not in clean
    assert '<use href="#p-m"></use>' in clean
    assert 'id="p-m" d="M 0 0" clip-path="url(#p-m)" style="stroke: #123456"' in clean
    assert "a &lt;b&gt; &amp; c" in clean
    assert "stroke: rgb(1, 2, 3)" in clean


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg>&a;</svg>',
        "<html></html>",
        "<svg>",
        "",
        "<svg>" + "<g>" * 500 + "</g>" * 500 + "</svg>",
    ],
)
def test_what_is_no_drawing_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"document type|not an SVG|not well-formed|nested"):
        clean_svg(text, prefix="p-")


def test_own_figures_survive_cleaning() -> None:
    drawing = figures.svg(figures.curves([1.0, 2.0], {"a": [[1.0, 2.0], [1.5, 2.5]]}, predictions={"a": [1.0, 2.0]}))
    clean = str(clean_svg(drawing, prefix="p-"))
    for tag in ("path", "use", "text", "clipPath"):
        assert clean.count(f"<{tag} ") + clean.count(f"<{tag}>") == drawing.count(f"<{tag} ") + drawing.count(
            f"<{tag}>"
        )
    assert clean.count("style=") == drawing.count("style=")
    assert "stroke-dasharray" in clean


@pytest.mark.parametrize(
    ("kind", "predicted", "target", "words"),
    [
        ("agrees", 1.0, [0.9, 1.1], ("predicted", "≈ 1")),
        ("exact", 1.0, [1.0, 1.0], ("predicted", "= 1")),
        ("exceeds", 0.5, [0.5, None], ("asked", "> 0.5")),
        ("below", 0.5, [None, 0.5], ("asked", "< 0.5")),
        ("bounded", 0.5, [None, 0.6], ("asked", "≤ 0.5")),
        ("law", 0.05, [0.0, 0.05], ("asked", "≤ 0.05")),
        ("proportion", 0.9, [0.9, 1.0], ("asked", "≥ 0.9")),
        ("proportion", 0.1, [0.0, 0.1], ("asked", "≤ 0.1")),
        ("proportion", 0.4, [0.4, 0.6], ("asked", "0.4 … 0.6")),
        ("statistic", 2.0, [2.0, None], ("asked", "≥ 2")),
        ("statistic", 2.0, [None, 2.0], ("asked", "≤ 2")),
        ("statistic", 2.0, [2.0, 3.0], ("asked", "2 … 3")),
        ("statistic", 2.0, [1.5, 2.5], ("predicted", "≈ 2")),
        ("statistic", 2.0, None, ("asked", "2")),
        ("agrees", None, None, ("", "—")),
    ],
)
def test_bounds_are_asked_and_predictions_predicted(
    kind: str, predicted: float | None, target: list[float | None] | None, words: tuple[str, str]
) -> None:
    assert asked({"kind": kind, "predicted": predicted}, target, show) == words


def test_variations_stand_in_their_claim_and_nowhere_else(tmp_path: Path) -> None:
    varied = {"variation": {"mean": "0.0", "first seed": "3"}, "verdict": "refuted", "ok": False}
    put(tmp_path, record("t/a"), record("t/a", **varied), record("t/b", **varied, command="that command"))
    seen = page(tmp_path)
    assert {row["data-claim"]: row["data-outcome"] for row in seen.all("details") if "data-claim" in row} == (
        {"t/a": "as expected", "t/b": "not run"}
    )
    assert seen.text.count("Variation: mean=0.0, first seed=3") == 2
    assert "that command" in seen.text
    assert f"Not run yet as it is declared. This runs it:\nsandtable verify t/b --store {tmp_path}" in seen.text
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)


def test_more_seeds_count_where_the_declared_run_is_missing(tmp_path: Path) -> None:
    def seeds(claim: str, count: int, **more: Any) -> dict[str, Any]:
        return record(claim, seeds=count, declared_seeds=8) | {"variation": {"number of seeds": str(count)}} | more

    put(
        tmp_path,
        record("t/a"),
        seeds("t/a", 16, verdict="refuted", ok=False, date="2026"),
        seeds("t/b", 16, verdict="refuted", ok=False, date="2026"),
        seeds("t/b", 12, date="2025"),
        seeds("t/c", 4),
        seeds("t/d", 16, variation={"number of seeds": "16", "mean": "0.0"}),
    )
    seen = page(tmp_path)
    assert [row["data-outcome"] for row in seen.all("details") if "data-claim" in row] == (
        ["as expected", "unexpected", "not run", "not run"]
    )
    assert seen.text.count("Variation: number of seeds=16") == 2  # of a and d
    assert seen.text.count("Variation: number of seeds=12") == 1


def test_numbers_for_readers() -> None:
    values = [None, float("nan"), 0.123456, -1.5, 1.2e-7, 3e12, float("-inf"), True, -4, "x", [1, 2], 0.0]
    assert [show(value) for value in values] == (
        ["—", "—", "0.1235", "−1.5", "1.2 × 10⁻⁷", "3 × 10¹²", "−∞", "yes", "−4", "x", "[1, 2]", "0"]
    )


def test_strip_places() -> None:
    assert strip({"measured": 1.0, "low": 0.0, "high": 2.0, "predicted": 1.5}) == (
        {"measured": 50.0, "predicted": 70.0, "low": 10.0, "high": 90.0}
    )
    assert strip({"measured": 1.0, "low": 0.5, "high": None, "predicted": 0.5}) == (
        {"measured": 90.0, "predicted": 10.0, "low": 10.0, "high": 100.0}
    )
    assert strip({"measured": 1, "predicted": 1}) == dict.fromkeys(("measured", "predicted", "low", "high"), 50.0)
    assert strip({"measured": 1.0, "predicted": 2.0, "target": [None, 3.0]}) == (
        {"measured": 10.0, "predicted": 50.0, "low": 10.0, "high": 10.0, "least": 0.0, "most": 90.0}
    )
    assert strip({"measured": 1.0, "target": [0.0, 2.0]}) == (
        {"measured": 50.0, "low": 50.0, "high": 50.0, "least": 10.0, "most": 90.0}
    )
    for nothing in ({"predicted": None}, {"target": [None, None]}, {"target": "x"}, {"measured": float("nan")}):
        assert strip({"measured": 1.0} | nothing) is None


def test_values_too_large_to_draw() -> None:
    assert strip({"measured": 10**400, "predicted": 1.0}) is None
    assert strip({"measured": -1e308, "predicted": 1e308}) == (
        dict.fromkeys(("measured", "predicted", "low", "high"), 50.0)
    )


def test_times_for_readers() -> None:
    assert [duration(value) for value in (0.004, 1.25, 59.6, 150, 7300, None, "x")] == (
        ["0.004 s", "1.2 s", "60 s", "2.5 min", "2.0 h", "—", "x"]
    )
    assert moment("2025-01-02T03:04:05+02:00") == "2 Jan 2025, 01:04 UTC"
    assert moment("yesterday") == "yesterday"


def test_run_whose_sources_changed_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "their_claims.py"
    module.write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = {"module": "their_claims", "sources": sources_of("their_claims")}
    gone = {"module": "no_such_module", "sources": "a" * 64}
    odd = {"module": "..\0", "sources": "a" * 64}
    put(tmp_path, record("t/a", **told), record("t/b", **gone), record("t/c", **odd), record("t/d"))
    assert "sources have changed" not in page(tmp_path).text
    put(tmp_path, record("t/a", **told | {"sources": "0" * 64}))
    seen = page(tmp_path)
    assert [row["data-claim"] for row in seen.all("details") if "data-stale" in row] == ["t/a"]
    assert "sources have changed" in seen.text


def test_lone_surrogates_and_set_aside_records(tmp_path: Path) -> None:
    folder = put(tmp_path, record("topics/a", statement="half \ud83d of a sign"))
    (folder / "old.json.damaged").write_text("x")
    (folder / "fake.json").mkdir()
    seen = page(tmp_path)
    assert "half ? of a sign" in seen.text
    assert "old.json.damaged" in seen.text
    assert "fake.json" in seen.text


def test_claims_that_are_not_installed_are_told(tmp_path: Path) -> None:
    put(tmp_path, record("topics/a"), record("mine/b"))
    assert "not among the claims installed" not in page(tmp_path).text
    assert page(tmp_path, claims=[{"id": "topics/a"}]).text.count("not among the claims installed") == 1


def test_ids_that_nothing_mentions_are_dropped() -> None:
    clean = str(clean_svg('<svg><path id="a" d="M0 0"/><path id="b" d="M1 1"/><use href="#b"/></svg>', prefix="p-"))
    assert clean == '<svg><path d="M0 0"></path><path id="p-b" d="M1 1"></path><use href="#p-b"></use></svg>'


def test_writing_the_page_does_not_import_torch(tmp_path: Path) -> None:
    put(tmp_path, record("topics/a", module="sandtable.claims.topics.values", sources="0" * 64))
    script = (
        "import sys; from pathlib import Path; from sandtable.lab.report import write_report; "
        f"print(' data-stale>' in write_report(Path({str(tmp_path)!r})).read_text(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
