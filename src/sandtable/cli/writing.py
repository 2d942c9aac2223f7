"""What commands leave behind: figures, and folders with plain names."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def plain_name(name: str) -> str:
    """`name` as that of a folder: letters, digits and a few signs."""
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in name).strip("-.") or "results"


def draw(path: Path, figure: Any, store: Any = None) -> list[Path]:
    """The figure as SVG and as PNG."""
    from sandtable.lab import Store
    from sandtable.lab.figures import svg

    folder = store or Store(path.parent)
    folder.write_text(path.with_suffix(".svg"), svg(figure))
    with folder.writing(path):
        figure.savefig(path.with_suffix(".png"), facecolor="white")
    return [path.with_suffix(".svg"), path.with_suffix(".png")]
