"""What the sources print and what does not hold, each as a formula or number that can be checked.

The sources are Li, Li & Risteski (2023), its thesis version and its slides. Every docstring says what is wrong and
which function of this package is right. Claims with `expected="refuted"` are built on these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from sandtable.arguments import number, typed, whole
from sandtable.theory.topics.attention import attention_loss, diagonal_value_matrix
from sandtable.theory.topics.masking import constants, require_present
from sandtable.theory.topics.optima import Interval, asymptotic_outputs, block_constants, find_root
from sandtable.theory.topics.values import ridge_value_matrix
from sandtable.worlds import BertMasking, TopicModel

HESSIAN_RANK = 1
"""Printed rank of the Hessian of a row's loss. True of one document; for the population it is T (`second_moment`)."""

C1_RANGE = Interval(0.0, 1.0)
"""Printed range of c₁. It is unbounded when few selected positions show [MASK] (`c1_counterexample`)."""


class AttentionRow(NamedTuple):
    """One row of the table of average attention: same word, same topic but other word, different topic."""

    optimizer: str
    lr: float
    same_word: float
    same_topic: float
    different_topic: float


ATTENTION_TABLE = (
    AttentionRow("adam", 0.003, 0.00759, 0.0108, 0.00689),
    AttentionRow("adam", 0.01, 0.00811, 0.010, 0.00707),
    AttentionRow("adam", 0.03, 0.00453, 0.0116, 0.00665),
    AttentionRow("sgd", 0.01, 0.0105, 0.0106, 0.00673),
    AttentionRow("sgd", 0.03, 0.0140, 0.0103, 0.00641),
)
"""Thesis table 2.1. Its caption has same-word above same-topic attention in most settings; its numbers, in one of five.

What the numbers do show is `same_topic > different_topic` in every row.
"""


@typed
def asymptotic_block_loss_without_v(world: TopicModel, masking: BertMasking, gamma: ArrayLike) -> np.ndarray:
    """The asymptotic L(γ) with p_r y² for absent query topics: a factor v is lost, since v words receive y each.

    Right: `asymptotic_block_loss`.
    """
    x, y = asymptotic_outputs(world, masking, gamma)
    return masking.keep * ((1.0 - x) ** 2 + (world.words - 1) * x**2) + masking.random * (1.0 + y**2)


@typed
def absent_topic_share_over_p1(world: TopicModel, masking: BertMasking, gamma: ArrayLike) -> np.ndarray:
    """Attention per word of an absent query topic, p₂γ/(p₁vγ + …); its own mass is p₂vγ.

    Right: p₂γ/z₂ as in `reduced_loss`. With the printed form the topic's share cannot approach 1/v as γ grows.
    """
    c, tau = constants(world, masking), require_present(world)
    gamma = np.asarray(gamma, dtype=np.float64)
    others = c.p1 * c.words * tau + c.p2 * c.words * (c.topics - tau - 1)
    return c.p2 * gamma / (c.p1 * c.words * gamma + others)


def uniform_attention_loss(world: TopicModel, masking: BertMasking) -> float:
    """The printed L at α = β = 1, which should be that of uniform attention, (p_c + p_r)(1 − 1/(τv)).

    It leaves [MASK] keys out of the normaliser but keeps their value. Right: `attention_loss(…, variant="exact")`.
    """
    return float(attention_loss(world, masking, 1.0, 1.0, variant="paper"))


def embedding_gram_with_mask(world: TopicModel, masking: BertMasking) -> Float[Tensor, "vocab vocab"]:
    """E = c₃·I, printed for theorem 1: it predicts c₃p_mask for [MASK]. Right: `diagonal_embedding_gram`."""
    return constants(world, masking).c3 * torch.eye(world.vocab_size, dtype=torch.float64)


def embedding_gram_excess(world: TopicModel, masking: BertMasking) -> float:
    """Excess loss of `embedding_gram_with_mask`: (c₃p_mask)², where the theorem promises 0."""
    c = constants(world, masking)
    return (c.c3 * c.p_mask) ** 2


def bias_for_every_output(world: TopicModel, masking: BertMasking) -> Float[Tensor, " vocab"]:
    """b_i = −p_m p_r/(aTv) for every i, as theorem 1's main statement has it. Right: `prediction_bias`."""
    c = constants(world, masking)
    return torch.full((world.vocab_size,), -c.noise / (c.a * c.vocab_words), dtype=torch.float64)


def bias_excess(world: TopicModel, masking: BertMasking) -> float:
    """Excess loss that `bias_for_every_output` adds to every embedding of theorem 1's family: b_0²."""
    return float(bias_for_every_output(world, masking)[0]) ** 2


def another_diagonal_value_matrix(world: TopicModel, masking: BertMasking) -> Float[Tensor, "vocab vocab"]:
    """A second matrix that meets the definition of D^V, called unique: row 0 shifts weight inside topics.

    Same predictions under uniform attention. Right: `diagonal_value_matrix`, which sets row 0 to zero. Needs v ≥ 2.
    """
    whole("words", world.words, least=2)
    matrix = diagonal_value_matrix(world, masking)
    matrix[0, 1 :: world.words] = 1.0
    matrix[0, 2 :: world.words] -= 1.0
    return matrix


def c1_counterexample() -> tuple[TopicModel, BertMasking]:
    """A world and a masking law with c₁ > 1."""
    return TopicModel(topics=4, words=3, present=2), BertMasking(select=0.15, keep=0.1, random=0.899)


def slides_interval(world: TopicModel, masking: BertMasking) -> Interval:
    """(λ₁τ, λ₂T) as on the slides; the theorem has τ − 1. Right: `block_interval`.

    The two differ by λ₁ only, and γ*/τ tends to a larger number than λ₁, so large worlds cannot tell them apart.
    """
    lower, _, upper = block_constants(masking)
    return Interval(lower * require_present(world), upper * world.topics)


def row_softmax(scores: Float[Tensor, "key query"]) -> Float[Tensor, "key query"]:
    """Attention normalised over queries, as the thesis prints it. The weights a query pays no longer sum to one.

    Right: softmax over keys, each column summing to one.
    """
    return scores.softmax(dim=-1)


@typed
def unsquared_ridge_value_matrix(world: TopicModel, masking: BertMasking, *, l2: float) -> Float[Tensor, "vocab vocab"]:
    """argmin L(W) + l2·‖W‖_F, the penalty as one remark writes it, without the square.

    It is the ridge solution at the strength μ with 2μ‖W_μ‖ = l2: the limit l2 → 0 is the same, the path is not. Zero
    once l2 reaches the norm of the gradient at zero. Right for the definition: `ridge_value_matrix`.
    """
    number("l2", l2, above=1e-15)  # below that the root is rounding
    c = constants(world, masking)
    # Norm of 2C, the gradient at W = 0: beyond it the penalty's kink keeps W at zero.
    steepest = 2.0 * (c.mean_square / c.vocab_words + (c.topics - 1) * (c.a * c.s) ** 2) ** 0.5
    if l2 >= steepest:
        return torch.zeros(world.vocab_size, world.vocab_size, dtype=torch.float64)

    def norm(strength: float) -> float:
        mean = c.mean_square / c.vocab_words / (c.mean_square + strength) ** 2
        return (mean + (c.topics - 1) * (c.a * c.s / (c.a**2 * c.s + strength)) ** 2) ** 0.5

    high = 1.0
    while 2.0 * high * norm(high) < l2:
        high *= 4.0
    strength = find_root(lambda x: 2.0 * x * norm(x) - l2, 1e-18, high)
    return ridge_value_matrix(world, masking, l2=strength)


def claim_one_word_probabilities(world: TopicModel) -> Interval:
    """The range [0, 1/v] over which a proof lets P(word) vary; with τ present topics only 0 and 1/(τv) occur.

    The result survives: `optimal_map` needs no more than 1 ≤ τ < T.
    """
    return Interval(0.0, 1.0 / world.words)
