"""Classifiers on hidden states: linear, or with a few hidden layers; the model underneath stays as it is."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, number, typed, whole

MOST_LAYERS = 1000
_BINS = 10
LARGEST_RATE = 1e30  # what a float of 32 bits holds, with room


@typed
class Classifier(nn.Module):
    """Logits of the classes: `depth` linear layers, ReLU and `hidden` units between them, on centred, scaled features.

    `mean` and `scale` are those of the training features; a linear classifier of scaled features is a linear one.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, *, classes: int = 2, depth: int = 1, hidden: int = 256) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), classes=whole("classes", classes, least=2))
        self.config |= dict(depth=whole("depth", depth, most=MOST_LAYERS), hidden=whole("hidden", hidden))
        widths = [width, *[hidden] * (depth - 1), classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def initialise(self, generator: torch.Generator) -> Classifier:
        """Weights and biases uniform in ±1/√(inputs), torch's own rule, from an explicit generator."""
        with torch.no_grad():
            for parameter, inputs in ((p, layer.in_features) for layer in self._linear for p in layer.parameters()):
                parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) / math.sqrt(inputs))
        return self

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def forward(self, features: Float[Tensor, "... width"]) -> Float[Tensor, "... classes"]:
        if features.shape[-1] != self.config["width"]:
            raise ArgumentError(
                f"features of width {features.shape[-1]}: this classifier was made for {self.config['width']}"
            )
        x = (features.to(self.mean.dtype) - self.mean) / self.scale
        for layer in self._linear[:-1]:
            x = F.relu(layer(x))
        return self._linear[-1](x)

    @torch.no_grad()
    def accuracy(self, features: Float[Tensor, "row width"], labels: Int[Tensor, " row"]) -> float:
        """Share of rows whose likeliest class is their label."""
        return float((self(features).argmax(-1) == labels).double().mean())


@dataclass(frozen=True)
class ClassifierFit:
    """A trained classifier, as after the epoch of best validation accuracy (of equals, that of the lowest loss)."""

    classifier: Classifier
    validation_accuracy: float
    training_accuracy: float
    epoch: int
    history: Float[Tensor, " epoch"]
    """Validation accuracy after every epoch."""


@typed
def train_classifier(
    features: Float[Tensor, "row width"],
    labels: Int[Tensor, " row"],
    generator: torch.Generator,
    *,
    depth: int = 1,
    hidden: int = 256,
    lr: float = 3e-3,
    weight_decay: float = 0.1,
    batch_size: int = 2048,
    epochs: int = 10,
    least_updates: int = 400,
    validation: float = 0.1,
) -> ClassifierFit:
    """Cross-entropy by AdamW on a random share 1 − `validation` of the rows; the best epoch on the rest is kept.

    Small sets pass through in more than `epochs` epochs, until there were `least_updates` updates. The validation
    accuracy chose the epoch, so it is a little optimistic: a fair number comes from rows kept aside.
    """
    features, labels = features.detach().float().cpu(), labels.detach().long().cpu()
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ArgumentError(
            f"features of shape {tuple(features.shape)}, labels of shape {tuple(labels.shape)}: "
            "must be row × width, and one label a row"
        )
    if not bool(features.isfinite().all()):
        raise ArgumentError("features: must all be finite")
    n, held = len(labels), round(number("validation", validation, above=0.0, most=0.5) * len(labels))
    classes = int(labels.max()) + 1 if n else 0
    if held < 1 or classes < 2 or int(labels.min()) < 0:
        raise ArgumentError(f"{n} rows of {classes} classes: needs two classes, and at least one row for validation")
    batch_size = whole("batch_size", batch_size)
    whole("least_updates", least_updates, least=0)
    number("lr", lr, least=0.0, most=LARGEST_RATE)
    number("weight_decay", weight_decay, least=0.0)
    order = torch.randperm(n, generator=generator)
    here, there = order[held:], order[:held]
    classifier = Classifier(features.shape[1], classes=classes, depth=depth, hidden=hidden).initialise(generator)
    classifier.mean.copy_(features[here].mean(0))
    classifier.scale.copy_(features[here].std(0).clamp(min=1e-6) if len(here) > 1 else torch.ones(features.shape[1]))
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=lr, weight_decay=weight_decay)
    updates = -(-len(here) // batch_size)
    history, epoch, best, kept = [], 0, (-1.0, 0.0), classifier
    with torch.enable_grad():
        for _ in range(max(whole("epochs", epochs), -(-least_updates // updates))):
            for rows in here[torch.randperm(len(here), generator=generator)].split(batch_size):
                optimizer.zero_grad()
                F.cross_entropy(classifier(features[rows]), labels[rows]).backward()
                optimizer.step()
            history.append(classifier.accuracy(features[there], labels[there]))
            with torch.no_grad():
                quality = history[-1], -float(F.cross_entropy(classifier(features[there]), labels[there]))
            if quality > best:
                best, epoch, kept = quality, len(history) - 1, copy.deepcopy(classifier)
    kept.requires_grad_(False)
    accuracy = kept.accuracy(features[here], labels[here])
    return ClassifierFit(kept, best[0], accuracy, epoch, torch.tensor(history, dtype=torch.float64))


@dataclass(frozen=True)
class Assessment:
    """What scores in [0, 1] are worth that should be P(label = 1).

    - `accuracy` with threshold ½, and with the best `threshold` for these labels (`best_accuracy`);
    - `brier`: the mean of (score − label)²;
    - `calibration_error`: |mean score − share of ones| in ten bins of equal width, weighted by what they hold;
    - `bins`: lower end, how many, mean score and share of ones of every bin that holds any.
    """

    accuracy: float
    threshold: float
    best_accuracy: float
    brier: float
    calibration_error: float
    bins: tuple[tuple[float, int, float, float], ...]


@typed
def assess(scores: Float[Tensor, " row"], labels: Int[Tensor, " row"]) -> Assessment:
    """Accuracy, best threshold and calibration of scores; label 1 is foretold where a score reaches the threshold."""
    scores, labels = torch.as_tensor(scores).double().cpu(), torch.as_tensor(labels).long().cpu()
    if scores.ndim != 1 or scores.shape != labels.shape or not len(scores):
        raise ArgumentError(f"scores of shape {tuple(scores.shape)}, labels of shape {tuple(labels.shape)}: one a row")
    if not bool(((scores >= 0) & (scores <= 1)).all()) or not bool(((labels == 0) | (labels == 1)).all()):
        raise ArgumentError("scores must be in [0, 1], and labels 0 or 1")
    order = scores.argsort(descending=True)
    ones = torch.cat([torch.zeros(1), labels[order].double().cumsum(0)])
    taken = torch.arange(len(scores) + 1)
    right = ones + (labels == 0).sum() - (taken - ones)  # of taking so many of the highest scores for ones
    ranked = scores[order]
    right[1:-1][ranked[1:] == ranked[:-1]] = -1.0  # equal scores cannot be told apart
    best = int(right.argmax())
    threshold = float(ranked[best - 1]) if best else math.nextafter(float(ranked[0]), math.inf)
    which = (scores * _BINS).long().clamp(max=_BINS - 1)
    bins = []
    for place in which.unique().tolist():
        inside = which == place
        told, true = float(scores[inside].mean()), float(labels[inside].double().mean())
        bins.append((place / _BINS, int(inside.sum()), told, true))
    return Assessment(
        accuracy=float(((scores >= 0.5) == (labels == 1)).double().mean()),
        threshold=threshold,
        best_accuracy=float(right[best]) / len(scores),
        brier=float((scores - labels).square().mean()),
        calibration_error=sum(count * abs(told - true) for _, count, told, true in bins) / len(scores),
        bins=tuple(bins),
    )
