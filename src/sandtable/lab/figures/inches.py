"""Sheets of paper whose unit is an inch: draw first, then the figure is cut to what was drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from sandtable.lab.figures.style import INK, SMALL, WIDTH

Point = Float[np.ndarray, " 2"]
LETTER = 0.088
"""About the width of a sign of size `SMALL`."""
LINE = 0.17
MARGIN = 0.1


class Sheet:
    """Axes without a frame; `finish` gives them their limits, a title above and notes below."""

    def __init__(self) -> None:
        self.figure = Figure()
        self.figure.set_layout_engine("none")  # whatever the house style says: places are in inches
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.low, self.high = np.full(2, np.inf), np.full(2, -np.inf)

    def grow(self, *points: Sequence[float] | Point) -> None:
        """These points are part of the drawing."""
        for point in points:
            self.low, self.high = np.minimum(self.low, point), np.maximum(self.high, point)

    def text(self, x: float, y: float, text: str, *, size: float = SMALL, ha: str = "center", **style: Any) -> None:
        half = text_half(text, size)
        middle = np.array([x, y]) + {"center": 0, "left": 1, "right": -1}[ha] * half * [1, 0]
        self.grow(middle - half, middle + half)
        self.axes.text(x, y, text, **{"fontsize": size, "ha": ha, "va": "center", "zorder": 5} | style)

    def box(self, x: float, y: float, width: float, height: float, *, round: float = 0.0, **style: Any) -> None:
        """A rectangle by its lower left corner."""
        self.grow((x, y), (x + width, y + height))
        shape = f"round,pad=0,rounding_size={round}" if round else "square,pad=0"
        given = {"fc": "none", "ec": INK, "lw": 0.9, "zorder": 3} | style
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, mutation_aspect=1, **given))

    def arrow(self, curve: Float[np.ndarray, "point 2"], *, head: bool = True, **style: Any) -> None:
        """A line through points, with a head at its end."""
        self.grow(curve.min(0), curve.max(0))
        form = "-|>,head_length=4,head_width=2" if head else "-"
        given = {"color": INK, "lw": 1.1, "zorder": 2} | style
        arrow = FancyArrowPatch(path=Path(curve), arrowstyle=form, shrinkA=0, shrinkB=0, mutation_scale=1, **given)
        self.axes.add_patch(arrow)

    def finish(self, title: str = "", *notes: str) -> Figure:
        """The figure, cut to the drawing, with a title above and notes below."""
        low, high = self.low - MARGIN, self.high + MARGIN
        missing = np.array([max(0.0, WIDTH - float(high[0] - low[0])) / 2, 0])
        low, high = low - missing, high + missing
        wide = float(high[0] - low[0])
        lines = textwrap.wrap(title, int(wide / 0.115))
        below = [line for note in notes for line in textwrap.wrap(note, int(wide / 0.077))]
        high = high + np.array([0, 0.08 + 0.2 * len(lines)]) if lines else high
        for row, line in enumerate(below):
            y = low[1] - LINE * (row + 0.6)
            self.axes.text(low[0] + MARGIN, y, line, fontsize=SMALL, va="center")
        low = low - np.array([0, LINE * len(below) + 0.1 * bool(below)])
        tall = float(high[1] - low[1])
        self.figure.set_size_inches(wide, tall)
        if lines:
            self.figure.suptitle("\n".join(lines), x=MARGIN / wide, y=1 - 0.08 / tall, ha="left", va="top")
        self.axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        return self.figure


def text_half(text: str, size: float = SMALL) -> Point:
    """Half the width and half the height of a text."""
    return np.array([LETTER * max(len(text), 1) / 2, 0.15 / 2]) * size / SMALL
