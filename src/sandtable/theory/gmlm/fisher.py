"""The information that masked prediction has about parameters, for any mask law and any differentiable family.

With one mask per sequence the estimator that maximises Σ log p_θ(x_K | x_−K) has √n(θ̂ − θ) → N(0, Γ), Γ = H^{−1},

    H = E_{x, K} Cov(∇ log p_θ(x) | x_−K),

the generalised Fisher matrix: a Hessian and a covariance of scores at once. More masking is never worse: H_K grows with
K. Masks that depend on x enter through the weights p(x) p(K | x).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacfwd

from sandtable.arguments import ArgumentError, capped_power, number, typed, whole
from sandtable.worlds.finite import FiniteLaw, all_states, conditional_log_probs, marginals, over_hidden
from sandtable.worlds.ising import spins
from sandtable.worlds.masks import MaskLaw

Family = Callable[[Float[Tensor, " parameter"]], Float[Tensor, " states"]]
"""θ ↦ log p_θ of every state, up to a constant."""

SMALLEST = 1e-300
"""In place of a mass of zero where one divides by it; whatever is divided is zero too."""

# -- families --------------------------------------------------------------------------------------------------------


@typed
def ising_statistics(length: int, *, fields: bool = True) -> Float[Tensor, "states parameter"]:
    """T(x) = (s_i; s_i s_j, i < j) of every state: p_θ ∝ exp⟨θ, T⟩ with θ = (h, J), or θ = J without `fields`."""
    s = spins(all_states(2, length))
    first, second = torch.triu_indices(length, length, 1)
    pairs = s[:, first] * s[:, second]
    return torch.cat([s, pairs], 1) if fields else pairs


def exponential(statistics: Float[Tensor, "states parameter"]) -> Family:
    """The family p_θ ∝ exp⟨θ, T⟩."""
    return lambda theta: statistics @ theta


@typed
def scores(family: Family, theta: Float[Tensor, " parameter"]) -> Float[Tensor, "states parameter"]:
    """∇_θ log p_θ(x) of every state, by automatic differentiation in double precision."""
    theta, _ = evaluated(family, theta, "theta")
    return jacfwd(lambda at: family(at).log_softmax(0))(theta)  # pyright: ignore[reportReturnType]


@typed
def masked_scores(
    family: Family, theta: Float[Tensor, " parameter"], masks: MaskLaw, *, symbols: int = 2, conditioned: bool = True
) -> Float[Tensor, "states block parameter"]:
    """∇_θ log p_θ(x_K | x_−K, K) of every state and block, by differentiating the conditionals themselves."""
    theta, logs = evaluated(family, theta, "theta")
    _check_states(logs, masks, symbols)
    chosen = _chosen(masks, symbols, conditioned)

    def conditionals(at: Tensor) -> Tensor:
        logs = family(at)
        return torch.stack(
            [
                conditional_log_probs(logs, hidden, symbols, _column(chosen, block, logs))
                for block, hidden in enumerate(masks.family)
            ],
            1,
        )

    return jacfwd(conditionals)(theta)  # pyright: ignore[reportReturnType]


def evaluated(
    family: Family, theta: Float[Tensor, " parameter"], name: str
) -> tuple[Float[Tensor, " parameter"], Float[Tensor, " states"]]:
    """θ in double precision and the log-probabilities there, or an `ArgumentError` that calls θ by `name`."""
    if theta.ndim != 1:
        raise ArgumentError(f"{name} of shape {tuple(theta.shape)}: must be one vector of parameters")
    theta = theta.to(torch.float64)
    try:
        logs = family(theta)
    except (RuntimeError, IndexError, ValueError) as error:
        numbers = f"{name} of {len(theta)} numbers"
        raise ArgumentError(f"{numbers}: the family does not take so many parameters of {theta.dtype}") from error
    if logs.ndim != 1:
        raise ArgumentError(f"family: gives values of shape {tuple(logs.shape)}; must be one for each state")
    return theta, logs


# -- information -----------------------------------------------------------------------------------------------------


def information(
    scores: Float[Tensor, "states parameter"], law: FiniteLaw, masks: MaskLaw
) -> Float[Tensor, "parameter parameter"]:
    """H = E_{x ~ law, K ~ masks} Cov(score | x_−K, K) = E[s sᵀ] − E[m mᵀ], m the mean of s given what is seen.

    For masks that do not look at x all blocks share partial sums: (|Ω|+1)^N d + |blocks| |Ω|^{N−k} d² for d parameters.
    """
    _check(scores, law, masks)
    seen = torch.zeros(scores.shape[1], scores.shape[1], dtype=scores.dtype)
    p = law.probs[:, None]
    if masks.adaptive:
        for hidden, weight in zip(masks.family, joint(law, masks).T, strict=True):
            sums = over_hidden(weight[:, None] * torch.cat([scores, torch.ones_like(p)], 1), hidden, law.symbols)
            seen += _explained(sums)
    else:
        weights = masks.probs(law.states[:1])[0].tolist()
        for block, sums in marginals(torch.cat([p * scores, p], 1), masks.family, law.symbols):
            seen += weights[block] * _explained(sums)
    return scores.T @ (p * scores) - seen


def fisher(scores: Float[Tensor, "states parameter"], law: FiniteLaw) -> Float[Tensor, "parameter parameter"]:
    """I = Cov ∇ log p_θ: everything masked."""
    _check(scores, law)
    mean = law.probs @ scores
    return scores.T @ (law.probs[:, None] * scores) - torch.outer(mean, mean)


def increment(scores: Float[Tensor, "states parameter"], law: FiniteLaw, k: int) -> Float[Tensor, "p p"]:
    """C_k = H_{k+1} − H_k = E_T E_{a ∈ T} Cov(∇ log p_θ(x_a | x_−T)), T of size k + 1: what one more masked place adds.

    The score of x_a given x_−T is E[s | x_−T, x_a] − E[s | x_−T].
    """
    whole("k", k, most=law.length - 1)
    _check(scores, law)
    total = torch.zeros(scores.shape[1], scores.shape[1], dtype=scores.dtype)
    p, shape = law.probs, (law.symbols,) * law.length
    for block in combinations(range(law.length), k + 1):
        summed = (p[:, None] * scores).reshape(*shape, -1)
        mass = p.reshape(*shape, 1)
        outer = summed.sum(block, keepdim=True) / mass.sum(block, keepdim=True).clamp(min=SMALLEST)
        for place in block:
            rest = tuple(i for i in block if i != place)
            weight = mass.sum(rest, keepdim=True) if rest else mass
            mean = (summed.sum(rest, keepdim=True) if rest else summed) / weight.clamp(min=SMALLEST)
            score = (mean - outer).reshape(-1, scores.shape[1])
            total += score.T @ (weight.reshape(-1, 1) * score)
    return total / (comb(law.length, k + 1) * (k + 1))


# -- variance --------------------------------------------------------------------------------------------------------


def asymptotic_covariance(information: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    """Γ = H^{−1}; refused where the masks leave a direction of θ unseen."""
    values, vectors = torch.linalg.eigh(information)
    if float(values[0]) <= 1e-12 * max(float(values[-1]), SMALLEST):
        raise ArgumentError(f"information: smallest eigenvalue {float(values[0]):.3g}; these masks do not identify θ")
    return vectors @ (vectors.T / values[:, None])


@typed
def covariance_of_many(
    scores: Float[Tensor, "states parameter"], law: FiniteLaw, masks: MaskLaw, *, each: float = math.inf
) -> Float[Tensor, "p p"]:
    """Γ when every sequence is shown with `each` = m masks of its own; ∞ averages over all p(K | x).

    H^{−1} (H/m + (1 − 1/m) V) H^{−1}, V = Cov(Σ_K p(K | x) score_K). Only m = 1 has the information-matrix equality;
    m → ∞ is Godambe's sandwich, which hardly depends on the size of the masks.
    """
    number("each", 1.0 if each == math.inf else each, least=1.0)
    _check(scores, law, masks)
    mean = torch.zeros_like(scores)
    shape = (law.symbols,) * law.length
    for hidden, pick in zip(masks.family, masks.probs(law.states).T, strict=True):
        axes = hidden.nonzero()[:, 0].tolist()
        if not axes:
            continue
        weight = (law.probs * pick)[:, None]
        sums = torch.cat([weight * scores, weight], 1).reshape(*shape, -1).sum(axes, keepdim=True)
        given = sums[..., :-1] / sums[..., -1:].clamp(min=SMALLEST)
        mean += pick[:, None] * (scores - given.expand(*shape, -1).reshape(scores.shape))
    hessian = information(scores, law, masks)
    bread = asymptotic_covariance(hessian)
    between = mean.T @ (law.probs[:, None] * mean)
    return bread @ (hessian / each + (1 - 1 / each) * between) @ bread


def independent_trace(length: int, k: int) -> float:
    """Tr Γ of k-masks for the Ising family at h = 0, J = 0: N²/k + C(N, 2)/(1 − (N−k)(N−k−1)/(N(N−1)))."""
    n = whole("length", length, least=2)
    whole("k", k, most=n)
    return n * n / k + comb(n, 2) / (1 - (n - k) * (n - k - 1) / (n * (n - 1)))


# -- the loss --------------------------------------------------------------------------------------------------------


def joint(law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "states block"]:
    """p(x) p(K | x)."""
    if masks.length != law.length:
        raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")
    return law.probs[:, None] * masks.probs(law.states)


def masked_loss(
    family: Family, masks: MaskLaw, *, symbols: int = 2, conditioned: bool = True
) -> Callable[[Float[Tensor, " parameter"], Float[Tensor, "states block"]], Tensor]:
    """(θ, f) ↦ −Σ f(x, K) log p_θ(x_K | x_−K, K), f a law or frequencies of pairs (x, K).

    `conditioned=False` leaves K out of the condition: the same for masks that do not look at x, biased for others.
    """
    chosen, blocks = _chosen(masks, symbols, conditioned), list(masks.family)

    def loss(theta: Float[Tensor, " parameter"], pairs: Float[Tensor, "states block"]) -> Tensor:
        logs, total = family(theta), torch.zeros((), dtype=theta.dtype, device=theta.device)
        for block, hidden in enumerate(blocks):
            if not bool(hidden.any()):
                continue
            given = conditional_log_probs(logs, hidden, symbols, _column(chosen, block, logs))
            weight = pairs[:, block]
            total = total - (weight * torch.where(weight > 0, given, 0.0)).sum()
        return total

    return loss


def population_loss(
    family: Family, law: FiniteLaw, masks: MaskLaw, *, conditioned: bool = True
) -> Callable[[Float[Tensor, " parameter"]], Tensor]:
    """θ ↦ L(θ) = −E_{x ~ law, K} log p_θ(x_K | x_−K, K), to differentiate."""
    loss, pairs = masked_loss(family, masks, symbols=law.symbols, conditioned=conditioned), joint(law, masks)
    return lambda theta: loss(theta, pairs)


# -- helpers ---------------------------------------------------------------------------------------------------------


def _chosen(masks: MaskLaw, symbols: int, conditioned: bool) -> Float[Tensor, "states block"] | None:
    """log p(K | x) where it must enter the conditionals."""
    return masks.probs(all_states(symbols, masks.length)).log() if masks.adaptive and conditioned else None


def _column(chosen: Tensor | None, block: int, like: Tensor) -> Float[Tensor, " states"] | None:
    return None if chosen is None else chosen[:, block].to(like.device)


def _check_states(logs: Float[Tensor, " states"], masks: MaskLaw, symbols: int) -> None:
    count = capped_power(whole("symbols", symbols, least=2), masks.length)
    if len(logs) != count:
        raise ArgumentError(f"symbols={symbols}: have {count} states, the family has {len(logs)}")


def _check(scores: Tensor, law: FiniteLaw, masks: MaskLaw | None = None) -> None:
    if len(scores) != len(law.probs):
        raise ArgumentError(f"scores with {len(scores)} rows: must be one for each of {len(law.probs)} states")
    if masks is not None and masks.length != law.length:
        raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")


def _explained(sums: Float[Tensor, "visible column"]) -> Float[Tensor, "p p"]:
    """Σ over x_−K of mass · mean meanᵀ; the last column of the sums is the mass."""
    totals, mass = sums[:, :-1], sums[:, -1:].clamp(min=SMALLEST)
    return totals.T @ (totals / mass)
