"""The linear map under uniform attention: closed forms against enumeration, pseudo-inverses and gradient descent."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sandtable.arguments import ArgumentError
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()


@st.composite
def settings_of_theory(draw):
    topics = draw(st.integers(2, 5))
    world = TopicModel(topics, draw(st.integers(1, 3)), present=draw(st.integers(1, topics - 1)))
    keep = draw(st.floats(0.0, 0.6))
    return world, BertMasking(draw(st.floats(0.05, 0.9)), keep, draw(st.floats(0.0, 0.8 - keep)))


def moments(world, masking, hidden=False):
    """E p̃p̃ᵀ and E P p̃ᵀ over topic sets, word by word from the definition of the mask law."""
    size, n = world.topics * world.words, 0
    moment, cross = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size + 1))
    for chosen in itertools.combinations(range(world.topics), world.present):
        document = np.zeros(size + 1)
        for topic in chosen:
            document[1 + topic * world.words : 1 + (topic + 1) * world.words] = 1 / (world.present * world.words)
        kept = 1 - masking.select + masking.select * masking.keep
        visible = kept * document + masking.select * masking.random / size
        visible[0] = masking.select * (1 - masking.keep - masking.random)
        visible = document if hidden else visible
        moment, cross, n = moment + np.outer(visible, visible), cross + np.outer(document, visible), n + 1
    return moment / n, cross / n


def brute_loss(world, masking, W, hidden=False):
    moment, cross = moments(world, masking, hidden)
    return 1 + np.trace(W @ moment @ W.T) - 2 * np.trace(W @ cross.T)


def theorem_two(world, masking):
    """Theorem 2 in its own constants, entry by entry."""
    T, v = world.topics, world.words
    a = 1 - (1 - masking.keep) * masking.select
    hide = 1 - masking.keep - masking.random
    c1, c2, c3 = masking.random / (hide * a * T * v), 1 / (masking.select * hide) - 1, 1 / a
    W = np.zeros((T * v + 1, T * v + 1))
    for i in range(1, T * v + 1):
        W[i, 0] = (c2 * c3 - c1 * T * v) / (c2**2 + T * v)
        for j in range(1, T * v + 1):
            W[i, j] = -(c1 * c2 + c3) / (c2**2 + T * v) + (c3 / v if (i - 1) // v == (j - 1) // v else 0)
    return W


@settings(deadline=None, max_examples=30)
@given(settings_of_theory(), st.integers(0, 10**6))
def test_every_member_of_the_family_attains_the_optimum(pair, seed):
    world, masking = pair
    generator = torch.Generator().manual_seed(seed)
    W = theory.random_optimal_map(world, masking, generator=generator)
    scale = max(1.0, theory.constants(world, masking).c2) ** 2
    assert brute_loss(world, masking, W.numpy()) == pytest.approx(theory.optimal_loss(world), abs=1e-12 * scale)
    assert theory.is_optimal(world, masking, W, tol=1e-10 * scale)
    assert float(theory.population_loss(world, masking, W)) == pytest.approx(1 - 1 / (world.present * world.words))


@settings(deadline=None, max_examples=20)
@given(settings_of_theory(), st.integers(0, 10**6))
def test_leaving_the_family_costs(pair, seed):
    """Lemma 1 is an equivalence: the family is exactly the null space of Σ around one optimum."""
    world, masking = pair
    W = theory.random_optimal_map(world, masking, generator=torch.Generator().manual_seed(seed))
    moment, _ = moments(world, masking)
    rank = np.linalg.matrix_rank(moment, tol=1e-12)
    assert rank == world.topics
    V, T, v = world.vocab_size, world.topics, world.words
    assert V - rank == 1 + T * (v - 1)  # one offset and the within-topic deviations of a row
    rng = np.random.default_rng(seed)
    W = W.numpy() + 0.1 * rng.standard_normal((V, V))
    excess = brute_loss(world, masking, W) - theory.optimal_loss(world)
    assert excess > 0
    assert float(theory.excess_loss(world, masking, torch.tensor(W))) == pytest.approx(excess, rel=1e-9, abs=1e-11)
    assert not theory.is_optimal(world, masking, torch.tensor(W))


def test_one_changed_topic_sum_raises_the_loss():
    world = TopicModel(4, 3, present=2)
    W = theory.random_optimal_map(world, BERT, generator=torch.Generator().manual_seed(0))
    for row, column in [(0, 4), (3, 2), (3, 8), (5, 0)]:
        changed = W.clone()
        changed[row, column] += 0.05
        assert theory.population_loss(world, BERT, changed) > theory.optimal_loss(world) + 1e-8
        assert float(theory.optimality_residuals(world, BERT, changed).abs().max()) > 1e-3


def test_losses_of_stacked_maps_agree_with_single_ones():
    world = TopicModel(3, 2, present=2)
    stack = torch.randn(5, 7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses = theory.population_loss(world, BERT, stack)
    single = [brute_loss(world, BERT, W.numpy()) for W in stack]
    np.testing.assert_allclose(losses.numpy(), single, atol=1e-12)
    excess = theory.excess_loss(world, BERT, stack) + theory.optimal_loss(world)
    np.testing.assert_allclose(excess.numpy(), single, atol=1e-12)
    assert theory.optimality_residuals(world, BERT, stack).shape == (5, 7, 4)


@settings(deadline=None, max_examples=30)
@given(settings_of_theory())
def test_limit_is_the_least_norm_optimum(pair):
    world, masking = pair
    moment, cross = moments(world, masking)
    pinv = cross @ np.linalg.pinv(moment, rcond=1e-11)
    limit = theory.value_matrix_limit(world, masking).numpy()
    np.testing.assert_allclose(limit, theorem_two(world, masking), atol=1e-12)
    np.testing.assert_allclose(limit, pinv, atol=1e-7)
    c = theory.constants(world, masking)
    entries = theory.value_matrix_entries(world, masking)
    assert entries.mask_column == pytest.approx(1 / (c.p_mask * (c.c2**2 + c.vocab_words)), rel=1e-9)
    assert entries.gap == pytest.approx(1 / (c.words * (1 - (1 - masking.keep) * masking.select)), rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(settings_of_theory(), st.floats(-6, 0))
def test_ridge_solution_is_exact(pair, exponent):
    world, masking = pair
    l2 = 10.0**exponent
    moment, cross = moments(world, masking)
    expected = cross @ np.linalg.inv(moment + l2 * np.eye(len(moment)))
    W = theory.ridge_value_matrix(world, masking, l2=l2)
    np.testing.assert_allclose(W.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(theory.numerical_ridge(world, masking, l2=l2).numpy(), expected, atol=1e-9)
    if world.words > 1:
        gap = float(W[1, 2] - W[1, 1 + world.words])
        assert theory.value_gap(world, masking, l2=l2) == pytest.approx(gap, rel=1e-9)


def test_ridge_approaches_the_limit():
    world = TopicModel(4, 3, present=2)
    limit = theory.value_matrix_limit(world, BERT)
    errors = [float((theory.numerical_ridge(world, BERT, l2=l2) - limit).abs().max()) for l2 in (1e-4, 1e-6, 1e-8)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6
    assert float((theory.numerical_ridge(world, BERT) - limit).abs().max()) < 1e-10


@pytest.mark.parametrize(
    ("topics", "words", "column", "different", "same", "norm"),
    [
        (10, 10, 0.0541908, -0.00758671, 0.108020, 3.53271),
        (100, 300, 2.77281e-4, -3.84679e-5, 0.00381510, 11.5028),
        (4, 3, 0.126689, -0.0189179, 0.366439, 2.25061),
    ],
)
def test_published_entries(topics, words, column, different, same, norm):
    world = TopicModel(topics, words, present=2)
    entries = theory.value_matrix_entries(world, BERT)
    assert tuple(entries) == pytest.approx((column, different, same), rel=1e-5)
    size = topics * words
    square = entries.mask_column**2 + (size - words) * entries.different**2 + words * entries.same**2
    assert math.sqrt(size * square) == pytest.approx(norm, rel=1e-5)
    if size <= 100:
        assert float(entries.matrix(world).norm()) == pytest.approx(norm, rel=1e-5)


@settings(deadline=None, max_examples=15)
@given(settings_of_theory(), st.integers(0, 60), st.sampled_from([0.0, 0.01]), st.booleans())
def test_stage_one_is_gradient_descent(pair, steps, l2, from_zero):
    """Explicit gradient descent on the enumerated loss, from zero and from a random matrix."""
    world, masking = pair
    moment, cross = moments(world, masking)
    lr = 0.4 / np.linalg.eigvalsh(moment).max()
    rng = np.random.default_rng(steps)
    start = np.zeros_like(moment) if from_zero else rng.standard_normal(moment.shape)
    W = start.copy()
    for _ in range(steps):
        W = W - lr * (2 * (W @ moment - cross) + 2 * l2 * W)
    given_start = None if from_zero else torch.tensor(start)
    predicted = theory.stage_one_matrix(world, masking, step=steps, lr=lr, l2=l2, start=given_start)
    np.testing.assert_allclose(predicted.numpy(), W, atol=1e-10)
    if from_zero and world.words > 1:
        gap = theory.stage_one_gap(world, masking, step=[0, steps], lr=lr, l2=l2)
        assert gap[0] == 0
        assert gap[1] == pytest.approx(W[1, 2] - W[1, 1 + world.words], abs=1e-12)


def test_gradient_descent_from_zero_ends_at_the_limit_and_keeps_the_null_space():
    world = TopicModel(4, 3, present=2)
    limit = theory.value_matrix_limit(world, BERT)
    assert float((theory.stage_one_matrix(world, BERT, step=10**6, lr=1.0) - limit).abs().max()) < 1e-12
    assert float((theory.stage_one_matrix(world, BERT, step=None, lr=1.0) - limit).abs().max()) < 1e-12
    start = torch.randn(13, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    end = theory.stage_one_matrix(world, BERT, step=None, lr=1.0, start=start)
    assert theory.is_optimal(world, BERT, end, tol=1e-12)
    moment, _ = moments(world, BERT)
    null = np.eye(13) - moment @ np.linalg.pinv(moment, rcond=1e-11)
    np.testing.assert_allclose((end - start).numpy() @ null, 0, atol=1e-8)


def test_published_transient():
    world = TopicModel(10, 10, dirichlet=0.1)
    assert float(theory.stage_one_gap(world, BERT, step=2000, lr=0.01)) == pytest.approx(0.0161, abs=5e-5)
    c = theory.constants(world, BERT)
    assert 2 * 0.01 * c.a**2 * c.s == pytest.approx(7.5e-5, rel=5e-3)


@settings(deadline=None, max_examples=20)
@given(settings_of_theory())
def test_hidden_keys(pair):
    world, masking = pair
    moment, cross = moments(world, masking, hidden=True)
    limit = theory.value_matrix_limit(world, masking, keys="unselected").numpy()
    np.testing.assert_allclose(limit, cross @ np.linalg.pinv(moment, rcond=1e-11), atol=1e-8)
    assert theory.value_gap(world, masking, keys="unselected") == pytest.approx(1 / world.words)
    assert (limit[:, 0] == 0).all()
    ridge = theory.ridge_value_matrix(world, masking, l2=1e-3, keys="unselected").numpy()
    np.testing.assert_allclose(ridge, cross @ np.linalg.inv(moment + 1e-3 * np.eye(len(moment))), atol=1e-10)
    loss = theory.population_loss(world, masking, torch.tensor(limit), keys="unselected")
    assert float(loss) == pytest.approx(theory.optimal_loss(world), abs=1e-12)
    assert brute_loss(world, masking, limit, hidden=True) == pytest.approx(float(loss), abs=1e-12)


def test_second_moment_and_its_rank():
    world = TopicModel(5, 3, present=2)
    moment, _ = moments(world, BERT)
    np.testing.assert_allclose(theory.second_moment(world, BERT).numpy(), moment, atol=1e-15)


def test_dirichlet_loss_by_monte_carlo():
    """The closed form covers Dirichlet shares: compare with shares drawn by numpy."""
    world = TopicModel(4, 2, dirichlet=0.3)
    shares = np.random.default_rng(0).dirichlet([0.3] * 4, size=200_000)
    document = np.concatenate([np.zeros((len(shares), 1)), np.repeat(shares, 2, axis=1) / 2], axis=1)
    visible = 0.865 * document + 0.015 / 8
    visible[:, 0] = 0.12
    W = np.random.default_rng(1).normal(0, 0.3, (9, 9))
    loss = 1 + ((visible @ W.T) ** 2).sum(1) - 2 * ((visible @ W.T) * document).sum(1)
    predicted = float(theory.excess_loss(world, BERT, torch.tensor(W))) + theory.optimal_loss(world)
    assert abs(loss.mean() - predicted) < 5 * loss.std() / math.sqrt(len(loss))


def test_numerical_minimiser_agrees():
    """L-BFGS on the enumerated regularised loss, knowing nothing of the solution."""
    world, l2 = TopicModel(3, 2, present=1), 1e-3
    moment, cross = moments(world, BERT)

    def objective(flat):
        W = flat.reshape(7, 7)
        value = np.trace(W @ moment @ W.T) - 2 * np.trace(W @ cross.T) + l2 * (W**2).sum()
        return value, (2 * (W @ moment - cross) + 2 * l2 * W).ravel()

    options = {"gtol": 1e-14, "ftol": 1e-18, "maxiter": 5000}
    found = minimize(objective, np.ones(49), jac=True, method="L-BFGS-B", options=options)
    np.testing.assert_allclose(found.x.reshape(7, 7), theory.ridge_value_matrix(world, BERT, l2=l2).numpy(), atol=1e-6)


def test_overlapping_topics_have_a_numerical_optimum_only():
    world = TopicModel(4, 4, present=2, overlap=0.25)
    W = theory.numerical_ridge(world, BERT, l2=1e-6)
    assert theory.population_loss(world, BERT, W) < theory.population_loss(world, BERT, 0.9 * W)
    with pytest.raises(ArgumentError, match="disjoint"):
        theory.value_matrix_limit(world, BERT)


def test_bad_arguments():
    world = TopicModel(3, 2, present=3)
    with pytest.raises(ArgumentError, match="present=3: must be < topics=3"):
        theory.value_matrix_limit(world, BERT)
    with pytest.raises(ArgumentError, match="l2=0"):
        theory.ridge_value_matrix(world, BERT, l2=0.0)
    with pytest.raises(ArgumentError, match="shapes"):
        theory.optimal_map(TopicModel(3, 2, present=1), BERT, u=torch.zeros(3))
