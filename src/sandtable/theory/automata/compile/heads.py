"""Heads that count, fetch what stood one place (or more) before, or fetch the latest write, with their softmax scales.

Lemma 13: where one key beats all others by γ, softmax over N keys puts all but 2N·exp(−γ) in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sandtable.theory.automata.compile.program import Form, Head, coordinate

TOLERANCE = 1 / 8
"""How far from an integer the output of a hard head may be; tables are exact up to 1/4."""
ONE, PAD, LOG, COS, SIN, TIME = "one", "pad", "log", "cos", "sin", "time"


def sharpness(positions: int, largest: float, *, tolerance: float = TOLERANCE) -> float:
    """The score gap γ at which values of size up to `largest` are fetched with an error below `tolerance`."""
    return math.log(2 * positions * max(largest, 1.0) / tolerance)


# -- counting (Lemma 15) ---------------------------------------------------------------------------------------------


def counting(values: Sequence[Form], writes: Sequence[str]) -> Head:
    """Σ_{τ ≤ t} value_τ / 2N in every row: the pad takes (2N − t)/2N of the attention, every other key 1/2N."""
    return Head((coordinate(LOG),), (coordinate(PAD),), tuple(values), tuple(writes), hard=False)


def counting_log(length: int, pads: int = 1) -> list[float]:
    """log(2N − t) at t = 0 (and before), 1, …, N: the score of the pad."""
    return [math.log(2 * length - max(i - pads + 1, 0)) for i in range(length + pads)]


# -- what stood before (Theorem 10, Lemma 21) ------------------------------------------------------------------------


def half_circle(positions: int, span: int | None = None) -> dict[str, list[float]]:
    """cos and sin of πi/N at position i: differences up to N − 1 stay within half a turn."""
    n = positions if span is None else span
    return {
        COS: [math.cos(math.pi * i / n) for i in range(positions)],
        SIN: [math.sin(math.pi * i / n) for i in range(positions)],
    }


def earlier(
    by: float, span: int, scale: float, values: Sequence[Form], writes: Sequence[str], *, turn: int = 1
) -> Head:
    """What stood `by` places before: score γ·cos(π(t − by − j)/N), largest at j = t − by.

    Keys are turned ahead by θ = +π·by/N; the printed `turn` of −1 looks at the masked future instead.
    """
    root, angle = math.sqrt(scale), turn * math.pi * by / span
    cos, sin = root * math.cos(angle), root * math.sin(angle)
    queries = ({COS: root}, {SIN: root})
    keys = ({COS: cos, SIN: -sin}, {COS: sin, SIN: cos})
    return Head(queries, keys, tuple(values), tuple(writes))


def earlier_scale(positions: int, span: int, largest: float) -> float:
    """γ so that (1 − cos(π/N))·γ is sharp enough."""
    return sharpness(positions, largest) / (1 - math.cos(math.pi / span))


# -- the latest write (Lemmas 16 and 20) -----------------------------------------------------------------------------


def latest(write: str, scale: float, values: Sequence[Form], writes: Sequence[str]) -> Head:
    """What stands at the latest position j that writes: score c·(j/N + 2·1[j writes])."""
    root = math.sqrt(scale)
    return Head(({ONE: root},), ({TIME: root, write: 2 * root},), tuple(values), tuple(writes))


def latest_scale(positions: int, largest: float) -> float:
    """c, since neighbours differ by 1/N."""
    return positions * sharpness(positions, largest)


def clock(positions: int) -> dict[str, list[float]]:
    """i/N and the constant 1."""
    return {TIME: [i / positions for i in range(positions)], ONE: [1.0] * positions}
