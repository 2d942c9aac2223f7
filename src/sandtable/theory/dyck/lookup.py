"""Small ReLU networks that compute a given function exactly: tables, selection, positions of a one, linear maps.

The helper lemmas of Wen, Li, Liu & Risteski (2023, thesis Lemmas 2.2.15–2.2.20) as `DeepMLP`s in float64. Two of them
do not hold as printed; here are the forms that do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed, whole
from sandtable.models import DeepMLP

DIRECTIONS = 4000
"""Directions among which a table takes the one that keeps its points furthest apart."""


def network(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> DeepMLP:
    """The network … ReLU(x W_0 + b_0) W_1 + b_1 … with these weights, in float64."""
    made = DeepMLP(len(weights[0]), [w.shape[1] for w in weights[:-1]], out_width=weights[-1].shape[1]).double()
    with torch.no_grad():
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            getattr(made, f"W_{i}").copy_(weight)
            if bias is not None:
                getattr(made, f"b_{i}").copy_(bias)
    return made.requires_grad_(False)


@typed
def lookup(
    points: Float[Tensor, "n width"], values: Float[Tensor, "n out"], *, directions: int = DIRECTIONS, seed: int = 0
) -> DeepMLP:
    """f(points[i]) = values[i] with one hidden layer of 2n units (Lemma 2.2.15).

    Along a unit direction w on which neighbours are at least 2γ apart, point i owns the ramp
    ReLU(⟨w, x − x_i⟩ + γ) − ReLU(⟨w, x − x_i⟩ − γ), which is 0 before it, γ at it and 2γ behind it; the heights z
    solve γ z_i + 2γ Σ_{j<i} z_j = y_i. Directions are drawn in the span of the points, and the widest gap wins.
    """
    points, values = points.double(), values.double()
    count, width = points.shape
    if len(values) != count:
        raise ArgumentError(f"values with {len(values)} rows: must be one for each of {count} points")
    centred = points - points.mean(0)
    _, sizes, span = torch.linalg.svd(centred, full_matrices=False)
    span = span[sizes > 1e-12 * max(float(sizes[0]), 1e-300)] if count > 1 else torch.eye(1, width).double()
    generator = torch.Generator().manual_seed(whole("seed", seed, least=0))
    drawn = torch.randn(whole("directions", directions), len(span), generator=generator, dtype=torch.float64) @ span
    drawn = drawn / drawn.norm(dim=1, keepdim=True)
    placed = (drawn @ points.T).sort(1).values
    gaps = placed.diff(dim=1).amin(1) if count > 1 else torch.full((directions,), 2.0, dtype=torch.float64)
    best = int(gaps.argmax())
    gap = float(gaps[best]) / 2
    if not gap > 1e-9:
        raise ArgumentError(f"points: two of the {count} coincide, so that no table can tell them apart")
    direction = drawn[best]
    along = points @ direction
    order = along.argsort()
    heights, total = torch.empty_like(values), torch.zeros_like(values[0])
    for i, y in enumerate(values[order]):
        heights[i] = y / gap - 2 * total
        total = total + heights[i]
    inner = direction[:, None].expand(-1, 2 * count)
    shift = torch.cat([gap - along[order], -gap - along[order]])
    return network([inner, torch.cat([heights, -heights])], [shift, None])


@typed
def selector(size: int, bound: float) -> DeepMLP:
    """[x; y] ↦ x_y for x in [0, M]ⁿ and y in 1 … n, with one hidden layer of 2n + 1 units (Lemma 2.2.17).

    x_y = Σ_i ReLU(x_i + M(y − i)) − Σ_i ReLU(x_i + M(y − i − 1)) − M(y − 1).
    """
    n, m = whole("size", size), number("bound", bound, above=0.0)
    eye, ones = torch.eye(n).double(), torch.ones(n).double()
    index = torch.arange(1, n + 1).double()
    inner = torch.zeros(n + 1, 2 * n + 1).double()
    inner[:n, : 2 * n] = torch.cat([eye, eye], 1)
    inner[n, : 2 * n], inner[n, 2 * n] = m, 1.0
    shift = torch.cat([-m * index, -m * (index + 1), torch.zeros(1).double()])
    outer = torch.cat([ones, -ones, torch.tensor([-m]).double()])[:, None]
    return network([inner, outer], [shift, torch.tensor([m]).double()])


@typed
def place_of_one(size: int, bound: float) -> DeepMLP:
    """x ↦ i where x_i > M and all others are 0: Σ_i i·(ReLU(x_i) − ReLU(x_i − M))/M (Lemma 2.2.18 without its + M)."""
    n, m = whole("size", size), number("bound", bound, above=0.0)
    eye, index = torch.eye(n).double(), torch.arange(1, n + 1).double() / m
    shift = torch.cat([torch.zeros(n), torch.full((n,), -m)]).double()
    return network([torch.cat([eye, eye], 1), torch.cat([index, -index])[:, None]], [shift, None])


def linear(weight: Float[Tensor, "width out"]) -> DeepMLP:
    """x ↦ x W with one hidden layer: ReLU(x [W, −W]) [I; −I] (Lemma 2.2.20)."""
    weight = weight.double()
    eye = torch.eye(weight.shape[1]).double()
    return network([torch.cat([weight, -weight], 1), torch.cat([eye, -eye])], [None, None])
