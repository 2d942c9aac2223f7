"""Several continuations at once, the best one kept: of whole strings, or block by block."""

from __future__ import annotations

import torch

from sandtable.arguments import whole
from sandtable.decoding.boundaries import Boundary, Ends, ends_of, never
from sandtable.decoding.driver import Call, decoder
from sandtable.decoding.generation import Generation


@decoder
def best_of_n(call: Call, *, n: int = 4) -> Generation:
    """Of `n` samples from the model's law, the one that the verifier scores highest; the first of equals.

    All `n` samples of all rows are decoded in one batch from one reading of the prompt, and all are on the bill. No row
    FAILs: the best of bad ones is kept, and `score` says how good it is.
    """
    call.judges("whole")
    return _best_blocks(call, whole("n", n), never, None)


@decoder
def block_best_of_n(
    call: Call, *, n: int = 4, boundary: Boundary = 16, min_tokens: int = 3, max_blocks: int | None = None
) -> Generation:
    """Block by block: `n` continuations of the row up to the next boundary, of which the highest score is kept.

    `boundary` is a number of tokens; token ids, or a text, that end a block of at least `min_tokens`; or a function of
    the view that says which rows are at the end of a block. ⟨eos⟩ ends every block, and the row. `max_blocks` ends it
    after so many blocks. All candidates are on the bill: about n times the length of the row in queries. No row FAILs.
    """
    call.judges("block")
    ends = ends_of(boundary, call.model, min_tokens)
    return _best_blocks(call, whole("n", n), ends, None if max_blocks is None else whole("max_blocks", max_blocks))


def _best_blocks(call: Call, n: int, ends: Ends, max_blocks: int | None) -> Generation:
    assert call.judge is not None
    blocks = torch.zeros_like(call.ends)
    score = torch.full_like(call.ends, torch.nan, dtype=torch.float64)
    active = call.everyone & (call.ends > call.session.lengths)
    while bool(active.any()):
        call.session.logits(active)  # the row is read once, before it is copied
        tries = call.branch(n)
        idle = ~active[tries.owners]
        going, starts = ~idle, tries.session.lengths
        while bool(going.any()):
            tries.append(tries.next_token(going), going)
            going = going & ~tries.over() & ~ends(tries, starts, going)
            tries.session.retire(idle)
        assert tries.judge is not None
        scores = tries.judge(tries.session, ~idle)
        best, which = scores.nan_to_num(-1.0).view(-1, n).max(1)
        call.adopt(tries, torch.arange(len(active)) * n + which, scores)
        score = best.where(active, score)
        blocks += active
        active = active & ~call.over() & (True if max_blocks is None else blocks < max_blocks)
    return call.result(score=score, extras={"blocks": blocks})
