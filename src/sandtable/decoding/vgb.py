"""VGB: a random walk up and down the tree of prefixes (Rohatgi, Shetty, Saless, Li, Moitra, Risteski & Foster 2025)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sandtable.arguments import flag, one_of, whole
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation
from sandtable.decoding.nodes import Nodes
from sandtable.decoding.values import Values, within

RETURNS = ("first_leaf", "last", "uniform")
CHILDREN = ("all", "top_k", "rejection")


@decoder
def vgb(
    call: Call,
    *,
    steps: int | None = None,
    lazy: bool = True,
    returns: str = "first_leaf",
    children: str = "all",
    k: int = 32,
    bound: float | None = None,
    leaf_value: Any = None,
    floor: float = 0.0,
    max_restarts: int = 100,
    max_tries: int = 1000,
    cache: bool = True,
    cache_size: int | None = None,
) -> Generation:
    """From prefix y move to the parent with weight V̂(y), to the child y∘t with weight p(t | y) · V̂(y∘t).

    This is the random walk on the tree with edge weights p(v) · V̂(v), which may take back what an imperfect value let
    pass. Its stationary law on leaves (⟨eos⟩, or `max_tokens`) is ∝ p · V̂ there, whatever V̂ is inside: `leaf_value`
    τ makes it ∝ p · τ. With `lazy` every step stays with probability 1/2; without, the walk is 2-periodic.

    `returns` says which node of a walk of `steps` steps is the result:
    - "first_leaf": the first leaf, where the walk ends. For V̂ = V*, and leaves all at one depth, its law is exact, and
      nearly so for good values; where ⟨eos⟩ may come early it favours short strings (claim vgb/early-ends);
    - "last": the last node, which for long walks has the stationary law;
    - "uniform": the node at a time drawn uniformly from 1 … `steps`.
    If that is not a leaf the walk is run again, `max_restarts` times; then the row FAILs, as it does where no child of
    the root has any weight. Without `steps` a walk has 8 · `max_tokens`²: four times what the lazy walk takes on
    average from the root to a leaf, for V̂ = V*.

    `children` says how the next node is drawn, all to the same law:
    - "all": every child is scored;
    - "top_k": the `k` likeliest are; the others enter with p · `bound`, and if one of them comes up it is scored and
      taken with probability V̂ / bound, else the draw is repeated, `max_tries` times (then the row FAILs);
    - "rejection": the same with no child listed in advance, for any vocabulary.
    `bound` is needed where values are not probabilities. `floor` lifts V̂ at inner nodes, where a zero cuts the tree.

    A query is a prefix whose next-token law is asked for, or with "rejection" a proposal drawn from it. With `cache` a
    node is asked about once, while its law is among the `cache_size` last used of a batch (by default as many as take
    256 MiB in float32): fewer cost more queries, and change nothing else. `steps`, `leaf_hits` and `restarts` are
    reported for every row.
    """
    steps = 8 * call.max_tokens**2 if steps is None else whole("steps", steps)
    lazy, cache = flag("lazy", lazy), flag("cache", cache)
    one_of("returns", returns, RETURNS)
    one_of("children", children, CHILDREN)
    whole("max_restarts", max_restarts, least=0)
    whole("max_tries", max_tries)
    call.judges("token")
    session, values = call.session, Values.of(call, leaf_value, floor)
    listed = {"all": call.model.vocab_size, "top_k": whole("k", k), "rejection": 0}[children]
    most = 1.0 if children == "all" else values.bound(bound)
    held = None if cache_size is None else whole("cache_size", cache_size)
    nodes = Nodes(call, values, listed, most, remember=cache, most=held)
    roots = torch.arange(len(session))

    def time(rows: Tensor) -> Tensor:
        """When the walks of `rows` end."""
        if returns != "uniform":
            return torch.full_like(roots, steps)
        return (call.draws.uniform(rows) * steps).long().clamp(max=steps - 1) + 1

    at, until, spent = roots, time(call.everyone), torch.zeros_like(roots)
    total, hits, restarts, tries = (torch.zeros_like(roots) for _ in range(4))
    moving = torch.zeros_like(call.everyone)  # rows whose coin says move, and that have not moved so far
    active, failed = call.everyone, torch.zeros_like(call.everyone)
    while bool(active.any()):
        leaf = call.over()
        stop = active & leaf & (returns == "first_leaf")
        if lazy:
            # How often a fair coin says stay before it says move.
            tossed = active & ~moving & ~stop
            stays = (-torch.log2(1 - call.draws.uniform(tossed))).long()
            spent = torch.where(tossed, (spent + stays).minimum(until), spent)
        stop = stop | (active & (spent >= until))
        again = stop & ~leaf & (restarts < max_restarts)
        failed = failed | (stop & ~leaf & ~again)
        active = active & (~stop | again)
        if bool(again.any()):
            restarts += again
            call.rewind(again * (session.lengths - session.prompts))
            total += spent.where(again, 0)
            at, spent, until = roots.where(again, at), spent.masked_fill(again, 0), time(again).where(again, until)

        go = active & ~again
        waiting = nodes.new(at, go & ~leaf)
        if 2 * int(waiting.sum()) < int(go.sum()):
            go = go & ~waiting  # the others walk on, until the model can be asked about many rows at once
        else:
            nodes.read(at, waiting)
            if children != "rejection":
                call.cost.add(queries=waiting)
            waiting = torch.zeros_like(go)
        stuck, up, tokens, value, proposed = nodes.propose(at, go, leaf)
        failed, active = failed | stuck, active & ~stuck
        down = go & ~up & ~stuck
        call.rewind(up.long())
        call.append(tokens, down, "walk")
        below = nodes.child(at, tokens, down)
        rejected = torch.zeros_like(go)
        if bool(proposed.any()):
            value = nodes.recall(below).where(proposed, value)
            value = values.here(proposed & value.isnan()).where(proposed & value.isnan(), value)
            rejected = proposed & (call.draws.uniform(proposed) * most >= within(value.where(proposed, 0.0), most))
            call.verdict(proposed, value, rejected)
            call.rewind(rejected.long())
            if children == "rejection":
                call.cost.add(queries=proposed)
        nodes.learn(below, value, down, rejected)
        at = nodes.above(at, up).where(~down | rejected, below)
        moved = up | (down & ~rejected)
        spent += moved
        hits += moved & call.over()
        tries = torch.where(rejected, tries + 1, tries).masked_fill(moved, 0)
        failed = failed | (tries >= max_tries)
        active, moving = active & ~failed, (rejected | waiting) & ~failed
        session.retire(~active)
    return call.result(
        accepted=~failed,
        score=nodes.value[at],
        extras={"steps": total + spent, "leaf_hits": hits, "restarts": restarts},
    )
