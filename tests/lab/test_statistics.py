"""The intervals by themselves: closed forms, nesting, and agreement with scipy where it computes the same thing."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sandtable.lab import statistics as st

ALPHAS = (1e-6, 1e-3, 0.01, 0.05, 0.3, 0.9, 1.0)


def nested(intervals):
    return all(a[0] <= b[0] <= b[1] <= a[1] for a, b in itertools.pairwise(intervals))


def test_t_interval_is_students_for_symmetric_units():
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 0.5, -0.5])
    expected = stats.t.interval(0.99, 6, x.mean(), stats.sem(x))
    assert st.t_interval(st.mean_of(x), 0.01) == pytest.approx(expected)


def test_t_interval_is_longer_on_the_side_of_the_longer_tail_and_never_shorter_than_students():
    x = np.array([0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.9, 1.0, 1.4])
    low, high = st.t_interval(st.mean_of(x), 0.01)
    student = stats.t.interval(0.99, 9, x.mean(), stats.sem(x))
    assert low == pytest.approx(student[0])
    assert high > student[1]
    mirrored = st.t_interval(st.mean_of(-x), 0.01)
    assert mirrored == pytest.approx((-high, -low))


def test_one_far_outlier_at_most_doubles_its_side():
    x = np.array([1.0, 1.01, 0.99, 1.0, 5.0])
    low, high = st.t_interval(st.mean_of(x), 0.01)
    assert high - x.mean() == pytest.approx(2 * (x.mean() - low))


def test_welch_degrees_of_freedom_and_error_agree_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 7), rng.normal(0, 4, 12)
    ours = st.difference_of(a, b)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert ours.df == pytest.approx(theirs.df)
    assert ours.estimate / ours.error == pytest.approx(theirs.statistic)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (199, 200)])
def test_clopper_pearson_agrees_with_scipy(k, n):
    theirs = stats.binomtest(k, n).proportion_ci(0.99, "exact")
    assert st.clopper_pearson(k, n, 0.01) == pytest.approx((theirs.low, theirs.high))


def test_clopper_pearson_covers_exactly_by_enumeration():
    """Σ over outcomes whose end misses p, for every p on a grid: each side stays ≤ α/2. No simulation needed."""
    for n in (5, 17, 60):
        intervals = np.array([st.clopper_pearson(k, n, 0.01) for k in range(n + 1)])
        for p in np.linspace(0.001, 0.999, 333):
            mass = stats.binom.pmf(np.arange(n + 1), n, p)
            assert mass[intervals[:, 0] > p].sum() <= 0.005 + 1e-12
            assert mass[intervals[:, 1] < p].sum() <= 0.005 + 1e-12


def test_total_variation_interval_covers_exactly_by_enumeration_of_two_cells():
    n, p = 200, 0.3
    counts = np.arange(n + 1)
    distances = np.abs(counts / n - p)
    intervals = np.array([st.total_variation_interval(d, 2, n, 0.01) for d in distances])
    for q in np.linspace(0.01, 0.99, 99):
        mass = stats.binom.pmf(counts, n, q)
        truth = abs(q - p)
        assert mass[intervals[:, 0] > truth + 1e-12].sum() <= 0.005
        assert mass[intervals[:, 1] < truth - 1e-12].sum() <= 0.005


def test_every_interval_is_nested_in_alpha():
    rng = np.random.default_rng(1)
    x = rng.exponential(size=12)
    mean, sample = st.mean_of(x), st.resample(np.median, x, resamples=500)
    assert nested([st.t_interval(mean, a) for a in ALPHAS])
    assert nested([st.clopper_pearson(3, 12, a) for a in ALPHAS])
    assert nested([st.total_variation_interval(0.3, 4, 500, a) for a in ALPHAS])
    assert nested([st.resampling_interval(sample, a) for a in ALPHAS])


def test_resampling_is_deterministic_and_the_same_vectorised_and_from_a_list():
    x = np.random.default_rng(2).normal(size=(10, 3))
    plain = st.resample(lambda u: np.mean(u), x, resamples=300)
    again = st.resample(lambda u: np.mean(np.stack(u)), list(x), resamples=300)
    fast = st.resample(lambda u: u.mean(axis=(1, 2)), x, resamples=300, vectorised=True)
    for other in (again, fast):
        assert other.estimate == pytest.approx(plain.estimate)
        np.testing.assert_allclose(other.left_out, plain.left_out)
        np.testing.assert_allclose(other.resampled, plain.resampled)


def test_extreme_quantiles_are_unbounded_where_order_statistics_are():
    x = np.random.default_rng(3).normal(size=20)
    high_quantile = st.resample(lambda u: np.quantile(u, 0.9), x, resamples=500)
    low, high = st.resampling_interval(high_quantile, 0.01)
    assert math.isfinite(low)
    assert high == math.inf
    median = st.resample(np.median, x, resamples=500)
    assert np.isfinite(st.resampling_interval(median, 0.01)).all()
    assert np.isinf(st.resampling_interval(median, 1e-8)).all()


def test_spread_of_rounding_size_is_recognised_in_both_precisions():
    ones = np.ones(6)
    wobble = np.array([0, 1, -1, 2, 0, 1])
    assert st.only_rounding(ones)
    assert st.only_rounding(ones + 2.2e-16 * wobble)
    assert st.only_rounding((ones + 1.2e-7 * wobble).astype(np.float32).astype(float))
    assert not st.only_rounding(ones + 1.23e-9 * wobble)
    assert not st.only_rounding(1e-20 * (ones + 0.1 * wobble))
    assert st.only_rounding(1e-3 + 2.2e-16 * wobble, origin=ones)
