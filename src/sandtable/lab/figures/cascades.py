"""Cascades: levels from the top down, every component reading the token and the states above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError, typed
from sandtable.lab.figures.inches import LETTER, LINE, Sheet
from sandtable.lab.figures.style import INK, PALETTE, house_style

_HIGH, _APART, _BELOW = 0.62, 0.2, 0.42
_SIGNS = 46
"""Tiles are written out where they take no more signs than this, otherwise drawn as dots."""
_DOTS = 16
_WIDEST = 7.4


@dataclass(frozen=True)
class Part:
    """One component: its states by name (the tiles), and what words do to them."""

    tiles: Sequence[str]
    does: str = ""

    @property
    def text(self) -> str:
        """The tiles side by side; empty where that is too long."""
        text = "   ".join(self.tiles)
        return text if len(text) <= _SIGNS else ""

    @property
    def count(self) -> str:
        return f"{len(self.tiles)} states"

    @property
    def width(self) -> float:
        shown = LETTER * len(self.text) if self.text else 0.16 * min(len(self.tiles), _DOTS)
        return max(shown, LETTER * len(self.does), LETTER * len(self.count) * (not self.text), 0.7) + 0.24


@typed
def cascade(levels: Sequence[Sequence[Part]], *, title: str = "", note: str = "") -> Figure:
    """Components level by level: each box shows its states and, in colour, the group that permutes them."""
    if not levels or not all(levels):
        raise ArgumentError("levels: must be at least one, of at least one component each")
    with house_style():
        sheet = Sheet()
        rows = [line for level in levels for line in _lines(level)]
        wide = max(_total(line) for line in rows)
        bus, top = -wide / 2 - 0.3, 0.0
        for number, level in enumerate(levels):
            lines = _lines(level)
            bottom = top - len(lines) * _HIGH - (len(lines) - 1) * _APART
            if number:
                way = np.array([[0.0, top + _BELOW], [0.0, top + 0.03]])
                sheet.arrow(way, lw=1.4)
            for row, line in enumerate(lines):
                x, y = -_total(line) / 2, top - row * (_HIGH + _APART) - _HIGH
                for part in line:
                    _draw(sheet, part, x, y)
                    x += part.width + _APART
            middle, edge = (top + bottom) / 2, -max(map(_total, lines)) / 2
            sheet.arrow(np.array([[bus, middle], [edge - 0.03, middle]]), color=PALETTE[1])
            sheet.text(wide / 2 + 0.15, middle, f"level {number + 1}", ha="left")
            last, top = middle, bottom - _BELOW
        sheet.arrow(np.array([[bus, 0.1], [bus, last]]), head=False, color=PALETTE[1])
        sheet.text(bus, 0.22, "token", color=PALETTE[1])
        return sheet.finish(title, *filter(None, [note]))


def _lines(level: Sequence[Part]) -> list[list[Part]]:
    """The components of a level, as many side by side as fit."""
    lines: list[list[Part]] = [[]]
    for part in level:
        if lines[-1] and _total([*lines[-1], part]) > _WIDEST:
            lines.append([])
        lines[-1].append(part)
    return lines


def _total(line: Sequence[Part]) -> float:
    return sum(part.width for part in line) + _APART * (len(line) - 1)


def _draw(sheet: Sheet, part: Part, x: float, y: float) -> None:
    sheet.box(x, y, part.width, _HIGH, round=0.08, fc="none", ec=INK)
    middle = x + part.width / 2
    if part.text:
        sheet.text(middle, y + 0.42, part.text)
    else:
        count = min(len(part.tiles), _DOTS)
        dots = middle + 0.16 * (np.arange(count) - (count - 1) / 2)
        sheet.axes.plot(dots, np.full(count, y + 0.5), "o", ms=4.5, mfc="none", mec=INK, mew=0.9, ls="none")
        sheet.text(middle, y + 0.33, part.count)
    sheet.text(middle, y + 0.42 - LINE * 1.5, part.does, color=PALETTE[0])
