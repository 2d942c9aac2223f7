"""The documentation as a site: it builds without a warning, its links lead somewhere, nothing is from the network."""

import logging
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed (dependency group docs)")
pytest.importorskip("material", reason="mkdocs-material is not installed (dependency group docs)")

from mkdocs.commands.build import build
from mkdocs.config import load_config

from sandtable.lab import load

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a warning, such as a broken link, is an error."""
    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    build(config)
    return folder


class Loaded(HTMLParser):
    """What a browser loads with a page, and where its images are."""

    def __init__(self):
        super().__init__()
        self.addresses, self.images = [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(attrs.get("src") or "")
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preconnect", "icon", "prefetch", "preload"):
            self.addresses.append(attrs.get("href") or "")
        if tag == "img":
            self.images.append(attrs)


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    for page in pages:
        seen = Loaded()
        seen.feed(page.read_text())
        assert [a for a in seen.addresses if "//" in a] == [], page
        for image in seen.images:
            assert image["alt"], page
            assert (page.parent / image["src"]).is_file(), (page, image["src"])
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_generated_pages_follow_the_code(site):
    read = {
        name: (site / "reference" / name / "index.html").read_text() for name in ("api", "claims", "errata", "scales")
    }
    known = load()
    for name, claim in known.items():
        assert f"<code>{name}</code>" in read["claims"]
        assert (f'id="{name.replace("/", "")}"' in read["errata"]) == (claim.erratum is not None), name
        assert (f"<code>{name}</code>" in read["scales"]) == ("smoke" not in claim.scales), name
    for word in ("TopicModel", "backtrack()", "ProbeVerifier", "st.theory.gmlm.chains", "block_means()"):
        assert word in read["api"]


def test_figures_are_small(site):
    figures = list((ROOT / "docs" / "figures").iterdir())
    assert figures
    for file in figures:
        assert file.suffix == ".svg"
        assert file.stat().st_size < 150_000, file
