"""Sampling again until the verifier is content: whole strings, or blocks of them."""

from __future__ import annotations

import torch

from sandtable.arguments import flag, number, one_of, whole
from sandtable.decoding.boundaries import Boundary, ends_of
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation


@decoder
def rejection(call: Call, *, max_tries: int = 1000, threshold: float = 0.5, abort: bool = False) -> Generation:
    """Sample whole strings until the verifier accepts one (score ≥ `threshold`): p restricted to what it accepts.

    With `abort` every prefix is verified, and a string is given up at its first rejected prefix: the same law, if the
    verifier never rejects a prefix of what it accepts, for fewer queries. After `max_tries` strings a row FAILs and is
    left with the last of them. Without `abort`, strings of length D that pass with probability a cost D / a queries.
    """
    whole("max_tries", max_tries)
    number("threshold", threshold, least=0.0)
    call.judges("token" if flag("abort", abort) else "whole")
    session = call.session
    tries = torch.zeros_like(call.ends)
    score = torch.full_like(call.ends, torch.nan, dtype=torch.float64)
    unchecked = torch.zeros_like(call.everyone)  # rows that await the verifier
    active = call.everyone
    while bool(active.any()):
        if call.looks_inside:
            session.logits(active)  # hidden states of all rows in one pass, also of those that were just rewound
        judged = active & unchecked
        rejected, scores = call.rejects(judged, threshold)
        score = scores.where(judged, score)
        tried = rejected | (judged & call.over())
        tries += tried
        again = rejected & (tries < max_tries)
        call.rewind(again * (session.lengths - session.prompts))
        active = active & (again | ~tried)
        go = active & ~again if call.looks_inside else active
        call.append(call.next_token(go), go)
        unchecked = go & (call.everyone if abort else call.over())
        session.retire(~active)
    return call.result(accepted=score >= threshold, score=score, extras={"tries": tries})


@decoder
def block_rejection(
    call: Call,
    *,
    max_tries: int = 4,
    boundary: Boundary = 16,
    threshold: float = 0.5,
    otherwise: str = "best",
    min_tokens: int = 3,
    max_blocks: int | None = None,
) -> Generation:
    """Block by block: sample continuations up to the next boundary until the verifier accepts one.

    Blocks are those of `block_best_of_n`. When none of `max_tries` candidates reaches `threshold`, the best of them is
    kept (`otherwise="best"`) or the row FAILs with the last one (`otherwise="fail"`). `forced` counts such blocks.
    """
    whole("max_tries", max_tries)
    number("threshold", threshold, least=0.0)
    one_of("otherwise", otherwise, ("best", "fail"))
    if max_blocks is not None:
        whole("max_blocks", max_blocks)
    call.judges("block")
    session, ends = call.session, ends_of(boundary, call.model, min_tokens)
    tries, blocks, forced = (torch.zeros_like(call.ends) for _ in range(3))
    starts = session.lengths
    width = int(call.ends.max())
    best, best_lengths = torch.full_like(starts, -1, dtype=torch.float64), starts
    best_tokens = session.tokens[:, :width]
    score = torch.full_like(best, torch.nan)
    unchecked = torch.zeros_like(call.everyone)  # rows whose block awaits the verifier
    active = call.everyone
    while bool(active.any()):
        if call.looks_inside:
            session.logits(active)
        judged = active & unchecked
        rejected, scores = call.rejects(judged, threshold)
        tries += judged
        better = judged & (scores > best)
        best, best_lengths = scores.where(better, best), session.lengths.where(better, best_lengths)
        best_tokens = session.tokens[:, :width].where(better[:, None], best_tokens)

        again = rejected & (tries < max_tries)
        lost = rejected & ~again
        swap = lost & ~better & (otherwise == "best")  # the best candidate was an earlier one
        call.rewind((again | swap) * (session.lengths - starts))
        while bool((late := swap & (session.lengths < best_lengths)).any()):
            place = session.lengths.clamp(max=width - 1)[:, None]
            call.append(best_tokens.gather(1, place)[:, 0], late, "kept")

        settled = judged & ~again
        score = (best if otherwise == "best" else scores).where(settled, score)
        blocks += settled
        forced += lost
        starts = session.lengths.where(settled, starts)
        tries, best = tries.masked_fill(settled, 0), best.masked_fill(settled, -1.0)
        finished = settled & (call.over() | (lost & (otherwise == "fail")))
        if max_blocks is not None:
            finished = finished | (settled & (blocks >= max_blocks))
        active = active & ~finished
        go = active & ~(again | swap) if call.looks_inside else active
        call.append(call.next_token(go), go)
        unchecked = go & (call.over() | ends(call, starts, go))
        session.retire(~active)
    failed = (forced > 0) & (otherwise == "fail")
    return call.result(accepted=~failed, score=score, extras={"blocks": blocks, "forced": forced})
