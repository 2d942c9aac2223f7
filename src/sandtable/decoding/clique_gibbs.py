"""k-Gibbs on a clique of any size: its spins are drawn by how many of them are up, not by enumerating 2^k of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.blocks import BlockDynamics, ModelBlocks
from sandtable.decoding.chains import Sampler, States, check_law, largest, uniform
from sandtable.decoding.truncation import inverse_cdf
from sandtable.worlds import CliqueIsing, FiniteLaw, MaskLaw, UniformSize


class CliqueGibbs(Sampler):
    """Of a uniform block of `k` positions, j lie in the clique and v spins of the clique that stay are up.

    Then b of the j turn up with probability ∝ e_b · exp(J ((2(v+b) − c)² − c)/2), e_b the elementary symmetric
    polynomial of e^{2h_i} over the j: C(j, b) e^{2hb} where the clique has one field h, and then the b are any of them.
    Otherwise e_b and the b spins come from the recursion e_b(1…i) = e_b(1…i−1) + e^{2h_i} e_{b−1}(1…i−1). Spins outside
    the clique are independent. O(c²) a chain and step, O(c log c) with one field, for any N.
    """

    def __init__(self, world: CliqueIsing, *, k: int) -> None:
        self.world, self.k = world, whole("k", k, most=world.size)
        up = 2.0 * torch.arange(world.clique + 1, dtype=torch.float64) - world.clique
        self._pairs = world.coupling * (up**2 - world.clique) / 2

    def check(self, x: States) -> None:
        check_law(self.world, x)

    def draw(self, x: States, generator: torch.Generator) -> States:
        n, c = self.world.size, self.world.clique
        # Of keys that choose the block, those inside it are in random order: they also choose which of it turn up.
        numbers = uniform((len(x), 2 * n - c + 1), generator, x.device)
        keys, rest, u = numbers[:, :n], numbers[:, n:-1], numbers[:, -1]
        hidden = largest(keys, self.k)
        mine = hidden[:, :c]
        stay = x[:, :c].masked_fill(mine, 0).sum(1)
        if self.world.even:
            up = self._any_of_them(keys[:, :c], mine, stay, u)
        else:
            up = self._one_by_one(mine, stay, u, generator)
        alone = rest < torch.sigmoid(2 * self.world.h[c:]).to(x.device)
        return torch.where(hidden, torch.cat([up, alone], 1).to(x.dtype), x)

    def _any_of_them(
        self, keys: Float[Tensor, "chain spin"], mine: Bool[Tensor, "chain spin"], stay: Tensor, u: Tensor
    ) -> Bool[Tensor, "chain spin"]:
        count = inverse_cdf(self._turning.to(mine.device)[mine.sum(1), stay], u)
        return largest(keys.masked_fill(~mine, -1.0), count)

    @cached_property
    def _turning(self) -> Float[Tensor, "drawn staying turning"]:
        """The law of b for every j and v, where the clique has one field."""
        j, v, b = torch.meshgrid(*[torch.arange(self.world.clique + 1)] * 3, indexing="ij")
        factorial = torch.lgamma(torch.arange(self.world.clique + 1, dtype=torch.float64) + 1)
        weights = 2 * float(self.world.h[0]) * b - factorial[b] - factorial[(j - b).clamp(min=0)]
        weights = weights + self._pairs[(v + b).clamp(max=self.world.clique)]
        return weights.masked_fill(b > j, -torch.inf).softmax(-1)

    def _one_by_one(
        self, mine: Bool[Tensor, "chain spin"], stay: Tensor, u: Tensor, generator: torch.Generator
    ) -> Bool[Tensor, "chain spin"]:
        c, h = self.world.clique, self.world.h
        empty = torch.full((len(mine), c + 1), -torch.inf, dtype=torch.float64, device=mine.device)
        empty[:, 0] = 0
        ladder = [empty]
        for i in range(c):
            with_i = torch.nn.functional.pad(ladder[-1][:, :-1], (1, 0), value=-torch.inf) + 2 * h[i]
            ladder.append(torch.where(mine[:, i : i + 1], torch.logaddexp(ladder[-1], with_i), ladder[-1]))
        left = inverse_cdf((ladder[-1] + self._pair_weights(stay)).softmax(1), u)
        again, up = uniform((len(mine), c), generator, mine.device), torch.zeros_like(mine)
        for i in reversed(range(c)):
            fewer = ladder[i].gather(1, (left - 1).clamp(min=0)[:, None])[:, 0] + 2 * h[i]
            share = (fewer - ladder[i + 1].gather(1, left[:, None])[:, 0]).exp()
            up[:, i] = mine[:, i] & (left > 0) & (again[:, i] < share)
            left = left - up[:, i].long()
        return up

    def _pair_weights(self, stay: Tensor) -> Float[Tensor, "chain count"]:
        """J ((2(v+b) − c)² − c)/2 for b = 0 … c."""
        c = self.world.clique
        count = (stay[:, None] + torch.arange(c + 1, device=stay.device)).clamp(max=c)
        return self._pairs.to(stay.device)[count]


def k_gibbs(law: FiniteLaw | Any, k: int, *, positions: int | None = None, **options: Any) -> Sampler:
    """Uniform blocks of `k` positions drawn anew: the fast path for cliques, `block_dynamics` for all else.

    A model that reads any number of positions must be told how many there are.
    """
    if isinstance(law, CliqueIsing) and not options:
        return CliqueGibbs(law, k=k)
    length = positions or getattr(law, "length", None)
    if length is None:
        raise ArgumentError("positions=None: this model reads any number of positions; say how many there are")
    return block_dynamics(law, UniformSize(length, k), **options)


def block_dynamics(law: FiniteLaw | Any, masks: MaskLaw, **options: Any) -> Sampler:
    """Blocks from `masks` drawn anew: exactly where `law` is a law over Ω^N, else as a model of hidden positions does.

    Any option of `ModelBlocks` but `naive` makes a law be read like a model.
    """
    exact = isinstance(law, FiniteLaw) and not set(options) - {"naive"}
    return (BlockDynamics if exact else ModelBlocks)(law, masks, **options)
