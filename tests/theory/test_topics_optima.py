"""Theorem intervals, asymptotic losses, sharp and numerical optima, and the published landscape numbers."""

import itertools

import numpy as np
import pytest

from sandtable.arguments import ArgumentError
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()
GRID = [BertMasking(m, c, c) for m, c in itertools.product([0.05, 0.15, 0.3, 0.45], [0.02, 0.1, 0.2, 0.4, 0.49])]


def test_published_interval_constants():
    constants = theory.block_constants(BERT)
    assert tuple(constants) == pytest.approx((0.577, 0.371, 5866.7), rel=1e-3)
    world = TopicModel(100, 300, present=20)
    assert tuple(theory.block_interval(world, BERT)) == pytest.approx((19 * constants.stated, 100 * constants.upper))
    assert theory.block_interval(world, BERT, constant="proved").low < theory.block_interval(world, BERT).low
    # The statement's own spelling of each constant.
    pm, pc, pr, v = 0.15, 0.1, 0.1, 300
    a, c4 = 1 - (1 - pc) * pm, 1 / (1 - (1 - pc) * pm)
    assert constants.stated == pytest.approx((a + pm * pr) * (1 + (1 - pc) * pm) / (2 * a))
    assert constants.proved == pytest.approx((1 + c4 * pm * pr) * (2 - c4) / (2 * c4))
    bounds = theory.diagonal_bounds(world, BERT)
    assert bounds.beta.low == pytest.approx(20 * v * (a + pm * pr) / 100)
    upper = a / ((v - 1) ** 0.5 - 2 + (1 - pc) * pm) * (1 - (1 - pc - pr) * pm) / (pm * pr) * v
    assert bounds.beta.high == pytest.approx(100 * upper)
    assert bounds.slope == pytest.approx(1 / ((v - 1) * a))


@pytest.mark.parametrize(("tau", "gamma"), [(2, 6.258), (3, 7.042), (4, 7.533)])
def test_published_finite_optimum(tau, gamma):
    assert theory.optimal_gamma(TopicModel(10, 10, present=tau), BERT).beta == pytest.approx(gamma, abs=6e-4)


LANDSCAPES = [
    (20, 53.30, 0.1997035, 0.1999673, (16.8, 966), 1.492e4, 0.116656, (5.7e3, 8.5e5)),
    (40, 66.29, 0.1997516, 0.1999837, (25.2, 249), 1.910e4, 0.128570, (8.3e3, 1.2e6)),
    (60, 72.06, 0.1997843, 0.1999891, (30.1, 189), 2.097e4, 0.137500, (9.4e3, 2.8e6)),
    (80, 75.24, 0.1998090, 0.1999918, (33.1, 168), 2.200e4, 0.144443, (1.0e4, 1e7)),
]


@pytest.mark.parametrize(("tau", "gamma", "block", "flat", "basin", "beta", "diagonal", "wide"), LANDSCAPES)
def test_published_landscapes(tau, gamma, block, flat, basin, beta, diagonal, wide):
    world = TopicModel(100, 300, present=tau)
    best = theory.optimal_gamma(world, BERT)
    assert (best.beta, best.loss) == pytest.approx((gamma, block), rel=1e-3)
    assert best.loss == pytest.approx(block, abs=1e-7)
    assert float(theory.attention_loss(world, BERT, 1, 1)) == pytest.approx(flat, abs=1e-7)
    assert tuple(theory.basin(world, BERT)) == pytest.approx(basin, rel=6e-3)
    copy = theory.optimal_beta(world, BERT)
    assert (copy.beta, copy.loss) == pytest.approx((beta, diagonal), rel=1e-3)
    # The published edges were read off a grid of about ten points a decade.
    assert tuple(theory.basin(world, BERT, value="diagonal")) == pytest.approx(wide, rel=0.06)
    assert best.beta in theory.block_interval(world, BERT)
    assert best.beta in theory.block_interval(world, BERT, constant="proved")
    bounds = theory.diagonal_bounds(world, BERT)
    assert copy.beta in bounds.beta
    assert copy.alpha < bounds.slope * copy.beta


def test_lower_basin_edges_grow_with_the_number_of_topics():
    worlds = [TopicModel(100, 300, present=tau) for tau in (20, 40, 60, 80)]
    for value in ("block", "diagonal"):
        lows = [theory.basin(world, BERT, value=value).low for world in worlds]
        assert lows == sorted(set(lows))


def test_basin_edges_sit_on_the_level():
    world = TopicModel(20, 10, present=4)
    low, high = theory.basin(world, BERT, fraction=0.05)
    axis = np.geomspace(1e-4, 1e7, 3001)
    line = theory.attention_loss(world, BERT, axis, axis)
    level = line.min() + 0.05 * (line.max() - line.min())
    for edge in (low, high):
        assert float(theory.attention_loss(world, BERT, edge, edge)) == pytest.approx(level, abs=1e-7)
    assert ((line < level) == ((axis > low) & (axis < high))).all()


def test_landscape_is_the_loss_on_its_grid():
    world = TopicModel(20, 10, present=4)
    surface = theory.landscape(world, BERT, value="diagonal", points=23)
    assert surface.loss.shape == (23, 23)
    assert (surface.alpha[0], surface.beta[-1]) == pytest.approx((1e-4, 1e7))
    expected = theory.attention_loss(world, BERT, surface.alpha[5], surface.beta[17], value="diagonal")
    assert surface.loss[5, 17] == float(expected)


@pytest.mark.parametrize("variant", ["paper", "exact"])
@pytest.mark.parametrize("tau", [1, 2, 5, 9])
def test_numerical_optima_beat_dense_grids(variant, tau):
    world = TopicModel(10, 10, present=tau)
    axis = np.geomspace(1e-4, 1e6, 4001)
    best = theory.optimal_gamma(world, BERT, variant=variant)
    line = theory.attention_loss(world, BERT, axis, axis, variant=variant)
    assert best.loss <= line.min() + 1e-14
    assert best.beta == pytest.approx(axis[line.argmin()], rel=6e-3)
    axis = np.geomspace(1e-4, 1e6, 401)
    plane = theory.attention_loss(world, BERT, axis[:, None], axis[None], value="diagonal", variant=variant)
    best = theory.optimal_beta(world, BERT, variant=variant)
    assert best.loss <= plane.min() + 1e-14


@pytest.mark.parametrize(
    ("topics", "tau", "paper", "exact"),
    [(10**5, 300, 6.379, 7.246), (10**7, 3000, 6.504, 7.391), (10**9, 30000, 6.517, 7.406)],
)
def test_published_approach_to_the_sharp_optimum(topics, tau, paper, exact):
    world = TopicModel(topics, 12, present=tau)
    for variant, ratio in (("paper", paper), ("exact", exact)):
        best = theory.optimal_gamma(world, BERT, variant=variant)
        assert best.beta / tau == pytest.approx(ratio, abs=6e-4)
    assert theory.sharp_ratio(BERT) == pytest.approx(6.5185, abs=5e-5)
    assert theory.sharp_ratio(BERT, variant="exact") == pytest.approx(7.4074, abs=5e-5)


def test_sharp_optimum_of_diagonal_values():
    world = TopicModel(10**8, 10, present=10**4)
    best = theory.optimal_beta(world, BERT)
    assert best.beta / 1e5 == pytest.approx(6.5137, abs=2e-4)
    assert theory.optimal_beta(world, BERT, variant="exact").beta / 1e5 == pytest.approx(7.4018, abs=2e-4)
    assert best.loss == pytest.approx(theory.sharp_loss(world, BERT, value="diagonal"), abs=1e-3)


@pytest.mark.parametrize("masking", GRID)
def test_sharp_optima_and_intervals_on_the_masking_grid(masking):
    tau = 30_000
    world = TopicModel(10**9, 12, present=tau)
    if not theory.meets_assumptions(world, masking):
        world = TopicModel(10**9, 30, present=tau)
    assert theory.meets_assumptions(world, masking)
    for variant in ("paper", "exact"):
        ratio = theory.sharp_ratio(masking, variant=variant)
        best = theory.optimal_gamma(world, masking, variant=variant)
        assert best.beta / tau == pytest.approx(ratio, rel=0.01)
        assert best.loss == pytest.approx(theory.sharp_loss(world, masking), rel=1e-3)
        copy = theory.optimal_beta(world, masking, variant=variant)
        assert copy.beta / (tau * world.words) == pytest.approx(ratio, rel=0.01)
        for constant in ("stated", "proved"):
            assert best.beta in theory.block_interval(world, masking, constant=constant)
        bounds = theory.diagonal_bounds(world, masking)
        assert copy.beta in bounds.beta
        assert copy.alpha < bounds.slope * copy.beta
        # The sharp optimum respects the statement's interval in the limit.
        assert theory.block_constants(masking).stated < ratio


@pytest.mark.parametrize("tau", [2, 3, 4])
def test_theorem_bounds_in_small_worlds(tau):
    world = TopicModel(10, 10, present=tau)
    for variant in ("paper", "exact"):
        copy, bounds = theory.optimal_beta(world, BERT, variant=variant), theory.diagonal_bounds(world, BERT)
        assert copy.beta in bounds.beta
        assert copy.alpha < min(1.0, bounds.slope * copy.beta)
        assert theory.optimal_gamma(world, BERT, variant=variant).beta in theory.block_interval(world, BERT)


def test_asymptotic_losses_approach_the_exact_ones():
    """Error O(1/τ + τ/T) uniformly over nine decades of the weights, for both value matrices."""
    weights = np.geomspace(1e-2, 1e12, 57)
    errors = {"block": [], "diagonal": []}
    for tau in (100, 1000, 10000):
        world = TopicModel(tau**2, 12, present=tau)
        full = theory.attention_loss(world, BERT, weights, weights)
        errors["block"].append(np.abs(theory.asymptotic_block_loss(world, BERT, weights) - full).max())
        alpha, beta = weights[:, None], weights[None, :]
        full = theory.attention_loss(world, BERT, alpha, beta, value="diagonal")
        errors["diagonal"].append(np.abs(theory.asymptotic_diagonal_loss(world, BERT, alpha, beta) - full).max())
    for first, second, third in errors.values():
        assert first > 5 * second > 25 * third
        assert third < 1e-4
    world = TopicModel(10**8, 12, present=5000)
    assert float(theory.attention_loss(world, BERT, 1e12, 1e12)) == pytest.approx(0.2028776, abs=1e-7)
    assert float(theory.asymptotic_block_loss(world, BERT, 1e12)) == pytest.approx(0.2028776, abs=1e-7)


def test_proof_landmarks():
    """The three losses that the proof of theorem 3 compares, on the asymptotic loss itself."""
    v, tau = 12, 3 * 10**5
    world = TopicModel(10**12, v, present=tau)
    c4 = theory.constants(world, BERT).c3
    constants = theory.block_constants(BERT)
    low = float(theory.asymptotic_block_loss(world, BERT, constants.proved * (tau - 1)))
    high = float(theory.asymptotic_block_loss(world, BERT, constants.upper * world.topics))
    witness = float(theory.asymptotic_block_loss(world, BERT, (tau * world.topics) ** 0.5))
    assert witness == pytest.approx(0.1 * (1 - c4 * (2 - c4) / v) + 0.1, abs=1e-4)
    assert low > 0.1 * (1 - c4 * (2 - c4) / (v * (2 + c4))) ** 2 + 0.1 > witness
    assert high >= witness + 0.1 * v * (100 * c4 / (101 * v)) ** 2 - 1e-5
    alpha = (tau * world.topics) ** 0.5
    diagonal = theory.asymptotic_diagonal_loss(world, BERT, alpha, (v - 1) * alpha / (c4 - 1))
    assert float(diagonal) == pytest.approx(0.1 * (c4 - 1) ** 2 / (v - 1) + 0.1, abs=1e-4)


def test_bad_arguments():
    world = TopicModel(10, 3, present=2)
    with pytest.raises(ArgumentError, match="words=3"):
        theory.diagonal_bounds(world, BERT)
    with pytest.raises(ArgumentError, match="random=0"):
        theory.block_interval(world, BertMasking(0.15, 0.1, 0.0))
    with pytest.raises(ArgumentError, match="grid"):
        theory.landscape(world, BERT, grid=(1.0, 0.5))
    with pytest.raises(ArgumentError, match="constant='proven'"):
        theory.block_interval(world, BERT, constant="proven")
