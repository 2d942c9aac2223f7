"""Matrices, landscapes over two settings, and lists of words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.lab.figures.style import (
    INK,
    PALETTE,
    PREDICTED,
    SMALL,
    WIDTH,
    heading,
    house_style,
    log_ticks,
    scales,
    single,
    tag,
    vector,
)

UNSIGNED = ListedColormap(colormaps["RdBu_r"](np.linspace(0.5, 1, 256)), "unsigned")
"""From white at 0 to dark red."""


@typed
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

    Where no entry is negative, as in attention, the scale is its upper half. `shared` gives all panels one scale and
    one colour bar; `limit` fixes its end. `rows` and `columns` name the rows and columns of every matrix.
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
    signed = any((array < 0).any() for array in arrays.values())
    width, side = WIDTH, (WIDTH - 0.7) / max(across, 1.6)
    height = side + 0.28
    if rows is not None or columns is not None:  # room for names
        shape = next(iter(arrays.values())).shape
        side = max(1.7, 0.21 * shape[1])
        width = across * side + 0.07 * max(map(len, rows or [""])) + 1.2
        height = side * shape[0] / shape[1] + 0.05 * max(map(len, columns or [""])) + 0.5 + 0.2 * bool(xlabel)
    with house_style():
        figure = Figure(figsize=(width, down * height + 0.35 * bool(title)))
        heading(figure, title)
        grid = figure.subplots(down, across, squeeze=False)
        image = None
        for place, (axes, (label, array)) in enumerate(zip(grid.flat, arrays.items(), strict=False)):
            reach = common if shared else (limit or _reach([array]))
            colours = colormaps["RdBu_r"] if signed else UNSIGNED
            image = axes.imshow(array, cmap=colours, vmin=-reach * signed, vmax=reach, interpolation="none")
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


@typed
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
    for name, ends in (("x", x), ("y", y)):
        if not np.isfinite(vector(name, ends)).all():
            raise ArgumentError(f"{name}: must hold finite numbers only")
    xs, ys, zs = vector("x", x), vector("y", y), np.ma.masked_invalid(np.asarray(z, dtype=float))
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
        figure, axes = single(title, height=3.5)
        scales(axes, log_x, log_y)
        axes.grid(False)
        norm = LogNorm(low, high) if log_z else Normalize(low, high)
        filled = axes.contourf(xs, ys, zs, levels=levels, cmap="viridis", norm=norm)
        filled.set_rasterized(True)
        axes.set(xlim=(xs.min(), xs.max()), ylim=(ys.min(), ys.max()), xlabel=xlabel, ylabel=ylabel)
        for index, (label, (region_x, region_y)) in enumerate((regions or {}).items()):
            line_x, line_y = vector(f"regions[{label!r}] x", region_x), vector(f"regions[{label!r}] y", region_y)
            if line_x.size != line_y.size:
                raise ArgumentError(f"regions[{label!r}]: x and y must have the same length")
            axes.plot(line_x, line_y, color="white", ls=PREDICTED, lw=1.6)
            _label_line(axes, label, line_x, line_y, index=index)
        for label, point in marks.items():
            axes.plot(*point, marker="*", ms=12, color="white", mec="black", mew=0.8, clip_on=False, zorder=5)
            tag(axes, label, point)
        log_ticks(axes)
        _colour_bar(figure, filled, [axes], label=zlabel, log=log_z)
    return figure


@typed
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
        heading(figure, title)
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


def _reach(arrays: Sequence[np.ndarray]) -> float:
    return max(float(np.ma.masked_invalid(np.abs(array)).max() or 0.0) for array in arrays) or 1.0


def _label_line(axes: Axes, label: str, x: np.ndarray, y: np.ndarray, *, index: int) -> None:
    """Name the index-th region line; successive lines carry their names at different places and on different sides."""
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    visible = np.flatnonzero((x >= left) & (x <= right) & (y >= bottom) & (y <= top))
    if visible.size:
        at = visible[int((0.4, 0.12, 0.65, 0.3)[index % 4] * (visible.size - 1))]
        tag(axes, label, (float(x[at]), float(y[at])), below=index % 2 == 0)


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
