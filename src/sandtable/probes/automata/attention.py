"""Whom models of automata attend to: everybody alike, as prefix sums do, or the place where the state was last reset.

Patterns have models, rows and heads in front of (query, key), and are causal. A gridworld is at a wall on its visits to
the first and the last state: from the latest such visit on, its state is a sum again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import typed
from sandtable.models import Stack

Patterns = Float[Tensor, "models rows heads query key"]
PerHead = Float[Tensor, "models heads"]


def patterns(models: Stack | nn.Module, x: Int[Tensor, "rows position"], *, layer: int) -> Patterns:
    """Attention of every model in one layer on the same rows."""
    stack = models if isinstance(models, Stack) else Stack.of(models)
    name = f"blocks.{layer}.attn.hook_pattern"
    device = next(iter(stack.params.values())).device
    return stack(x.to(device), want=(name,))[1][name].cpu()


def entropy_ratio(patterns: Patterns) -> PerHead:
    """Entropy of the attention of row t over log t, the most there can be, averaged over rows t ≥ 2: 1 is flat."""
    entropy = torch.special.entr(patterns.double()).sum(-1)[..., 1:]
    most = torch.arange(2, patterns.shape[-1] + 1, dtype=torch.float64).log()
    return (entropy / most).mean((1, 3))


@typed
def latest(states: Int[Tensor, "rows position"], which: Sequence[int]) -> Int[Tensor, "rows position"]:
    """The latest position τ ≤ t with q_τ among `which`, −1 where there was none."""
    visits = torch.isin(states, torch.tensor(which, device=states.device))
    places = torch.arange(states.shape[-1], device=states.device).where(visits, -1)
    return places.cummax(-1).values


def mass_on(patterns: Patterns, target: Int[Tensor, "rows position"]) -> PerHead:
    """Attention to position `target` of every row t, averaged over the rows that have one (−1: none)."""
    there = target >= 0
    index = target.clamp_min(0)[None, :, None, :, None].expand(*patterns.shape[:-1], 1)
    return _mean(patterns.gather(-1, index)[..., 0], there)


def mass_before(patterns: Patterns, target: Int[Tensor, "rows position"]) -> PerHead:
    """Attention to what lies strictly before position `target`, averaged over the rows that have one."""
    early = torch.arange(patterns.shape[-1]) < target[..., None]
    return _mean((patterns * early[None, :, None]).sum(-1), target >= 0)


def random_mass(target: Int[Tensor, "rows position"]) -> float:
    """Attention to a position drawn uniformly from those up to t, whatever the head does: 1/t, over the same rows."""
    share = 1 / torch.arange(1, target.shape[-1] + 1, dtype=torch.float64).expand(target.shape)
    there = target >= 0
    return float(share[there].mean()) if bool(there.any()) else math.nan


def _mean(values: Float[Tensor, "models rows heads query"], there: Tensor) -> PerHead:
    weight = there[None, :, None].double()
    return (values.double() * weight).sum((1, 3)) / weight.sum((1, 3))
