"""The report in a real browser: search, filters, deep links, colours, narrow screens, copying, no request, no error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from report_records import HOSTILE, draw, put, record

from sandtable.lab import figures
from sandtable.lab.report import write_report

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is there")
    with api.sync_playwright() as play:
        try:
            started = play.chromium.launch(executable_path=program, args=list(FLAGS))
        except api.Error as error:
            pytest.skip(f"{program} does not start: {error.message.splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with every kind of claim, two figures with the same ids, long words and hostile text."""
    root = tmp_path_factory.mktemp("store")
    long = record("walks/long", statement="A" * 300, settings={"word" * 40: "B" * 300}, command="C" * 300)
    wide = {"wide": {"columns": [f"column {i}" for i in range(40)], "rows": [[0.123456] * 40]}}
    curves = {
        name: figures.curves([1.0, 2.0], {"m": [values]}, predictions={"m": values}, title=f"Figure {name}")
        for name, values in (("a", [1.0, 2.0]), ("b", [2.0, 1.0]))
    }
    rows = [f"word {i}" for i in range(12)]
    maps = figures.heatmaps({name: [[0.5] * 12] * 12 for name in "cde"}, rows=rows, columns=rows)
    a, b, broad = (draw(root, figures.svg(drawing)) for drawing in (*curves.values(), maps))
    folder = put(
        root,
        record("topics/a", figures=[{"name": "curve", "file": a}, {"name": "again", "file": b}]),
        record("topics/a", scale="smoke"),
        record(
            "topics/b", verdict="refuted", ok=False, notes=["needle in a note"], figures=[{"name": "m", "file": broad}]
        ),
        record("topics/c", verdict="inconclusive", ok=False),
        record("dyck/printed", verdict="refuted", expected="refuted", erratum="Off by two.", corrected="dyck/right"),
        record("dyck/right", tables=wide, figures=[{"name": "curve", "file": a}]),
        long,
        record("walks/hostile", statement=HOSTILE, notes=[HOSTILE]),
    )
    (folder / "torn.json").write_text("{")
    return write_report(root, claims=[{"id": "walks/unrun", "statement": "Not run."}]).as_uri()


class Window:
    """A page in a browser that minds what goes wrong in it and what it asks of the network."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def shown(self) -> list[str]:
        return self.page.eval_on_selector_all("details.claim:not([hidden])", "all => all.map(e => e.dataset.claim)")

    def style(self, name: str) -> str:
        return self.page.evaluate(f"getComputedStyle(document.body).{name}")


@pytest.fixture
def window(browser: Any, report: str, request: pytest.FixtureRequest) -> Iterator[Window]:
    """The report at the size and in the colours that the test asks for; afterwards, nothing may have gone wrong."""
    options = {"viewport": {"width": 1280, "height": 800}} | getattr(request, "param", {})
    context = browser.new_context(**options)
    made = Window(context)
    made.page.goto(report)
    yield made
    context.close()
    assert made.trouble == []
    assert {url.partition("#")[0] for url in made.requests} == {report}


EVERY = ["dyck/printed", "dyck/right", "topics/a", "topics/b", "topics/c", "walks/hostile", "walks/long", "walks/unrun"]


def test_search_and_filters(window: Window) -> None:
    page = window.page
    assert window.shown() == EVERY
    page.keyboard.press("/")
    page.keyboard.type("TOPICS/ statement")
    assert window.shown() == ["topics/a", "topics/b", "topics/c"]
    assert page.inner_text("#shown") == "3 of 8 claims"
    assert page.is_hidden("#erratum-claim-dyck--printed")
    assert page.is_visible("#no-errata")
    assert page.is_hidden("section.line:has(#claim-dyck--right)")
    page.keyboard.press("Escape")
    assert window.shown() == EVERY
    page.fill("[name=search]", "needle")
    assert window.shown() == ["topics/b"]
    page.fill("[name=search]", "no such words")
    assert window.shown() == []
    assert page.is_visible("#none")
    page.click("[name=all]")
    assert window.shown() == EVERY
    for name, value, found in (
        ("verdict", "refuted", ["dyck/printed", "topics/b"]),
        ("outcome", "as expected", ["dyck/printed", "dyck/right", "topics/a", "walks/hostile", "walks/long"]),
        ("outcome", "not run", ["walks/unrun"]),
        ("scale", "smoke", ["topics/a"]),
        ("line", "walks", ["walks/hostile", "walks/long", "walks/unrun"]),
        ("expected", "refuted", ["dyck/printed"]),
    ):
        page.select_option(f"[name={name}]", value)
        assert window.shown() == found, (name, value)
        page.click("[name=all]")
    page.select_option("[name=verdict]", "refuted")
    page.select_option("[name=line]", "dyck")
    assert window.shown() == ["dyck/printed"]
    page.click("[name=all]")
    chip = page.locator("[data-outcome-chip=inconclusive]")
    chip.click()
    assert window.shown() == ["topics/c"]
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert window.shown() == EVERY


def test_deep_links_open_their_claim(window: Window, report: str) -> None:
    page = window.page
    assert page.eval_on_selector_all("details.claim[open]", "all => all.length") == 0
    page.goto(f"{report}#claim-topics--a")
    page.reload()
    page.wait_for_selector("#claim-topics--a[open]")
    page.wait_for_function("document.querySelector('#claim-topics--a').getBoundingClientRect().top < 300")
    assert page.evaluate("document.activeElement.parentElement.id") == "claim-topics--a"
    assert page.locator("#claim-topics--a figure svg").first.is_visible()
    page.fill("[name=search]", "dyck")
    page.goto(f"{report}#claim-topics--b--desk")
    page.wait_for_selector("#claim-topics--b--desk", state="visible")
    assert window.shown() == EVERY
    page.click("a[href='#errata']")
    page.click("#erratum-claim-dyck--printed .right a")
    page.wait_for_selector("#claim-dyck--right[open]")
    page.goto(f"{report}#%E0%A4%A")
    page.goto(f"{report}#no-such-claim")


def test_keyboard_opens_and_closes(window: Window) -> None:
    page = window.page
    page.focus("#claim-topics--c summary")
    page.keyboard.press("Enter")
    assert page.locator("#claim-topics--c .run").is_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('details').id") == "claim-topics--c"
    page.focus("#claim-topics--c summary")
    page.keyboard.press("Space")
    assert page.locator("#claim-topics--c .run").is_hidden()
    page.click("[name=open]")
    assert page.eval_on_selector_all("details.claim[open]", "all => all.length") == len(EVERY)
    page.click("[name=open]")
    assert page.eval_on_selector_all("details.claim[open]", "all => all.length") == 0


@pytest.mark.parametrize("window", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_colours_can_be_switched_and_stay(window: Window) -> None:
    page = window.page
    first = window.style("backgroundColor")
    page.click("[data-theme-choice=light]")
    light = window.style("backgroundColor")
    page.click("[data-theme-choice=dark]")
    dark = window.style("backgroundColor")
    assert light != dark
    assert first in (light, dark)
    for wait in (100, 300, 1000, 3000, 9000):  # a busy browser may lose what is stored just before a page goes
        page.click("[data-theme-choice=dark]")
        page.wait_for_timeout(wait)
        page.reload()
        if page.get_attribute("[data-theme-choice=dark]", "aria-pressed") == "true":
            break
    assert window.style("backgroundColor") == dark
    assert page.get_attribute("[data-theme-choice=dark]", "aria-pressed") == "true"
    # The ink of a figure is that of the page.
    page.goto(page.url + "#claim-topics--a")
    ink = page.evaluate("getComputedStyle(document.querySelector('#claim-topics--a figure svg')).color")
    assert ink == window.style("color")
    page.click("[data-theme-choice='']")
    assert window.style("backgroundColor") == first


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(window: Window, theme: str) -> None:
    """A contrast of at least 4.5 : 1 (WCAG 2, level AA) for all text."""
    page = window.page
    page.click(f"[data-theme-choice={theme}]")
    page.click("[name=open]")
    faint = page.evaluate("""() => {
      const parse = (text) => text.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
          const colour = parse(getComputedStyle(e).backgroundColor);
          if (colour.length === 3 || colour[3] > 0.99) return colour;
        }
        return [255, 255, 255];
      };
      const faint = new Set();
      for (const e of document.querySelectorAll("body *:not(svg *):not(script):not(option)")) {
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
        const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) faint.add(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`);
      }
      return [...faint];
    }""")
    assert faint == []


@pytest.mark.parametrize(
    "window",
    [{"viewport": {"width": width, "height": 740}} for width in (320, 360, 768, 1000, 1200, 1600)],
    indirect=True,
    ids=lambda options: str(options["viewport"]["width"]),
)
def test_nothing_is_wider_than_the_screen(window: Window) -> None:
    page = window.page
    if page.is_visible("#set"):
        page.click("#set")
        assert page.is_visible("[name=verdict]")
    page.click("[name=open]")
    page.evaluate("for (const fold of document.querySelectorAll('.fold')) fold.open = true")
    wide = page.evaluate("""() => [...document.querySelectorAll("body *:not(svg *)")]
      .filter((e) => !e.closest(".scroll > *, .skip") && e.getBoundingClientRect().right > innerWidth + 1)
      .map((e) => `${e.tagName}.${e.className}`)""")
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    "window",
    [{"viewport": {"width": width, "height": 740}} for width in (360, 768, 1300, 1600)],
    indirect=True,
    ids=lambda options: str(options["viewport"]["width"]),
)
def test_letters_of_figures_can_be_read(window: Window) -> None:
    page = window.page
    page.click("[name=open]")
    sizes = page.evaluate("""() => [...document.querySelectorAll("figure svg")].map((drawing) => {
      const letters = [...drawing.querySelectorAll("text")].map((e) => parseFloat(getComputedStyle(e).fontSize));
      return Math.min(...letters) * drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
    })""")
    assert len(sizes) == 4
    assert min(sizes) > 8


@pytest.mark.parametrize("window", [{"permissions": ["clipboard-read", "clipboard-write"]}, {}], indirect=True)
def test_command_is_copied(window: Window) -> None:
    page = window.page
    page.click("#claim-topics--b summary")
    if page.evaluate("navigator.clipboard === undefined"):
        pytest.skip("this browser keeps its clipboard from files")
    page.click("#claim-topics--b button.copy")
    page.wait_for_selector("#claim-topics--b button.copy:text('Copied')")
    page.fill("[name=search]", "")
    page.focus("[name=search]")
    page.keyboard.press("Control+V")
    assert page.input_value("[name=search]") == "sandtable verify topics/b"


def test_figures_keep_to_their_own_ids(window: Window) -> None:
    page = window.page
    page.click("[name=open]")
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(set(ids)) == len(ids)
    assert page.locator("figure svg").count() == 4
    lost = page.evaluate("""() => [...document.querySelectorAll("svg use")]
      .filter((e) => e.closest("svg").querySelector(`[id="${e.getAttribute("href").slice(1)}"]`) === null).length""")
    assert lost == 0


def test_hostile_text_does_nothing(window: Window) -> None:
    page = window.page
    page.click("#claim-walks--hostile summary")
    assert HOSTILE in page.inner_text("#claim-walks--hostile .statement")
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("window", [{"java_script_enabled": False}], indirect=True)
def test_page_reads_without_script(window: Window) -> None:
    page = window.page
    assert page.is_hidden("#filter")
    page.click("#claim-topics--a summary")
    assert page.is_visible("#claim-topics--a figure svg >> nth=0")
    assert page.is_visible("#damaged")


def test_print_is_black_on_white(window: Window) -> None:
    page = window.page
    page.click("[data-theme-choice=dark]")
    page.emulate_media(media="print")
    assert window.style("backgroundColor") == "rgb(255, 255, 255)"
    assert window.style("color") == "rgb(0, 0, 0)"
    assert page.is_hidden("#filter")
    assert len(page.pdf()) > 10_000
