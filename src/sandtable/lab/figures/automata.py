"""State diagrams of automata."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from sandtable.arguments import ArgumentError, typed, whole, wholes
from sandtable.lab.figures.inches import LETTER, Point, Sheet, text_half
from sandtable.lab.figures.layouts import placed
from sandtable.lab.figures.style import INK, PALETTE, WIDTH, house_style

MOST_STATES = 60
Arrows = Mapping[tuple[int, int], Sequence[str]]
Styles = Mapping[str, dict[str, Any]]
"""How the arrows of every token look, where tokens have colours."""
Curve = Float[np.ndarray, "point 2"]
_HIGH = 0.34
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_TURN = np.pi * np.array([0, 1, 0.25, -0.25, 0.75, -0.75, 0.5, -0.5])


@typed
def state_diagram(
    states: Sequence[str],
    arrows: Arrows,
    *,
    start: int | None = None,
    marked: Collection[int] = (),
    title: str = "",
    note: str = "",
) -> Figure:
    """States as circles; `arrows[q, p]` names the tokens that lead from q to p, one arrow for all of them.

    An arrow from nowhere shows the start, a second ring the `marked` states. Where arrows are too dense for labels,
    each token has a colour of its own. `note` stands below.
    """
    if start is not None:
        start = whole("start", start, least=0, most=len(states) - 1)
    marked = wholes("marked", marked, least=0, most=len(states) - 1)
    count = len(states)
    if not 1 <= count <= MOST_STATES:
        raise ArgumentError(f"states={count}: a state diagram has 1 to {MOST_STATES} of them")
    for ends in arrows:
        if not all(0 <= end < count for end in ends):
            raise ArgumentError(f"arrows[{ends}]: must lead from and to states 0 to {count - 1}")
    between = {ends: ", ".join(tokens) for ends, tokens in arrows.items() if ends[0] != ends[1]}
    longest, label = (max(map(len, texts), default=1) for texts in (states, between.values()))
    complete = count > 3 and len(between) == count * (count - 1)
    labelled = len(between) <= min(60, 2.7 * count) and label <= 12 and not complete
    apart = min(1.5, max(0.55 + LETTER * longest, 0.5 + LETTER * (longest + label) if labelled else 0.75))
    with house_style():
        drawing = _Drawing(apart * placed(count, list(between), start=start or 0), states)
        styles = drawing.labelled(arrows) if labelled else drawing.coloured(arrows)
        drawing.nodes(states, start, marked)
        drawing.key(arrows, styles)
        return drawing.sheet.finish(title, *filter(None, [note]))


class _Drawing:
    """States at their places, curves between them, and labels where there is room."""

    def __init__(self, points: Curve, states: Sequence[str]) -> None:
        self.sheet, self.points, self.centre = Sheet(), points, points.mean(0)
        self.reach = [np.array([max(_HIGH, LETTER * len(name) + 0.14), _HIGH]) / 2 for name in states]
        self.curves: list[Curve] = []
        self.boxes = list(zip(points, self.reach, strict=True))
        """What labels keep away from: (middle, half size)."""

    # -- arrows ------------------------------------------------------------------------------------------------------

    def labelled(self, arrows: Arrows) -> Styles:
        """One arrow for all tokens between two states, with their names beside it; there is nothing for a key."""
        curves = {
            ends: self.curve(*ends, bend=0.16 * (ends[::-1] in arrows)) for ends in sorted(arrows) if ends[0] != ends[1]
        }
        self.curves += curves.values()
        for curve in curves.values():
            self.sheet.arrow(curve)
        for state, _ in sorted(ends for ends in arrows if ends[0] == ends[1]):
            self.loop(state, ", ".join(arrows[state, state]))
        for ends, curve in curves.items():
            self.label(", ".join(arrows[ends]), curve)
        return {}

    def coloured(self, arrows: Arrows) -> Styles:
        """An arrow for every token; one line without heads where a token leads both ways; loops are left out."""
        names = list(dict.fromkeys(token for tokens in arrows.values() for token in tokens))
        styles = {
            name: dict(color=PALETTE[i % len(PALETTE)], ls=_DASHES[i // len(PALETTE) % len(_DASHES)])
            for i, name in enumerate(names)
        }
        for number, (name, style) in enumerate(styles.items()):
            mine = {ends for ends, tokens in arrows.items() if name in tokens and ends[0] != ends[1]}
            for a, b in sorted(mine):
                both = (b, a) in mine
                if both and a > b:
                    continue
                twins = len(arrows.get((a, b), ())) + len(arrows.get((b, a), ())) - both
                curve = self.curve(a, b, bend=0.0 if twins <= 1 else 0.05 + 0.05 * (number % 4))
                self.curves.append(curve)
                self.sheet.arrow(curve, head=not both, lw=1.0, alpha=0.8, **style)
        return styles

    def curve(self, a: int, b: int, *, bend: float) -> Curve:
        """From the rim of one state to that of another, around states in between; `bend` is a share of the way."""
        p, q = self.points[a], self.points[b]
        way = q - p
        normal = np.array([-way[1], way[0]]) / np.linalg.norm(way)
        others = np.delete(self.points, [a, b], axis=0)
        t = np.linspace(0, 1, 161)[:, None]
        curve = p + t * way
        for extra in (0.0, 0.3, -0.3, 0.55, -0.55, 0.9, -0.9):
            middle = (p + q) / 2 + 2 * (min(bend * float(np.linalg.norm(way)), 0.4) + extra) * normal
            curve = (1 - t) ** 2 * p + 2 * t * (1 - t) * middle + t**2 * q
            if not len(others) or np.linalg.norm(curve[:, None] - others, axis=2).min() > _HIGH / 2 + 0.08:
                break
        outside = np.flatnonzero(~self.inside(curve, a) & ~self.inside(curve, b))
        return curve[outside[0] : outside[-1] + 1] if len(outside) > 1 else curve[60:100]

    def inside(self, curve: Curve, state: int) -> np.ndarray:
        return (((curve - self.points[state]) / (self.reach[state] + 0.03)) ** 2).sum(1) < 1

    def label(self, text: str, curve: Curve) -> None:
        """Beside the curve, where there is most room, rather in the middle and rather outside."""
        half, best, place = text_half(text), -np.inf, curve[0]
        others = [other for other in self.curves if other is not curve]
        for share in (0.5, 0.4, 0.6, 0.3, 0.7):
            i = int(share * (len(curve) - 1))
            way = curve[min(i + 1, len(curve) - 1)] - curve[max(i - 1, 0)]
            normal = np.array([-way[1], way[0]]) / max(float(np.linalg.norm(way)), 1e-9)
            for side in (1, -1):
                x = curve[i] + side * (0.05 + float(np.abs(normal) @ half)) * normal
                outwards = float(np.sign((x - curve[i]) @ (curve[i] - self.centre)))
                score = min(self.room(x, half, others), 0.12) - 0.1 * abs(share - 0.5) + 0.01 * outwards
                if score > best:
                    best, place = score, x
        self.write(text, place)

    def write(self, text: str, place: Point) -> None:
        self.boxes.append((place, text_half(text)))
        self.sheet.text(float(place[0]), float(place[1]), text, color=PALETTE[0])

    def room(self, x: Point, half: Point, curves: Sequence[Curve]) -> float:
        """How far a box is from the nearest curve, label or state; below zero where it overlaps one."""
        gaps = [float((np.abs(x - middle) - half - size).max()) for middle, size in self.boxes]
        gaps += [float((np.abs(curve - x) - half).max(1).min()) for curve in curves]
        return min(gaps, default=1.0)

    def loop(self, state: int, text: str) -> None:
        """On the side where there is most room, rather above, with its label beyond."""
        half = text_half(text)

        def room(angle: float) -> float:
            way = np.array([np.cos(angle), np.sin(angle)])
            x = self.points[state] + way * (self.reach[state] + 0.3 + np.abs(way) @ half)
            others = [(middle, size) for middle, size in self.boxes if middle is not self.points[state]]
            near = min((float((np.abs(x - m) - half - s - 0.1).max()) for m, s in others), default=1.0)
            along = min((float((np.abs(c - x) - half - 0.12).max(1).min()) for c in self.curves), default=1.0)
            return min(near, along, 0.3) + 0.04 * float(way[1])

        angle = max(np.pi / 2 + _TURN, key=room)
        way, side = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        base = self.points[state] + way * self.reach[state] * 0.8
        corners = [
            base + 0.11 * side,
            base + 0.42 * way + 0.22 * side,
            base + 0.42 * way - 0.22 * side,
            base - 0.11 * side,
        ]
        t = np.linspace(0, 1, 60)[:, None]
        weights = np.concatenate([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
        curve = weights @ np.array(corners)
        outside = np.flatnonzero(~self.inside(curve, state))
        curve = curve[outside[0] : outside[-1] + 1]
        self.curves.append(curve)
        self.sheet.arrow(curve)
        self.write(text, base + way * (0.38 + float(np.abs(way) @ half)))

    # -- states, the start, the key ----------------------------------------------------------------------------------

    def nodes(self, states: Sequence[str], start: int | None, marked: Collection[int]) -> None:
        for number, (name, point, reach) in enumerate(zip(states, self.points, self.reach, strict=True)):
            colour, width = (PALETTE[1], 1.8) if number == start else (INK, 1.2)
            for inner in (0.0, 0.08)[: 1 + (number in marked)]:
                wide, high = 2 * reach - inner
                ring = Ellipse(point, wide, high, fc="none", ec=colour, lw=0.9 if inner else width, zorder=4)
                self.sheet.axes.add_patch(ring)
            self.sheet.text(float(point[0]), float(point[1]), name)
            self.sheet.grow(point - reach, point + reach)
        if start is not None:
            self.start(start)

    def start(self, start: int) -> None:
        """A short arrow from nowhere, from the side where there is most room, rather from the left."""

        def room(angle: float) -> float:
            way = np.array([np.cos(angle), np.sin(angle)])
            tail = self.points[start] + way * (self.reach[start] + 0.22)
            others = [(middle, size) for middle, size in self.boxes if middle is not self.points[start]]
            near = min((float((np.abs(tail - m) - s - 0.1).max()) for m, s in others), default=1.0)
            along = min((float(np.linalg.norm(c - tail, axis=1).min()) for c in self.curves), default=1.0)
            return min(near, along, 0.25) - 0.03 * float(way[0])

        angle = max(np.pi + _TURN, key=room)
        way = np.array([np.cos(angle), np.sin(angle)])
        ends = [self.points[start] + way * (self.reach[start] + far) for far in (0.34, 0.03)]
        self.sheet.arrow(np.linspace(ends[0], ends[1], 10), color=PALETTE[1], lw=1.8)

    def key(self, arrows: Arrows, styles: Styles) -> None:
        """The tokens and their colours, in rows below the drawing."""
        (left, bottom), right = self.sheet.low, float(self.sheet.high[0])
        moving = {name for ends, tokens in arrows.items() if ends[0] != ends[1] for name in tokens}
        items = {name: name if name in moving else f"{name} (keeps every state)" for name in styles}
        if any(ends[0] == ends[1] and moving.intersection(tokens) for ends, tokens in arrows.items() if styles):
            items[""] = "(loops are not drawn)"
        rows, width = [[]], max(WIDTH - 0.3, right - left)
        for name, text in items.items():
            need = 0.16 + LETTER * len(text) + 0.3 * (name in moving)
            if rows[-1] and sum(wide for *_, wide in rows[-1]) + need > width:
                rows.append([])
            rows[-1].append((name, text, need))
        for number, row in enumerate(rows):
            x, y = (left + right - sum(wide for *_, wide in row)) / 2, bottom - 0.26 - 0.2 * number
            for name, text, wide in row:
                if name in moving:
                    self.sheet.arrow(np.array([[x, y], [x + 0.24, y]]), head=False, lw=1.6, **styles[name])
                colour = styles[name]["color"] if name in moving else INK
                self.sheet.text(x + 0.3 * (name in moving), y, text, ha="left", color=colour)
                x += wide
