"""Where the points of a small directed graph go: a line, a circle, rings, layers or springs, as crosses least."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

Arrow = tuple[int, int]
TRIED = 5_000
"""Paths that are tried before a cycle is given up."""
WIDEST = 1.7
"""Most that a drawing may be wider than the square that its points need, in either direction."""
Points = Float[np.ndarray, "point 2"]


def placed(count: int, arrows: Collection[Arrow], *, start: int = 0) -> Points:
    """A place for every point, neighbours about one apart; arrows may be curved later, so that lines may share ends."""
    edges = sorted({(min(a, b), max(a, b)) for a, b in arrows if a != b})
    if count == 1:
        return np.zeros((1, 2))
    order = _path(count, edges)
    if order is not None:
        return _spread(np.stack([np.argsort(order), np.zeros(count)], 1), 1.0)
    if len(edges) > 0.6 * count * (count - 1) / 2 and count > 4:
        return _spread(_circle(_around(count, edges)), 1.0)
    near = _distances(count, edges)
    found = [_circle(_around(count, edges)), *_rings(count, arrows), _layers(near[start], edges), _springs(near)]
    found += [_stretched(cycle, count, edges) for cycle in _short_cycles(count, arrows)]
    found = [_spread(points, 1.0) for points in found]
    small = [points for points in found if float(np.ptp(points, axis=0).max()) <= WIDEST * (1 + count**0.5)]

    def cost(points: Points) -> float:
        return _crossings(points, edges) + 0.1 * float(np.prod(np.ptp(points, axis=0) + 1)) / count

    return min(small or found[:1], key=cost)


def _path(count: int, edges: Sequence[Arrow]) -> list[int] | None:
    """The points in order where the edges form one path through all of them."""
    beside: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    ends = [p for p in range(count) if len(beside[p]) == 1]
    if len(edges) != count - 1 or len(ends) != 2 or max(map(len, beside)) > 2:
        return None
    order = [min(ends)]
    while len(order) < count:
        ahead = [q for q in beside[order[-1]] if q not in order]
        if not ahead:
            return None
        order += ahead
    return order


def _distances(count: int, edges: Sequence[Arrow]) -> Float[np.ndarray, "point point"]:
    """Numbers of edges between points; unconnected ones are as far apart as any, and a little farther."""
    near = np.full((count, count), np.inf)
    np.fill_diagonal(near, 0)
    for a, b in edges:
        near[a, b] = near[b, a] = 1
    for k in range(count):
        near = np.minimum(near, near[:, k, None] + near[k])
    return np.where(np.isinf(near), near[np.isfinite(near)].max() + 1, near)


def _around(count: int, edges: Sequence[Arrow]) -> list[int]:
    """An order for a circle: swaps of two points as long as they shorten the edges."""
    order = list(range(count))

    def length(order: Sequence[int]) -> float:
        points = _circle(order)
        return sum(float(np.hypot(*(points[a] - points[b]))) for a, b in edges)

    best, better = length(order), count <= 12
    while better:
        better = False
        for i in range(1, count):
            for j in range(i + 1, count):
                order[i], order[j] = order[j], order[i]
                now = length(order)
                if now < best - 1e-9:
                    best, better = now, True
                else:
                    order[i], order[j] = order[j], order[i]
    return order


def _circle(order: Sequence[int]) -> Points:
    angle = np.pi / 2 - 2 * np.pi * np.argsort(order) / len(order)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _rings(count: int, arrows: Collection[Arrow]) -> list[Points]:
    """Two to four cycles of equal length, through all points, one inside the other."""
    ahead: dict[int, set[int]] = {p: set() for p in range(count)}
    for a, b in arrows:
        if a != b:
            ahead[a].add(b)
    found = []
    for size in {count // rings for rings in (2, 3, 4) if count % rings == 0 and count // rings >= 3}:
        cycles = _cycles(ahead, size)
        if cycles:
            found.append(_nested(cycles, arrows))
    return found


def _cycles(ahead: dict[int, set[int]], size: int) -> list[list[int]]:
    """The points cut into cycles of this length, each found by going ahead without a choice of two; else nothing."""
    left, found = set(ahead), []
    while left:
        cycle = _one_cycle(ahead, min(left), size, left)
        if cycle is None:
            return []
        found.append(cycle)
        left -= set(cycle)
    return found


def _one_cycle(ahead: dict[int, set[int]], first: int, size: int, allowed: set[int]) -> list[int] | None:
    """A directed cycle of this length through a point, by depth-first search."""
    stack = [[first]]
    for _ in range(TRIED):
        if not stack:
            break
        path = stack.pop()
        if len(path) == size:
            if first in ahead[path[-1]]:
                return path
            continue
        stack += [[*path, p] for p in sorted(ahead[path[-1]] & allowed, reverse=True) if p not in path]
    return None


def _nested(cycles: list[list[int]], arrows: Collection[Arrow]) -> Points:
    """Every ring turned, and mirrored if that helps, until its edges to the rings outside are short."""
    size, total = len(cycles[0]), sum(map(len, cycles))
    points = np.full((total, 2), np.nan)
    for i, cycle in enumerate(cycles):
        radius = len(cycles) - 1 - i + max(0.7, 0.5 / np.sin(np.pi / size))
        choices = [list(np.roll(way, turn)) for way in (cycle, cycle[::-1]) for turn in range(size)]
        ring = radius * _circle(range(size))

        def length(order: Sequence[int], ring: Points = ring) -> float:
            trial = points.copy()
            trial[order] = ring
            ends = np.array([trial[a] - trial[b] for a, b in arrows])
            return float(np.nansum(np.hypot(ends[:, 0], ends[:, 1])))

        points[min(choices, key=length)] = ring
    return points


def _layers(depth: Float[np.ndarray, " point"], edges: Sequence[Arrow]) -> Points:
    """From left to right by the distance from the start; within a layer, by the mean height of neighbours."""
    layer = np.unique(depth, return_inverse=True)[1]
    beside: list[list[int]] = [[] for _ in layer]
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    height = np.zeros(len(layer))
    for number in range(layer.max() + 1):
        _settle(np.flatnonzero(layer == number), np.arange(len(layer), dtype=float), height)
    for sweep in range(12):
        numbers = range(layer.max() + 1) if sweep % 2 == 0 else range(layer.max(), -1, -1)
        for number in numbers:
            members = np.flatnonzero(layer == number)
            side = number - 1 if sweep % 2 == 0 else number + 1
            wish = height.copy()
            for p in members:
                seen = [height[q] for q in beside[p] if layer[q] == side]
                wish[p] = np.mean(seen) if seen else height[p]
            _settle(members, wish, height)
    return np.stack([1.25 * layer, height], 1)


def _settle(members: np.ndarray, wish: np.ndarray, height: np.ndarray) -> None:
    """Places one apart around the middle, in the order of their wishes."""
    order = members[np.argsort(wish[members], kind="stable")]
    height[order] = (len(order) - 1) / 2 - np.arange(len(order))[::-1]


def _short_cycles(count: int, arrows: Collection[Arrow]) -> list[list[int]]:
    """Cycles of three to eight arrows without chords of their own direction, some of them."""
    ahead: dict[int, set[int]] = {p: set() for p in range(count)}
    for a, b in arrows:
        if a != b:
            ahead[a].add(b)
            ahead[b].add(a)
    everywhere = set(range(count))
    return [c for size in range(3, min(8, count - 1) + 1) if (c := _one_cycle(ahead, 0, size, everywhere)) is not None]


def _stretched(outer: Sequence[int], count: int, edges: Sequence[Arrow]) -> Points:
    """A cycle on a circle and every other point in the middle of its neighbours (Tutte): planar where that can be."""
    pull = np.zeros((count, count))
    for a, b in edges:
        pull[a, b] = pull[b, a] = 1
    matrix = np.diag(np.maximum(pull.sum(1), 1)) - pull
    wish = np.zeros((count, 2))
    matrix[outer] = np.eye(count)[list(outer)]
    wish[list(outer)] = len(outer) * _circle(range(len(outer)))
    return np.linalg.lstsq(matrix, wish, rcond=None)[0]


def _springs(near: Float[np.ndarray, "point point"]) -> Points:
    """Distances on paper like those in the graph: stress majorisation from two coordinates of classical scaling."""
    count = len(near)
    centred = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centred @ near**2 @ centred)
    points = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-9))
    points = points + 1e-3 * np.stack([np.cos(np.arange(count)), np.sin(np.arange(count))], 1)  # no two alike
    weight = np.where(near > 0, 1 / np.maximum(near, 1e-9) ** 2, 0)
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
    for _ in range(300):
        gap = points[:, None] - points[None]
        length = np.maximum(np.linalg.norm(gap, axis=2), 1e-9)
        pull = weight * near / length
        points = inverse @ ((np.diag(pull.sum(1)) - pull) @ points)
    return _upright(points, near)


def _upright(points: Points, near: Float[np.ndarray, "point point"]) -> Points:
    """Turned so that edges run along the axes, as far as they agree on that."""
    a, b = np.nonzero(np.triu(near == 1))
    way = points[b] - points[a]
    angle = -np.angle(np.sum(np.exp(4j * np.arctan2(way[:, 1], way[:, 0])))) / 4
    return points @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def _spread(points: Points, apart: float) -> Points:
    """Scaled so that the two nearest points are so far apart, and moved to begin at the origin."""
    gap = np.linalg.norm(points[:, None] - points[None], axis=2)
    nearest = gap[~np.eye(len(points), dtype=bool)].min()
    points = points * (apart / max(nearest, 1e-3))
    return points - points.min(0)


def _crossings(points: Points, edges: Sequence[Arrow]) -> int:
    """Pairs of edges that cross as straight lines, and points that lie on an edge of others."""
    if not edges:
        return 0
    a, b = points[[e[0] for e in edges]], points[[e[1] for e in edges]]

    def side(p: Points, q: Points, r: Points) -> np.ndarray:
        return np.sign(np.round(_cross(q[:, None] - p[:, None], r[None] - p[:, None]), 9))

    apart = (side(a, b, a) * side(a, b, b) < 0) & (side(a, b, a) * side(a, b, b) < 0).T
    along = (points[None] - a[:, None]) @ (b - a)[:, :, None] / np.maximum(((b - a) ** 2).sum(1), 1e-9)[:, None, None]
    foot = a[:, None] + np.clip(along, 0, 1) * (b - a)[:, None]
    hit = np.linalg.norm(points[None] - foot, axis=2) < 0.25
    for row, edge in zip(hit, edges, strict=True):
        row[list(edge)] = False
    return int(apart.sum()) // 2 + 2 * int(hit.sum())


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]
