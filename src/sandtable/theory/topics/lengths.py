"""The linear map under uniform attention on documents of finite length, exactly.

A finite document shows its masked position too, and its [MASK] fraction fluctuates. Both change the optimum: the
visible word leaks (a larger diagonal), and every column must sum to one, so W_i0 = 1/(Tv) at *every* finite length —
not the value of theorem 2, which sends the length to infinity before λ to zero. Derived here; it holds for both laws
of topics.

By symmetry the moments of the empirical p̃ are diagonal on three spaces: span{[MASK], all words}, contrasts between
topics, and contrasts between words of one topic. `W[i, j]` is output i, input j.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from sandtable.arguments import number, one_of, typed
from sandtable.theory.topics.masking import contrast_variance, topic_contrasts
from sandtable.theory.topics.values import relaxation
from sandtable.worlds import BertMasking, TopicModel

AVERAGES = ("documents", "positions")


@dataclass(frozen=True)
class Moments:
    """E p̃p̃ᵀ and E e_w p̃ᵀ on the three invariant spaces (`topic`: between topics, `word`: inside a topic).

    `mask` and `mask_square` are the first two moments of the [MASK] fraction of a document.
    """

    mask: float
    mask_square: float
    topic: float
    topic_cross: float
    word: float
    word_cross: float


def finite_length_moments(world: TopicModel, masking: BertMasking, *, average: str = "documents") -> Moments:
    """Moments of the visible document seen from a selected position, for the lengths of `world`.

    `average="documents"` is the loss E (1/|M|) Σ_{j∈M}, with empty selections redrawn; `"positions"` pools all selected
    positions of a large batch, so that documents with more of them count more.
    """
    one_of("average", average, AVERAGES)
    variance, size = contrast_variance(world), world.topics * world.words
    first, last = world.length if isinstance(world.length, tuple) else (world.length, world.length)
    n = np.arange(first, last + 1, dtype=np.float64)
    select, keep, shown = masking.select, masking.keep, masking.keep + masking.random
    if average == "documents":
        weight = np.ones_like(n)
        nonempty = -np.expm1(n * np.log1p(-select)) if select < 1.0 else 1.0
        k, k2 = n * select / nonempty, n * select * (1.0 - select + n * select) / nonempty
    else:
        weight = n
        k = 1.0 + (n - 1.0) * select
        k2 = k**2 + (n - 1.0) * select * (1.0 - select)
    # k positions are selected, n − k are not; pairs of distinct positions share the document, hence the covariance s.
    pairs = (k2 - k) * keep**2 + (n * n - 2 * n * k + k2 - n + k) + 2 * keep * (n * k - k2)
    own = (k * shown + n - k) / size

    def mean(values: np.ndarray) -> float:
        return float(np.average(values, weights=weight))

    return Moments(
        mask=mean(k * masking.hide / n),
        mask_square=mean((k * masking.hide * (1.0 - masking.hide) + k2 * masking.hide**2) / n**2),
        topic=mean((own + pairs * variance) / n**2),
        topic_cross=mean((keep / size + ((k - 1.0) * keep + n - k) * variance) / n),
        word=mean(own / n**2),
        word_cross=mean(keep / size / n),
    )


@typed
def finite_length_value_matrix(
    world: TopicModel, masking: BertMasking, *, l2: float = 0.0, average: str = "documents"
) -> Float[Tensor, "vocab vocab"]:
    """argmin L(W) + l2·‖W‖²_F at the lengths of `world`; at l2 = 0 every word column and the [MASK] column sum to 1.

    With topic gain g and word gain h (cross moment over moment): W_i0 = 1/(Tv), different topics (1 − g)/(Tv), same
    topic (g − h)/v more, and the diagonal h more than that. As the length grows g → c₃ and h → p_c/(1 − p_mask).
    """
    number("l2", l2, least=0.0)
    moments, size = finite_length_moments(world, masking, average=average), world.topics * world.words
    to_mask, to_words = _mean_gains(moments, size, l2)
    matrix = torch.zeros(world.vocab_size, world.vocab_size, dtype=torch.float64)
    matrix[1:, 0] = to_mask / np.sqrt(size)
    inside = torch.eye(size, dtype=torch.float64) - 1.0 / size - topic_contrasts(world)[1:, 1:]
    matrix[1:, 1:] = to_words / size + moments.word_cross / (moments.word + l2) * inside
    return matrix + moments.topic_cross / (moments.topic + l2) * topic_contrasts(world)


def finite_length_loss(world: TopicModel, masking: BertMasking, *, average: str = "documents") -> float:
    """Least squared loss of uniform attention at the lengths of `world`: 1 minus what each mode explains."""
    moments = finite_length_moments(world, masking, average=average)
    explained = 1.0 / (world.topics * world.words)
    explained += (world.topics - 1) * moments.topic_cross**2 / moments.topic
    explained += world.topics * (world.words - 1) * moments.word_cross**2 / moments.word
    return 1.0 - explained


@typed
def finite_length_gap(world: TopicModel, masking: BertMasking, *, l2: float = 0.0, average: str = "documents") -> float:
    """Block-mean gap of the optimum: same-topic entries (with the diagonal) minus different-topic ones, g/v."""
    number("l2", l2, least=0.0)
    moments = finite_length_moments(world, masking, average=average)
    return moments.topic_cross / (moments.topic + l2) / world.words


@typed
def finite_length_stage_one_gap(
    world: TopicModel,
    masking: BertMasking,
    *,
    step: ArrayLike,
    lr: float,
    l2: float = 0.0,
    average: str = "documents",
) -> np.ndarray:
    """Block-mean gap of E W after `step` steps of SGD from zero, exactly, for every batch size.

    Fresh documents are independent of the weights, so the expectation of SGD on a quadratic loss is gradient descent
    on the population loss: gap·(1 − (1 − 2·lr·(topic moment + l2))^step).
    """
    number("lr", lr, above=0.0)
    moments = finite_length_moments(world, masking, average=average)
    final = finite_length_gap(world, masking, l2=l2, average=average)
    return final * relaxation(lr * (moments.topic + l2), np.asarray(step))


def _mean_gains(moments: Moments, size: int, l2: float) -> tuple[float, float]:
    """The map from ([MASK] share, word share) to the word share, whose target is always 1."""
    x, x2, root = moments.mask, moments.mask_square, float(np.sqrt(size))
    if l2 == 0.0 and x2 > x * x:
        return 1.0 / root, 1.0
    moment = np.array([[x2, (x - x2) / root], [(x - x2) / root, (1.0 - 2.0 * x + x2) / size]])
    cross = np.array([x / root, (1.0 - x) / size])
    gains = cross @ np.linalg.pinv(moment + l2 * np.eye(2))
    return float(gains[0]), float(gains[1])
