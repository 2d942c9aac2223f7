"""Masked estimators: θ̂ = argmin −Σ f(x, K) log p_θ(x_K | x_−K, K), for hundreds of data sets in one computation.

Data are frequencies f of pairs (sequence, mask), one table for every repetition: all that the loss needs to know of n
sequences, whatever n is. The theorems speak of one mask per sequence, drawn on its own (`draw_pairs`); several masks
each, or all of them at once (`every_mask`), are other estimators with other variances (`fisher.covariance_of_many`).
With k-masks this is k-pseudolikelihood, from Besag's (k = 1) to maximum likelihood (k = N).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import vmap

from sandtable.arguments import ArgumentError, capped_power, number, one_of, typed, whole
from sandtable.theory.gmlm.fisher import Family, evaluated, masked_loss
from sandtable.worlds.bits import bulk_generator
from sandtable.worlds.finite import FiniteLaw
from sandtable.worlds.masks import MaskLaw

METHODS = ("newton", "gradient descent")
Losses = Callable[[Float[Tensor, "repetition parameter"], Float[Tensor, "repetition states block"]], Tensor]

# -- data ------------------------------------------------------------------------------------------------------------


@typed
def draw_sequences(
    law: FiniteLaw, n: int, generator: torch.Generator, *, repetitions: int = 1
) -> Int[Tensor, "repetition states"]:
    """How often n independent sequences are each state: a multinomial table, whose cost does not depend on n."""
    drawn = bulk_generator(generator).multinomial(whole("n", n), _law(law.probs), whole("repetitions", repetitions))
    return torch.from_numpy(drawn)


def draw_masks(
    law: FiniteLaw,
    masks: MaskLaw,
    counts: Int[Tensor, "repetition states"],
    generator: torch.Generator,
    *,
    each: int = 1,
) -> Float[Tensor, "repetition states block"]:
    """Frequencies of (x, K), each sequence with `each` masks drawn on their own from p(K | x)."""
    chosen = _law(_chosen(law, masks))
    drawn = bulk_generator(generator).multinomial(whole("each", each) * counts.numpy(), chosen)
    return _frequencies(torch.from_numpy(drawn).double())


@typed
def draw_pairs(
    law: FiniteLaw, masks: MaskLaw, n: int, generator: torch.Generator, *, repetitions: int = 1, each: int = 1
) -> Float[Tensor, "repetition states block"]:
    """Frequencies of n independent sequences with their masks for every repetition."""
    return draw_masks(law, masks, draw_sequences(law, n, generator, repetitions=repetitions), generator, each=each)


def every_mask(
    law: FiniteLaw, masks: MaskLaw, counts: Int[Tensor, "repetition states"]
) -> Float[Tensor, "repetition states block"]:
    """Frequencies of x times p(K | x): every sequence with all of its masks at once, the loss without mask noise."""
    return _frequencies(counts.double()[:, :, None] * _chosen(law, masks))


def _chosen(law: FiniteLaw, masks: MaskLaw) -> Float[Tensor, "states block"]:
    if masks.length != law.length:
        raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")
    return masks.probs(law.states)


def _law(probs: Float[Tensor, "*rows item"]) -> np.ndarray:
    """With a sum that numpy takes for one."""
    return (probs / probs.sum(-1, keepdim=True)).numpy()


def _frequencies(table: Float[Tensor, "repetition states block"]) -> Float[Tensor, "repetition states block"]:
    return table / table.sum((1, 2), keepdim=True)


# -- estimates -------------------------------------------------------------------------------------------------------


class Estimates(NamedTuple):
    """θ̂ of every repetition, the largest entry of its gradient there, and whether it is a minimum.

    An estimate need not exist: little data may be fitted ever better by ever larger parameters. Then the gradient
    vanishes too, but a Newton step would still move θ by more than a thousandth of 1 + |θ|.
    """

    theta: Float[Tensor, "repetition parameter"]
    gradient: Float[Tensor, " repetition"]
    converged: Bool[Tensor, " repetition"]
    steps: int


@typed
def estimate(
    family: Family,
    pairs: Float[Tensor, "repetition states block"],
    masks: MaskLaw,
    start: Float[Tensor, " parameter"],
    *,
    symbols: int = 2,
    conditioned: bool = True,
    method: str = "newton",
    tol: float = 1e-9,
    steps: int | None = None,
    rate: float = 0.5,
) -> Estimates:
    """Minimise the masked loss of every repetition from `start`, all of them together, with the full data.

    "newton" takes Newton steps with the absolute values of the Hessian's eigenvalues, halved until the loss falls, so
    that it also descends where a family is not convex; "gradient descent" takes steps of `rate`. A repetition rests
    once no entry of its gradient exceeds `tol`, all after `steps` (200 and 20,000 by default).
    """
    one_of("method", method, METHODS)
    number("tol", tol, above=0.0)
    number("rate", rate, above=0.0)
    steps = (200 if method == "newton" else 20_000) if steps is None else whole("steps", steps)
    count = capped_power(whole("symbols", symbols, least=2), masks.length)
    if pairs.ndim == 3 and pairs.shape[1] != count:
        raise ArgumentError(f"symbols={symbols}: have {count} states, pairs of shape {tuple(pairs.shape)} have others")
    if pairs.ndim != 3 or pairs.shape[2] != len(masks.family):
        raise ArgumentError(f"pairs of shape {tuple(pairs.shape)}: must be repetition × state × {len(masks.family)}")
    start, states = evaluated(family, start, "start")
    if states.shape != (count,):
        raise ArgumentError(
            f"family: gives values of shape {tuple(states.shape)}; must be one for each of {count} states"
        )
    losses = vmap(masked_loss(family, masks, symbols=symbols, conditioned=conditioned))
    theta = start.to(pairs.device).expand(len(pairs), -1).clone()
    slope, step = _slopes(losses, theta, pairs), 0
    for step in range(steps + 1):
        active = slope.abs().amax(1) > tol
        if step == steps or not bool(active.any()):
            break
        move = _newton(losses, theta, pairs, slope) if method == "newton" else -rate * slope
        theta = torch.where(active[:, None], theta + move, theta)
        slope = _slopes(losses, theta, pairs)
    worst, still = slope.abs().amax(1), _direction(losses, theta, pairs, slope).abs().amax(1)
    return Estimates(theta, worst, (worst <= tol) & (still <= 1e-3 * (1 + theta.abs().amax(1))), step)


def _slopes(losses: Losses, theta: Tensor, pairs: Tensor, *, bends: bool = False) -> Any:
    """The gradient of every repetition, and its Hessian if asked for: rows of the gradient differentiated together."""
    theta = theta.detach().requires_grad_()
    (slope,) = torch.autograd.grad(losses(theta, pairs).sum(), theta, create_graph=bends)
    if not bends:
        return slope
    rows = torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device)[:, None].expand(-1, *theta.shape)
    (bend,) = torch.autograd.grad(slope, theta, rows, is_grads_batched=True)
    return bend.transpose(0, 1)


def _direction(losses: Losses, theta: Tensor, pairs: Tensor, slope: Tensor) -> Float[Tensor, "repetition parameter"]:
    """−|H|^{−1} g for every repetition, |H| with the absolute values of H's eigenvalues."""
    bend = _slopes(losses, theta, pairs, bends=True)
    root, failed = torch.linalg.cholesky_ex(bend)
    pivots = root.diagonal(dim1=1, dim2=2)
    poor = (failed > 0) | ~(pivots.amin(1) > 1e-4 * pivots.amax(1))
    move = -torch.cholesky_solve(slope[:, :, None], root)[:, :, 0]
    if bool(poor.any()):  # not convex there, or nearly flat
        values, vectors = torch.linalg.eigh(bend[poor])
        floor = 1e-10 * values.abs().amax(1, keepdim=True).clamp(min=1e-100)
        along = (vectors.mT @ slope[poor, :, None])[:, :, 0] / torch.maximum(values.abs(), floor)
        move[poor] = -(vectors @ along[:, :, None])[:, :, 0]
    return move


def _newton(losses: Losses, theta: Tensor, pairs: Tensor, slope: Tensor) -> Float[Tensor, "repetition parameter"]:
    """The Newton step, halved until the loss falls by a ten-thousandth of what the slope promises."""
    move = _direction(losses, theta, pairs, slope)
    here, promised = losses(theta, pairs), (slope * move).sum(1)
    for _ in range(40):
        # Next to the minimum the loss moves by less than its own rounding.
        high = ~(losses(theta + move, pairs) <= here + 1e-4 * promised + 1e-14 * here.abs())
        if not bool(high.any()):
            break
        move = torch.where(high[:, None], move / 2, move)
        promised = torch.where(high, promised / 2, promised)
    return move
