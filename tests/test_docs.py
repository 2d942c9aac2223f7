"""Every Python block of the documentation runs as it stands."""

import re
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


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
