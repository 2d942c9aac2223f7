"""Curves, comparisons and strips: quantities along an axis, with their predictions."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from sandtable.arguments import ArgumentError, shown, typed
from sandtable.lab.figures.style import (
    INK,
    PALETTE,
    PREDICTED,
    SMALL,
    finite,
    house_style,
    key,
    log_ticks,
    scales,
    single,
    vector,
)

Row = tuple[str, float, float, float, float | None]


@typed
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
    xs = vector("x", x)
    measured = {label: finite(_rows(f"series[{label!r}]", values, xs.size), log_y) for label, values in series.items()}
    predicted = {
        label: finite(_rows(f"predictions[{label!r}]", values, xs.size), log_y)[0]
        for label, values in (predictions or {}).items()
    }
    if not measured and not predicted:
        raise ArgumentError("series={}: must hold at least one series or prediction")
    colours = dict(zip(measured, itertools.cycle(PALETTE), strict=False))
    ends: list[tuple[str, str, float, float]] = []
    with house_style():
        figure, axes = single(title, height=3.1)
        scales(axes, log_x, log_y)
        for label, values in measured.items():
            mean = values.mean(axis=0)
            if len(values) > 1 and band:
                axes.fill_between(xs, values.min(axis=0), values.max(axis=0), color=colours[label], alpha=0.22, lw=0)
            elif len(values) > 1:
                axes.plot(xs, values.T, color=colours[label], lw=0.6, alpha=0.55)
            # Few places are marked, so that a line may pass one where nothing was measured.
            seen = np.isfinite(np.ma.filled(mean, np.nan)) if xs.size <= 12 else slice(None)
            axes.plot(xs[seen], mean[seen], color=colours[label], marker="o" if xs.size <= 12 else "", ms=3.2)
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
        axes.set_title(key(bool(measured) and bool(predicted), ("band: all seeds" if band else "thin: seeds") * many))
        log_ticks(axes)
        _label_ends(figure, axes, ends)
    return figure


@typed
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
        log_ticks(axes)
        axes.set_title(key(any(row[4] is not None for row in rows), "dot: measured"))
    return figure


@typed
def strips(
    groups: Mapping[str, ArrayLike],
    *,
    predictions: Mapping[str, float] | float | None = None,
    xlabel: str = "",
    title: str = "",
    log_x: bool = False,
) -> Figure:
    """One line per arm: seeds as dots, their mean a bar, the prediction a dashed tick, or one line for all."""
    if not isinstance(groups, Mapping) or not groups:
        raise ArgumentError(f"groups={shown(groups)}: must map at least one arm to its numbers")
    with house_style():
        figure, axes = _rows_of(list(groups), title=title, xlabel=xlabel, log=log_x)
        for height, (label, raw) in enumerate(groups.items()):
            values = vector(f"groups[{label!r}]", raw)
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
        log_ticks(axes)
        axes.set_title(key(predictions is not None, "dots: seeds · bar: mean"))
    return figure


def _rows(name: str, values: ArrayLike, size: int) -> np.ndarray:
    array = np.atleast_2d(np.asarray(values, dtype=float))
    if array.ndim != 2 or array.shape[1] != size or array.shape[0] == 0:
        raise ArgumentError(f"{name} of shape {list(np.shape(values))}: must be [{size}] or [seeds, {size}]")
    return array


def _rows_of(labels: Sequence[str], *, title: str, xlabel: str, log: bool) -> tuple[Figure, Axes]:
    names = [textwrap.fill(label, 22) for label in labels]
    lines = sum(max(1.9, 1.15 * (name.count("\n") + 1)) for name in names)
    figure, axes = single(title, height=0.95 + 0.16 * lines)
    scales(axes, log, False)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(xlabel)
    return figure, axes


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


@typed
def frontier(
    groups: Mapping[str, Sequence[tuple[str, float, float, float]]],
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """What is gained at which price: per group (label, x, y, standard error of y) points, joined in order of x.

    A group has one colour and its name at its last point; points carry their own labels where there are any.
    """
    if not groups or not all(groups.values()):
        raise ArgumentError("groups: must hold at least one group, and each at least one point")
    ends: list[tuple[str, str, float, float]] = []
    with house_style():
        figure, axes = single(title, height=3.6)
        scales(axes, log_x, log_y)
        for (name, points), colour in zip(groups.items(), itertools.cycle(PALETTE), strict=False):
            ordered = sorted(points, key=lambda point: point[1])
            x, y, error = (np.array([point[i] for point in ordered], dtype=float) for i in (1, 2, 3))
            axes.errorbar(x, y, yerr=np.nan_to_num(error), color=colour, marker="o", ms=4.5, lw=1.4, elinewidth=1.0)
            for label, across, up, _ in ordered:
                if label:
                    place = axes.annotate(label, (across, up), (4, 4), textcoords="offset points")
                    place.set(color=colour, fontsize=SMALL - 2)
            ends += _end(name, colour, x, np.ma.masked_invalid(y))
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.margins(x=0.06, y=0.08)
        axes.autoscale_view()
        log_ticks(axes)
        _label_ends(figure, axes, ends)
    return figure


@typed
def scatter(
    groups: Mapping[str, tuple[ArrayLike, ArrayLike]], *, xlabel: str = "", ylabel: str = "", title: str = ""
) -> Figure:
    """One point per unit, a colour per group, its name at the middle of its points."""
    if not groups:
        raise ArgumentError("groups={}: must hold at least one group")
    with house_style():
        figure, axes = single(title, height=3.4)
        for (name, (x, y)), colour in zip(groups.items(), itertools.cycle(PALETTE), strict=False):
            xs, ys = vector(f"groups[{name!r}] x", x), vector(f"groups[{name!r}] y", y)
            if xs.size != ys.size:
                raise ArgumentError(f"groups[{name!r}]: has {xs.size} x and {ys.size} y")
            axes.plot(xs, ys, "o", color=colour, ms=5, alpha=0.75)
            place = axes.annotate(name, (float(np.mean(xs)), float(np.max(ys))), (0, 7), textcoords="offset points")
            place.set(color=colour, fontsize=SMALL, ha="center")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.margins(x=0.08, y=0.14)
    return figure
