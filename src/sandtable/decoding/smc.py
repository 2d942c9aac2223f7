"""Sequential Monte Carlo: many continuations at once, weighted by a verifier's values and resampled."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import one_of, probability, whole
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation
from sandtable.decoding.trace import Trace
from sandtable.decoding.truncation import inverse_cdf
from sandtable.decoding.values import Values


@decoder
def smc(
    call: Call,
    *,
    particles: int = 16,
    resample: str = "systematic",
    ess_threshold: float = 0.5,
    leaf_value: Any = None,
    floor: float = 0.0,
    returns: str = "sample",
) -> Generation:
    """Particles drawn from the model and weighted by V̂(s_≤t) / V̂(s_<t): the verifier is the twist (Del Moral 2004).

    Weights multiply up to V̂ at every time, and to τ (`leaf_value`) at the leaves, so a particle drawn by its final
    weight has, for many particles, the law ∝ p · τ. Where the effective sample size (Σw)² / Σw² falls below
    `ess_threshold` · `particles`, particles are replaced by copies drawn in proportion to their weights.

    `log_evidence` estimates log E_p[τ]; its exponential is unbiased if V̂ > 0 wherever τ can still be positive, which
    `floor` sees to. A row whose particles all weigh nothing FAILs. With `returns="all"` the rows of the result are the
    particles of all prompts in turn, with `log_weight` normalised among those of one prompt. Every token of every
    particle is a query.
    """
    n = whole("particles", particles)
    one_of("resample", resample, ("systematic", "multinomial"))
    one_of("returns", returns, ("sample", "all"))
    probability("ess_threshold", ess_threshold)
    call.judges("token")
    call.session.logits()  # prompts are read once, before they are copied
    swarm = call.branch(n)
    values = Values.of(swarm, leaf_value, floor)
    rows = torch.arange(len(call.ends))
    weight = torch.zeros(len(rows), n, dtype=torch.float64)  # logarithms
    evidence, resampled = torch.zeros_like(weight[:, 0]), torch.zeros_like(rows)
    value = torch.ones_like(weight).flatten()
    active = swarm.everyone
    while bool(active.any()):
        swarm.append(swarm.next_token(active), active)
        now = values.here(active).where(active, value)
        weight += (now.log() - value.log()).nan_to_num(0.0, neginf=-torch.inf).view_as(weight)
        value, going = now, (~swarm.over()).view_as(weight)
        need = going.any(1) & weight.isfinite().any(1) & (_effective(weight) < ess_threshold * n)
        if bool(need.any()):
            uniform = swarm.draws.uniform(need[swarm.owners]).view_as(weight)
            if resample == "systematic":
                uniform = (uniform[:, :1] + torch.arange(n)) / n
            index = _ancestors(weight, uniform, need)
            evidence = (evidence + weight.logsumexp(1) - math.log(n)).where(need, evidence)
            weight = weight.masked_fill(need[:, None], 0.0)
            swarm.recast(index)
            value, going = value[index], going.flatten()[index].view_as(weight)
            resampled += need
        active = (going & weight.isfinite()).flatten()
        swarm.session.retire(~active.view_as(weight).any(1)[swarm.owners])
    total = weight.logsumexp(1)
    alive, share = total.isfinite(), (weight - total[:, None]).nan_to_num(-torch.inf, neginf=-torch.inf)
    extras = {"log_evidence": evidence + total - math.log(n), "ess": _effective(weight), "resampled": resampled}
    if returns == "all":
        return _all(call, swarm, share.flatten(), value, {name: each[swarm.owners] for name, each in extras.items()})
    kept = rows * n + inverse_cdf(share.exp(), call.draws.uniform())
    call.adopt(swarm, kept, share.exp().flatten())
    return call.result(accepted=alive, score=value[kept], extras=extras)


def _effective(weight: Float[Tensor, "row particle"]) -> Float[Tensor, " row"]:
    """(Σw)² / Σw² from logarithms; zero where nothing weighs anything."""
    return (2 * weight.logsumexp(1) - (2 * weight).logsumexp(1)).exp().nan_to_num(0.0)


def _ancestors(weight: Tensor, uniform: Float[Tensor, "row particle"], rows: Tensor) -> Int[Tensor, " particle"]:
    """The particle that each particle becomes: one of its own row drawn by weight in `rows`, itself elsewhere."""
    count, n = weight.shape
    own = torch.arange(n).expand(count, n)
    mass = (weight - weight.amax(1, keepdim=True)).exp()[rows]
    drawn = inverse_cdf(mass.repeat_interleave(n, 0), uniform[rows].flatten())
    return (own.masked_scatter(rows[:, None], drawn) + n * torch.arange(count)[:, None]).flatten()


def _all(call: Call, swarm: Call, share: Tensor, value: Tensor, extras: dict[str, Tensor]) -> Generation:
    """All particles as rows; the first of each prompt bears the cost of reading it."""
    first = torch.arange(0, len(share), len(share) // len(call.ends))
    swarm.session.forwards[first] += call.session.forwards
    swarm.session.passes += call.session.passes
    swarm.trace = None if call.trace is None else Trace.written(swarm.session)
    return swarm.result(accepted=share.isfinite(), score=value, extras=extras | {"log_weight": share})
