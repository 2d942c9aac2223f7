"""The optimal embedding: closed forms against enumeration and L-BFGS over embeddings of every width."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()


@st.composite
def settings_of_theory(draw):
    topics = draw(st.integers(2, 5))
    world = TopicModel(topics, draw(st.integers(1, 3)), present=draw(st.integers(1, topics - 1)))
    keep = draw(st.floats(0.0, 0.6))
    return world, BertMasking(draw(st.floats(0.05, 0.9)), keep, draw(st.floats(0.0, 0.8 - keep)))


def brute_loss(world, masking, E, bias):
    """Mean over topic sets and true words of ‖E p̃ + b − e_w‖²."""
    size, losses = world.topics * world.words, []
    for chosen in itertools.combinations(range(world.topics), world.present):
        present = [1 + t * world.words + w for t in chosen for w in range(world.words)]
        visible = np.full(size + 1, masking.select * masking.random / size)
        visible[present] += (1 - (1 - masking.keep) * masking.select) / len(present)
        visible[0] = masking.select * (1 - masking.keep - masking.random)
        predicted = E @ visible + bias
        losses += [((predicted - np.eye(size + 1)[word]) ** 2).sum() for word in present]
    return float(np.mean(losses))


@settings(deadline=None, max_examples=30)
@given(settings_of_theory(), st.integers(0, 10**6))
def test_loss_and_excess_of_any_gram_matrix(pair, seed):
    world, masking = pair
    W_E = torch.randn(3, world.vocab_size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    E = theory.gram(W_E)
    bias = theory.prediction_bias(world, masking)
    expected = brute_loss(world, masking, E.numpy(), bias.numpy())
    assert float(theory.embedding_loss(world, masking, E)) == pytest.approx(expected, rel=1e-10)
    excess = float(theory.embedding_excess_of(world, masking, E)) + theory.optimal_loss(world)
    assert excess == pytest.approx(expected, rel=1e-10)
    assert float(theory.embedding_residuals(world, masking, E).abs().max()) > 1e-6


@settings(deadline=None, max_examples=30)
@given(settings_of_theory())
def test_constructed_embedding_attains_the_excess_at_every_width(pair):
    world, masking = pair
    for width in range(1, world.vocab_size + 1):
        W_E = theory.optimal_embedding(world, masking, width=width)
        assert W_E.shape == (width, world.vocab_size)
        excess = float(theory.embedding_loss(world, masking, theory.gram(W_E))) - theory.optimal_loss(world)
        assert excess == pytest.approx(theory.embedding_excess(world, width=width), abs=1e-12)
        residual = float(theory.embedding_residuals(world, masking, theory.gram(W_E)).abs().max())
        assert (residual < 1e-11) == (width >= world.topics)


@pytest.mark.parametrize("masking", [BERT, BertMasking(0.5, 0.2, 0.4)])
@pytest.mark.parametrize("world", [TopicModel(4, 3, present=2), TopicModel(3, 2, present=1)])
def test_no_embedding_does_better(world, masking):
    """L-BFGS over W_E from several starts: excess (T − d)·s and, when wide, a topic gap of c₃."""
    V, rng = world.vocab_size, np.random.default_rng(0)
    visible = theory.visible_distribution(world, masking).numpy()
    target = world.infinite().batch.x.numpy() - theory.prediction_bias(world, masking).numpy()
    moment, cross = visible.T @ visible / len(visible), target.T @ visible / len(visible)
    constant = (target**2).sum(1).mean()
    scale = 1 / theory.contrast_variance(world)

    def objective(flat, width):
        W_E = flat.reshape(width, V)
        E = W_E.T @ W_E
        gradient = 2 * (E @ moment - cross)
        value = np.trace(E @ moment @ E) - 2 * np.trace(E @ cross.T) + constant
        return scale * value, scale * (W_E @ (gradient + gradient.T)).ravel()

    for width in range(1, V + 1):
        options = {"maxiter": 3000, "ftol": 0.0, "gtol": 1e-11}
        found = [
            minimize(
                objective,
                0.5 * rng.standard_normal(width * V),
                args=(width,),
                jac=True,
                method="L-BFGS-B",
                options=options,
            )
            for _ in range(2 if width >= world.topics else 4)
        ]
        best = min(found, key=lambda result: result.fun)
        assert best.fun / scale == pytest.approx(theory.embedding_excess(world, width=width), abs=1e-8)
        if width >= world.topics:
            W_E = best.x.reshape(width, V)
            sums = (W_E.T @ W_E)[1:, 1:].reshape(V - 1, world.topics, world.words).sum(-1)
            own = sums[np.arange(V - 1), np.arange(V - 1) // world.words]
            other = (sums.sum(1) - own) / (world.topics - 1)
            np.testing.assert_allclose(own - other, theory.constants(world, masking).c3, atol=1e-6)


def test_symmetry_and_positivity_tie_the_offsets():
    """For optimal Gram matrices u₀ ≤ 0 and mean u_i = −u₀/c₂: build one with u₀ < 0 and read the offsets back."""
    world = TopicModel(3, 2, present=1)
    c = theory.constants(world, BERT)
    # A vector orthogonal to every visible distribution changes E without changing a prediction.
    free = torch.full((7,), -1.0, dtype=torch.float64)
    free[0] = c.c2
    E = theory.diagonal_embedding_gram(world, BERT) + 0.3 * torch.outer(free, free)
    assert float(theory.embedding_residuals(world, BERT, E).abs().max()) < 1e-12
    u = E[0, 1:].mean(), -E[1:, 0] / c.c2
    assert u[0] < 0
    assert float(u[1].mean()) == pytest.approx(float(-u[0] / c.c2))


def test_block_gram_and_dirichlet_excess():
    world = TopicModel(4, 3, dirichlet=0.5)
    E = theory.gram(theory.optimal_embedding(world, BERT, width=4))
    blocks = torch.block_diag(torch.zeros(1, 1), *[torch.ones(3, 3)] * 4).double()
    np.testing.assert_allclose(E.numpy(), (theory.constants(world, BERT).c3 / 3 * blocks).numpy(), atol=1e-14)
    for width in (1, 2, 3, 4, 9):
        E = theory.gram(theory.optimal_embedding(world, BERT, width=width))
        excess = float(theory.embedding_excess_of(world, BERT, E))
        assert excess == pytest.approx(theory.embedding_excess(world, width=width), abs=1e-13)
    assert theory.embedding_excess(world, width=1) == pytest.approx(3 / (3 * 4 * 3))
