"""Finite documents: the exact optimum against enumeration of every document and every mask."""

import itertools

import numpy as np
import pytest
import torch

from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

BERT = BertMasking()


def topic_sequences(world, n):
    """Every sequence of n topics with its probability: τ-sets by enumeration, Dirichlet shares by Pólya's urn."""
    for topics in itertools.product(range(world.topics), repeat=n):
        if world.present is not None:
            sets = list(itertools.combinations(range(world.topics), world.present))
            yield topics, sum(set(topics) <= set(s) for s in sets) / len(sets) / world.present**n
        else:
            probability, counts = 1.0, np.zeros(world.topics)
            for drawn, topic in enumerate(topics):
                probability *= (world.dirichlet + counts[topic]) / (world.topics * world.dirichlet + drawn)
                counts[topic] += 1
            yield topics, probability


def enumerate_moments(world, masking, average):
    """E p̃p̃ᵀ and E e_w p̃ᵀ over all documents, selections and visible tokens, from the definitions alone."""
    V, size = world.vocab_size, world.vocab_size - 1
    first, last = world.length if isinstance(world.length, tuple) else (world.length, world.length)
    moment, cross, total = np.zeros((V, V)), np.zeros((V, V)), 0.0
    for n in range(first, last + 1):
        nonempty = 1 - (1 - masking.select) ** n
        for topics, chance in topic_sequences(world, n):
            if chance == 0:
                continue
            for inside in itertools.product(range(world.words), repeat=n):
                words = [1 + t * world.words + w for t, w in zip(topics, inside, strict=True)]
                for selected in itertools.product([False, True], repeat=n):
                    count = sum(selected)
                    if count == 0:
                        continue
                    weight = chance / world.words**n
                    weight *= masking.select**count * (1 - masking.select) ** (n - count)
                    weight *= 1 / count / nonempty if average == "documents" else 1.0
                    for seen in itertools.product(
                        *[range(V) if s else [w] for s, w in zip(selected, words, strict=True)]
                    ):
                        p = weight
                        for s, w, x in zip(selected, words, seen, strict=True):
                            if s and x == 0:
                                p *= masking.hide
                            elif s:
                                p *= masking.keep * (x == w) + masking.random / size
                        visible = np.bincount(seen, minlength=V) / n
                        for j in range(n):
                            if selected[j]:
                                moment += p * np.outer(visible, visible)
                                cross[words[j]] += p * visible
                                total += p
    return moment / total, cross / total


CASES = [
    (TopicModel(2, 2, present=1, length=2), BertMasking(0.4, 0.3, 0.2)),
    (TopicModel(3, 1, present=2, length=(1, 3)), BertMasking(0.3, 0.1, 0.4)),
    (TopicModel(2, 2, dirichlet=0.7, length=(1, 2)), BertMasking(0.6, 0.25, 0.25)),
    (TopicModel(3, 1, dirichlet=0.2, length=3), BertMasking(0.2, 0.3, 0.0)),
]


@pytest.mark.parametrize("average", ["documents", "positions"])
@pytest.mark.parametrize(("world", "masking"), CASES)
def test_optimum_and_loss_by_enumeration(world, masking, average):
    moment, cross = enumerate_moments(world, masking, average)
    optimum = cross @ np.linalg.inv(moment)
    W = theory.finite_length_value_matrix(world, masking, average=average)
    np.testing.assert_allclose(W.numpy(), optimum, atol=1e-11)
    loss = 1 - np.trace(optimum @ cross.T)
    assert theory.finite_length_loss(world, masking, average=average) == pytest.approx(loss, abs=1e-12)
    ridge = cross @ np.linalg.inv(moment + 0.01 * np.eye(len(moment)))
    W = theory.finite_length_value_matrix(world, masking, l2=0.01, average=average)
    np.testing.assert_allclose(W.numpy(), ridge, atol=1e-12)
    descent = np.zeros_like(ridge)
    for _ in range(30):
        descent -= 0.3 * (2 * (descent @ moment - cross) + 2 * 0.01 * descent)
    gaps = []
    same = world.same_topic[1:, 1:].numpy()
    for matrix in (ridge, descent):
        words = matrix[1:, 1:]
        gaps.append(words[same].mean() - words[~same].mean())
    assert theory.finite_length_gap(world, masking, l2=0.01, average=average) == pytest.approx(gaps[0], abs=1e-12)
    transient = theory.finite_length_stage_one_gap(world, masking, step=30, lr=0.3, l2=0.01, average=average)
    assert float(transient) == pytest.approx(gaps[1], abs=1e-12)


@pytest.mark.parametrize("law", [{"present": 3}, {"dirichlet": 0.1}])
def test_order_of_limits(law):
    """However long the documents, W_i0 = 1/(Tv); the rest approaches the family member u = (1 − c₃)/(Tv)."""
    for length in (10, 100, 10**6):
        world = TopicModel(10, 10, length=length, **law)
        W = theory.finite_length_value_matrix(world, BERT)
        np.testing.assert_allclose(W[1:, 0].numpy(), 0.01, atol=1e-14)
        np.testing.assert_allclose(W.sum(0).numpy(), 1, atol=1e-12)
    c = theory.constants(world, BERT)
    assert float(W[1, 50]) == pytest.approx((1 - c.c3) / 100, rel=1e-4)
    assert theory.finite_length_gap(world, BERT) == pytest.approx(c.c3 / 10, rel=1e-5)
    assert float(theory.optimality_residuals(world, BERT, W).abs().max()) < 1e-4
    assert float(W[1, 1] - W[1, 2]) == pytest.approx(BERT.keep / (1 - c.p_mask), rel=1e-4)
    assert theory.finite_length_loss(world, BERT) == pytest.approx(theory.optimal_loss(world), abs=1e-5)
    assert abs(theory.value_matrix_entries(world, BERT).mask_column - 0.01) > 0.04


def test_published_experiment():
    """T = v = 10, 100–150 words. On record: (0.218, 0.1025, −0.0016, 0.010), gap at step 2000 0.0159–0.0160."""
    world = TopicModel(10, 10, dirichlet=0.1)
    W = theory.finite_length_value_matrix(world, BERT, average="positions")
    assert [float(W[1, j]) for j in (1, 2, 50, 0)] == pytest.approx([0.2167, 0.1023, -0.0015, 0.0100], abs=1e-4)
    assert theory.finite_length_loss(world, BERT) == pytest.approx(0.9453, abs=5e-5)
    gap = theory.finite_length_stage_one_gap(world, BERT, step=2000, lr=0.01, average="positions")
    assert float(gap) == pytest.approx(0.01597, abs=1e-5)


def test_optimum_by_simulation():
    """Loss of the predicted optimum on sampled documents, against the prediction; and no small change improves it."""
    world, masking = TopicModel(3, 2, present=2, length=(4, 9)), BertMasking(0.3, 0.2, 0.2)
    batch = world.sample(60_000, torch.Generator().manual_seed(0))
    rng = np.random.default_rng(1)
    words, real = batch.x.numpy(), batch.mask.numpy()
    selected = (rng.random(words.shape) < masking.select) & real
    kind = rng.random(words.shape)
    seen = np.where(selected & (kind < masking.random), rng.integers(1, 7, words.shape), words)
    seen = np.where(selected & (kind > 1 - masking.hide), 0, seen)
    counts = np.stack([((seen == token) & real).sum(1) for token in range(7)], axis=1)
    visible = counts / real.sum(1, keepdims=True)
    rows, columns = np.nonzero(selected)
    W = theory.finite_length_value_matrix(world, masking, average="positions").numpy()
    losses = ((visible[rows] @ W.T - np.eye(7)[words[rows, columns]]) ** 2).sum(1)
    predicted = theory.finite_length_loss(world, masking, average="positions")
    assert abs(losses.mean() - predicted) < 6 * losses.std() / np.sqrt(len(losses))
