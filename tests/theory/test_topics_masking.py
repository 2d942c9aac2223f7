"""Masking probabilities and constants against enumeration, Monte Carlo and the published numbers."""

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


@st.composite
def settings_of_theory(draw, most_topics=5, most_words=4):
    topics = draw(st.integers(2, most_topics))
    world = TopicModel(topics, draw(st.integers(1, most_words)), present=draw(st.integers(1, topics - 1)))
    keep = draw(st.floats(0.0, 0.9))
    random = draw(st.floats(0.0, 0.95 - keep))
    return world, BertMasking(draw(st.floats(0.02, 0.95)), keep, random)


def shown(world, masking):
    """channel[i, w] = P(position shows i | its word is w), straight from the definition of the mask law."""
    size = world.vocab_size
    channel = np.zeros((size, size))
    for word in range(1, size):
        channel[word, word] += 1 - masking.select
        channel[word, word] += masking.select * masking.keep
        channel[0, word] += masking.select * (1 - masking.keep - masking.random)
        for other in range(1, size):
            channel[other, word] += masking.select * masking.random / (size - 1)
    return channel


def documents(world):
    """P(word) of every topic set."""
    rows = []
    for chosen in itertools.combinations(range(world.topics), world.present):
        row = np.zeros(world.vocab_size)
        for topic in chosen:
            row[1 + topic * world.words : 1 + (topic + 1) * world.words] = 1 / (world.present * world.words)
        rows.append(row)
    return np.array(rows)


@settings(deadline=None, max_examples=40)
@given(settings_of_theory())
def test_visible_distribution_is_the_channel_applied_to_the_document(pair):
    world, masking = pair
    expected = documents(world) @ shown(world, masking).T
    visible = theory.visible_distribution(world, masking).numpy()
    np.testing.assert_allclose(visible, expected, atol=1e-14)
    c = theory.constants(world, masking)
    present = documents(world)[:, 1:] > 0
    np.testing.assert_allclose(visible[:, 1:], np.where(present, c.p1, c.p2), atol=1e-14)
    np.testing.assert_allclose(visible[:, 0], c.p_mask, atol=1e-14)
    total = c.words * (world.present * c.p1 + (c.topics - world.present) * c.p2) + c.p_mask
    assert total == pytest.approx(1, abs=1e-13)
    np.testing.assert_allclose(c.m.numpy(), expected.mean(0), atol=1e-14)
    assert c.mean_square == pytest.approx(float(c.m @ c.m), abs=1e-14)


@settings(deadline=None, max_examples=30)
@given(settings_of_theory())
def test_contrast_variance_is_the_covariance_of_documents(pair):
    world, _ = pair
    rows = documents(world)
    covariance = rows.T @ rows / len(rows) - np.outer(rows.mean(0), rows.mean(0))
    expected = theory.contrast_variance(world) * theory.topic_contrasts(world).numpy()
    np.testing.assert_allclose(covariance, expected, atol=1e-14)


def test_masking_probabilities_by_monte_carlo():
    """Words and masks drawn one by one with numpy; 4e5 positions put five standard errors at about 3e-3."""
    rng, n = np.random.default_rng(0), 400_000
    topics, words, masking = 4, 3, BertMasking(0.4, 0.2, 0.3)
    word = 1 + rng.integers(0, 2, n) * words + rng.integers(0, words, n)  # topics 0 and 1 are present
    kind = rng.random(n)
    seen = word.copy()
    selected = rng.random(n) < masking.select
    replaced = selected & (kind >= 0.2) & (kind < 0.5)
    seen[replaced] = rng.integers(1, topics * words + 1, replaced.sum())
    seen[selected & (kind >= 0.5)] = 0
    measured = np.bincount(seen, minlength=topics * words + 1) / n
    predicted = theory.visible_distribution(TopicModel(topics, words, present=2), masking)[0].numpy()
    error = np.sqrt(predicted * (1 - predicted) / n)
    assert (np.abs(measured - predicted) < 5 * error).all()


@pytest.mark.parametrize(("topics", "words", "c1"), [(10, 10, 0.00144509), (100, 300, 4.81696e-6), (4, 3, 0.0120424)])
def test_published_constants(topics, words, c1):
    c = theory.constants(TopicModel(topics, words, present=2), BERT)
    assert c.c1 == pytest.approx(c1, rel=1e-5)
    assert c.c2 == pytest.approx(7.33333, rel=1e-6)
    assert c.c3 == pytest.approx(1.156069, rel=1e-6)
    assert c.c2 * c.c3 - c.c1 * c.vocab_words == pytest.approx(1 / c.p_mask, rel=1e-12)


def test_dirichlet_facts():
    world = TopicModel(10, 10, dirichlet=0.1)
    assert theory.mean_squared_shares(world) == pytest.approx(0.55, abs=1e-12)
    assert theory.contrast_variance(world) == pytest.approx(0.005, abs=1e-12)
    assert theory.optimal_loss(world) == pytest.approx(0.945, abs=1e-12)
    assert theory.cross_entropy_floor(world) == pytest.approx(3.149, abs=5e-4)


def test_dirichlet_facts_by_quadrature():
    """Two topics: θ is Beta(α, α) and every expectation is a one-dimensional integral."""
    from scipy.integrate import quad
    from scipy.special import xlogy
    from scipy.stats import beta

    world = TopicModel(2, 3, dirichlet=1.7)
    law = beta(1.7, 1.7)
    square = quad(lambda t: law.pdf(t) * (t**2 + (1 - t) ** 2), 0, 1)[0]
    entropy = quad(lambda t: -law.pdf(t) * (xlogy(t, t) + xlogy(1 - t, 1 - t)), 0, 1)[0]
    assert theory.mean_squared_shares(world) == pytest.approx(square, abs=1e-10)
    assert theory.cross_entropy_floor(world) == pytest.approx(entropy + math.log(3), abs=1e-8)
    # The one contrast between the two topics, (θ − (1 − θ))/√6 per unit of its normalised pattern.
    contrast = torch.tensor([0.0, 1, 1, 1, -1, -1, -1], dtype=torch.float64) / math.sqrt(6)
    variance = quad(lambda t: law.pdf(t) * (3 * (t / 3) - 3 * (1 - t) / 3) ** 2 / 6, 0, 1)[0]
    s = theory.contrast_variance(world)
    assert float(contrast @ (s * theory.topic_contrasts(world)) @ contrast) == pytest.approx(variance, abs=1e-10)


def test_cross_entropy_floor_of_topic_sets():
    assert theory.cross_entropy_floor(TopicModel(6, 5, present=3)) == pytest.approx(math.log(15))


def test_hidden_keys_show_the_document_itself():
    world = TopicModel(4, 2, present=2)
    c = theory.constants(world, BERT, keys="unselected")
    assert (c.a, c.p_mask, c.noise, c.c1, c.c3) == (1, 0, 0, 0, 1)
    np.testing.assert_allclose(theory.visible_distribution(world, BERT, keys="unselected").numpy(), documents(world))


@pytest.mark.parametrize(
    ("world", "masking", "words"),
    [
        (TopicModel(4, 4, present=2, overlap=0.5), BERT, "overlap=0.5"),
        (TopicModel(4, 4, present=2), BertMasking(1.0, 0.0, 0.1), "keep=0"),
        (TopicModel(4, 4, present=2), BertMasking(0.2, 0.9, 0.1), "keep \\+ random = 1"),
    ],
)
def test_settings_outside_the_theory_are_refused(world, masking, words):
    with pytest.raises(ArgumentError, match=words):
        theory.constants(world, masking)


def test_unknown_keys_are_refused():
    with pytest.raises(ArgumentError, match="did you mean 'unselected'"):
        theory.constants(TopicModel(4, 4, present=2), BERT, keys="selected")
