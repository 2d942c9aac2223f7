"""Every Python block of the documentation runs as it stands."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandtable.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(page, block, id=f"{page.name}-{i}")
    for page in PAGES
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    if "@claim" not in block
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_block_runs(page, block):
    exec(compile(block, str(page), "exec"), {"__name__": "documentation"})


def test_the_documented_claim_holds(tmp_path, capsys):
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", (ROOT / "docs/claims.md").read_text(), re.DOTALL))
    file = tmp_path / "my_claims.py"
    file.write_text(block)
    with pytest.raises(SystemExit) as done:
        main(["verify", "mine/*", "--scale", "smoke", "--from", str(file), "--store", str(tmp_path / "runs")])
    assert done.value.code == 0, capsys.readouterr()


def test_the_documented_package_adds_its_claim(tmp_path):
    """The two files of "A package of claims", installed into a folder of their own, as `pip install` would."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: nothing here builds a package without the network")
    page = (ROOT / "docs/extend.md").read_text()
    project = tmp_path / "coin-claims"
    for name, kind in (("pyproject.toml", "toml"), ("src/coin_claims/__init__.py", "py")):
        (text,) = re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    target = tmp_path / "installed"
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", sys.executable, "--target"]
    subprocess.run([*install, str(target), str(project)], check=True)
    store = {"SANDTABLE_HOME": str(tmp_path / "runs"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = ["-m", "sandtable", "verify", "coins/*", "--scale", "smoke", "--json"]
    done = subprocess.run(
        [sys.executable, *words], env=os.environ | store | {"PYTHONPATH": str(target)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)
    assert (outcome["claim"], outcome["verdict"]) == ("coins/run-length", "holds")


def test_the_gallery_has_all_its_figures():
    page = (ROOT / "docs/gallery.md").read_text()
    shown = set(re.findall(r"\(figures/(\w+)\.svg\)", page))
    drawn = {file.stem for file in (ROOT / "docs/figures").iterdir()}
    names = set(re.findall(r'^    "(\w+)": ', (ROOT / "docs/make_gallery.py").read_text(), re.MULTILINE))
    assert shown == drawn == names


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if "://" not in target and not target.startswith("reference/"):  # pages made when the site is built
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
