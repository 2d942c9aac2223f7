"""Markov chains over Ω^N, many at once: what a step is, how to run one, and when a set of states is first reached.

    sampler = k_gibbs(world, 3)
    found = run_chains(sampler, start, steps=1000, generator=generator, until=lambda x: world.mode(x) == 1)
    found.x, found.hits, found.censored()

A step is a function of states and a generator; everything is one computation for all chains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, shown, typed, whole
from sandtable.decoding.draws import as_generator
from sandtable.decoding.truncation import inverse_cdf, rising
from sandtable.worlds import FiniteLaw
from sandtable.worlds.finite import uniform

States = Int[Tensor, "chain position"]


class Sampler(ABC):
    """One step of a chain: `sampler(x, generator)` refuses what is no state, `draw` trusts its states."""

    @abstractmethod
    def check(self, x: States) -> None:
        """An `ArgumentError` unless every row of `x` is a state of the chain."""

    @abstractmethod
    def draw(self, x: States, generator: torch.Generator) -> States:
        """The next state of every chain."""

    def __call__(self, x: States, generator: torch.Generator) -> States:
        self.check(x)
        return self.draw(x, generator)


class MatrixChain(Sampler):
    """The chain of any transition matrix: a state is one number, x' ~ P(x, ·).

    With the lumped matrices of `theory.gmlm.magnetisation` a clique of any size is one number a chain.
    """

    def __init__(self, matrix: Float[Tensor, "state state"]) -> None:
        self.matrix = torch.as_tensor(matrix, dtype=torch.float64)
        if self.matrix.ndim != 2 or len(set(self.matrix.shape)) > 1:
            raise ArgumentError(f"matrix of shape {tuple(self.matrix.shape)}: must be square")
        if not bool((self.matrix >= 0).all()) or not bool(((self.matrix.sum(1) - 1).abs() < 1e-9).all()):
            raise ArgumentError("matrix: its rows must be probabilities that sum to 1")

    def check(self, x: States) -> None:
        check_rows(x)
        low, high = int(x.min()), int(x.max())
        if x.shape[1] != 1 or not 0 <= low <= high < len(self.matrix):
            found = f"x of shape {tuple(x.shape)}, from {low} to {high}"
            raise ArgumentError(f"{found}: must be one number a chain, from 0 to {len(self.matrix) - 1}")

    def draw(self, x: States, generator: torch.Generator) -> States:
        u = uniform((len(x),), generator, x.device)
        self.matrix = self.matrix.to(x.device)
        return inverse_cdf(self.matrix[x[:, 0].long()], u)[:, None].to(x.dtype)


@dataclass(frozen=True)
class Chains:
    """Where chains are after `steps` steps, and when they were first where `until` says: at step `hits`, −1 for never.

    `states` are all states from the start on, where they were asked for.
    """

    x: States
    hits: Int[Tensor, " chain"]
    steps: int
    states: Int[Tensor, "time chain position"] | None = None

    def censored(self) -> Int[Tensor, " chain"]:
        """min(τ, steps) of every chain, τ the hitting time."""
        return torch.where(self.hits < 0, self.steps, self.hits)


@typed
def run_chains(
    sampler: Sampler,
    start: States,
    *,
    steps: int,
    generator: torch.Generator | int,
    until: Callable[[States], Bool[Tensor, " chain"]] | None = None,
    stop: bool = True,
    keep: bool = False,
) -> Chains:
    """`steps` steps of every chain. One for which `until` holds stays where it is and is no longer computed.

    `stop=False` lets chains go on after they hit; `keep=True` keeps all states. A start with `until` true hits at 0.
    """
    whole("steps", steps, least=0)
    generator = as_generator(generator)
    sampler.check(start)
    x, moving = start.clone(), start
    hits = torch.full((len(x),), -1, device=x.device)
    running = torch.arange(len(x), device=x.device)
    kept = []
    for step in range(steps + 1):
        moving = sampler.draw(moving, generator) if step and len(running) else moving
        if keep:
            x[running] = moving
            kept.append(x.clone())
        if until is None:
            continue
        there = _reached(until, moving) & (hits[running] < 0)
        if bool(there.any()):
            hits[running[there]] = step
            if stop:
                x[running] = moving
                running, moving = running[~there], moving[~there]
        if stop and not len(running) and not keep:
            break
    x[running] = moving
    return Chains(x, hits, steps, torch.stack(kept) if keep else None)


def _reached(until: Callable[[States], Bool[Tensor, " chain"]], x: States) -> Bool[Tensor, " chain"]:
    """What `until` says of every chain: 0 and 1 would be read as numbers of chains."""
    found = until(x)
    if not isinstance(found, Tensor) or found.dtype != torch.bool or found.shape != (len(x),):
        what = f"a tensor {tuple(found.shape)} of {found.dtype}" if isinstance(found, Tensor) else shown(found)
        raise ArgumentError(f"until: says {what} of {len(x)} chains; must be a tensor of one True or False for each")
    return found


def largest(keys: Float[Tensor, "chain item"], count: Int[Tensor, " chain"] | int) -> Bool[Tensor, "chain item"]:
    """Which of a row's keys are its `count` largest: of uniform keys, a uniform subset of that size."""
    items = keys.shape[1]
    count = torch.as_tensor(count, device=keys.device).expand(len(keys))
    least = rising(keys).gather(1, (items - count).clamp(max=items - 1)[:, None])
    return keys >= least.masked_fill(count[:, None] == 0, torch.inf)


def check_rows(x: States) -> None:
    """An `ArgumentError` unless `x` has the shape of states."""
    if not isinstance(x, Tensor) or x.is_floating_point() or x.dtype == torch.bool or x.ndim != 2 or not len(x):
        what = f"of shape {tuple(x.shape)}, {x.dtype}" if isinstance(x, Tensor) else f"of type {type(x).__name__}"
        raise ArgumentError(f"x {what}: must be whole numbers, chain × position, at least one chain")


def check_law(law: FiniteLaw, x: States) -> None:
    """An `ArgumentError` unless every row of `x` is in Ω^N."""
    check_rows(x)
    law.check(x)
