"""The house style of all figures: direct labels instead of legends, prediction dashed, measurement solid, seeds thin.

Every function is pure: arrays in, a `matplotlib.figure.Figure` out, no global figure state. `svg` turns it into text
that is the same byte for byte every time, has a transparent background and takes its ink from CSS `color`, so the same
drawing reads on light and on dark paper. Sizes are chosen so that a figure shrunk to 330 pixels stays legible.
"""

from __future__ import annotations

import io
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from sandtable.arguments import ArgumentError, whole

INK = "#75797f"
"""Mid grey: about 4.4 : 1 against white and against near-black, for viewers that do not set `color`."""

PALETTE = ("#2878bd", "#d2600a", "#0d8f6e", "#b0589a", "#a67c00", "#7a6fd0")
"""After the hues of Okabe and Ito (2008) for colour-blind readers, in mid tones: ≥ 3 : 1 on white and on #111."""

WIDTH = 4.4
PREDICTED = (0, (4, 2.5))
KEY = "solid: measured · dashed: predicted"
SMALL = 9
Row = tuple[str, float, float, float, float | None]

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


def curves(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    *,
    predictions: Mapping[str, ArrayLike] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    band: bool = True,
) -> Figure:
    """Curves over a common `x`, each labelled at its right end.

    A series is [x] or [seeds, x]; seeds show as their mean with a band from least to greatest, or as thin lines when
    `band` is false. A prediction with the label of a series shares its colour and its label.
    """
    xs = _vector("x", x)
    measured = {label: _finite(_rows(f"series[{label!r}]", values, xs.size), log_y) for label, values in series.items()}
    predicted = {
        label: _finite(_rows(f"predictions[{label!r}]", values, xs.size), log_y)[0]
        for label, values in (predictions or {}).items()
    }
    if not measured and not predicted:
        raise ArgumentError("series={}: must hold at least one series or prediction")
    colours = dict(zip(measured, itertools.cycle(PALETTE), strict=False))
    ends: list[tuple[str, str, float, float]] = []
    with house_style():
        figure, axes = _single(title, height=3.1)
        _scales(axes, log_x, log_y)
        for label, values in measured.items():
            mean = values.mean(axis=0)
            if len(values) > 1 and band:
                axes.fill_between(xs, values.min(axis=0), values.max(axis=0), color=colours[label], alpha=0.22, lw=0)
            elif len(values) > 1:
                axes.plot(xs, values.T, color=colours[label], lw=0.6, alpha=0.55)
            axes.plot(xs, mean, color=colours[label], marker="o" if xs.size <= 12 else "", ms=3.2)
            ends += _end(label, colours[label], xs, mean)
        for label, values in predicted.items():
            # Where theory and measurement coincide, dashes in ink stay visible on top of the solid colour.
            axes.plot(xs, values, color=INK, ls=PREDICTED, lw=1.3, zorder=3)
            if label not in measured:
                ends += _end(label, INK, xs, values)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.margins(x=0.02)
        axes.autoscale_view()
        many = any(len(values) > 1 for values in measured.values())
        axes.set_title(_key(bool(measured) and bool(predicted), ("band: all seeds" if band else "thin: seeds") * many))
        _log_ticks(axes)
        _label_ends(figure, axes, ends)
    return figure


def heatmaps(
    matrices: Mapping[str, ArrayLike],
    *,
    block: int | None = None,
    title: str = "",
    shared: bool = True,
    limit: float | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Matrices side by side on a diverging scale symmetric about 0, thin lines between blocks of `block` rows.

    `shared` gives all panels one scale and one colour bar; `limit` fixes the scale to [−limit, limit]. `rows` and
    `columns` name the rows and columns of every matrix.
    """
    if not matrices:
        raise ArgumentError("matrices={}: must hold at least one matrix")
    arrays = {label: np.asarray(values, dtype=float) for label, values in matrices.items()}
    for label, array in arrays.items():
        if array.ndim != 2 or array.size == 0:
            raise ArgumentError(f"matrices[{label!r}] of shape {list(array.shape)}: must be a non-empty matrix")
        for axis, (name, names) in enumerate((("rows", rows), ("columns", columns))):
            if names is not None and len(names) != array.shape[axis]:
                raise ArgumentError(
                    f"{name}={len(names)} names: must be {array.shape[axis]}, as matrices[{label!r}] has"
                )
    if block is not None:
        whole("block", block)
    across = min(len(arrays), 2 if len(arrays) in (2, 4) else 3)
    down = -(-len(arrays) // across)
    common = limit or _reach(list(arrays.values()))
    width, side = WIDTH, (WIDTH - 0.7) / max(across, 1.6)
    height = side + 0.28
    if rows is not None or columns is not None:  # room for names
        shape = next(iter(arrays.values())).shape
        side = max(1.7, 0.21 * shape[1])
        width = across * side + 0.07 * max(map(len, rows or [""])) + 1.2
        height = side * shape[0] / shape[1] + 0.05 * max(map(len, columns or [""])) + 0.5 + 0.2 * bool(xlabel)
    with house_style():
        figure = Figure(figsize=(width, down * height + 0.35 * bool(title)))
        _heading(figure, title)
        grid = figure.subplots(down, across, squeeze=False)
        image = None
        for place, (axes, (label, array)) in enumerate(zip(grid.flat, arrays.items(), strict=False)):
            reach = common if shared else (limit or _reach([array]))
            image = axes.imshow(array, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="none")
            axes.set_title(textwrap.fill(label, 44 // across), color=INK)
            axes.grid(False)
            first = place % across == 0
            axes.set(xticks=[], yticks=[], xlabel=xlabel, ylabel=ylabel if first else "")
            axes.tick_params(length=0)
            if rows is not None and first:
                axes.set_yticks(range(len(rows)), rows)
            if columns is not None:
                wide = max(map(len, columns)) > 2
                axes.set_xticks(
                    range(len(columns)), columns, rotation=45 if wide else 0, ha="right" if wide else "center"
                )
            axes.spines[:].set_visible(False)
            if block:
                for axis_line, size in ((axes.axvline, array.shape[1]), (axes.axhline, array.shape[0])):
                    for edge in range(block, size, block):
                        axis_line(edge - 0.5, color="#444444", lw=0.5, alpha=0.6)
            if not shared:
                _colour_bar(figure, image, [axes])
        for axes in list(grid.flat)[len(arrays) :]:
            axes.set_axis_off()
        if shared:
            _colour_bar(figure, image, list(grid.flat))
    return figure


def landscape(
    x: ArrayLike,
    y: ArrayLike,
    z: ArrayLike,
    *,
    optimum: Mapping[str, tuple[float, float]] | tuple[float, float] | None = None,
    regions: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    xlabel: str = "",
    ylabel: str = "",
    zlabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    log_z: bool = False,
) -> Figure:
    """A surface z[y, x] as filled contours, with marked optima and dashed lines that bound what theory predicts."""
    xs, ys, zs = _vector("x", x), _vector("y", y), np.ma.masked_invalid(np.asarray(z, dtype=float))
    if zs.shape != (ys.size, xs.size):
        raise ArgumentError(f"z of shape {list(zs.shape)}: must be [y, x] = [{ys.size}, {xs.size}]")
    zs = np.ma.masked_less_equal(zs, 0) if log_z else zs
    if zs.count() == 0:
        raise ArgumentError("z: must hold at least one finite value" + " > 0" * log_z)
    low, high = float(zs.min()), float(zs.max())
    if low == high:
        low, high = (low / 1.1, high * 1.1) if log_z else (low - 0.5, high + 0.5)
    levels = np.geomspace(low, high, 14) if log_z else np.linspace(low, high, 14)
    marks = optimum if isinstance(optimum, Mapping) else {"optimum": optimum} if optimum is not None else {}
    with house_style():
        figure, axes = _single(title, height=3.5)
        _scales(axes, log_x, log_y)
        axes.grid(False)
        norm = LogNorm(low, high) if log_z else Normalize(low, high)
        filled = axes.contourf(xs, ys, zs, levels=levels, cmap="viridis", norm=norm)
        filled.set_rasterized(True)
        axes.set(xlim=(xs.min(), xs.max()), ylim=(ys.min(), ys.max()), xlabel=xlabel, ylabel=ylabel)
        for index, (label, (region_x, region_y)) in enumerate((regions or {}).items()):
            line_x, line_y = _vector(f"regions[{label!r}] x", region_x), _vector(f"regions[{label!r}] y", region_y)
            if line_x.size != line_y.size:
                raise ArgumentError(f"regions[{label!r}]: x and y must have the same length")
            axes.plot(line_x, line_y, color="white", ls=PREDICTED, lw=1.6)
            _label_line(axes, label, line_x, line_y, index=index)
        for label, point in marks.items():
            axes.plot(*point, marker="*", ms=12, color="white", mec="black", mew=0.8, clip_on=False, zorder=5)
            _tag(axes, label, point)
        _log_ticks(axes)
        _colour_bar(figure, filled, [axes], label=zlabel, log=log_z)
    return figure


def comparison(rows: Sequence[Row], *, xlabel: str = "", title: str = "", log_x: bool = False) -> Figure:
    """One line per (label, measured, low, high, predicted): a dot on its interval, the prediction a dashed tick."""
    if not rows:
        raise ArgumentError("rows=[]: must hold at least one row")
    with house_style():
        figure, axes = _rows_of([row[0] for row in rows], title=title, xlabel=xlabel, log=log_x)
        for height, (_, measured, low, high, predicted) in enumerate(rows):
            axes.plot([low, high], [height, height], color=PALETTE[0], lw=3.2, alpha=0.4, solid_capstyle="round")
            axes.plot([measured], [height], "o", color=PALETTE[0], ms=5.5)
            if predicted is not None:
                _predicted_tick(axes, predicted, height)
        _log_ticks(axes)
        axes.set_title(_key(any(row[4] is not None for row in rows), "dot: measured"))
    return figure


def strips(
    groups: Mapping[str, ArrayLike],
    *,
    predictions: Mapping[str, float] | float | None = None,
    xlabel: str = "",
    title: str = "",
    log_x: bool = False,
) -> Figure:
    """One line per arm: seeds as dots, their mean a bar, the prediction a dashed tick, or one line for all."""
    if not groups:
        raise ArgumentError("groups={}: must hold at least one arm")
    with house_style():
        figure, axes = _rows_of(list(groups), title=title, xlabel=xlabel, log=log_x)
        for height, (label, raw) in enumerate(groups.items()):
            values = _vector(f"groups[{label!r}]", raw)
            values = values[np.isfinite(values)]
            colour = PALETTE[height % len(PALETTE)]
            # Multiples of the golden ratio: a jitter that keeps neighbours apart and is the same every time.
            jitter = (np.arange(1, values.size + 1) * 0.6180339887498949 % 1.0 - 0.5) * 0.4
            axes.plot(values, height + jitter, "o", color=colour, ms=4, alpha=0.6, mew=0)
            if values.size:
                axes.plot([values.mean()] * 2, [height - 0.3, height + 0.3], color=colour, lw=2.4)
            if isinstance(predictions, Mapping) and label in predictions:
                _predicted_tick(axes, predictions[label], height)
        if predictions is not None and not isinstance(predictions, Mapping):
            axes.axvline(predictions, color=INK, ls=PREDICTED, lw=1.5)
        _log_ticks(axes)
        axes.set_title(_key(predictions is not None, "dots: seeds · bar: mean"))
    return figure


def word_lists(
    groups: Mapping[str, Sequence[tuple[str, float]]], *, title: str = "", xlabel: str = "", across: int = 3
) -> Figure:
    """A panel per group: its words from the top down, each on a bar of its value."""
    if not groups or not all(groups.values()):
        raise ArgumentError("groups: must hold at least one group, and each at least one word")
    whole("across", across)
    down, longest = -(-len(groups) // across), max(map(len, groups.values()))
    with house_style():
        figure = Figure(figsize=(WIDTH * across / 2, down * (0.2 * longest + 0.4) + 0.35 * bool(title) + 0.3))
        _heading(figure, title)
        grid = figure.subplots(down, across, squeeze=False, sharex=True)
        for place, (axes, (label, words)) in enumerate(zip(grid.flat, groups.items(), strict=False)):
            heights, colour = np.arange(len(words)), PALETTE[place % len(PALETTE)]
            axes.barh(heights, [value for _, value in words], color=colour, alpha=0.35, height=0.82)
            for height, (word, _) in enumerate(words):
                axes.text(0, height, f" {word}", va="center", fontsize=SMALL, clip_on=True)
            axes.set(yticks=[], ylim=(longest - 0.4, -0.6))
            axes.set_title(label)
            axes.grid(False)
            axes.spines["left"].set_visible(False)
            axes.locator_params(axis="x", nbins=3)
        for axes in list(grid.flat)[len(groups) :]:
            axes.set_axis_off()
        figure.supxlabel(xlabel, color=INK, fontsize=SMALL)
    return figure


def _vector(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(f"{name} of shape {list(array.shape)}: must be a non-empty vector")
    return array


def _rows(name: str, values: ArrayLike, size: int) -> np.ndarray:
    array = np.atleast_2d(np.asarray(values, dtype=float))
    if array.ndim != 2 or array.shape[1] != size or array.shape[0] == 0:
        raise ArgumentError(f"{name} of shape {list(np.shape(values))}: must be [{size}] or [seeds, {size}]")
    return array


def _finite(values: np.ndarray, log: bool) -> np.ma.MaskedArray:
    masked = np.ma.masked_invalid(values)
    return np.ma.masked_less_equal(masked, 0) if log else masked


def _reach(arrays: Sequence[np.ndarray]) -> float:
    return max(float(np.ma.masked_invalid(np.abs(array)).max() or 0.0) for array in arrays) or 1.0


def _key(predicted: bool, rest: str) -> str:
    dashed = KEY if not rest or rest.startswith(("band", "thin")) else "dashed: predicted"
    return " · ".join(filter(None, (dashed if predicted else "", rest)))


def _heading(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(textwrap.fill(title, 40), x=0.012, ha="left")


def _single(title: str, *, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    _heading(figure, title)
    return figure, figure.subplots()


def _rows_of(labels: Sequence[str], *, title: str, xlabel: str, log: bool) -> tuple[Figure, Axes]:
    names = [textwrap.fill(label, 22) for label in labels]
    lines = sum(max(1.9, 1.15 * (name.count("\n") + 1)) for name in names)
    figure, axes = _single(title, height=0.95 + 0.16 * lines)
    _scales(axes, log, False)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(xlabel)
    return figure, axes


def _scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    for axis, log in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if log:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
        else:
            axis.set_major_locator(MaxNLocator(6))


def _log_ticks(axes: Axes) -> None:
    """Powers of ten on a long logarithmic axis; on one shorter than two decades plain numbers at 1, 2 and 5."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        if axis.get_scale() == "log":
            axis.set_minor_formatter(NullFormatter())
            if high / low < 100:
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _predicted_tick(axes: Axes, value: float, height: float) -> None:
    axes.plot([value, value], [height - 0.36, height + 0.36], color=INK, ls=(0, (2.4, 1.4)), lw=1.8)


def _end(label: str, colour: str, x: np.ndarray, y: np.ma.MaskedArray) -> list[tuple[str, str, float, float]]:
    seen = np.flatnonzero(~np.ma.getmaskarray(y))
    return [(textwrap.fill(label, 15), colour, float(x[seen[-1]]), float(y[seen[-1]]))] if seen.size else []


def _label_ends(figure: Figure, axes: Axes, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Write each label to the right of its curve's end; labels that would touch are moved apart as little as possible.

    Least squares under y_{i+1} − y_i ≥ gap_i is isotonic regression after subtracting the running gaps.
    """
    if not ends:
        return
    to_fraction = axes.transData + axes.transAxes.inverted()
    anchors = np.array([to_fraction.transform((x, y)) for *_, x, y in ends])
    line = 1.25 * SMALL / 72 / (0.7 * figure.get_figheight())
    heights = np.array([line * (label.count("\n") + 1) + 0.25 * line for label, *_ in ends])
    order = np.argsort(anchors[:, 1], kind="stable")
    stacked = heights[order]
    offsets = np.concatenate([[0.0], np.cumsum((stacked[:-1] + stacked[1:]) / 2)])
    placed = np.asarray(isotonic_regression(anchors[order, 1] - offsets).x)
    placed = np.clip(placed, 0.03, max(1.03 - offsets[-1], 0.03)) + offsets
    leader = {"arrowstyle": "-", "color": INK, "lw": 0.6, "alpha": 0.7, "shrinkA": 1, "shrinkB": 2}
    for index, height in zip(order, placed, strict=True):
        label, colour, *_ = ends[index]
        text = axes.annotate(label, tuple(anchors[index]), (1.045, height), "axes fraction", arrowprops=leader)
        text.set(color=colour, fontsize=SMALL, va="center", annotation_clip=False)


def _label_line(axes: Axes, label: str, x: np.ndarray, y: np.ndarray, *, index: int) -> None:
    """Name the index-th region line; successive lines carry their names at different places and on different sides."""
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    visible = np.flatnonzero((x >= left) & (x <= right) & (y >= bottom) & (y <= top))
    if visible.size:
        at = visible[int((0.4, 0.12, 0.65, 0.3)[index % 4] * (visible.size - 1))]
        _tag(axes, label, (float(x[at]), float(y[at])), below=index % 2 == 0)


def _tag(axes: Axes, label: str, point: tuple[float, float], *, below: bool = False) -> None:
    """A label beside a point, turned inwards near the edges, on its own dark ground."""
    across, up = (axes.transData + axes.transAxes.inverted()).transform(point)
    left, under = across > (0.75 if below else 0.6), (up > 0.75) or (below and up > 0.15)
    ground = {"boxstyle": "round,pad=0.2", "fc": "#1d1d1d", "ec": "none", "alpha": 0.6}
    shift = (-7 if left else 7, -7 if under else 7)
    tag = axes.annotate(textwrap.fill(label, 22), point, shift, textcoords="offset points", bbox=ground, zorder=6)
    tag.set(color="white", fontsize=SMALL, ha="right" if left else "left", va="top" if under else "bottom")


def _colour_bar(figure: Figure, mappable: Any, axes: list[Axes], *, label: str = "", log: bool = False) -> None:
    bar = figure.colorbar(mappable, ax=axes, shrink=0.85, aspect=22, pad=0.02, label=label)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    if bar.solids is not None:
        bar.solids.set_rasterized(True)
    bar.locator = LogLocator(numticks=5) if log else MaxNLocator(5)
    bar.update_ticks()
    if log:
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.tick_params(length=2)
