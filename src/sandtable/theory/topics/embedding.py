"""The embedding as the only trained part: theorem 1 of Li, Li & Risteski (2023), and what a narrow embedding costs.

With W^K = W^Q = 0, W^V = I and tied weights a position predicts f = E p̃ + b with E = W_Eᵀ W_E. The bias takes away
the random words of masking, so the target is E p̃ = c₃·D p̃ with D = diag(0, 1, …, 1). `W_E` has shape width × vocab.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.theory.topics.masking import constants, contrast_variance, topic_contrasts
from sandtable.theory.topics.values import population_loss
from sandtable.worlds import BertMasking, TopicModel


def prediction_bias(world: TopicModel, masking: BertMasking) -> Float[Tensor, " vocab"]:
    """b_i = −p_m p_r/(aTv) for words and b_0 = 0."""
    c = constants(world, masking)
    bias = torch.full((world.vocab_size,), -c.noise / (c.a * c.vocab_words), dtype=torch.float64)
    bias[0] = 0.0
    return bias


def embedding_residuals(
    world: TopicModel, masking: BertMasking, E: Float[Tensor, "*models vocab vocab"]
) -> Float[Tensor, "*models vocab topics+1"]:
    """How far the Gram matrix `E` is from theorem 1's conditions, row by row: T topic sums, then the [MASK] entry.

    For some u: E_i0 = −c₂u_i, Σ_{l∈t} E_il = u_i v, and c₃ more when t is the topic of i. All zero iff E is optimal.
    """
    c = constants(world, masking)
    E = E.double()
    sums = E[..., 1:].unflatten(-1, (c.topics, c.words)).sum(-1)
    sums[..., torch.arange(1, world.vocab_size), world.topic_of[1:]] -= c.c3
    u = sums.mean(-1, keepdim=True) / c.words
    return torch.cat([sums - c.words * u, E[..., :1] + c.c2 * u], dim=-1)


def embedding_loss(
    world: TopicModel, masking: BertMasking, E: Float[Tensor, "*models vocab vocab"], *, bias: Tensor | None = None
) -> Float[Tensor, "*models"]:
    """Squared loss of f = E p̃ + bias over every topic set; the bias defaults to `prediction_bias`."""
    return population_loss(world, masking, E, bias=prediction_bias(world, masking) if bias is None else bias)


def embedding_excess_of(
    world: TopicModel, masking: BertMasking, E: Float[Tensor, "*models vocab vocab"]
) -> Float[Tensor, "*models"]:
    """Loss of the Gram matrix `E` above the optimum, in closed form: ‖(E − c₃D)m‖² + a²s‖(E − c₃D)Π‖²_F."""
    c = constants(world, masking)
    error = E.double() - diagonal_embedding_gram(world, masking)
    return (error @ c.m).square().sum(-1) + c.a**2 * c.s * (error @ topic_contrasts(world)).square().sum((-2, -1))


def embedding_excess(world: TopicModel, *, width: int) -> float:
    """Least excess loss of an embedding of this width ≥ 1: max(T − width, 0)·s, so width T suffices and is necessary.

    Eckart–Young on c₃DΣ^{1/2}, whose singular values squared are (1 − p_mask)²/(a²Tv) once and s (never larger) T − 1
    times: a narrow embedding gives up contrasts, never the mean.
    """
    whole("width", width)
    return max(world.topics - width, 0) * contrast_variance(world)


@typed
def optimal_embedding(world: TopicModel, masking: BertMasking, *, width: int) -> Float[Tensor, "width vocab"]:
    """An embedding W_E of this width that attains `embedding_excess`: √c₃ times orthonormal topic patterns.

    The first row is constant over words, the next ones are contrasts between topics, rows beyond the T-th are empty.
    At width ≥ T the Gram matrix is (c₃/v)·blockdiag(J_v).
    """
    whole("width", width)
    c = constants(world, masking)
    start = torch.eye(c.topics, dtype=torch.float64)
    start[:, 0] = 1.0
    patterns, _ = torch.linalg.qr(start)
    rows = min(width, c.topics)
    embedding = torch.zeros(width, world.vocab_size, dtype=torch.float64)
    embedding[:rows, 1:] = patterns.mT[:rows].repeat_interleave(c.words, dim=1) * (c.c3 / c.words) ** 0.5
    return embedding


def diagonal_embedding_gram(world: TopicModel, masking: BertMasking) -> Float[Tensor, "vocab vocab"]:
    """c₃·diag(0, 1, …, 1), the optimum with u = 0 and no weight on other words; it needs width ≥ Tv."""
    gram = torch.full((world.vocab_size,), constants(world, masking).c3, dtype=torch.float64)
    gram[0] = 0.0
    return gram.diag()


def gram(W_E: Float[Tensor, "*models width vocab"]) -> Float[Tensor, "*models vocab vocab"]:
    """E = W_Eᵀ W_E."""
    if W_E.ndim < 2:
        raise ArgumentError(f"W_E of shape {tuple(W_E.shape)}: must be width × vocab")
    return W_E.mT @ W_E
