"""The small families, laws and mask laws over which the exact claims on masked estimators run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.fisher import Family
from sandtable.worlds import AdaptiveBlocks, Blocks, FiniteLaw, Ising, MaskLaw, Table, UniformSize, UniformSubset


@dataclass(frozen=True, eq=False)
class Instance:
    """A family at a parameter, and the law over {0, 1}^N that it is there."""

    name: str
    family: Family
    theta: Float[Tensor, " parameter"]
    law: FiniteLaw

    @classmethod
    def of(cls, name: str, family: Family, theta: Float[Tensor, " parameter"], length: int) -> Instance:
        return cls(name, family, theta, Table(family(theta).softmax(0).reshape((2,) * length)))

    @property
    def scores(self) -> Float[Tensor, "states parameter"]:
        return fisher.scores(self.family, self.theta)


def ising(fields: Sequence[float] | Tensor, pairs: Sequence[float] | Tensor, *, free: str = "h and J") -> Instance:
    """An Ising model whose fields and couplings are free, or its couplings alone (`free` "J")."""
    h, j = torch.as_tensor(fields, dtype=torch.float64), torch.as_tensor(pairs, dtype=torch.float64)
    length = len(h)
    if free == "h and J":
        family, theta = fisher.exponential(fisher.ising_statistics(length)), torch.cat([h, j])
    else:
        alone, statistics = (
            fisher.ising_statistics(length)[:, :length] @ h,
            fisher.ising_statistics(length, fields=False),
        )
        family, theta = (lambda at: alone + statistics @ at), j
    return Instance(f"Ising, N = {length}, {free} free", family, theta, Ising.of(h, j))


def clique(length: int, coupling: float, *, free: str = "h and J") -> Instance:
    """All pairs with one coupling and no fields."""
    return ising([0.0] * length, [coupling] * (length * (length - 1) // 2), free=free)


def mixed(length: int, generator: torch.Generator) -> Instance:
    """w · independent spins + (1 − w) · a model with one coupling: no exponential family. θ = (h, J, log w/(1−w))."""
    statistics = fisher.ising_statistics(length)
    pairs = statistics[:, length:].sum(1)

    def family(theta: Tensor) -> Tensor:
        spins, coupled = statistics[:, :length] @ theta[:length], pairs * theta[length]
        logits = torch.stack([theta[length + 1], torch.zeros_like(theta[0])]).log_softmax(0)
        return torch.logsumexp(torch.stack([spins.log_softmax(0), coupled.log_softmax(0)]) + logits[:, None], 0)

    h = 0.6 * (2 * torch.randint(2, (length,), generator=generator) - 1) * (0.8 + _uniform(length, generator))
    theta = torch.cat([h, 0.3 + 0.4 * _uniform(1, generator), 0.5 * _uniform(1, generator)])
    return Instance.of(f"mixture, N = {length}", family, theta, length)


def tied(length: int, generator: torch.Generator, parameters: int = 2) -> Instance:
    """Fields and couplings that are all linear in a few parameters."""
    statistics = fisher.ising_statistics(length)
    directions = torch.randn(statistics.shape[1], parameters, generator=generator).double()
    theta = 0.5 * torch.randn(parameters, generator=generator).double()
    family = fisher.exponential(statistics @ directions)
    return Instance.of(f"tied Ising, N = {length}", family, theta, length)


def curved(length: int, generator: torch.Generator) -> Instance:
    """Fields and couplings that are smooth functions of two parameters."""
    statistics = fisher.ising_statistics(length)
    inside, outside = (
        torch.randn(*shape, generator=generator).double() for shape in ((4, 2), (statistics.shape[1], 4))
    )
    theta = 0.5 * torch.randn(2, generator=generator).double()
    return Instance.of(
        f"curved, N = {length}", lambda at: statistics @ (outside @ torch.tanh(inside @ at)), theta, length
    )


WORSE = Instance.of(
    "tied Ising, θ = 1",
    fisher.exponential(fisher.ising_statistics(3) @ torch.tensor([[-1, 1, 1, -2, -2, 2]]).double().T),
    torch.ones(1).double(),
    3,
)
"""p ∝ exp θ(−s₁ + s₂ + s₃ − 2s₁s₂ − 2s₁s₃ + 2s₂s₃): larger masks are worse here when all are shown at once."""


def random_instances(count: int, generator: torch.Generator) -> list[Instance]:
    """`count` of every kind, N = 3 and 4 in turn."""
    out = []
    for i in range(count):
        n = 3 + i % 2
        h, j = (0.5 * torch.randn(size, generator=generator) for size in (n, n * (n - 1) // 2))
        out += [ising(h, j), ising(h, j, free="J"), tied(n, generator), curved(n, generator), mixed(4, generator)]
    return out


def adaptive_masks(length: int, generator: torch.Generator) -> AdaptiveBlocks:
    """Every state has a law of its own over all non-empty blocks, drawn uniformly from such laws."""
    blocks = every_block(length)
    weights = -torch.rand(2**length, len(blocks), generator=generator).clamp(min=1e-30).log()
    return AdaptiveBlocks.of(length, blocks, lambda _: weights / weights.sum(1, keepdim=True))


def together_when_aligned(length: int) -> AdaptiveBlocks:
    """All spins at once where they agree (four times in five), else single ones."""
    blocks = (tuple(range(length)), *((i,) for i in range(length)))

    def rule(x: Tensor) -> Tensor:
        aligned = (x == x[:, :1]).all(1, keepdim=True).double()
        together = 0.8 * aligned
        return torch.cat([together, ((1 - together) / length).expand(-1, length)], 1)

    return AdaptiveBlocks.of(length, blocks, rule)


def independent_masks(length: int, generator: torch.Generator) -> list[MaskLaw]:
    """k-masks for every k, all subsets, and random weights for all blocks."""
    weights = _uniform(len(every_block(length)), generator)
    return [
        *(UniformSize(length, k) for k in range(1, length + 1)),
        UniformSubset(length, 0.5),
        Blocks(length, every_block(length), tuple((weights / weights.sum()).tolist())),
    ]


def every_block(length: int) -> tuple[tuple[int, ...], ...]:
    return tuple(block for k in range(1, length + 1) for block in combinations(range(length), k))


def _uniform(count: int, generator: torch.Generator) -> Float[Tensor, " count"]:
    return torch.rand(count, generator=generator).double()
