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
    """The largest ratio found (a lower bound of C_AT), the law r that attains it, and the Poincaré constant."""

    constant: float
    attained_by: Float[Tensor, " states"]
    poincare: float


def conditional_kl(r: Float[Tensor, "*rows states"], law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "*rows"]:
    """E_{x ~ r} E_{K | x} KL(r(· | x_−K, K) ‖ q(· | x_−K, K)), q the law.

    = Σ_K Σ_x r(x) p(K | x) [log r(x)/q(x) − log r_K/q_K], r_K and q_K the masses of (x_−K, K).
    """
    chosen, q = masks.probs(law.states), law.probs
    total = (torch.special.xlogy(r, r) - torch.special.xlogy(r, q)).sum(-1)
    shape = (law.symbols,) * law.length
    for hidden, pick in zip(masks.family, chosen.T, strict=True):
        axes = [i - law.length for i in hidden.nonzero()[:, 0].tolist()]
        seen, true = ((pick * weight).reshape(*weight.shape[:-1], *shape) for weight in (r, q))
        if axes:
            seen, true = seen.sum(axes), true.sum(axes)
        over = (torch.special.xlogy(seen, seen) - torch.special.xlogy(seen, true)).reshape(*r.shape[:-1], -1)
        total = total - over.sum(-1)
    return total


@typed
def tensorisation(
    law: FiniteLaw, masks: MaskLaw, generator: torch.Generator, *, starts: int = 60, steps: int = 1500
) -> Tensorisation:
    """The supremum of KL over conditional KL by ascent from `starts` laws near q, far from it and at point masses.

    All starts climb together (Adam on log r, its rate falling to zero). A lower bound: no ascent proves a supremum.
    """
    if not bool((law.probs > 0).all()):
        raise ArgumentError(
            "law: must give every state a positive probability, or no r of full support has a finite KL"
        )
    states, third = len(law.probs), whole("starts", starts, least=3) // 3
    noise = torch.randn(starts, states, generator=generator, dtype=torch.float64)
    logits = law.log_probs + noise * torch.tensor([0.3] * third + [2.0] * (starts - third))[:, None]
    points = torch.randint(states, (third,), generator=generator)
    logits[-third:] = law.log_probs + 4.0 * torch.nn.functional.one_hot(points, states)
    logits = logits.detach().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.05)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, whole("steps", steps))
    best, attained = -math.inf, law.probs
    for _ in range(steps):
        r = logits.softmax(1)
        ratio = kl(r, law.probs) / conditional_kl(r, law, masks).clamp(min=1e-12)
        far = kl(r.detach(), law.probs) > 1e-6  # nearer than that both are rounding
        top = torch.where(far, ratio.detach(), -math.inf)
        if float(top.max()) > best:
            best, attained = float(top.max()), r.detach()[int(top.argmax())]
        optimiser.zero_grad()
        (-(ratio.log()) * far).sum().backward()
        optimiser.step()
        rates.step()
    lower = poincare(law, masks)
    return Tensorisation(max(best, lower), attained, lower)
