"""Every printed formula that does not hold, shown not to hold, beside the one that does."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sandtable.theory import topics as theory
from sandtable.theory.topics import printed
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()
SMALL = TopicModel(4, 3, present=2)


def test_lost_factor_v():
    world = TopicModel(10**8, 12, present=5000)
    full = float(theory.attention_loss(world, BERT, 1e12, 1e12))
    wrong = float(printed.asymptotic_block_loss_without_v(world, BERT, 1e12))
    assert wrong == pytest.approx(0.1927870, abs=1e-7)
    assert abs(wrong - full) > 1e4 * abs(float(theory.asymptotic_block_loss(world, BERT, 1e12)) - full)


def test_wrong_denominator():
    """An absent topic that gets all attention must give each word 1/v; over p₁ it cannot."""
    c = theory.constants(SMALL, BERT)
    assert float(printed.absent_topic_share_over_p1(SMALL, BERT, 1e12)) == pytest.approx(c.p2 / (c.p1 * 3), rel=1e-6)
    right = 1e12 * c.p2 / (c.p2 * 3 * 1e12 + c.p1 * 6 + c.p2 * 3)
    assert right == pytest.approx(1 / 3, rel=1e-6)


def test_flat_attention_is_not_uniform():
    uniform = 0.2 * theory.optimal_loss(SMALL)
    assert abs(printed.uniform_attention_loss(SMALL, BERT) / uniform - 1) == pytest.approx(3.8e-3, abs=5e-5)
    assert float(theory.attention_loss(SMALL, BERT, 1, 1, variant="exact")) == pytest.approx(uniform, abs=1e-14)


def test_embedding_with_mask_entry():
    excess = float(theory.embedding_loss(SMALL, BERT, printed.embedding_gram_with_mask(SMALL, BERT)))
    excess -= theory.optimal_loss(SMALL)
    assert excess == pytest.approx(printed.embedding_gram_excess(SMALL, BERT), abs=1e-13)
    assert excess == pytest.approx(0.01925, abs=1e-5)
    right = theory.embedding_loss(SMALL, BERT, theory.diagonal_embedding_gram(SMALL, BERT))
    assert float(right) == pytest.approx(theory.optimal_loss(SMALL), abs=1e-13)


def test_bias_on_the_mask_output():
    bias = printed.bias_for_every_output(SMALL, BERT)
    assert float(bias[0]) == pytest.approx(-0.015 / (0.865 * 12))
    for E in (
        theory.diagonal_embedding_gram(SMALL, BERT),
        theory.gram(theory.optimal_embedding(SMALL, BERT, width=4)),
    ):
        excess = float(theory.embedding_loss(SMALL, BERT, E, bias=bias)) - theory.optimal_loss(SMALL)
        assert excess == pytest.approx(printed.bias_excess(SMALL, BERT), abs=1e-14)
        assert excess > 1e-7
    # Outside the family the loss can be repaired, by a [MASK] entry that the theorem's conditions forbid.
    repaired = theory.diagonal_embedding_gram(SMALL, BERT)
    repaired[0, 0] = -bias[0] / theory.constants(SMALL, BERT).p_mask
    loss = float(theory.embedding_loss(SMALL, BERT, repaired, bias=bias))
    assert loss == pytest.approx(theory.optimal_loss(SMALL), abs=1e-14)
    assert float(theory.embedding_residuals(SMALL, BERT, repaired).abs().max()) > 1e-3


def test_diagonal_value_matrix_is_not_unique():
    one, other = theory.diagonal_value_matrix(SMALL, BERT), printed.another_diagonal_value_matrix(SMALL, BERT)
    assert not torch.equal(one, other)
    assert torch.equal(one[1:], other[1:])
    visible = theory.visible_distribution(SMALL, BERT)
    assert float((visible @ (one - other).mT).abs().max()) < 1e-16
    assert theory.is_optimal(SMALL, BERT, other)
    assert other[1, 1] == theory.constants(SMALL, BERT).c3


def test_rank_of_the_hessian():
    visible = theory.visible_distribution(SMALL, BERT)
    assert torch.linalg.matrix_rank(torch.outer(visible[0], visible[0])) == printed.HESSIAN_RANK
    moment = visible.mT @ visible / len(visible)
    assert torch.linalg.matrix_rank(moment) == SMALL.topics
    assert torch.allclose(moment, theory.second_moment(SMALL, BERT))


def test_c1_can_exceed_one():
    world, masking = printed.c1_counterexample()
    c1 = theory.constants(world, masking).c1
    assert c1 > 1
    assert c1 not in printed.C1_RANGE
    # The constant is right: the map with u = 0 carries −c₁ in its [MASK] column and is optimal.
    W = theory.optimal_map(world, masking, u=torch.zeros(13))
    assert float(W[1, 0]) == pytest.approx(-c1)
    assert float(theory.population_loss(world, masking, W)) == pytest.approx(theory.optimal_loss(world), abs=1e-12)


def test_slides_interval():
    """One present topic: the optimum lies below λ₁τ and above λ₁(τ − 1) = 0."""
    world = TopicModel(10, 10, present=1)
    gamma = theory.optimal_gamma(world, BERT).beta
    assert gamma not in printed.slides_interval(world, BERT)
    assert gamma in theory.block_interval(world, BERT)
    large = TopicModel(10**7, 12, present=3000)
    assert theory.optimal_gamma(large, BERT).beta in printed.slides_interval(large, BERT)


def test_softmax_over_queries_is_not_attention():
    """Each query must spend one unit of attention; scores that are not symmetric in counts show the mistake."""
    scores = theory.score_matrix(SMALL, 3.0, 5.0)[[0, 1, 2, 2, 9]][:, [0, 1, 2, 2, 9]]
    spent = printed.row_softmax(scores).sum(0)
    assert float((spent - 1).abs().max()) > 0.05
    assert torch.allclose(scores.softmax(dim=0).sum(0), torch.ones(5, dtype=torch.float64))


def test_unsquared_penalty():
    """Same limit, another path: checked against L-BFGS on the enumerated loss with the unsquared norm."""
    world = TopicModel(3, 2, present=1)
    visible, documents = theory.visible_distribution(world, BERT).numpy(), world.infinite().batch.x.numpy()
    moment, cross = visible.T @ visible / len(visible), documents.T @ visible / len(visible)
    l2 = 0.02

    def objective(flat):
        W = flat.reshape(7, 7)
        norm = np.linalg.norm(W)
        value = np.trace(W @ moment @ W.T) - 2 * np.trace(W @ cross.T) + l2 * norm
        return value, (2 * (W @ moment - cross) + l2 * W / norm).ravel()

    options = {"gtol": 1e-14, "ftol": 1e-18, "maxiter": 5000}
    found = minimize(objective, np.full(49, 0.1), jac=True, method="L-BFGS-B", options=options).x.reshape(7, 7)
    W = printed.unsquared_ridge_value_matrix(world, BERT, l2=l2)
    np.testing.assert_allclose(W.numpy(), found, atol=1e-6)
    squared = theory.ridge_value_matrix(world, BERT, l2=l2)
    assert float((W - squared).abs().max()) > 1e-3
    limit = theory.value_matrix_limit(world, BERT)
    assert float((printed.unsquared_ridge_value_matrix(world, BERT, l2=1e-8) - limit).abs().max()) < 1e-6
    steepest = 2 * np.linalg.norm(cross)
    assert not printed.unsquared_ridge_value_matrix(world, BERT, l2=1.001 * steepest).any()
    assert printed.unsquared_ridge_value_matrix(world, BERT, l2=0.999 * steepest).any()


def test_caption_of_the_attention_table():
    above = [row for row in printed.ATTENTION_TABLE if row.same_word > row.same_topic]
    assert [(row.optimizer, row.lr) for row in above] == [("sgd", 0.03)]
    assert all(row.same_topic > 1.4 * row.different_topic for row in printed.ATTENTION_TABLE)


def test_word_probabilities_of_claim_one():
    values = set(SMALL.infinite().batch.x[:, 1:].flatten().tolist())
    assert values == {0.0, 1 / 6}
    assert max(values) < printed.claim_one_word_probabilities(SMALL).high
    for tau in range(1, 6):  # the result that the claim leads to survives
        world = TopicModel(6, 2, present=tau)
        W = theory.random_optimal_map(world, BERT, generator=torch.Generator().manual_seed(tau))
        assert float(theory.population_loss(world, BERT, W)) == pytest.approx(theory.optimal_loss(world), abs=1e-11)
