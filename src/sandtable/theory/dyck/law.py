"""Closed forms of the law of bracket prefixes: stationary depths, Bayes losses, how far two next-token laws are apart.

All follow from the law of Wen, Li, Liu & Risteski 2023 (section 2.2.1): its depth is a Markov chain.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import one_of, typed, whole
from sandtable.worlds.dyck import DyckPrefixes

LOSSES = ("squared", "cross-entropy")


def stationary_depths(world: DyckPrefixes) -> Float[Tensor, " depth"]:
    """π_0 ∝ 1, π_d ∝ (q/(1−q))^{d−1}/(1−q) for 0 < d < D, π_D = q π_{D−1} (π_1 = π_0 if D = 1)."""
    q, top = world.q, world.depth
    inside = [(d - 1) * math.log(q / (1 - q)) - math.log(1 - q) for d in range(1, top)]
    logs = [0.0, *inside, math.log(q) + inside[-1] if inside else 0.0]
    return torch.tensor(logs, dtype=torch.float64).softmax(0)


def bayes_losses(world: DyckPrefixes, loss: str = "squared") -> Float[Tensor, " depth"]:
    """Loss of the true law on the next bracket, by the depth before it.

    Squared error to the one-hot vector: 1 − 1/k at depth 0, 1 − q²/k − (1−q)² inside, 0 at depth D. Cross-entropy:
    ln k, −q ln(q/k) − (1−q) ln(1−q), 0.
    """
    one_of("loss", loss, LOSSES)
    k, q = world.types, world.q
    if loss == "squared":
        ends, inside = 1 - 1 / k, 1 - q**2 / k - (1 - q) ** 2
    else:
        ends, inside = math.log(k), -q * math.log(q / k) - (1 - q) * math.log(1 - q)
    return torch.tensor([ends, *[inside] * (world.depth - 1), 0.0], dtype=torch.float64)


@typed
def bayes_loss(world: DyckPrefixes, loss: str = "squared", *, length: int | None = None) -> float:
    """The least mean loss over the N next brackets of a row: no model does better in expectation."""
    steps = world.length if length is None else whole("length", length)
    return float(world.depth_marginals(steps)[:-1].mean(0) @ bayes_losses(world, loss))


def stationary_bayes_loss(world: DyckPrefixes, loss: str = "squared") -> float:
    """The limit of `bayes_loss` as rows grow long."""
    return float(stationary_depths(world) @ bayes_losses(world, loss))


def top_distance(world: DyckPrefixes, norm: str = "l2") -> float:
    """How far apart two next-token laws are at a depth 0 < d < D if only the type of the last open bracket differs.

    l1: 2(1−q), l2: √2(1−q), tv: 1−q. Where D = 1 there is no such depth, and a full stack gives 2, √2 and 1.
    """
    factor = {"l1": 2.0, "l2": math.sqrt(2), "tv": 1.0}[one_of("norm", norm, ("l1", "l2", "tv"))]
    return factor * (1 - world.q if world.depth > 1 else 1.0)


@typed
def least_probability(world: DyckPrefixes, *, length: int | None = None) -> float:
    """(q(1−q)/k²)^N: no prefix of N brackets is less likely."""
    steps = world.length if length is None else whole("length", length)
    return (world.q * (1 - world.q) / world.types**2) ** steps
