"""Token by token under a verifier's eye: no token is appended that it turns down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sandtable.arguments import number, one_of, whole
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation
from sandtable.decoding.truncation import inverse_cdf
from sandtable.decoding.values import Values, within


@decoder
def tokenwise_rejection(call: Call, *, threshold: float = 0.5, max_tries: int = 1000) -> Generation:
    """For every position draw t ~ p(· | s) until the verifier accepts s∘t (Botta et al. 2025, section 3).

    The output law is Π_i p(s_i | s_<i) V(s_≤i) / Z(s_<i) with Z(s) = Σ_t p(t | s) V(s∘t), in general not p restricted
    to what is accepted in the end; every draw is a query, Σ_i 1 / Z(s_<i) of them on average. A row that finds no token
    in `max_tries` draws FAILs there: Z may be zero, if the verifier does not know what the model can say.
    """
    whole("max_tries", max_tries)
    number("threshold", threshold, least=0.0)
    return _proposed(call, lambda rows: call.rejects(rows, threshold), max_tries)


@decoder
def exhaustive_tokenwise(call: Call, *, threshold: float = 0.5, pick: str = "sample") -> Generation:
    """For every position show the verifier all tokens that the model can say, and keep one that it accepts.

    `pick="sample"` draws among the accepted by the model's law, which is the output law of `tokenwise_rejection`;
    "likeliest" takes the likeliest of them. One query and at most |Σ| verifier calls a position; no token that was
    drawn is ever turned down. A row FAILs where nothing is accepted.
    """
    number("threshold", threshold, least=0.0)
    one_of("pick", pick, ("sample", "likeliest"))

    def weigh(probs: Tensor, scores: Tensor) -> Tensor:
        return probs.where(scores >= threshold, 0.0)

    return _weighted(call, Values.of(call), weigh, likeliest=pick == "likeliest")


@decoder
def action_level(
    call: Call,
    *,
    bound: float | None = None,
    leaf_value: Any = None,
    floor: float = 0.0,
    max_tries: int = 1000,
) -> Generation:
    """Every token with probability ∝ p(t | s) · V̂(s∘t): what follows a value without ever turning back.

    Exact for V̂ = V*; otherwise errors multiply up with the length (Rohatgi et al. 2025). Without `bound` all tokens
    are scored, one query a position. With `bound` M ≥ V̂ tokens are proposed from p and accepted with probability
    V̂ / M, M / E[V̂] queries a position; a row FAILs after `max_tries` proposals, or where all values are zero.
    `leaf_value` replaces V̂ at finished rows, `floor` lifts it elsewhere.
    """
    whole("max_tries", max_tries)
    values = Values.of(call, leaf_value, floor)
    if bound is None:
        return _weighted(call, values, torch.mul)
    most = values.bound(bound)

    def rejects(rows: Tensor) -> tuple[Tensor, Tensor]:
        scores = within(values.here(rows), most)
        rejected = rows & (call.draws.uniform(rows) * most >= scores)
        call.verdict(rows, scores, rejected)
        return rejected, scores

    return _proposed(call, rejects, max_tries)


def _proposed(call: Call, rejects: Callable[[Tensor], tuple[Tensor, Tensor]], max_tries: int) -> Generation:
    """Tokens drawn from the model's law one at a time, each kept unless `rejects(rows)` turns its row down."""
    call.judges("token")
    session, held = call.session, call.session.logits()  # the law at the end of what was accepted
    tries = torch.zeros_like(call.ends)
    score = torch.full_like(call.ends, torch.nan, dtype=torch.float64)
    active, failed = call.everyone, torch.zeros_like(call.everyone)
    while bool(active.any()):
        call.append(call.next_token(active, logits=held), active)
        rejected, scores = rejects(active)
        score = scores.where(active, score)
        call.rewind(rejected.long())
        tries = torch.where(rejected, tries + 1, 0)
        failed = failed | (tries >= max_tries)
        active = active & ~failed & (rejected | ~call.over())
        onward = active & ~rejected
        held = session.logits(onward).where(onward[:, None].to(held.device), held)
        session.retire(~active)
    return call.result(accepted=~failed, score=score)


def _weighted(
    call: Call, values: Values, weigh: Callable[[Tensor, Tensor], Tensor], *, likeliest: bool = False
) -> Generation:
    """Every token drawn by its weight, a function of the model's law and of the values of all continuations."""
    call.judges("token")
    session = call.session
    score = torch.full_like(call.ends, torch.nan, dtype=torch.float64)
    active, failed = call.everyone, torch.zeros_like(call.everyone)
    while bool(active.any()):
        probs = call.law.probs(session.logits(active)).cpu()
        call.cost.add(queries=active)
        scores = values.children((probs > 0) & active[:, None])
        weights = weigh(probs, scores)
        failed = failed | (active & (weights.sum(1) == 0))
        active = active & ~failed
        tokens = weights.argmax(1) if likeliest else inverse_cdf(weights, call.draws.uniform(active))
        score = scores.gather(1, tokens[:, None])[:, 0].where(active, score)
        call.append(tokens, active)
        call.verdict(active, score, torch.zeros_like(active))
        active = active & ~call.over()
        session.retire(~active)
    return call.result(accepted=~failed, score=score)
