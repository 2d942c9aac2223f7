"""Approximate tensorisation of entropy: the constant that turns errors of conditionals into errors of the joint law.

C_AT(q) is the least C with KL(r ‖ q) ≤ C · E_{x ~ r} E_{K | x} KL(r(· | x_−K, K) ‖ q(· | x_−K, K)) for all r. It is at
least the Poincaré constant (r → q), and chains contract: KL(p_{t+1} ‖ q) ≤ (1 − 1/C_AT) KL(p_t ‖ q).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.theory.gmlm.chains import kl, poincare
from sandtable.worlds.finite import FiniteLaw
from sandtable.worlds.masks import MaskLaw


class Tensorisation(NamedTuple):
    """The largest ratio that the ascent found, the law r that has it, and the Poincaré constant: lower bounds both."""

    constant: float
    attained_by: Float[Tensor, " states"]
    poincare: float

    @property
    def at_least(self) -> float:
        """The larger of the two lower bounds of C_AT."""
        return max(self.constant, self.poincare)


def conditional_kl(r: Float[Tensor, "*rows states"], law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "*rows"]:
    """E_{x ~ r} E_{K | x} KL(r(· | x_−K, K) ‖ q(· | x_−K, K)), q the law.

    = Σ_K Σ_x r(x) p(K | x) [log r(x)/q(x) − log r_K/q_K], r_K and q_K the masses of (x_−K, K).
    """
    chosen, q = masks.probs(law.states), law.probs
    total = _entries(r, q).sum(-1)
    shape = (law.symbols,) * law.length
    for hidden, pick in zip(masks.family, chosen.T, strict=True):
        axes = [i - law.length for i in hidden.nonzero()[:, 0].tolist()]
        seen, true = ((pick * weight).reshape(*weight.shape[:-1], *shape) for weight in (r, q))
        if axes:
            seen, true = seen.sum(axes), true.sum(axes)
        total = total - _entries(seen, true).reshape(*r.shape[:-1], -1).sum(-1)
    return total


def _entries(p: Tensor, q: Tensor) -> Tensor:
    """p log(p/q), 0 with a slope of 0 where p = 0: there the slope of p log p is infinite."""
    alive = p > 0
    ratio = torch.where(alive, p, 1.0) / torch.where(alive, q, 1.0)
    return torch.where(alive, p, 0.0) * ratio.log()


@typed
def tensorisation(
    law: FiniteLaw, masks: MaskLaw, generator: torch.Generator, *, starts: int = 60, steps: int = 1500
) -> Tensorisation:
    """The supremum of KL over conditional KL by ascent from `starts` laws near q, far from it and at point masses.

    All starts climb together (Adam on log r, its rate falling to zero), on the support of q: elsewhere KL is infinite.
    A lower bound: no ascent proves a supremum.
    """
    alive = law.probs > 0
    states, third = int(alive.sum()), whole("starts", starts, least=3) // 3
    if states < 2:
        raise ArgumentError("law: has one state of positive probability, so that no other law has a finite KL to it")
    noise = torch.randn(starts, states, generator=generator, dtype=torch.float64)
    near = law.log_probs[alive]
    logits = near + noise * torch.tensor([0.3] * third + [2.0] * (starts - third))[:, None]
    points = torch.randint(states, (third,), generator=generator)
    logits[-third:] = near + 4.0 * torch.nn.functional.one_hot(points, states)
    logits = logits.detach().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, whole("steps", steps))
    best, attained = -math.inf, law.probs
    for _ in range(steps):
        r = torch.zeros(starts, len(alive), dtype=torch.float64).masked_scatter(alive, logits.softmax(1))
        divergence = kl(r, law.probs)
        ratio = divergence / conditional_kl(r, law, masks).clamp(min=1e-12)
        far = divergence.detach() > 1e-6  # nearer than that both are rounding
        top = torch.where(far, ratio.detach(), -math.inf)
        if float(top.max()) > best:
            best, attained = float(top.max()), r.detach()[int(top.argmax())]
        optimiser.zero_grad()
        (-(ratio.log()) * far).sum().backward()
        optimiser.step()
        rates.step()
    return Tensorisation(best, attained, poincare(law, masks))
