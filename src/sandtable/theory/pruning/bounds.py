"""Helper bounds of the pruning theorem with their best constants, and as printed (thesis, Lemmas 2.2.3–2.2.16)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed, whole


def softmax_perturbation(eps: float) -> float:
    """sup ‖σ(x) − σ(y)‖₁ over ‖x − y‖∞ ≤ ε is 2 tanh(ε/2): two classes, x = (ε, −ε)/2 and y = −x."""
    return 2 * math.tanh(number("eps", eps, least=0.0) / 2)


@typed
def softmax_perturbation_printed(eps: float) -> float:
    """The printed bound e^{2ε} − 1: valid, and twice the best one or more."""
    return math.expm1(2 * number("eps", eps, least=0.0))


def layer_norm_lipschitz(c: float) -> float:
    """LN_C is the projection to the ball of radius C, divided by C, after centring: 1/C."""
    return 1 / number("c", c, above=0.0)


def layer_norm_lipschitz_printed(c: float) -> float:
    """The printed 2/C: valid, and twice the best one."""
    return 2 / number("c", c, above=0.0)


@typed
def composition(l1: float, e1: float, l2: float, e2: float) -> float:
    """‖f₂f₁x − g₂g₁x‖/‖x‖ ≤ (λ₁ + ε₁)(λ₂ + ε₂) − λ₁λ₂, if ‖g₁x‖ ≤ λ₁‖x‖ and g₂ is λ₂-Lipschitz; attained."""
    return (l1 + e1) * (l2 + e2) - l1 * l2


@typed
def composition_printed(l1: float, e1: float, l2: float, e2: float) -> float:
    """With the λ's of Lemma 2.2.5 crossed: (λ₂ + ε₁)(λ₁ + ε₂) − λ₁λ₂. Too small in general."""
    return (l2 + e1) * (l1 + e2) - l1 * l2


@typed
def attention_lipschitz(radius: float, c: float) -> float:
    """X ↦ LN_C(attention(X)) + X on ‖X‖₁,₂ ≤ R, spectral norms ≤ 1: (R² + √(R⁴ + 1))/C + 1, approached by long inputs.

    Along a unit vector u, with weights A_k and values v_k, let c_k = ⟨v_k − v̄, u⟩, so Σ A_k c_k = 0, Σ A_k c_k² ≤ R².
    Keys that move by δ contribute at most Σ A_k ‖W_V u + c_k·query‖ δ ≤ √(1 + R⁴) δ (Cauchy–Schwarz, the cross term
    is 0), the query Σ A_k |c_k| R δ ≤ R² δ. `attention_witness` comes as near as one likes.
    """
    r = number("radius", radius, above=0.0)
    return (r**2 + math.sqrt(r**4 + 1)) / number("c", c, above=0.0) + 1


def attention_lipschitz_printed(layers: int, c: float) -> float:
    """The printed 200L²/C for R = 4L; the best constant is about 32L²/C."""
    return 200 * whole("layers", layers) ** 2 / number("c", c, above=0.0)


class AttentionWitness(NamedTuple):
    """An input, the direction in which to move it, and the maps: scores key @ scores @ query, values x @ values."""

    x: Float[Tensor, "position 3"]
    direction: Float[Tensor, "position 3"]
    scores: Float[Tensor, "3 3"]
    values: Float[Tensor, "3 3"]


@typed
def attention_witness(radius: float, keys: int) -> AttentionWitness:
    """Half of the keys at Re, half at −Re, the query Rf last; scores pair e with e and g with f, values keep e ⟂ 1.

    The query moves along e, the keys along αe ± βg, (α, β) ∝ (1, R²): what it attends to moves by R² + √(R⁴ + 1), but
    for the share 1/(keys + 1) of attention that it pays to itself.
    """
    r, half = number("radius", radius, above=0.0), whole("keys", keys, least=2) // 2
    g = torch.ones(3, dtype=torch.float64) / math.sqrt(3)
    e, f = orthogonal_to(g[None])
    alpha, beta = 1 / math.sqrt(1 + r**4), r**2 / math.sqrt(1 + r**4)
    x = r * torch.stack([e] * half + [-e] * half + [f])
    direction = torch.stack([alpha * e + beta * g] * half + [alpha * e - beta * g] * half + [e])
    return AttentionWitness(x, direction, torch.outer(e, e) + torch.outer(g, f), torch.outer(e, e))


@typed
def value_error(pattern: float, values: float, size: float) -> float:
    """‖BA − Pσ‖₁,₂ ≤ ε₁‖P‖₁,₂ + ε₂ for attention A off σ by ε₁ in 1-norm and values B off P by ε₂; attained."""
    return pattern * size + values


@typed
def two_stage_error(eps: float) -> float:
    """Two stages of norm 2√2 with errors ε₀ = ε/8 each: 4√2 ε₀ + ε₀², at most ε while ε ≤ 64(1 − 1/√2)."""
    return composition(2 * math.sqrt(2), eps / 8, 2 * math.sqrt(2), eps / 8)


def direction_gap(ratio: float) -> float:
    """sup ‖(a+r)/‖a+r‖ − (b+r)/‖b+r‖‖ over ‖a‖, ‖b‖ ≤ r₀ and ‖r‖ = R·r₀ is 2/R for R ≥ 1: both at the arc sin 1/R."""
    return 2 / number("ratio", ratio, least=1.0)


def needed_ratio(eps: float) -> float:
    """The R from which on directions differ by at most ε ≤ 2: 2/ε, whatever r₀."""
    return 2 / number("eps", eps, above=0.0, most=2.0)


def needed_ratio_printed(eps: float, r0: float) -> float:
    """The printed R = 4r₀/ε + 1 as a multiple of r₀: too small for r₀ < ½ − ε/4."""
    return 4 * number("r0", r0, above=0.0) / number("eps", eps, above=0.0) + 1


def missing_basis(points: Float[Tensor, "point n"], *, generator: torch.Generator) -> Float[Tensor, "vector n"]:
    """n − 2 orthonormal vectors ⟂ 1 whose span holds none of the points ≠ 0 (Lemma 2.2.16): ⟂ to a random v as well."""
    count = whole("points' width", points.shape[1], least=3)
    if bool((points == 0).all(1).any()):
        raise ArgumentError("points: the zero vector lies in every span, leave it out")
    v = torch.randn(count, generator=generator, dtype=torch.float64)
    return orthogonal_to(torch.stack([torch.ones(count, dtype=torch.float64), v]))


def orthogonal_to(vectors: Float[Tensor, "vector n"]) -> Float[Tensor, "rest n"]:
    """An orthonormal basis of what is orthogonal to linearly independent vectors."""
    full = torch.linalg.qr(vectors.double().mT, mode="complete").Q
    return full[:, len(vectors) :].mT
