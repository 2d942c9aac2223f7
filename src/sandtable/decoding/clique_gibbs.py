"""k-Gibbs on a clique of any size: its spins are drawn by how many of them are up, not by enumerating 2^k of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.decoding.blocks import BlockDynamics, ModelBlocks
from sandtable.decoding.chains import Sampler, States, check_law, largest
from sandtable.decoding.truncation import inverse_cdf
from sandtable.worlds import CliqueIsing, FiniteLaw, MaskLaw, UniformSize
from sandtable.worlds.finite import uniform

MOST_LISTED = 100
"""Up to so many spins in the clique, the laws of all blocks are listed: c³ numbers."""


class _Tables(NamedTuple):
    """By count: what pairs are worth, log of e^{2hb}/b!, log b!; by spin outside the clique: the chance of being up."""

    pairs: Float[Tensor, " up"]
    turns: Float[Tensor, " turning"]
    log_factorial: Float[Tensor, " count"]
    alone: Float[Tensor, " spin"]
    listed: Float[Tensor, "drawn staying turning"] | None = None


class CliqueGibbs(Sampler):
    """Of a uniform block of `k` positions, j lie in the clique and v spins of the clique that stay are up.

    Then b of the j turn up with probability ∝ e_b · exp(J ((2(v+b) − c)² − c)/2), e_b the elementary symmetric
    polynomial of e^{2h_i} over the j: C(j, b) e^{2hb} where the clique has one field h, and then the b are any of them.
    Otherwise e_b and the b spins come from the recursion e_b(1…i) = e_b(1…i−1) + e^{2h_i} e_{b−1}(1…i−1). Spins outside
    the clique are independent. O(c²) a chain and step, O(c log c) with one field, for any N.
    """

    def __init__(self, world: CliqueIsing, *, k: int) -> None:
        self.world, self.k = world, whole("k", k, most=world.size)
        c = world.clique
        up = 2.0 * torch.arange(c + 1, dtype=torch.float64) - c
        log_factorial = torch.lgamma(torch.arange(c + 1, dtype=torch.float64) + 1)
        turns = 2 * float(world.h[0]) * torch.arange(c + 1) - log_factorial
        alone = torch.sigmoid(2 * world.h[c:])
        self._tables = {torch.device("cpu"): _Tables(world.coupling * (up**2 - c) / 2, turns, log_factorial, alone)}

    def check(self, x: States) -> None:
        check_law(self.world, x)

    def draw(self, x: States, generator: torch.Generator) -> States:
        n, c, tables = self.world.size, self.world.clique, self._on(x.device)
        # The largest keys choose the block, in random order: the largest of those in the clique turn up.
        numbers = uniform((len(x), 2 * n - c + 1), generator, x.device)
        keys, rest, u = numbers[:, :n], numbers[:, n:-1], numbers[:, -1:]
        hidden = largest(keys, self.k)
        mine = hidden[:, :c]
        old = x.bool()
        stay = (old[:, :c] & ~mine).sum(1)
        if self.world.even:
            up = largest(keys[:, :c], self._how_many(mine.sum(1), stay, u, tables))
        else:
            up = self._one_by_one(mine, stay, u, generator, tables)
        new = torch.cat([up, rest < tables.alone], 1)
        # What `where` does, without a branch for every spin.
        return (old ^ ((old ^ new) & hidden)).to(x.dtype)

    def _on(self, device: torch.device) -> _Tables:
        """The tables where the chains are, brought there once."""
        if device not in self._tables:
            self._tables[device] = _Tables(*(t.to(device) for t in self._tables[torch.device("cpu")][:4]))
        return self._tables[device]

    def _how_many(
        self, size: Int[Tensor, " chain"], stay: Int[Tensor, " chain"], u: Float[Tensor, "chain 1"], tables: _Tables
    ) -> Int[Tensor, " chain"]:
        """b for blocks with `size` spins of the clique, where it has one field; laws are listed if there are few."""
        if self.world.clique > MOST_LISTED:
            ladder = _ladder(size, stay, tables)
        else:
            if tables.listed is None:
                j = torch.arange(self.world.clique + 1, device=size.device)
                tables = tables._replace(listed=_ladder(j[:, None].expand(-1, len(j)), j.expand(len(j), -1), tables))
                self._tables[size.device] = tables
            ladder = tables.listed[size, stay]  # pyright: ignore[reportOptionalSubscript]
        return (ladder <= u).sum(1).minimum(size)

    def _one_by_one(
        self, mine: Bool[Tensor, "chain spin"], stay: Tensor, u: Tensor, generator: torch.Generator, tables: _Tables
    ) -> Bool[Tensor, "chain spin"]:
        c, h = self.world.clique, self.world.h.tolist()
        empty = torch.full((len(mine), c + 1), -torch.inf, dtype=torch.float64, device=mine.device)
        empty[:, 0] = 0
        ladder = [empty]
        for i in range(c):
            with_i = torch.nn.functional.pad(ladder[-1][:, :-1], (1, 0), value=-torch.inf) + 2 * h[i]
            ladder.append(torch.where(mine[:, i : i + 1], torch.logaddexp(ladder[-1], with_i), ladder[-1]))
        left = inverse_cdf((ladder[-1] + _pairs(stay, tables)).softmax(1), u[:, 0])
        again, up = uniform((len(mine), c), generator, mine.device), torch.zeros_like(mine)
        for i in reversed(range(c)):
            fewer = ladder[i].gather(1, (left - 1).clamp(min=0)[:, None])[:, 0] + 2 * h[i]
            share = (fewer - ladder[i + 1].gather(1, left[:, None])[:, 0]).exp()
            up[:, i] = mine[:, i] & (left > 0) & (again[:, i] < share)
            left = left - up[:, i].long()
        return up


def _pairs(stay: Int[Tensor, "*rows"], tables: _Tables) -> Float[Tensor, "*rows count"]:
    """J ((2(v+b) − c)² − c)/2 for b = 0 … c."""
    b = torch.arange(len(tables.pairs), device=stay.device)
    return tables.pairs[(stay[..., None] + b).clamp(max=len(b) - 1)]


def _ladder(size: Int[Tensor, "*rows"], stay: Int[Tensor, "*rows"], tables: _Tables) -> Float[Tensor, "*rows count"]:
    """P(at most b of `size` spins turn up) where `stay` others are up: weights C(j, b) e^{2hb} times those of pairs."""
    b = torch.arange(len(tables.pairs), device=size.device)
    left = size[..., None] - b
    weights = tables.turns - tables.log_factorial[left.clamp(min=0)] + _pairs(stay, tables)
    return weights.masked_fill(left < 0, -torch.inf).softmax(-1).cumsum(-1)


@typed
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
