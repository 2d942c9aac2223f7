"""Confidence intervals that stay honest with few units of replication.

Every function returns a two-sided interval of level 1 − α that is nested in α. "Honest" means: each end misses the
truth with probability at most α, counted on its own, for the laws and sizes that `tests/lab` simulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from sandtable.arguments import ArgumentError

Interval = tuple[float, float]
UNBOUNDED: Interval = (-math.inf, math.inf)

LEAST_UNITS = 5
# Below eight units no interval for a median has level 99 % whatever the law: its level is at most 1 − 2·2⁻ⁿ.
LEAST_UNITS_RESAMPLED = 8
RESAMPLES = 2000


class Mean(NamedTuple):
    """An estimate that is a mean of n units: its standard error, the skewness of its own law, degrees of freedom."""

    estimate: float
    error: float
    skewness: float
    df: float
    n: int

    def at(self, n: int) -> Mean:
        """The same estimate and spread in a run of n units: error and skewness both fall as 1/√n."""
        shrink = math.sqrt(self.n / n)
        return Mean(self.estimate, self.error * shrink, self.skewness * shrink, self.df * n / self.n, n)


def mean_of(values: Float[np.ndarray, " units"]) -> Mean:
    """Mean, s/√n and (third moment)/(√n·σ³) of independent units."""
    n = len(values)
    centred = values - values.mean()
    skewness = np.mean(centred**3) / (np.mean(centred**2) ** 1.5 * math.sqrt(n))
    return Mean(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n), float(skewness), n - 1, n)


def difference_of(larger: Float[np.ndarray, " units"], smaller: Float[np.ndarray, " others"]) -> Mean:
    """Difference of the means of two independent groups, with Welch's (1947) degrees of freedom."""
    a, b = len(larger), len(smaller)
    va, vb = larger.var(ddof=1) / a, smaller.var(ddof=1) / b
    df = (va + vb) ** 2 / (va**2 / (a - 1) + vb**2 / (b - 1))
    third = np.mean((larger - larger.mean()) ** 3) / a**2 - np.mean((smaller - smaller.mean()) ** 3) / b**2
    second = larger.var() / a + smaller.var() / b
    estimate = float(larger.mean() - smaller.mean())
    return Mean(estimate, math.sqrt(va + vb), float(third / second**1.5), float(df), min(a, b))


def t_interval(mean: Mean, alpha: float, *, stretch: float = 4.0, longest: float = 2.0) -> Interval:
    """Student's interval, x̄ ± q·s/√n with q = t(df, 1 − α/2), lengthened on the side of the longer tail.

    If the standard error grows with the mean, s(μ) = s·(1 + a·(μ − x̄)/s), then the end solves (μ − x̄)/s(μ) = q:
    μ = x̄ + q·s/(1 − a·q), with acceleration a = skewness/6 (Efron 1987; the same skewness moves the t statistic in
    Johnson 1978). Few units underestimate skewness, so a is taken `stretch` times as large, but a side grows to at
    most `longest` times Student's. The shorter side is his, so the interval is never narrower than his.

    With the defaults each end misses at most 1 % of the time at α = 1 %: from 5 units for normal, uniform and t laws
    and for skewness up to 1 (a gamma law of shape 4; Student's own end misses 1.9 %), from 20 units for skewness 2
    (exponential; 3.4 %). Scores that have two modes, or sit at a bound, belong to `passing`: no interval around their
    mean can see a mode that is rare.
    """
    q = float(-special.stdtrit(mean.df, alpha / 2))
    lean = stretch * abs(mean.skewness) / 6 * q
    short = q * mean.error
    long = short * (min(1 / (1 - lean), longest) if lean < 1 else longest)
    below, above = (short, long) if mean.skewness > 0 else (long, short)
    return mean.estimate - below, mean.estimate + above


def clopper_pearson(successes: float, trials: int, alpha: float) -> Interval:
    """The exact interval for a probability: each end leaves a binomial tail of α/2 (Clopper & Pearson 1934)."""
    failures = trials - successes
    low = 0.0 if successes <= 0 else float(special.betaincinv(successes, failures + 1, alpha / 2))
    high = 1.0 if failures <= 0 else float(special.betainccinv(successes + 1, failures, alpha / 2))
    return low, high


def total_variation(counts: Float[np.ndarray, " cells"], probabilities: Float[np.ndarray, " cells"]) -> float:
    """½ Σ |p̂ − p| between empirical frequencies and a law."""
    return float(np.abs(counts / counts.sum() - probabilities).sum() / 2)


def total_variation_interval(distance: float, cells: int, draws: int, alpha: float) -> Interval:
    """For n draws of an unknown law q over K cells, an interval for TV(q, p) around the measured TV(p̂, p).

    One draw moves TV(p̂, p) by at most 1/n, so by McDiarmid (1989) it lies within c = √(ln(2/α)/(2n)) of its
    expectation, each side failing with probability α/2. The expectation is at least TV(q, p), because TV is convex
    and E p̂ = q; so the upper end is TV(p̂, p) + c with no further term. It is at most TV(q, p) + E TV(p̂, q), and
    E TV(p̂, q) ≤ ½ Σ √(q(1 − q)/n) ≤ ½ √((K − 1)/n) by Jensen and Cauchy–Schwarz; this is the term of the lower end.
    """
    c = math.sqrt(math.log(2 / alpha) / (2 * draws))
    bias = math.sqrt((cells - 1) / draws) / 2
    return max(0.0, distance - c - bias), min(1.0, distance + c)


class Resampled(NamedTuple):
    """A functional of n units: its value, the n values with one unit left out, and values on resampled units.

    `stratum` numbers the strata that units were redrawn within.
    """

    estimate: float
    left_out: Float[np.ndarray, " units"]
    resampled: Float[np.ndarray, " resamples"]
    stratum: Int[np.ndarray, " units"]


def resample(
    fn: Callable[[Any], Any],
    units: Any,
    *,
    strata: Any = None,
    resamples: int = RESAMPLES,
    vectorised: bool = False,
) -> Resampled:
    """`fn` on all units, on all but one, and on `resamples` draws of n units with replacement (fixed internal seed).

    With `strata`, one label per unit, every unit is redrawn among those of its label; units alone with their label form
    a stratum together.
    """
    n = len(units)
    whole = np.arange(n)
    left_out = np.stack([np.delete(whole, i) for i in range(n)])
    stratum = _strata(n, strata)
    sizes = np.bincount(stratum)
    members, first = np.argsort(stratum, kind="stable"), np.cumsum(sizes) - sizes
    places = np.random.default_rng(n).integers(n if strata is None else sizes[stratum], size=(resamples, n))
    drawn = members[first[stratum] + places]
    if vectorised:
        values = [np.asarray(fn(units[rows]), dtype=float) for rows in (whole[None], left_out, drawn)]
        if any(found.shape != (len(rows),) for found, rows in zip(values, (whole[None], left_out, drawn), strict=True)):
            raise ArgumentError("vectorised=True: fn must give one number for each of the samples in its first axis")
    else:
        take = _taker(units)
        values = [np.array([float(fn(take(row))) for row in rows]) for rows in (whole[None], left_out, drawn)]
    return Resampled(float(values[0][0]), values[1], values[2], stratum)


def _strata(n: int, labels: Any) -> Int[np.ndarray, " units"]:
    if labels is None:
        return np.zeros(n, dtype=int)
    found = np.unique(np.asarray(labels), return_inverse=True)[1].reshape(-1)
    if len(found) != n:
        raise ArgumentError(f"strata={len(found)} labels: must be one for each of the {n} units")
    alone = np.bincount(found)[found] == 1
    return np.unique(np.where(alone, -1, found), return_inverse=True)[1]


def _taker(units: Any) -> Callable[[np.ndarray], Any]:
    if isinstance(units, np.ndarray):
        return lambda row: units[row]
    return lambda row: [units[i] for i in row]


def few_units_decide(sample: Resampled) -> bool:
    """Whether leaving out a unit mostly changes nothing: a maximum, a range, a mode. Resampling says nothing there."""
    return bool(np.mean(sample.left_out == sample.estimate) >= 0.75)


def resampling_interval(sample: Resampled, alpha: float, *, n: int | None = None) -> Interval:
    """The hull of two intervals that fail in different places.

    - Jackknife: estimate ± t·s with s² = (n−1)/n Σ(θ₍ᵢ₎ − mean)² (Tukey 1958), summed over strata with their own n and
      mean, with only n/2 degrees of freedom (less a stratum's mean each) and lengthened for skewness as in `t_interval`
      (a = Σu³/6(Σu²)^1.5 over u = mean − θ₍ᵢ₎, Efron 1987). Sound for slopes, ratios and means over pairs of units —
      where the bootstrap is biased, since a unit drawn twice is paired with itself — but inconsistent for medians.
    - Bootstrap percentiles at the level Φ(−√(n/(n−1))·t(n−1)) that undoes the narrowness of few units (Hesterberg
      2015). It follows the shape of bounded functionals (correlations) and comes close to the order-statistic interval
      of a median.

    A functional whose left-out values are at most three numbers is a quantile of some score. Its level p is the share
    of units whose removal raises it, and an end is finite only if all n units lie on one side of the p-quantile with
    probability ≤ α/2, as for order statistics. With `n` the interval is scaled to what a run of n units would give.
    """
    size = len(sample.left_out)
    n = size if n is None else n
    shrink = math.sqrt(size / n)
    members = np.bincount(sample.stratum)
    means = np.bincount(sample.stratum, sample.left_out) / members
    u = means[sample.stratum] - sample.left_out
    squares = float(np.sum(u**2))
    error = math.sqrt(float(np.sum((1 - 1 / members)[sample.stratum] * u**2)))
    skewness = float(np.sum(u**3)) / squares**1.5 if squares > 0 else 0.0
    df = max(1, min(n // 2, round((size - len(members)) * n / size)))
    jackknife = Mean(sample.estimate, error * shrink, skewness * shrink, df, n)
    low, high = t_interval(jackknife, alpha, stretch=2.0, longest=math.inf)

    score = math.sqrt(size / (size - 1)) * float(special.stdtrit(size - 1, alpha / 2))
    below, above = _percentiles(sample.resampled - sample.estimate, score)
    low = min(low, sample.estimate + shrink * below)
    high = max(high, sample.estimate + shrink * above)

    if len(np.unique(sample.left_out)) <= 3:
        raising = int(np.sum(sample.left_out > sample.estimate))
        lowering = int(np.sum(sample.left_out < sample.estimate))
        p = 0.5 if abs(raising - lowering) <= 1 else raising / size
        low = low if (1 - p) ** n <= alpha / 2 else -math.inf
        high = high if p**n <= alpha / 2 else math.inf
    return low, high


def _percentiles(deviations: Float[np.ndarray, " resamples"], score: float) -> Interval:
    """Quantiles of levels Φ(score) and Φ(−score), score < 0, carried on beyond the tenth resample from either end.

    There they grow at least in proportion to the score, and on the longer side like a shifted log-normal law through
    both tenth resamples: with k = ln(long/short)/z₀ as (e^{kz} − 1)/(e^{kz₀} − 1).
    """
    tail, last = float(special.ndtr(score)), 10 / len(deviations)
    below, above = (float(q) for q in np.quantile(deviations, [tail, 1 - tail]))
    if tail >= last:
        return below, above
    near_below, near_above = (float(q) for q in np.quantile(deviations, [last, 1 - last]))
    start, end = -float(special.ndtri(last)), -score
    growth = [end / start, end / start]
    if near_below < 0 < near_above and near_below != -near_above:
        k = abs(math.log(-near_below / near_above)) / start
        growth[near_above > -near_below] = math.expm1(k * end) / math.expm1(k * start)
    return min(below, growth[0] * near_below), max(above, growth[1] * near_above)


def only_rounding(values: np.ndarray, origin: np.ndarray | None = None) -> bool:
    """Whether the spread of `values` is mere rounding of `origin` (of float32 where all its entries fit one)."""
    origin = values if origin is None else origin
    with np.errstate(over="ignore"):
        single = bool(np.all(origin.astype(np.float32) == origin))
    eps = float(np.finfo(np.float32 if single else np.float64).eps)
    return float(np.ptp(values)) <= 8 * eps * float(np.abs(origin).max())


def as_array(name: str, values: Any) -> np.ndarray:
    """Numbers, arrays, tensors on any device, or sequences of these, as a non-empty float64 array."""
    try:
        array = np.asarray(_plain_numbers(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name}={type(values).__name__}: must be numbers in a regular shape") from error
    if array.size == 0:
        raise ArgumentError(f"{name}: must hold at least one number")
    return array


def _plain_numbers(values: Any) -> Any:
    if hasattr(values, "detach"):
        return values.detach().cpu().double().numpy()
    if isinstance(values, (list, tuple)):
        return [_plain_numbers(value) for value in values]
    return values


def as_vector(name: str, values: Any) -> Float[np.ndarray, " units"]:
    """One float64 number per unit."""
    array = as_array(name, values)
    if array.ndim > 1:
        raise ArgumentError(f"{name}: shape {array.shape} must be one number per unit; reduce inside each unit first")
    return array.reshape(-1)


def as_units(units: Any, vectorised: bool) -> Any:
    """Units as an array, or as a list where they are not numbers of one shape."""
    if hasattr(units, "detach"):
        units = units.detach().cpu().numpy()
    if isinstance(units, np.ndarray) and units.ndim > 0 and len(units) > 0:
        return units
    if isinstance(units, Sequence) and not isinstance(units, str) and len(units) > 0:
        return np.asarray(units) if vectorised else list(units)
    raise ArgumentError(f"units={type(units).__name__}: must be a non-empty array, tensor or list of units")
