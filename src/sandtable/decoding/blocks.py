"""Samplers that draw positions anew given the others: block dynamics, their adaptive kin, and all positions at once.

Block dynamics draw K ~ p(· | x), then x_K from the joint conditional. With masks that do not look at x they keep the
law; with masks that do, only if x_K is drawn given x_−K *and K* (`naive` forgets K and keeps another law). The matrices
are in `sandtable.theory.gmlm.chains`: `transition`, `parallel_transition`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of
from sandtable.decoding.chains import Sampler, States, check_law, check_rows
from sandtable.decoding.conditional import Conditional, as_conditional
from sandtable.decoding.truncation import Truncation, inverse_cdf
from sandtable.worlds import CliqueIsing, FiniteLaw, Ising, MaskLaw
from sandtable.worlds.finite import MOST_ENTRIES, all_states, completion_count, places, uniform
from sandtable.worlds.ising import spins

WITHIN = ("sequential", "independent")
NOWHERE = "x: a row has probability 0 whatever stands at the hidden positions"


class BlockDynamics(Sampler):
    """K ~ p(· | x), then x_K from p(x_K | x_−K, K) — `naive`: from p(x_K | x_−K) — among all |Ω|^|K| completions.

    Exact for any law over Ω^N and any mask law; the cost of a step grows like |Ω|^|K|. Where Ω^N is too large for a
    table, the law is asked for its weights, which Ising models have at any size.
    """

    def __init__(self, law: FiniteLaw, masks: MaskLaw, *, naive: bool = False) -> None:
        if masks.length != law.length:
            raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")
        completion_count(law.symbols, masks.most_hidden)
        self.law, self.masks, self.naive = law, masks, naive

    def check(self, x: States) -> None:
        check_law(self.law, x)

    def draw(self, x: States, generator: torch.Generator) -> States:
        if self.masks.adaptive:
            picked = self.masks.draw(x.cpu(), generator).to(x.device)
            hidden = self.masks.family.to(x.device)[picked]
        else:
            picked, hidden = None, self.masks.hide(x, generator)
        u = uniform((len(x),), generator, x.device)
        out, sizes = x.clone(), hidden.sum(1)
        for size in sizes.unique().tolist():
            if size == 0:
                continue
            entries = self.law.symbols**size * (1 if self.law.listed else self.law.length)
            for rows in (sizes == size).nonzero()[:, 0].split(max(1, MOST_ENTRIES // entries)):
                block = hidden[rows].nonzero()[:, 1].view(-1, size)
                weights = self.law.log_completions(x[rows], block)
                if picked is not None and not self.naive:  # p(x_K | x_−K, K) ∝ p(x) p(K | x)
                    codes = self.law.completed(x[rows], block)
                    weights = weights + self._chosen.to(x.device)[codes, picked[rows, None]]
                if bool((weights.amax(1) == -math.inf).any()):
                    raise ArgumentError(NOWHERE)
                fill = all_states(self.law.symbols, size).to(x.device)
                out[rows[:, None], block] = fill[inverse_cdf(weights.softmax(1), u[rows])]
        return out

    @cached_property
    def _chosen(self) -> Float[Tensor, "states block"]:
        """log p(K | x)."""
        return self.masks.probs(self.law.states).log()


class Parallel(Sampler):
    """x'_i ~ p(· | x_−i) for all i at once, each given all the others as they were. It keeps another law than p.

    For a law over Ω^N, or any model of hidden positions, which is then asked N times. For Ising models, at any size,
    the law that it keeps is Little's, `stationary`.
    """

    def __init__(self, law: FiniteLaw | Conditional | Any) -> None:
        self.law = law if isinstance(law, FiniteLaw) else None
        self.model = None if isinstance(law, FiniteLaw) else as_conditional(law)

    def check(self, x: States) -> None:
        _check(self.law, self.model, x)

    def draw(self, x: States, generator: torch.Generator) -> States:
        if isinstance(self.law, Ising | CliqueIsing):
            return (uniform(tuple(x.shape), generator, x.device) < torch.sigmoid(2 * pulls(self.law, x))).to(x.dtype)
        logits = self.logits(x)
        if bool((logits.amax(2) == -math.inf).any()):
            raise ArgumentError(NOWHERE)
        u = uniform((x.numel(),), generator, x.device)
        return inverse_cdf(logits.flatten(0, 1).softmax(1), u).view_as(x)

    def logits(self, x: States) -> Float[Tensor, "chain position symbol"]:
        """log p(x_i = · | x_−i) up to a constant of every chain and position."""
        if isinstance(self.law, Ising | CliqueIsing):
            pull = pulls(self.law, x)
            return torch.stack([-pull, pull], -1)
        if self.law is not None:
            place = places(self.law.symbols, self.law.length).to(x.device)
            others = self.law.codes(x)[:, None] - x * place
            filled = others[..., None] + place[:, None] * torch.arange(self.law.symbols, device=x.device)
            return self.law.log_probs.to(x.device)[filled]
        assert self.model is not None
        n = x.shape[1]
        alone = torch.eye(n, dtype=torch.bool, device=x.device).repeat(len(x), 1)
        logits = self.model.conditional_logits(x.repeat_interleave(n, 0), alone)
        return logits.view(len(x), n, n, -1).diagonal(dim1=1, dim2=2).movedim(-1, 1).double()

    def stationary(self) -> Float[Tensor, " states"]:
        """π(x) ∝ e^{h·s} Π_i 2cosh(h_i + Σ_j J_ij s_j) of an Ising model that can be enumerated."""
        if not isinstance(self.law, Ising | CliqueIsing):
            raise ArgumentError("law: only Ising models have it in closed form; see theory.gmlm.chains.stationary")
        return (self.law.ising() if isinstance(self.law, CliqueIsing) else self.law).parallel_law()


class ModelBlocks(Sampler):
    """Block dynamics with any model of hidden positions: K is hidden, and the model says what stands there.

    - `within="sequential"`: the positions of K are drawn one by one in random order, each given all that is visible by
      then: |K| passes, and exactly p(x_K | x_−K) where the model's conditionals are those of a law;
    - `within="independent"`: all of them from one pass, the product of p(x_i | x_−K): exact only for single positions,
      or where these are independent given the rest.

    `sampling` sharpens or cuts the model's laws. `free` names the positions that may be drawn anew, as many as `masks`
    has (all of them if None): prompts and special tokens stay.
    """

    def __init__(
        self,
        model: Any,
        masks: MaskLaw,
        *,
        within: str = "sequential",
        sampling: Truncation | None = None,
        free: Int[Tensor, " place"] | None = None,
        naive: bool = False,
    ) -> None:
        self.model = as_conditional(model)
        self.masks, self.within = masks, one_of("within", within, WITHIN)
        self.sampling = sampling or Truncation()
        self.free = None if free is None else torch.as_tensor(free)
        places_free = self.model.length if self.free is None else len(self.free)
        if places_free is not None and masks.length != places_free:
            raise ArgumentError(f"masks over {masks.length} positions: {places_free} may be drawn anew")
        if masks.adaptive and (not naive or self.free is not None):
            raise ArgumentError(
                "masks: look at x, and a model does not know why K was hidden; naive=True accepts that another law is "
                "kept, and BlockDynamics is exact for laws that can be enumerated"
            )

    def check(self, x: States) -> None:
        _check(None, self.model, x)
        if self.free is None and x.shape[1] != self.masks.length:
            raise ArgumentError(f"x with {x.shape[1]} positions: the masks have {self.masks.length}")
        if self.free is not None and not 0 <= int(self.free.min()) <= int(self.free.max()) < x.shape[1]:
            raise ArgumentError(f"free={self.free.tolist()}: must be positions from 0 to {x.shape[1] - 1}")

    def draw(self, x: States, generator: torch.Generator) -> States:
        if self.free is None:
            hidden = self.masks.hide(x, generator)
        else:
            free = self.free.to(x.device)
            hidden = torch.zeros_like(x, dtype=torch.bool)
            hidden[:, free] = self.masks.hide(x[:, free], generator)
        return (self._one_by_one if self.within == "sequential" else self._at_once)(x.clone(), hidden, generator)

    def _at_once(self, x: States, hidden: Bool[Tensor, "chain position"], generator: torch.Generator) -> States:
        if bool(hidden.any()):
            logits = self.model.conditional_logits(x, hidden)[hidden]
            x[hidden] = self.sampling.draw(logits, uniform((len(logits),), generator, x.device))
        return x

    def _one_by_one(self, x: States, hidden: Bool[Tensor, "chain position"], generator: torch.Generator) -> States:
        keys = uniform(tuple(x.shape), generator, x.device)
        while True:
            rows = hidden.any(1).nonzero()[:, 0]
            if not len(rows):
                return x
            place = keys[rows].masked_fill(~hidden[rows], -1.0).argmax(1)
            logits = self.model.conditional_logits(x[rows], hidden[rows])
            logits = logits.gather(1, place[:, None, None].expand(-1, 1, logits.shape[2]))[:, 0]
            x[rows, place] = self.sampling.draw(logits, uniform((len(rows),), generator, x.device))
            hidden[rows, place] = False


def pulls(law: Ising | CliqueIsing, x: States) -> Float[Tensor, "chain position"]:
    """h_i + Σ_j J_ij s_j: half the log-odds of s_i = +1 given all the others."""
    s, h = spins(x), law.h.to(x.device)
    if isinstance(law, Ising):
        return h + s @ law.j.to(x.device)
    inside = s[:, : law.clique]
    return h + torch.nn.functional.pad(
        law.coupling * (inside.sum(1, keepdim=True) - inside), (0, law.size - law.clique)
    )


def _check(law: FiniteLaw | None, model: Conditional | None, x: States) -> None:
    if law is not None:
        return check_law(law, x)
    assert model is not None
    check_rows(x)
    if model.length is not None and x.shape[1] != model.length:
        raise ArgumentError(f"x with {x.shape[1]} positions: the model reads {model.length}")
    low, high = int(x.min()), int(x.max())
    if not 0 <= low <= high < model.vocab_size:
        wrong = low if low < 0 else high
        raise ArgumentError(f"x holds {wrong}: the model writes symbols from 0 to {model.vocab_size - 1}")
    return None
