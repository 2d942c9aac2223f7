"""Classifiers on features whose right answer is known."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from sandtable.arguments import ArgumentError
from sandtable.probes.classifier import Classifier, assess, train_classifier


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def two_clouds(n, generator, distance=2.0, width=6):
    """Two normal clouds along one axis, on features of very different scales: Bayes accuracy Φ(distance / 2)."""
    labels = torch.randint(2, (n,), generator=generator)
    x = torch.randn(n, width, generator=generator)
    x[:, 2] += distance * (labels - 0.5)
    return (x + 3) * torch.logspace(-3, 3, width), labels


def test_a_linear_classifier_comes_close_to_bayes():
    features, labels = two_clouds(4000, rng(1))
    fit = train_classifier(features, labels, rng(2))
    bayes = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    fresh, truth = two_clouds(20_000, rng(3))
    assert fit.classifier.accuracy(fresh, truth) == pytest.approx(bayes, abs=0.015)
    assert fit.validation_accuracy == pytest.approx(bayes, abs=0.05)
    assert fit.training_accuracy == pytest.approx(bayes, abs=0.03)


def test_only_depth_solves_exclusive_or():
    x = torch.randn(3000, 2, generator=rng(4))
    labels = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long()
    fresh = torch.randn(5000, 2, generator=rng(5))
    truth = ((fresh[:, 0] > 0) ^ (fresh[:, 1] > 0)).long()
    assert train_classifier(x, labels, rng(), depth=1).classifier.accuracy(fresh, truth) < 0.7
    assert train_classifier(x, labels, rng(), depth=2, hidden=32).classifier.accuracy(fresh, truth) > 0.95
    deep = train_classifier(x, labels, rng(), depth=4, hidden=32).classifier
    assert deep.accuracy(fresh, truth) > 0.95
    assert len(deep.layers) == 4


def test_the_best_epoch_is_kept():
    """With labels that mean nothing the accuracy on few rows wanders, and the kept classifier has its maximum."""
    features, labels = torch.randn(300, 40, generator=rng(6)), torch.randint(2, (300,), generator=rng(7))
    fit = train_classifier(features, labels, rng(8), epochs=50, least_updates=1)
    held = torch.randperm(300, generator=rng(8))[:30]
    assert fit.validation_accuracy == float(fit.history.max()) == float(fit.history[fit.epoch])
    assert fit.validation_accuracy == pytest.approx(fit.classifier.accuracy(features[held], labels[held]))


def test_small_sets_pass_through_more_often():
    features, labels = two_clouds(100, rng(9))
    assert len(train_classifier(features, labels, rng(), epochs=3, least_updates=40).history) == 40
    assert len(train_classifier(features, labels, rng(), epochs=50, least_updates=40).history) == 50
    assert len(train_classifier(features, labels, rng(), epochs=3, least_updates=40, batch_size=9).history) == 4


def test_the_same_generator_gives_the_same_bits():
    features, labels = two_clouds(200, rng(10))
    one, other = (train_classifier(features, labels, rng(11), depth=2).classifier.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (torch.randn(9, 2), torch.zeros(8).long(), {}, "must be row × width"),
        (torch.randn(20, 2), torch.zeros(20).long(), {}, "20 rows of 1 classes"),
        (torch.full((20, 2), torch.nan), torch.arange(20) % 2, {}, "must all be finite"),
        (torch.randn(20, 2), torch.arange(20) % 2, {"depth": 0}, "depth=0"),
        (torch.randn(20, 2), torch.arange(20) % 2, {"validation": 0.0}, "validation=0"),
        (torch.randn(4, 2), torch.arange(4) % 2, {}, "at least one row for validation"),
        (torch.randn(0, 2), torch.zeros(0).long(), {}, "0 rows"),
    ],
)
def test_mistakes_are_one_line(features, labels, options, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        train_classifier(features, labels, rng(), **options)
    assert "\n" not in str(caught.value)


def test_features_of_another_width():
    with pytest.raises(ArgumentError, match="features of width 3: this classifier was made for 5"):
        Classifier(5)(torch.zeros(2, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40))
def test_assessment_by_trying_every_threshold(pairs):
    scores = torch.tensor([score / 20 for score, _ in pairs], dtype=torch.float64)
    labels = torch.tensor([int(label) for _, label in pairs])
    found = assess(scores, labels)
    tried = {t: float(((scores >= t) == labels.bool()).double().mean()) for t in [*scores.tolist(), 2.0]}
    assert found.best_accuracy == pytest.approx(max(tried.values()))
    at = float(((scores >= found.threshold) == labels.bool()).double().mean())
    assert at == pytest.approx(found.best_accuracy)
    assert found.brier == pytest.approx(brier_score_loss(labels, scores, labels=[0, 1]))
    gaps = 0.0
    for low in range(10):
        inside = [(s, y) for s, y in zip(scores.tolist(), labels.tolist(), strict=True)
                  if min(9, int(s * 10)) == low]  # fmt: skip
        if inside:
            gaps += abs(sum(s for s, _ in inside) - sum(y for _, y in inside))
    assert found.calibration_error == pytest.approx(gaps / len(pairs))
    assert sum(count for _, count, _, _ in found.bins) == len(pairs)


@pytest.mark.parametrize(
    ("scores", "labels"),
    [([], []), ([0.5, 1.5], [0, 1]), ([0.5], [2]), ([0.5, 0.5], [1]), ([float("nan")], [1])],
)
def test_what_cannot_be_assessed(scores, labels):
    with pytest.raises(ArgumentError, match="scores"):
        assess(torch.tensor(scores), torch.tensor(labels, dtype=torch.long))
