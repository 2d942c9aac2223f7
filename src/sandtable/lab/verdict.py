"""Judging evidence: each check's interval against its target, Holm over the checks, the worst check for the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandtable.arguments import ArgumentError, number
from sandtable.lab.evidence import Check
from sandtable.lab.statistics import Interval

HOLDS, REFUTED, INCONCLUSIVE = "holds", "refuted", "inconclusive"
_WORST_FIRST = (REFUTED, INCONCLUSIVE, HOLDS)
_SMALLEST_ALPHA = 1e-15
_MOST_UNITS = 1_000_000


@dataclass(frozen=True)
class CheckResult:
    """A check with its verdict, the interval that gave it, and one line for the reader."""

    check: Check
    verdict: str
    low: float
    high: float
    message: str

    def as_json(self) -> dict[str, Any]:
        """The check as `verify --json` prints it; what is not finite is null."""
        c = self.check
        values = {"measured": c.measured, "low": self.low, "high": self.high, "predicted": c.predicted}
        finite = {key: v if v is not None and math.isfinite(v) else None for key, v in values.items()}
        return {"name": c.name, "kind": c.kind, "verdict": self.verdict, "unit": c.unit, "n": c.n, **finite}


@dataclass(frozen=True)
class Judgement:
    """A claim's verdict — that of its worst check — and the result of every check, in the order given."""

    verdict: str
    results: list[CheckResult]


def judge(checks: Sequence[Check], level: float = 0.99) -> Judgement:
    """Judge a claim at `level`, Holm-corrected (1979) over its checks that are not deterministic.

    A check's p-value is the smallest α whose interval lies wholly inside or wholly outside the target. Step-down with
    decisions in either direction keeps the chance of any wrong one below 1 − level for independent checks (Shaffer
    1980), and for two checks always, since a wrong direction costs α/2. A claim holds only if every check does.
    """
    if not checks:
        raise ArgumentError("checks=[]: a claim needs at least one check")
    names = [check.name for check in checks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ArgumentError(f"checks: the name {repeated!r} is used twice; controls name checks, so give each its own")
    alpha = 1 - number("level", level, above=0.0, most=1 - _SMALLEST_ALPHA)
    alphas = _holm(checks, alpha)
    results = [_result(check, a) for check, a in zip(checks, alphas, strict=True)]
    return Judgement(min((r.verdict for r in results), key=_WORST_FIRST.index), results)


def compare(interval: Interval, target: tuple[float, float]) -> str:
    """Inside the closed target: holds; disjoint from it: refuted; straddling an end: inconclusive."""
    (low, high), (least, most) = interval, target
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else INCONCLUSIVE


def units_needed(check: Check, alpha: float) -> int | None:
    """The fewest units at which the present estimate and spread would decide the check; None if a million would not."""
    if check.projected is None:
        return None

    def decided(n: int) -> bool:
        return check.projected is not None and compare(check.projected(alpha, n), check.target) != INCONCLUSIVE

    low, high = check.n, 2 * check.n
    while not decided(high):
        if high >= _MOST_UNITS:
            return None
        low, high = high, min(2 * high, _MOST_UNITS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def _holm(checks: Sequence[Check], alpha: float) -> list[float]:
    """The α at which each check is judged: α/m for the smallest p-value, then α/(m−1), … until one is not decided."""
    alphas = [alpha] * len(checks)
    random = [i for i, check in enumerate(checks) if not check.deterministic]
    if len(random) < 2:
        return alphas
    stopped = False
    share = alpha / len(random)
    for rank, i in enumerate(sorted(random, key=lambda i: _p_value(checks[i]))):
        share = share if stopped else alpha / (len(random) - rank)
        alphas[i] = share
        stopped = stopped or not _decided(checks[i], share)
    return alphas


def _decided(check: Check, alpha: float) -> bool:
    return compare(check.interval(alpha), check.target) != INCONCLUSIVE


def _p_value(check: Check) -> float:
    if not _decided(check, 1.0):
        return 1.0
    low, high = math.log(_SMALLEST_ALPHA), 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _decided(check, math.exp(middle)) else (middle, high)
    return math.exp(high)


def _result(check: Check, alpha: float) -> CheckResult:
    low, high = check.interval(alpha)
    verdict = INCONCLUSIVE if check.note else compare((low, high), check.target)
    return CheckResult(check, verdict, low, high, _message(check, verdict, (low, high), alpha))


def _message(check: Check, verdict: str, interval: Interval, alpha: float) -> str:
    if check.note:
        return check.note
    found = f"{check.measured:.6g}"
    if not check.deterministic:
        found += f" [{interval[0]:.4g}, {interval[1]:.4g}] at {100 * (1 - alpha):.4g} %"
    if verdict != INCONCLUSIVE:
        return f"{found} is {'inside' if verdict == HOLDS else 'outside'} the target {_region(check)}"
    if check.measured in check.target:
        return f"{found} sits on the boundary of {_region(check)}: no number of {check.unit}s will decide it"
    needed = units_needed(check, alpha)
    if needed is None:
        return f"{found} is too close to the boundary of {_region(check)}: no feasible number of {check.unit}s will do"
    return f"{found} straddles the boundary of {_region(check)}: a new run would need about {needed} {check.unit}s"


def _region(check: Check) -> str:
    low, high = check.target
    if check.kind in ("exceeds", "orders", "below"):
        return f"{'<' if check.kind == 'below' else '>'} {check.predicted:.6g}"
    if math.isinf(low) or math.isinf(high):
        return f"≤ {high:.6g}" if math.isinf(low) else f"≥ {low:.6g}"
    return f"[{low:.6g}, {high:.6g}]"
