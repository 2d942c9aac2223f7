"""Egg boxes: the D-classes of a semigroup from the highest rank down, groups shaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError, typed
from sandtable.lab.figures.inches import LETTER, LINE, Sheet
from sandtable.lab.figures.style import INK, PALETTE, house_style

_CELL, _LEAST = 0.36, 0.085
_LONGEST = 3.2
"""Inches that the longer side of a box may take before its cells get smaller."""
_NAMED, _SIGNS = 6, 15
"""Rows and columns have names where they are at most so many, and their names at most so long."""
_WIDEST = 7.0
_APART, _BELOW = 0.45, 0.4


@dataclass(frozen=True, eq=False)
class Box:
    """One D-class: `stars` tells which cells, of `cell` maps each, are groups; `group` is the name of those.

    `rows` may name the kernels, `columns` the images.
    """

    rank: int
    cell: int
    stars: Bool[np.ndarray, "row column"]
    group: str = ""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @property
    def named(self) -> bool:
        names = [*self.rows, *self.columns]
        return bool(names) and max(self.stars.shape) <= _NAMED and max(map(len, names)) <= _SIGNS

    @property
    def side(self) -> float:
        """Of a cell; a cell with a name in it is wide enough for it."""
        rows, columns = self.stars.shape
        wish = max(_CELL, LETTER * len(self.group) + 0.12) if max(rows, columns) <= _NAMED else _CELL
        return max(min(wish, _LONGEST / max(rows, columns)), _LEAST)

    @property
    def caption(self) -> tuple[str, ...]:
        rows, columns = self.stars.shape
        count = self.cell * rows * columns
        size = f"{rows} × {columns}" + f" cells of {self.cell}" * (self.cell > 1)
        return (f"rank {self.rank}, {count:,} map" + "s" * (count > 1), *[size] * (rows * columns > 1))


@typed
def egg_boxes(
    boxes: Sequence[Box], *, below: Collection[tuple[int, int]] = (), title: str = "", note: str = ""
) -> Figure:
    """D-classes by rank; rows of a box are R-classes (one kernel each), columns L-classes (one image each).

    `below` has pairs (upper, lower) of boxes to be joined by a line; shaded cells are groups.
    """
    if not boxes:
        raise ArgumentError("boxes=[]: must hold at least one D-class")
    for upper, lower in below:
        if not (0 <= upper < len(boxes) and 0 <= lower < len(boxes)):
            raise ArgumentError(f"below: ({upper}, {lower}) must be boxes from 0 to {len(boxes) - 1}")
    with house_style():
        sheet = Sheet()
        ends: dict[int, tuple[float, float, float]] = {}
        top = 0.0
        for line in _lines(boxes):
            widths = [sum(_width(boxes[i])) for i in line]
            x, lowest = -(sum(widths) + _APART * (len(line) - 1)) / 2, top
            for i, width in zip(line, widths, strict=True):
                ends[i] = _draw(sheet, boxes[i], x, top)
                x, lowest = x + width + _APART, min(lowest, ends[i][2])
            top = lowest - _BELOW
        for upper, lower in below:
            (x0, _, y0), (x1, y1, _) = ends[upper], ends[lower]
            sheet.arrow(np.array([[x0, y0], [x1, y1]]), head=False, alpha=0.6, lw=0.9)
        return sheet.finish(title, *filter(None, [note]))


def _lines(boxes: Sequence[Box]) -> list[list[int]]:
    """Boxes of one rank side by side, as many as fit."""
    lines: list[list[int]] = []
    for i in sorted(range(len(boxes)), key=lambda i: -boxes[i].rank):
        room = _WIDEST - sum(sum(_width(boxes[j])) + _APART for j in lines[-1]) if lines else 0.0
        if lines and boxes[lines[-1][0]].rank == boxes[i].rank and sum(_width(boxes[i])) <= room:
            lines[-1].append(i)
        else:
            lines.append([i])
    return lines


def _width(box: Box) -> tuple[float, float, float]:
    """Of the names on the left, of the cells, of the caption on the right."""
    names = LETTER * max(map(len, box.rows)) + 0.1 if box.named else 0.0
    return names, box.side * box.stars.shape[1], LETTER * max(map(len, box.caption)) + 0.1


def _draw(sheet: Sheet, box: Box, x: float, top: float) -> tuple[float, float, float]:
    """A box whose upper left corner, names included, is here; the middle of its cells, their top and their bottom."""
    (left, wide, _), side = _width(box), box.side
    rows, columns = box.stars.shape
    upright = box.named and LETTER * max(map(len, box.columns)) < side
    if box.named:
        head = LINE if upright else LETTER * max(map(len, box.columns)) + 0.08
        for j, name in enumerate(box.columns):
            place = x + left + (j + 0.5) * side
            if upright:
                sheet.text(place, top - head / 2, name)
            else:
                sheet.axes.text(place, top - head + 0.04, name, fontsize=9, rotation=90, ha="center", va="bottom")
        sheet.grow((x, top))
        begin = top - head
        for i, name in enumerate(box.rows):
            sheet.text(x + left - 0.08, begin - (i + 0.5) * side, name, ha="right")
    else:
        begin = top
    low, x = begin - rows * side, x + left
    corners = [(x + j * side, begin - (i + 1) * side) for i, j in np.argwhere(box.stars)]
    cells = [[(a, b), (a + side, b), (a + side, b + side), (a, b + side)] for a, b in corners]
    sheet.axes.add_collection(PolyCollection(cells, fc=PALETTE[0], ec="none", alpha=0.3))
    lines = [[(x, begin - i * side), (x + wide, begin - i * side)] for i in range(rows + 1)]
    lines += [[(x + j * side, begin), (x + j * side, low)] for j in range(columns + 1)]
    thin = min(0.9, 4 * side)
    sheet.axes.add_collection(LineCollection(lines, colors=INK, linewidths=thin, capstyle="projecting"))
    sheet.grow((x, low), (x + wide, begin))
    mark = box.group if box.group and LETTER * len(box.group) < side else "∗"
    if side > 0.16:
        for a, b in corners:
            sheet.text(a + side / 2, b + side / 2 - 0.01, mark, color=PALETTE[0])
    middle = (begin + low) / 2 + LINE / 2 * (len(box.caption) - 1)
    for row, text in enumerate(box.caption):
        sheet.text(x + wide + 0.1, middle - LINE * row, text, ha="left")
    return x + wide / 2, top if box.named else begin, low
