"""The house style of all figures: direct labels instead of legends, prediction dashed, measurement solid, seeds thin.

Every function is pure: arrays in, a `matplotlib.figure.Figure` out, no global figure state. `svg` turns it into text
that is the same byte for byte every time, has a transparent background and takes its ink from CSS `color`, so the same
drawing reads on light and on dark paper. Sizes are chosen so that a figure shrunk to 330 pixels stays legible.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from sandtable.arguments import ArgumentError

INK = "#75797f"
"""Mid grey: about 4.4 : 1 against white and against near-black, for viewers that do not set `color`."""

PALETTE = ("#2878bd", "#d2600a", "#0d8f6e", "#b0589a", "#a67c00", "#7a6fd0")
"""After the hues of Okabe and Ito (2008) for colour-blind readers, in mid tones: ≥ 3 : 1 on white and on #111."""

WIDTH = 4.4
PREDICTED = (0, (4, 2.5))
KEY = "solid: measured · dashed: predicted"
SMALL = 9

_CLEAR = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "savefig.edgecolor")
_INKED = (
    "text.color",
    "axes.edgecolor",
    "axes.labelcolor",
    "axes.titlecolor",
    "xtick.color",
    "ytick.color",
    "grid.color",
)
_SMALL = ("axes.titlesize", "xtick.labelsize", "ytick.labelsize")
STYLE: dict[Any, Any] = {
    **dict.fromkeys(_CLEAR, "none"),
    **dict.fromkeys(_INKED, INK),
    **dict.fromkeys(_SMALL, SMALL),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.22,
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.2,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "none",
    "svg.hashsalt": "sandtable",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style inside this block, whatever the user's matplotlibrc says; figures of your own use it too.

    Make them with `matplotlib.figure.Figure(figsize=(WIDTH, height))`, never through pyplot.
    """
    with matplotlib.rc_context():
        matplotlib.rcParams.update(matplotlib.rcParamsDefault)
        matplotlib.rcParams.update(STYLE)
        yield


def svg(figure: Figure) -> str:
    """The figure as SVG text: deterministic, no date, no outside reference, text as text, ink = `currentColor`."""
    buffer = io.StringIO()
    with house_style():
        if figure.get_layout_engine() is not None:
            # The layout moves by a hair at every drawing; settle it once, so that saving twice gives the same bytes.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # A <style> element inside an inlined drawing would restyle the whole page around it.
    text = re.sub(r"\s*<style\b.*?</style>", "", text, flags=re.DOTALL)
    text = text.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'").replace(INK, "currentColor")
    heading = escape(" ".join(figure.get_suptitle().split()))
    title = f"\n <title>{heading}</title>" if heading else ""
    head, tail = text.split(">", 1)
    return f'{head} color="{INK}" stroke-linejoin="round" role="img">{title}{tail}'


def vector(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(f"{name} of shape {list(array.shape)}: must be a non-empty vector")
    return array


def key(predicted: bool, rest: str) -> str:
    dashed = KEY if not rest or rest.startswith(("band", "thin")) else "dashed: predicted"
    return " · ".join(filter(None, (dashed if predicted else "", rest)))


def heading(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(textwrap.fill(title, 40), x=0.012, ha="left")


def single(title: str, *, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    heading(figure, title)
    return figure, figure.subplots()


def scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    for axis, log in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if log:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        else:
            axis.set_major_locator(MaxNLocator(6))


def log_ticks(axes: Axes) -> None:
    """Powers of ten on a long logarithmic axis; on one shorter than two decades plain numbers at 1, 2 and 5."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        if axis.get_scale() == "log":
            axis.set_minor_formatter(NullFormatter())
            if high / low < 100:
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def tag(axes: Axes, label: str, point: tuple[float, float], *, below: bool = False) -> None:
    """A label beside a point, turned inwards near the edges, on its own dark ground."""
    across, up = (axes.transData + axes.transAxes.inverted()).transform(point)
    left, under = across > (0.75 if below else 0.6), (up > 0.75) or (below and up > 0.15)
    ground = {"boxstyle": "round,pad=0.2", "fc": "#1d1d1d", "ec": "none", "alpha": 0.6}
    shift = (-7 if left else 7, -7 if under else 7)
    tag = axes.annotate(textwrap.fill(label, 22), point, shift, textcoords="offset points", bbox=ground, zorder=6)
    tag.set(color="white", fontsize=SMALL, ha="right" if left else "left", va="top" if under else "bottom")


def finite(values: np.ndarray, log: bool) -> np.ma.MaskedArray:
    masked = np.ma.masked_invalid(values)
    return np.ma.masked_less_equal(masked, 0) if log else masked
