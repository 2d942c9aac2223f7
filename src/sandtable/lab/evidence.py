"""What a claim measured: checks, each with its unit of replication, its target and its interval.

A check compares one quantity with a closed region, its target. How sure we are of the quantity is its `interval`, a
function from α to a two-sided interval of level 1 − α; `lab.verdict` chooses α and judges.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sandtable.arguments import ArgumentError, number, probability, typed, whole
from sandtable.lab.statistics import (
    LEAST_UNITS,
    LEAST_UNITS_RESAMPLED,
    RESAMPLES,
    UNBOUNDED,
    Interval,
    Mean,
    as_array,
    as_units,
    as_vector,
    clopper_pearson,
    difference_of,
    few_units_decide,
    mean_of,
    only_rounding,
    resample,
    resampling_interval,
    t_interval,
    total_variation,
    total_variation_interval,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXTREMES = (np.max, np.min, np.nanmax, np.nanmin, np.ptp, builtins.max, builtins.min)


@dataclass(frozen=True)
class Check:
    """One quantity, the region it must lie in, and how well it is known."""

    name: str
    kind: str
    unit: str
    n: int
    measured: float
    predicted: float | None
    target: tuple[float, float]
    interval: Callable[[float], Interval]
    deterministic: bool = False
    shift: float | None = None
    note: str = ""
    projected: Callable[[float, int], Interval] | None = None
    """(α, n) → the interval that n units of the same estimate and spread would give."""

    def shifted(self, sign: int) -> Check:
        """The same measurement beside a prediction moved by `sign`·shift·|predicted| (by `sign`·shift if it is 0)."""
        if self.shift is None or self.predicted is None:
            raise ArgumentError(
                f"check={self.name!r}: only a check with a prediction can be shifted, not {self.kind!r}"
            )
        move = sign * self.shift * (abs(self.predicted) or 1.0)
        low, high = self.target
        return replace(self, predicted=self.predicted + move, target=(low + move, high + move))


@dataclass(frozen=True)
class Table:
    """Rows of values under column names, for the report."""

    columns: list[str]
    rows: list[list[Any]]


@dataclass
class Evidence:
    """The checks that decide a claim, and the figures (drawn on demand), tables and notes that explain it."""

    checks: list[Check]
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@typed
def agrees(
    name: str,
    measured: Any,
    predicted: float,
    *,
    within: float | None = None,
    relative: float | None = None,
    unit: str = "seed",
    shift: float = 0.2,
    shift_absolute: float | None = None,
    deterministic: bool = False,
) -> Check:
    """The mean of `measured` lies within `within`, or within the fraction `relative`, of the prediction."""
    predicted = number("predicted", predicted)
    target = _around(predicted, within, relative)
    check = _mean_check(name, "agrees", as_vector("measured", measured), predicted, target, unit, deterministic)
    return replace(check, shift=_shift(predicted, shift, shift_absolute))


@typed
def exceeds(name: str, measured: Any, threshold: float, *, unit: str = "seed", deterministic: bool = False) -> Check:
    """The mean of `measured` lies above the threshold."""
    threshold = number("threshold", threshold)
    target = (_just_above(threshold, deterministic), math.inf)
    return _mean_check(name, "exceeds", as_vector("measured", measured), threshold, target, unit, deterministic)


@typed
def below(name: str, measured: Any, threshold: float, *, unit: str = "seed", deterministic: bool = False) -> Check:
    """The mean of `measured` lies below the threshold."""
    threshold = number("threshold", threshold)
    target = (-math.inf, -_just_above(-threshold, deterministic))
    return _mean_check(name, "below", as_vector("measured", measured), threshold, target, unit, deterministic)


@typed
def orders(
    name: str,
    larger: Any,
    smaller: Any,
    *,
    paired: bool = True,
    margin: float = 0.0,
    unit: str = "seed",
    deterministic: bool = False,
) -> Check:
    """mean(larger − smaller) > margin: over pairs that share a unit, or over two independent groups (Welch 1947)."""
    a, b = as_vector("larger", larger), as_vector("smaller", smaller)
    margin = number("margin", margin)
    target = (_just_above(margin, deterministic), math.inf)
    if paired:
        if len(a) != len(b):
            raise ArgumentError(f"smaller={len(b)} units: must be as many as larger ({len(a)}), or pass paired=False")
        with np.errstate(invalid="ignore"):
            gaps = a - b
        origin = np.concatenate([a, b])
        return _mean_check(name, "orders", gaps, margin, target, unit, deterministic, origin=origin)
    n = min(len(a), len(b))
    note = _trouble(a, unit, deterministic) or _trouble(b, unit, deterministic)
    if deterministic or note:
        return _plain(
            name, "orders", _average(a) - _average(b), margin, target, unit, n, deterministic=deterministic, note=note
        )
    return _t_check(name, "orders", difference_of(a, b), margin, target, unit)


def proportion(
    name: str,
    successes: int,
    trials: int,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    unit: str = "seed",
) -> Check:
    """The probability of success is at least, or at most, a bound: exact binomial interval (Clopper & Pearson 1934)."""
    trials = whole("trials", trials)
    successes = whole("successes", successes, least=0, most=trials)
    if at_least is None and at_most is None:
        raise ArgumentError("at_least=None, at_most=None: give at least one of them")
    low = 0.0 if at_least is None else probability("at_least", at_least)
    high = 1.0 if at_most is None else probability("at_most", at_most)
    if low > high:
        raise ArgumentError(f"at_least={low}: must be ≤ at_most={high}")
    share = successes / trials
    predicted = low if at_least is not None else high
    if trials < LEAST_UNITS:
        note = _too_few(trials, unit, LEAST_UNITS)
        return _plain(name, "proportion", share, predicted, (low, high), unit, trials, note=note)
    return Check(
        name=name,
        kind="proportion",
        unit=unit,
        n=trials,
        measured=share,
        predicted=predicted,
        target=(low, high),
        interval=lambda alpha: clopper_pearson(successes, trials, alpha),
        projected=lambda alpha, n: clopper_pearson(share * n, n, alpha),
    )


def passing(
    name: str,
    values: Any,
    *,
    above: float | None = None,
    below: float | None = None,
    at_least: float,
    unit: str = "seed",
) -> Check:
    """At least the fraction `at_least` of units score above and/or below a line; a unit that is not finite fails.

    For bounded or two-mode scores, whose mean no t-interval describes.
    """
    if above is None and below is None:
        raise ArgumentError("above=None, below=None: give the line that a unit must pass")
    scores = as_vector("values", values)
    low = -math.inf if above is None else number("above", above)
    high = math.inf if below is None else number("below", below)
    passed = int(np.sum(np.isfinite(scores) & (scores > low) & (scores < high)))
    return proportion(name, passed, len(scores), at_least=at_least, unit=unit)


@typed
def statistic(
    name: str,
    fn: Callable[[Any], Any],
    units: Any,
    *,
    above: float | None = None,
    below: float | None = None,
    predicted: float | None = None,
    within: float | None = None,
    relative: float | None = None,
    unit: str = "seed",
    shift: float = 0.2,
    shift_absolute: float | None = None,
    strata: Any = None,
    resamples: int = RESAMPLES,
    vectorised: bool = False,
) -> Check:
    """A functional of all units — slope, correlation, median, mean over pairs — resampled over units, never over pairs.

    `strata` (a label per unit) keeps what is not random: units are redrawn among those of their label, as words within
    their topics.

    `fn` maps an array of units (first axis) or a list of them to a number; with `vectorised` it maps an array of many
    such samples (samples, units, …) to one number each. See `resampling_interval` for what is computed; it needs 8
    units. Simulated at 99 % for slopes, correlations up to 0.9, medians, spreads, ratios, means over pairs, and
    the largest of up to three tied means. Not covered, and refused or left undecided: extremes over units (their
    law hangs on units that were not seen; ask with `passing` how many units respect a bound) and quantiles too far
    out for n. The largest of *many* nearly tied means is biased upwards: fix the winner beforehand.
    A correlation near ±1 is better asked as arctanh r: raw, at 0.9 and 30 units, it errs 0.5 % of the time at α=0.2 %.
    """
    if any(fn is extreme for extreme in _EXTREMES):
        raise ArgumentError(
            f"fn={getattr(fn, '__name__', fn)!r}: no sample bounds an extreme; use passing(values, below=…, "
            "at_least=…), or bounded(values, bound) if every instance is enumerated"
        )
    resamples = whole("resamples", resamples, least=200)
    target = _sides(above, below) if predicted is None else _around(number("predicted", predicted), within, relative)
    if predicted is None and not (within is None and relative is None):
        raise ArgumentError("predicted=None: within and relative need a prediction")
    if predicted is not None and not (above is None and below is None):
        raise ArgumentError(f"predicted={predicted}: give either a prediction or above/below, not both")
    beside = predicted if predicted is not None else above if above is not None else below
    moved = None if predicted is None else _shift(predicted, shift, shift_absolute)
    units = as_units(units, vectorised)
    n = len(units)

    if broken := _not_finite(units, unit):
        return replace(_plain(name, "statistic", math.nan, beside, target, unit, n, note=broken), shift=moved)
    if n < LEAST_UNITS_RESAMPLED:
        value = float(np.asarray(fn(units[None]) if vectorised else fn(units), dtype=float).squeeze())
        note = _too_few(n, unit, LEAST_UNITS_RESAMPLED)
        return replace(_plain(name, "statistic", value, beside, target, unit, n, note=note), shift=moved)
    note = ""
    sample = resample(fn, units, strata=strata, resamples=resamples, vectorised=vectorised)
    undefined = float(np.mean(~np.isfinite(sample.resampled)))
    if not (np.isfinite(sample.estimate) and np.isfinite(sample.left_out).all()) or undefined > 0.05:
        note = f"fn is not finite on all units, on all but one, or on {undefined:.0%} of the resampled sets"
    elif only_rounding(np.append(sample.left_out, sample.estimate)):
        note = f"zero spread over {n} {unit}s: if the quantity is deterministic, check it with exact or bounded"
    elif few_units_decide(sample):
        note = f"the value hangs on very few of the {n} {unit}s, as a maximum does; use passing for the share in bounds"
    if note:
        return replace(_plain(name, "statistic", sample.estimate, beside, target, unit, n, note=note), shift=moved)
    sample = sample._replace(resampled=sample.resampled[np.isfinite(sample.resampled)])
    return Check(
        name=name,
        kind="statistic",
        unit=unit,
        n=n,
        measured=sample.estimate,
        predicted=beside,
        target=target,
        interval=lambda alpha: resampling_interval(sample, alpha),
        shift=moved,
        projected=lambda alpha, size: resampling_interval(sample, alpha, n=size),
    )


def law(name: str, counts: Any, probabilities: Any, *, within: float, unit: str = "sample") -> Check:
    """Independent draws follow the law up to total variation `within`; see `total_variation_interval`.

    Cells of probability zero are merged: that changes neither total variation and shortens the interval.
    """
    seen, expected = as_vector("counts", counts), as_vector("probabilities", probabilities)
    if len(seen) != len(expected):
        raise ArgumentError(f"probabilities={len(expected)} cells: must be as many as counts ({len(seen)})")
    if not (np.isfinite(seen).all() and (seen >= 0).all() and (seen == np.round(seen)).all() and seen.sum() > 0):
        raise ArgumentError("counts: must be whole numbers ≥ 0, not all zero")
    if not ((expected >= 0).all() and abs(expected.sum() - 1) <= 1e-6):
        raise ArgumentError(f"probabilities: must be ≥ 0 and sum to 1, not {expected.sum():.6g}")
    within = number("within", within, above=0.0, most=1.0)
    n, cells = int(seen.sum()), int((expected > 0).sum() + (expected == 0).any())
    distance = total_variation(seen, expected)
    if n < LEAST_UNITS:
        note = _too_few(n, unit, LEAST_UNITS)
        return _plain(name, "law", distance, within, (0.0, within), unit, n, note=note)
    return Check(
        name=name,
        kind="law",
        unit=unit,
        n=n,
        measured=distance,
        predicted=within,
        target=(0.0, within),
        interval=lambda alpha: total_variation_interval(distance, cells, n, alpha),
        projected=lambda alpha, draws: total_variation_interval(distance, cells, draws, alpha),
    )


def bounded(name: str, values: Any, bound: float, *, atol: float = 0.0, unit: str = "instance") -> Check:
    """Every enumerated value is at most `bound` (+ `atol`); the largest is shown."""
    array = as_array("values", values).ravel()
    bound, atol = number("bound", bound), number("atol", atol, least=0.0)
    target, worst = (-math.inf, bound + atol), float(array.max())
    note = _not_finite(array, unit)
    return _plain(name, "bounded", worst, bound, target, unit, len(array), deterministic=True, note=note)


def exact(
    name: str, measured: Any, expected: Any, *, atol: float = 0.0, rtol: float = 0.0, unit: str = "instance"
) -> Check:
    """Every entry obeys |measured − expected| ≤ atol + rtol·|expected|; the entry furthest past that is shown."""
    got, want = as_array("measured", measured), as_array("expected", expected)
    if got.shape != want.shape and want.ndim > 0:
        raise ArgumentError(f"expected: its shape {want.shape} must be that of measured, {got.shape}")
    got, want = got.ravel(), np.broadcast_to(want, got.shape).ravel()
    slack = number("atol", atol, least=0.0) + number("rtol", rtol, least=0.0) * np.abs(want)
    note = _not_finite(np.stack([got, want], axis=1), unit)
    i = 0 if note else int(np.argmax(np.abs(got - want) - slack))
    low, high = want[i] - slack[i], want[i] + slack[i]
    target = (float(low), float(high))
    return _plain(name, "exact", float(got[i]), float(want[i]), target, unit, len(got), deterministic=True, note=note)


def _mean_check(
    name: str,
    kind: str,
    values: np.ndarray,
    predicted: float,
    target: tuple[float, float],
    unit: str,
    deterministic: bool,
    origin: np.ndarray | None = None,
) -> Check:
    note = _trouble(values, unit, deterministic, origin)
    if deterministic or note:
        value, n = _average(values), len(values)
        return _plain(name, kind, value, predicted, target, unit, n, deterministic=deterministic, note=note)
    return _t_check(name, kind, mean_of(values), predicted, target, unit)


def _t_check(name: str, kind: str, mean: Mean, predicted: float, target: tuple[float, float], unit: str) -> Check:
    return Check(
        name=name,
        kind=kind,
        unit=unit,
        n=mean.n,
        measured=mean.estimate,
        predicted=predicted,
        target=target,
        interval=lambda alpha: t_interval(mean, alpha),
        projected=lambda alpha, n: t_interval(mean.at(n), alpha),
    )


def _plain(
    name: str,
    kind: str,
    measured: float,
    predicted: float | None,
    target: tuple[float, float],
    unit: str,
    n: int,
    *,
    deterministic: bool = False,
    note: str = "",
) -> Check:
    """A check whose interval needs no statistics: the value itself, or everything when a note says why."""
    interval = UNBOUNDED if note else (measured, measured)
    return Check(name, kind, unit, n, measured, predicted, target, lambda alpha: interval, deterministic, note=note)


def _trouble(values: np.ndarray, unit: str, deterministic: bool, origin: np.ndarray | None = None) -> str:
    """Why a mean of these values has no interval, or an empty string."""
    if (note := _not_finite(values, unit)) or deterministic:
        return note
    if len(values) < LEAST_UNITS:
        return _too_few(len(values), unit, LEAST_UNITS)
    if only_rounding(values, origin):
        return f"zero spread over {len(values)} {unit}s: declare it deterministic=True if it is, or use passing"
    return ""


def _average(values: np.ndarray) -> float:
    return float(values.mean()) if np.isfinite(values).all() else math.nan


def _too_few(n: int, unit: str, least: int) -> str:
    return f"{n} {unit}{'s' * (n != 1)}: at least {least} are needed"


def _not_finite(units: Any, unit: str) -> str:
    if not isinstance(units, np.ndarray) or units.dtype.kind not in "fiub":
        return ""
    bad = int(np.sum(~np.isfinite(units.reshape(len(units), -1)).all(axis=1)))
    return f"{bad} of {len(units)} {unit}s not finite" if bad else ""


def _around(predicted: float, within: float | None, relative: float | None) -> tuple[float, float]:
    if (within is None) == (relative is None):
        raise ArgumentError(f"within={within}, relative={relative}: give exactly one of them")
    if within is not None:
        slack = number("within", within, least=0.0)
    else:
        slack = number("relative", relative, least=0.0) * abs(predicted)
    return predicted - slack, predicted + slack


def _sides(above: float | None, below: float | None) -> tuple[float, float]:
    if above is None and below is None:
        raise ArgumentError("above=None, below=None, predicted=None: give what the statistic is compared with")
    low = -math.inf if above is None else number("above", above)
    high = math.inf if below is None else number("below", below)
    if low >= high:
        raise ArgumentError(f"above={low}: must be smaller than below={high}")
    return low, high


def _shift(predicted: float, shift: float, absolute: float | None) -> float:
    """The shift as `Check.shift` keeps it: a fraction of |predicted|, or absolute where the prediction is 0."""
    if absolute is not None:
        return number("shift_absolute", absolute, above=0.0) / (abs(predicted) or 1.0)
    if predicted == 0:
        raise ArgumentError("predicted=0.0: no fraction moves it; give shift_absolute, a size that would matter")
    return number("shift", shift, above=0.0)


def _just_above(threshold: float, deterministic: bool) -> float:
    """The least number strictly above, where equality can happen; an interval never touches by chance."""
    return math.nextafter(threshold, math.inf) if deterministic else threshold
