"""Closed forms of the law of brackets: stationary depths, Bayes losses, how far two next-token laws are apart.

All follow from the law of Wen, Li, Liu & Risteski 2023 (section 2.2.1): its depth is a Markov chain, of complete words
too, where the chance to open depends on how many brackets have come.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import instance, one_of, typed, whole
from sandtable.worlds.dyck import DyckPrefixes, DyckWords

LOSSES = ("squared", "cross-entropy")


def stationary_depths(world: DyckPrefixes) -> Float[Tensor, " depth"]:
    """π_0 ∝ 1, π_d ∝ (q/(1−q))^{d−1}/(1−q) for 0 < d < D, π_D = q π_{D−1} (π_1 = π_0 if D = 1)."""
    q, top = _endless(world).q, world.depth
    inside = [(d - 1) * math.log(q / (1 - q)) - math.log(1 - q) for d in range(1, top)]
    logs = [0.0, *inside, math.log(q) + inside[-1] if inside else 0.0]
    return torch.tensor(logs, dtype=torch.float64).softmax(0)


def _endless(world: DyckPrefixes) -> DyckPrefixes:
    """`world` if its law is the same at every position."""
    return instance("world", world, DyckPrefixes, "a DyckPrefixes, whose law is the same at every position")


def bayes_losses(world: DyckPrefixes | DyckWords, loss: str = "squared") -> Float[Tensor, "*read depth"]:
    """Loss of the true law on the next bracket, given that one follows, by the depth before it.

    Where the next bracket opens with probability o (1 at depth 0, q inside, 0 at depth D), squared error to the one-hot
    vector is 1 − o²/k − (1−o)² and cross-entropy −o ln(o/k) − (1−o) ln(1−o). Of words, which must end in time, o also
    depends on how many brackets have come: one row for each number of them.
    """
    one_of("loss", loss, LOSSES)
    instance("world", world, (DyckPrefixes, DyckWords), "a DyckPrefixes or DyckWords")
    opens, k = world.opening.clone(), world.types
    opens[:, 0] = 1.0
    closes = 1 - opens
    if loss == "squared":
        found = 1 - opens**2 / k - closes**2
    else:
        found = torch.special.entr(opens) + opens * math.log(k) + torch.special.entr(closes)
    return found if isinstance(world, DyckWords) else found[0]


@typed
def bayes_loss(world: DyckPrefixes | DyckWords, loss: str = "squared", *, length: int | None = None) -> float:
    """The least mean loss over the brackets of a row, of which there are N: no model does better in expectation.

    Of words, the expected loss of a word over its expected number of brackets; `length` counts only the first ones.
    """
    losses = bayes_losses(world, loss)
    steps = world.most if length is None else whole("length", length)
    if isinstance(world, DyckWords):
        steps = min(steps, world.most)
        losses = losses[:steps]
    follow = world.depth_marginals(steps)[:-1]  # at depth 0 a word may end instead
    follow[:, 0] *= world.opening[:steps, 0]
    return float((follow * losses).sum() / follow.sum())


def stationary_bayes_loss(world: DyckPrefixes, loss: str = "squared") -> float:
    """The limit of `bayes_loss` as rows grow long."""
    return float(stationary_depths(world) @ bayes_losses(world, loss))


def top_distance(world: DyckPrefixes, norm: str = "l2") -> float:
    """How far apart two next-token laws are at a depth 0 < d < D if only the type of the last open bracket differs.

    l1: 2(1−q), l2: √2(1−q), tv: 1−q. Where D = 1 there is no such depth, and a full stack gives 2, √2 and 1.
    """
    _endless(world)
    factor = {"l1": 2.0, "l2": math.sqrt(2), "tv": 1.0}[one_of("norm", norm, ("l1", "l2", "tv"))]
    return factor * (1 - world.q if world.depth > 1 else 1.0)


@typed
def least_probability(world: DyckPrefixes, *, length: int | None = None) -> float:
    """(q(1−q)/k²)^N: no prefix of N brackets is less likely."""
    steps = _endless(world).length
    steps = steps if length is None else whole("length", length)
    return (world.q * (1 - world.q) / world.types**2) ** steps
