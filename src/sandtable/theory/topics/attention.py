"""Topic-wise attention with a frozen value matrix: the loss L(α, β), exactly and asymptotically, and its optima.

A query gives weight β to its own word, α to other words of its topic and 1 to everything else. γ = ((v−1)α + β)/v is
the mean weight inside the topic. Losses count selected positions that show a word ([MASK] queries attend uniformly,
see `masked_query_loss`). Two variants:

- "paper": the formulas of Li, Li & Risteski (2023), which leave [MASK] keys out of the normaliser but keep their usual
  contribution to the value;
- "exact": [MASK] keys have weight 1, as in a network, so α = β = 1 is uniform attention.

`value` is "block" (the limit of theorem 2) or "diagonal" (D^V: c₃ on the diagonal, −c₁ in the [MASK] column).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, typed
from sandtable.theory.topics.masking import constants, optimal_loss, require_present
from sandtable.theory.topics.values import optimal_map, value_matrix_entries, value_matrix_limit
from sandtable.worlds import BertMasking, TopicModel

VALUES = ("block", "diagonal")
VARIANTS = ("paper", "exact")


@typed
def attention_loss(
    world: TopicModel,
    masking: BertMasking,
    alpha: ArrayLike,
    beta: ArrayLike,
    *,
    value: str = "block",
    variant: str = "paper",
) -> np.ndarray:
    """L(α, β) elementwise over arrays of weights. For "block" it depends on γ alone."""
    return masking.keep + masking.random + reduced_loss(world, masking, alpha, beta, value=value, variant=variant)


@typed
def reduced_loss(
    world: TopicModel,
    masking: BertMasking,
    alpha: ArrayLike,
    beta: ArrayLike,
    *,
    value: str = "block",
    variant: str = "paper",
) -> np.ndarray:
    """L(α, β) − (p_c + p_r): the same loss without its constant, so that minima stay sharp at large v.

    Each of four cases of the visible word — true, other word of the true topic, other present topic, absent topic —
    adds probability × (‖f‖² − 2 f_true).
    """
    one_of("value", value, VALUES)
    one_of("variant", variant, VARIANTS)
    alpha, beta = _weights("alpha", alpha), _weights("beta", beta)
    c, tau = constants(world, masking), require_present(world)
    p1, p2, topics, v = c.p1, c.p2, c.topics, c.words
    inside = beta + (v - 1) * alpha
    masked = c.p_mask if variant == "exact" else 0.0
    z_present = p1 * inside + p1 * v * (tau - 1) + p2 * v * (topics - tau) + masked
    z_absent = p2 * inside + p1 * v * tau + p2 * v * (topics - tau - 1) + masked
    own, mate = (inside / v, inside / v) if value == "block" else (beta, alpha)
    shift = value_matrix_entries(world, masking).different if value == "block" and variant == "exact" else 0.0

    def output(mass: np.ndarray | float, z: np.ndarray) -> np.ndarray:
        """The value matrix applied to a word (or topic mean) of unnormalised attention `mass`."""
        if variant == "paper":
            return c.c3 * (mass / z - c.noise / c.vocab_words)
        return c.c3 * mass / z - c.c1 * c.p_mask / z + shift * (1.0 - 1.0 / z)

    f_own, f_mate = output(p1 * own, z_present), output(p1 * mate, z_present)
    f_present, f_absent = output(p1, z_present), output(p2, z_present)
    norm = f_own**2 + (v - 1) * f_mate**2 + v * (tau - 1) * f_present**2 + v * (topics - tau) * f_absent**2
    g_own, g_mate = output(p2 * own, z_absent), output(p2 * mate, z_absent)
    g_present, g_absent = output(p1, z_absent), output(p2, z_absent)
    away = g_own**2 + (v - 1) * g_mate**2 + v * tau * g_present**2 + v * (topics - tau - 1) * g_absent**2
    chance = masking.random / topics
    return (
        (masking.keep + chance / v) * (norm - 2.0 * f_own)
        + chance * (1.0 - 1.0 / v) * (norm - 2.0 * f_mate)
        + chance * (tau - 1) * (norm - 2.0 * f_present)
        + chance * (topics - tau) * (away - 2.0 * g_present)
    )


@typed
def mean_weight(world: TopicModel, alpha: ArrayLike, beta: ArrayLike) -> np.ndarray:
    """γ = ((v−1)α + β)/v, all that block value matrices can see of the attention."""
    return ((world.words - 1) * np.asarray(alpha, dtype=np.float64) + np.asarray(beta, dtype=np.float64)) / world.words


def masked_query_loss(world: TopicModel, masking: BertMasking) -> float:
    """Loss of selected positions that show [MASK] and so attend uniformly: (1 − p_c − p_r)(1 − 1/(τv)) for all α, β."""
    require_present(world)
    return masking.hide * optimal_loss(world)


@typed
def score_matrix(world: TopicModel, alpha: float, beta: float) -> Float[Tensor, "vocab vocab"]:
    """Scores S with exp S = topic-wise weights: ln β on the diagonal, ln α inside topics, 0 elsewhere and for [MASK].

    `S[i, j]` is key i, query j; with W^K = I and W^Q = √d·S a one-hot model has exactly this attention.
    """
    number("alpha", alpha, above=0.0)
    number("beta", beta, above=0.0)
    scores = float(np.log(alpha)) * world.same_topic.double()
    scores.diagonal()[1:] = float(np.log(beta))
    return scores


def diagonal_value_matrix(world: TopicModel, masking: BertMasking) -> Float[Tensor, "vocab vocab"]:
    """D^V: c₃ on the diagonal, −c₁ in the [MASK] column, nothing else; row 0, left open by the definition, is 0."""
    c = constants(world, masking)
    matrix = torch.eye(world.vocab_size, dtype=torch.float64) * c.c3
    matrix[:, 0] = -c.c1
    matrix[0] = 0.0
    return matrix


@typed
def attention_loss_by_enumeration(
    world: TopicModel,
    masking: BertMasking,
    alpha: float,
    beta: float,
    *,
    value: str | Float[Tensor, "vocab vocab"] = "block",
    variant: str = "paper",
) -> float:
    """L(α, β) summed over every visible query and every true word of one topic set (all sets are alike).

    Nothing of the case analysis is used: attention is softmax(S) over the visible distribution, the output a matrix
    product. In the "exact" variant `value` may be any matrix `W[output, input]`. The "paper" variant normalises over
    words alone, leaves [MASK] its unattended mass p_mask, and reads "block" as the block map with u = 0.
    """
    one_of("variant", variant, VARIANTS)
    matrix = _value_matrix(world, masking, value, variant)
    c, tau = constants(world, masking), require_present(world)
    size, shown = c.vocab_words, world.words * tau
    document = torch.zeros(world.vocab_size, dtype=torch.float64)
    document[1 : shown + 1] = 1.0 / shown
    visible = c.a * document + c.noise / size
    visible[0] = c.p_mask
    seen = visible[:, None] * score_matrix(world, alpha, beta).exp()
    if variant == "exact":
        seen = seen / seen.sum(0)
    else:
        seen[1:] = seen[1:] / seen[1:].sum(0)
        seen[0] = c.p_mask
    outputs = (matrix @ seen)[:, 1:]
    joint = document[:, None] * (
        masking.keep * torch.eye(world.vocab_size, dtype=torch.float64)[:, 1:] + masking.random / size
    )
    return float((joint * (1.0 + outputs.square().sum(0) - 2.0 * outputs)).sum())


def _value_matrix(world: TopicModel, masking: BertMasking, value: str | Tensor, variant: str) -> Tensor:
    if isinstance(value, Tensor):
        if variant == "paper" or tuple(value.shape) != (world.vocab_size, world.vocab_size):
            raise ArgumentError(
                f"value of shape {tuple(value.shape)} with variant={variant!r}: a matrix must be "
                f"{world.vocab_size} × {world.vocab_size} and needs variant='exact'"
            )
        return value.double()
    if one_of("value", value, VALUES) == "diagonal":
        return diagonal_value_matrix(world, masking)
    if variant == "exact":
        return value_matrix_limit(world, masking)
    return optimal_map(world, masking, u=torch.zeros(world.vocab_size))


def _weights(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise ArgumentError(f"{name}: attention weights must be finite and > 0")
    return array
