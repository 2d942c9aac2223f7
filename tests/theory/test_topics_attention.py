"""The loss of topic-wise attention: the four-case formula against loops over topic sets, words, queries and keys."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()
VARIANTS = list(itertools.product(["block", "diagonal"], ["paper", "exact"]))


@st.composite
def settings_of_theory(draw):
    topics = draw(st.integers(2, 4))
    world = TopicModel(topics, draw(st.integers(1, 3)), present=draw(st.integers(1, topics - 1)))
    keep = draw(st.floats(0.0, 0.6))
    masking = BertMasking(draw(st.floats(0.05, 0.9)), keep, draw(st.floats(0.0, 0.8 - keep)))
    return world, masking, math.exp(draw(st.floats(-6, 10))), math.exp(draw(st.floats(-6, 10)))


def brute_loss(world, masking, alpha, beta, value, variant):
    """Loops only: every topic set, true word, visible word and key, with the outputs written from the definitions."""
    T, v, tau = world.topics, world.words, world.present
    size = T * v
    a = 1 - (1 - masking.keep) * masking.select
    hide = 1 - masking.keep - masking.random
    p_mask = masking.select * hide
    c1, c2, c3 = masking.random / (hide * a * size), 1 / p_mask - 1, 1 / a
    different = -(c1 * c2 + c3) / (c2**2 + size)
    losses = []
    for chosen in itertools.combinations(range(T), tau):
        present = [t * v + w for t in chosen for w in range(v)]
        visible = [a * (i in present) / len(present) + masking.select * masking.random / size for i in range(size)]
        loss = 0.0
        for query in range(size):
            weight = [beta if i == query else alpha if i // v == query // v else 1.0 for i in range(size)]
            mass = [p * w for p, w in zip(visible, weight, strict=True)]
            z = sum(mass) + (p_mask if variant == "exact" else 0.0)
            y = [m / z for m in mass]
            outputs = []
            for i in range(size):
                mean = sum(y[j] for j in range(size) if j // v == i // v) / v if value == "block" else y[i]
                if variant == "paper":
                    outputs.append(mean / a - masking.select * masking.random / (a * size))
                elif value == "block":
                    column = -c1 - c2 * different
                    outputs.append(column * p_mask / z + different * sum(y) + c3 * mean)
                else:
                    outputs.append(-c1 * p_mask / z + c3 * mean)
            norm = sum(f * f for f in outputs)
            for word in present:
                shown = masking.keep * (word == query) + masking.random / size
                loss += shown / len(present) * (1 + norm - 2 * outputs[word])
        losses.append(loss)
    assert max(losses) - min(losses) < 1e-9 * max(1, max(losses))  # all topic sets are alike
    return sum(losses) / len(losses)


@settings(deadline=None, max_examples=40)
@given(settings_of_theory())
def test_formula_is_the_loop(drawn):
    world, masking, alpha, beta = drawn
    for value, variant in VARIANTS:
        expected = brute_loss(world, masking, alpha, beta, value, variant)
        formula = theory.attention_loss(world, masking, alpha, beta, value=value, variant=variant)
        assert float(formula) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        matrices = theory.attention_loss_by_enumeration(world, masking, alpha, beta, value=value, variant=variant)
        assert matrices == pytest.approx(expected, rel=1e-11, abs=1e-11)


@settings(deadline=None, max_examples=30)
@given(settings_of_theory(), st.floats(0.01, 0.99))
def test_block_values_see_the_mean_weight_only(drawn, share):
    world, masking, gamma, _ = drawn
    v = world.words
    beta = share * gamma * v if v > 1 else gamma
    alpha = (gamma * v - beta) / (v - 1) if v > 1 else 1.0
    assert float(theory.mean_weight(world, alpha, beta)) == pytest.approx(gamma)
    for variant in ("paper", "exact"):
        split = theory.attention_loss(world, masking, alpha, beta, variant=variant)
        assert float(split) == pytest.approx(
            float(theory.attention_loss(world, masking, gamma, gamma, variant=variant)), rel=1e-10, abs=1e-12
        )


@settings(deadline=None, max_examples=30)
@given(settings_of_theory())
def test_flat_attention_is_uniform_in_the_exact_variant(drawn):
    world, masking, _, _ = drawn
    uniform = (masking.keep + masking.random) * theory.optimal_loss(world)
    for value in ("block", "diagonal"):
        flat = theory.attention_loss(world, masking, 1.0, 1.0, value=value, variant="exact")
        assert float(flat) == pytest.approx(uniform, abs=1e-12)
    total = uniform + theory.masked_query_loss(world, masking)
    W = theory.value_matrix_limit(world, masking)
    assert total == pytest.approx(float(theory.population_loss(world, masking, W)), abs=1e-11)


@pytest.mark.parametrize("gamma", [0.01, 1.0, 6.5, 300.0])
def test_paper_loss_scales_with_one_over_the_words(gamma):
    """L = (p_c + p_r) + F/v with F free of v, so the minimiser does not depend on v."""
    scaled = [
        v * float(theory.reduced_loss(TopicModel(10, v, present=3), BERT, gamma, gamma)) for v in (1, 2, 10, 1000)
    ]
    assert scaled == pytest.approx([scaled[0]] * 4, rel=1e-11)


def test_arrays_and_loss_without_its_constant():
    world = TopicModel(10, 10, present=3)
    alpha, beta = np.geomspace(0.1, 10, 4)[:, None], np.geomspace(1, 100, 5)[None, :]
    for value, variant in VARIANTS:
        loss = theory.attention_loss(world, BERT, alpha, beta, value=value, variant=variant)
        assert loss.shape == (4, 5)
        single = theory.attention_loss(world, BERT, alpha[2, 0], beta[0, 3], value=value, variant=variant)
        assert float(single) == loss[2, 3]
        reduced = theory.reduced_loss(world, BERT, alpha, beta, value=value, variant=variant)
        np.testing.assert_allclose(reduced + 0.2, loss, atol=1e-15)


def test_scores_give_this_attention_in_a_real_softmax():
    """Ten words whose counts are exactly p̃ (7, 1 and two [MASK]): softmax over positions gives the same loss."""
    world, masking = TopicModel(2, 1, present=1), BertMasking(0.5, 0.2, 0.4)
    seen = torch.tensor([1] * 7 + [2] + [0, 0])
    np.testing.assert_allclose(
        torch.bincount(seen).double().numpy() / 10, theory.visible_distribution(world, masking)[0].numpy(), atol=1e-15
    )
    alpha, beta = 3.0, 5.0
    scores = theory.score_matrix(world, alpha, beta)
    attention = scores[seen][:, seen].softmax(dim=0)  # keys × queries, columns sum to one
    onehot = torch.eye(3, dtype=torch.float64)[seen]
    for value, W in (
        ("block", theory.value_matrix_limit(world, masking)),
        ("diagonal", theory.diagonal_value_matrix(world, masking)),
    ):
        outputs = W @ onehot.mT @ attention
        loss = 0.0
        for query, column in ((1, 0), (2, 7)):
            shown = masking.keep * (query == 1) + masking.random / 2
            loss += shown * float((outputs[:, column] - torch.eye(3)[1]).square().sum())
        assert loss == pytest.approx(
            float(theory.attention_loss(world, masking, alpha, beta, value=value, variant="exact")), abs=1e-13
        )
        masked = float((outputs[:, 8] - torch.eye(3)[1]).square().sum()) * masking.hide
        assert masked == pytest.approx(theory.masked_query_loss(world, masking), abs=1e-13)


def test_score_matrix_by_entries():
    world = TopicModel(2, 2, present=1)
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i, j in itertools.product(range(1, 5), repeat=2):
        if (i - 1) // 2 == (j - 1) // 2:
            expected[i, j] = math.log(7.0) if i == j else math.log(3.0)
    assert torch.allclose(theory.score_matrix(world, 3.0, 7.0), expected)


def test_any_value_matrix_can_be_enumerated():
    world = TopicModel(3, 2, present=2)
    W = theory.random_optimal_map(world, BERT, generator=torch.Generator().manual_seed(0), scale=0.1)
    uniform = 0.2 * theory.optimal_loss(world)
    flat = theory.attention_loss_by_enumeration(world, BERT, 1.0, 1.0, value=W, variant="exact")
    assert flat == pytest.approx(uniform, abs=1e-12)
    assert theory.is_optimal(world, BERT, theory.diagonal_value_matrix(world, BERT))
    with pytest.raises(ArgumentError, match="variant='exact'"):
        theory.attention_loss_by_enumeration(world, BERT, 1.0, 1.0, value=W)


def test_bad_arguments():
    world = TopicModel(3, 2, present=2)
    with pytest.raises(ArgumentError, match="alpha"):
        theory.attention_loss(world, BERT, 0.0, 1.0)
    with pytest.raises(ArgumentError, match="did you mean 'diagonal'"):
        theory.attention_loss(world, BERT, 1.0, 1.0, value="diag")
    with pytest.raises(ArgumentError, match="present=None"):
        theory.attention_loss(TopicModel(3, 2, dirichlet=0.1), BERT, 1.0, 1.0)
