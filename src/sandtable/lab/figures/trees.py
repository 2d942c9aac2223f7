"""Trees of what was tried: which way was kept, and where branches were turned down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError, typed
from sandtable.lab.figures.style import INK, PALETTE, SMALL, house_style, single

_LABELLED = 80


@typed
def tree(
    parents: Sequence[int],
    *,
    labels: Sequence[str] | None = None,
    kept: Sequence[bool] | None = None,
    rejected: Sequence[bool] | None = None,
    title: str = "",
) -> Figure:
    """A tree that grows to the right: `parents[i]` < i is the parent of node i, −1 that of the root, node 0.

    The nodes `kept` form a thick line, those `rejected` end in a cross. Labels are left out of large trees.
    """
    size = len(parents)
    if not size or parents[0] != -1 or any(not 0 <= parent < node for node, parent in enumerate(parents) if node):
        raise ArgumentError(
            f"parents={list(parents)[:8]}: must start with −1, and every parent must come before its child"
        )
    for name, values in (("labels", labels), ("kept", kept), ("rejected", rejected)):
        if values is not None and len(values) != size:
            raise ArgumentError(f"{name} of {len(values)}: must be one for each of the {size} nodes")
    x, y = _layout(parents)
    keep = np.zeros(size, dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    cross = np.zeros(size, dtype=bool) if rejected is None else np.asarray(rejected, dtype=bool)
    with house_style():
        figure, axes = single(title, height=min(8.0, 1.2 + 0.22 * (float(y.max()) + 1)))
        for node, parent in enumerate(parents):
            if node:
                bend = [x[parent], x[parent] + 0.35, x[node]]
                style = (PALETTE[0], 2.2, 3) if keep[node] else (INK, 0.9, 2)
                axes.plot(bend, [y[parent], y[node], y[node]], color=style[0], lw=style[1], zorder=style[2])
        axes.plot(x[keep], y[keep], "o", ms=4, color=PALETTE[0], zorder=4)
        axes.plot(x[cross], y[cross], "x", ms=5, mew=1.6, color=PALETTE[1], zorder=5)
        if labels is not None and size <= _LABELLED:
            for node, label in enumerate(labels):
                place = {"xytext": (0, 3), "textcoords": "offset points", "ha": "right", "fontsize": SMALL}
                axes.annotate(label, (x[node], y[node]), color=PALETTE[0] if keep[node] else INK, **place)
        axes.invert_yaxis()
        axes.margins(x=0.06, y=0.12)
        axes.set_axis_off()
    return figure


def _layout(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Depth of every node, and its height: leaves one below the other, in depth-first order, parents at their first."""
    size = len(parents)
    depth, height = np.zeros(size), np.zeros(size)
    below: list[list[int]] = [[] for _ in range(size)]
    for node in range(1, size):
        depth[node] = depth[parents[node]] + 1
        below[parents[node]].append(node)
    leaves, stack = 0, [0]
    while stack:
        node = stack.pop()
        height[node] = leaves
        leaves += not below[node]
        stack += reversed(below[node])
    return depth, height
