"""The information that masked prediction has about parameters, for any mask law and any differentiable family.

With one mask per sequence the estimator that maximises Σ log p_θ(x_K | x_−K) has √n(θ̂ − θ) → N(0, Γ), Γ = H^{−1},

    H = E_{x, K} Cov(∇ log p_θ(x) | x_−K),

the generalised Fisher matrix: a Hessian and a covariance of scores at once. More masking is never worse: H_K grows with
K. Masks that depend on x enter through the weights p(x) p(K | x).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev

from sandtable.arguments import ArgumentError, whole
from sandtable.worlds.finite import FiniteLaw, all_states, conditional_log_probs, over_hidden
from sandtable.worlds.ising import spins
from sandtable.worlds.masks import MaskLaw

Family = Callable[[Float[Tensor, " parameter"]], Float[Tensor, " states"]]
"""θ ↦ log p_θ of every state, up to a constant."""


def ising_statistics(length: int) -> Float[Tensor, "states parameter"]:
    """T(x) = (s_i; s_i s_j, i < j) of every state: p_θ ∝ exp⟨θ, T⟩ with θ = (h, J)."""
    s = spins(all_states(2, length))
    first, second = torch.triu_indices(length, length, 1)
    return torch.cat([s, s[:, first] * s[:, second]], 1)


def exponential(statistics: Float[Tensor, "states parameter"]) -> Family:
    """The family p_θ ∝ exp⟨θ, T⟩."""
    return lambda theta: statistics @ theta


def scores(family: Family, theta: Float[Tensor, " parameter"]) -> Float[Tensor, "states parameter"]:
    """∇_θ log p_θ(x) of every state, by automatic differentiation."""
    return jacrev(lambda at: family(at).log_softmax(0))(theta)  # pyright: ignore[reportReturnType]


def information(
    scores: Float[Tensor, "states parameter"], law: FiniteLaw, masks: MaskLaw
) -> Float[Tensor, "parameter parameter"]:
    """H = E_{x ~ law, K ~ masks} Cov(score | x_−K, K) = E[s sᵀ] − E[m_K m_Kᵀ], m_K the mean of s given what is seen."""
    weights, seen = _weights(scores, law, masks), torch.zeros(scores.shape[1], scores.shape[1], dtype=scores.dtype)
    for hidden, weight in zip(masks.family, weights.T, strict=True):
        seen += _explained(scores, weight, hidden, law.symbols)
    return scores.T @ (law.probs[:, None] * scores) - seen


def fisher(scores: Float[Tensor, "states parameter"], law: FiniteLaw) -> Float[Tensor, "parameter parameter"]:
    """I = Cov ∇ log p_θ: everything masked."""
    mean = law.probs @ scores
    return scores.T @ (law.probs[:, None] * scores) - torch.outer(mean, mean)


def increment(scores: Float[Tensor, "states parameter"], law: FiniteLaw, k: int) -> Float[Tensor, "p p"]:
    """C_k = H_{k+1} − H_k = E_T E_{a ∈ T} Cov(∇ log p_θ(x_a | x_−T)), T of size k + 1: what one more masked place adds.

    The score of x_a given x_−T is E[s | x_−T, x_a] − E[s | x_−T].
    """
    whole("k", k, most=law.length - 1)
    total = torch.zeros(scores.shape[1], scores.shape[1], dtype=scores.dtype)
    p, shape = law.probs, (law.symbols,) * law.length
    for block in combinations(range(law.length), k + 1):
        joint = (p[:, None] * scores).reshape(*shape, -1)
        mass = p.reshape(*shape, 1)
        outer = joint.sum(block, keepdim=True) / mass.sum(block, keepdim=True)
        for place in block:
            rest = tuple(i for i in block if i != place)
            weight = mass.sum(rest, keepdim=True) if rest else mass
            score = (joint.sum(rest, keepdim=True) if rest else joint) / weight - outer
            score = score.reshape(-1, scores.shape[1])
            total += score.T @ (weight.reshape(-1, 1) * score)
    return total / (comb(law.length, k + 1) * (k + 1))


def asymptotic_covariance(information: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """Γ = H^{−1}; refused where the masks leave a direction of θ unseen."""
    values, vectors = torch.linalg.eigh(information)
    if float(values[0]) <= 1e-12 * max(float(values[-1]), 1e-300):
        raise ArgumentError(f"information: smallest eigenvalue {float(values[0]):.3g}; these masks do not identify θ")
    return vectors @ (vectors.T / values[:, None])


def averaged_covariance(
    scores: Float[Tensor, "states parameter"], law: FiniteLaw, masks: MaskLaw
) -> Float[Tensor, "p p"]:
    """H^{−1} Cov(Σ_K p(K | x) score_K) H^{−1}: the variance when every sequence shows all of its masks at once.

    No information-matrix equality then (Godambe's sandwich), and hardly any dependence on the size of the masks.
    """
    weights, mean = _weights(scores, law, masks), torch.zeros_like(scores)
    for hidden, weight in zip(masks.family, weights.T, strict=True):
        axes, shape = hidden.nonzero()[:, 0].tolist(), (law.symbols,) * law.length
        if not axes:
            continue
        mass = weight.reshape(*shape, 1)
        given = (weight[:, None] * scores).reshape(*shape, -1).sum(axes, keepdim=True)
        given = given / mass.sum(axes, keepdim=True).clamp(min=1e-300)
        mean += (weight / law.probs.clamp(min=1e-300))[:, None] * (
            scores - given.expand(*shape, -1).reshape(scores.shape)
        )
    bread = asymptotic_covariance(information(scores, law, masks))
    return bread @ (mean.T @ (law.probs[:, None] * mean)) @ bread


def population_loss(family: Family, law: FiniteLaw, masks: MaskLaw, *, conditioned: bool = True) -> Family:
    """θ ↦ L(θ) = −E_{x ~ law, K} log p_θ(x_K | x_−K, K), to differentiate.

    `conditioned=False` leaves K out of the condition: the same for masks that do not look at x, biased for others.
    """
    weights = law.probs[:, None] * masks.probs(law.states)
    chosen = masks.probs(law.states).log() if masks.adaptive and conditioned else None

    def loss(theta: Float[Tensor, " parameter"]) -> Tensor:
        logs, total = family(theta), torch.zeros((), dtype=theta.dtype)
        for block, hidden in enumerate(masks.family):
            given = conditional_log_probs(logs, hidden, law.symbols, None if chosen is None else chosen[:, block])
            total = total - torch.where(weights[:, block] > 0, weights[:, block] * given, 0.0).sum()
        return total

    return loss


def independent_trace(length: int, k: int) -> float:
    """Tr Γ of k-masks for the Ising family at h = 0, J = 0: N²/k + C(N, 2)/(1 − (N−k)(N−k−1)/(N(N−1)))."""
    n = whole("length", length, least=2)
    whole("k", k, most=n)
    return n * n / k + comb(n, 2) / (1 - (n - k) * (n - k - 1) / (n * (n - 1)))


def _weights(scores: Tensor, law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "states block"]:
    """p(x) p(K | x)."""
    if len(scores) != len(law.probs):
        raise ArgumentError(f"scores with {len(scores)} rows: must be one for each of {len(law.probs)} states")
    if masks.length != law.length:
        raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")
    return law.probs[:, None] * masks.probs(law.states)


def _explained(scores: Tensor, weight: Tensor, hidden: Tensor, symbols: int) -> Tensor:
    """Σ over x_−K of mass · mean meanᵀ."""
    totals = over_hidden(weight[:, None] * scores, hidden, symbols)
    mass = over_hidden(weight, hidden, symbols)
    return totals.T @ (totals / mass.clamp(min=1e-300)[:, None])
