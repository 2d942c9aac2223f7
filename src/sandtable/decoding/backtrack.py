"""Tokenwise rejection sampling with backtracking: Algorithm 1 of Botta, Li, Mehta, Ash, Zhang & Risteski (2025)."""

from __future__ import annotations

import torch
from torch import Tensor

from sandtable.arguments import flag, number, one_of, whole
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation

REDO = ("argmax", "sample", "none", "greedy-rest", "released-counter")


@decoder
def backtrack(
    call: Call,
    *,
    quota: int = 4,
    stride: int = 4,
    threshold: float = 0.5,
    redo: str = "argmax",
    protect_prompt: bool = True,
    verify_redo: bool = False,
) -> Generation:
    """Sample tokens; where the verifier rejects a prefix (score < `threshold`), erase `stride` tokens and go on.

    A row may do so `quota` times; the token just sampled is one of those erased. What follows the erasure is `redo`:

    - "argmax": as many of the likeliest tokens as were erased, then sampling again (the published algorithm);
    - "sample" and "none": nothing special, the erased positions are sampled and verified anew;
    - "greedy-rest": likeliest tokens to the end of the row;
    - "released-counter": likeliest tokens while the row is shorter than its prompt and stride × backtracks tokens, as
      in the published code: max(0, 2 · stride − g) of them after the first rejection, at g generated tokens, so that
      it is greedy only near the start. Erased tokens of the prompt are made up for and not part of the count.

    `protect_prompt=False` lets erasure run into the prompt; `verify_redo` also verifies tokens that were redone. A row
    never erases more than it has, redoes only what it erased, and stops at ⟨eos⟩ or `max_tokens`, so it asks at most
    `max_tokens` + `quota` · `stride` queries. Quota 0 is plain sampling. No row FAILs: one whose quota is used up goes
    on without the verifier, and its last score may be a rejection.
    """
    whole("quota", quota, least=0)
    whole("stride", stride)
    number("threshold", threshold, least=0.0)
    one_of("redo", redo, REDO)
    verify_redo, protect_prompt = flag("verify_redo", verify_redo), flag("protect_prompt", protect_prompt)
    if quota:
        call.judges("token")
    session = call.session
    left = torch.full_like(session.lengths, quota)
    again = torch.zeros_like(left)  # how many of the coming tokens are taken greedily
    unchecked = torch.zeros_like(call.everyone)  # rows whose last token awaits the verifier
    asked = session.prompts  # as they were: the session's own shrink when they are erased
    floor = asked if protect_prompt else asked.clamp(max=call.least)
    score = torch.full_like(left, torch.nan, dtype=torch.float64)
    active = call.everyone & (call.ends > session.lengths)
    while bool(active.any()):
        if call.looks_inside:
            session.logits(active)  # hidden states of all rows in one pass, also of those that were just rewound
        rejected = torch.zeros_like(active)
        if quota:
            rejected, scores = call.rejects(active & unchecked, threshold)
            score = scores.where(active & unchecked, score)
            erase = rejected * (session.lengths - floor).clamp(max=stride)
            call.rewind(erase)
            left -= rejected.long()
            again = _redone(redo, again, rejected, erase, stride)
        active = active & (rejected | ~call.over())
        go = active & ~rejected if call.looks_inside else active
        greedy = go & (again > (session.lengths - asked if redo == "released-counter" else 0))
        call.append(call.next_token(go, greedy), go, _names(greedy) if call.trace else "")
        again = again - greedy.long() if redo == "argmax" else again
        unchecked = go & (left > 0) & (~greedy | verify_redo | (redo == "released-counter"))
        active = active & (~call.over() | unchecked)
        session.retire(~active)
    return call.result(score=score, extras={"quota_left": left})


def _names(greedy: Tensor) -> list[str]:
    return ["redo" if row else "sample" for row in greedy.tolist()]


def _redone(redo: str, again: Tensor, rejected: Tensor, erased: Tensor, stride: int) -> Tensor:
    """How many of the coming tokens are taken greedily, after some rows were rejected."""
    if redo in ("sample", "none"):
        return again
    if redo == "released-counter":
        return again + rejected * stride
    endless = torch.full_like(again, torch.iinfo(again.dtype).max)
    return (erased if redo == "argmax" else endless).where(rejected, again)
