"""Translation by parallel refinement: guess a length, fill it with noise, and rewrite all positions a few times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, whole
from sandtable.decoding.rejecters import NO_REJECTERS, LinearSchedule, Rejecter, Round, stutters
from sandtable.decoding.translated import Translated, checked, log_probs
from sandtable.inputs import EOS, MASK, PAD, RESERVED, Encoded
from sandtable.models import Seq2Seq

NOISES = ("random", "mask")
REPLACEMENTS = ("initial", "previous", "summed")


@torch.no_grad()
def refine(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    generator: torch.Generator | None = None,
    seen: Bool[Tensor, "row source"] | None = None,
    steps: int = 4,
    lengths: Int[Tensor, " row"] | None = None,
    beams: int = 5,
    noise: str = "random",
    rejecters: Sequence[Rejecter] = NO_REJECTERS,
    replacement: str = "initial",
    drop_stutter: bool = False,
    alpha: float = 0.0,
    early_stop: bool = True,
    trace: bool = False,
) -> Translated:
    """X^(t+1) = the likeliest token at every position given X^(t) and the source, `steps` times (Li et al. 2024).

    X^(0) has random words drawn from `generator` (or [MASK]s: `noise`), ⟨eos⟩ at the end. `lengths`, ⟨eos⟩ included,
    are given by an oracle, or the `beams` likeliest are tried and the best hypothesis is kept: the largest sum of the
    last pass's log-probabilities, divided by ((5 + n)/6)^`alpha`. What a rejecter takes back is replaced by the
    `initial` token, the `previous` one, or the likeliest under the logits `summed` over passes. A hypothesis stops when
    nothing changes. `drop_stutter` deletes words that still equal their left neighbours at the end. One encoder pass
    and at most `steps` decoder passes a row.
    """
    seen = checked(model, source, seen, causal=False)
    whole("steps", steps)
    one_of("noise", noise, NOISES)
    one_of("replacement", replacement, REPLACEMENTS)
    number("alpha", alpha, least=0.0)
    if noise == "random" and generator is None:
        raise ArgumentError("generator=None: random words need a generator, or start from noise='mask'")
    rows, most = len(source), model.config["longest_target"]
    memory, scores = model.encode(source, seen)
    if lengths is None:
        width = min(whole("beams", beams), most)
        lengths = scores.topk(width, dim=1).indices + 1
    else:
        if lengths.shape != (rows,) or not 1 <= int(lengths.min()) <= int(lengths.max()) <= most:
            raise ArgumentError(f"lengths of shape {tuple(lengths.shape)}: must be one from 1 to {most} for every row")
        lengths, width = lengths[:, None], 1
    owner = torch.arange(rows, device=source.device).repeat_interleave(width)
    size = lengths.flatten()
    begin = _begin(size, noise, model.size, generator)
    state = _loop(
        model, (memory[owner], seen[owner]), begin, size, steps, rejecters, replacement, early_stop=early_stop
    )
    norm = ((5 + size.to(state.score.dtype)) / 6) ** alpha
    best = (state.score / norm).view(rows, width).argmax(1) + width * torch.arange(rows, device=source.device)
    tokens, size = state.trace[-1][best], size[best]
    if drop_stutter:
        tokens, size = without_stutter(tokens, size)
    return Translated(
        tokens=tokens,
        lengths=size,
        score=(state.score / norm)[best],
        encoder_passes=torch.ones(rows, dtype=torch.long, device=source.device),
        decoder_passes=state.passes.view(rows, width).amax(1),
        trace=tuple(x[best] for x in state.trace) if trace else (),
    )


def mask_predict(model: Seq2Seq, source: Int[Tensor, "row source"], *, steps: int = 4, **options) -> Translated:
    """Ghazvininejad et al. 2019: from [MASK]s, with ever fewer of the least probable words masked again each time."""
    return refine(model, source, steps=steps, noise="mask", rejecters=(LinearSchedule(),), **options)


class _State(NamedTuple):
    trace: list[Int[Tensor, "row position"]]
    score: Float[Tensor, " row"]
    passes: Int[Tensor, " row"]


def _begin(size: Tensor, noise: str, vocab: int, generator: torch.Generator | None) -> Int[Tensor, "row position"]:
    """Noise, ⟨eos⟩ at the last position, padding."""
    shape = (len(size), int(size.max()))
    place = torch.arange(shape[1], device=size.device)
    words = torch.full(shape, MASK)
    if noise == "random":
        words = torch.randint(RESERVED, vocab, shape, generator=generator)
    words = words.to(size.device)
    last = size[:, None] - 1
    return torch.where(place < last, words, torch.where(place == last, EOS, PAD))


def _loop(
    model: Seq2Seq,
    read: tuple[Tensor, Tensor],
    begin: Int[Tensor, "row position"],
    size: Int[Tensor, " row"],
    steps: int,
    rejecters: Sequence[Rejecter],
    replacement: str,
    *,
    early_stop: bool,
) -> _State:
    place = torch.arange(begin.shape[1], device=begin.device)
    real, words = place < size[:, None], place < size[:, None] - 1
    score = torch.zeros(len(begin), dtype=read[0].dtype, device=begin.device)
    passes = torch.zeros_like(size)
    live = torch.arange(len(begin), device=begin.device)
    summed = None
    trace = [begin]
    steady = early_stop and all(rejecter.steady for rejecter in rejecters) and replacement != "summed"
    for step in range(steps):
        x = trace[-1]
        inputs = Encoded(read[0][live], read[1][live], x[live], real[live])
        logits, found = model(inputs, want=("hook_normalized",))
        logp = log_probs(logits)
        top = logp.max(-1)
        new = torch.where(real[live], top.indices, PAD)
        passes[live] += 1
        score[live] = torch.where(real[live], top.values, 0.0).sum(1)
        if replacement == "summed":
            summed = logp if summed is None else summed + logp
        seen_round = Round(new, top.values, words[live], found["hook_normalized"], step, steps)
        if rejecters:
            back = torch.stack([rejecter.reject(seen_round) for rejecter in rejecters]).any(0)
            instead = begin[live] if replacement == "initial" else x[live]
            new = torch.where(back, instead if summed is None else summed.argmax(-1), new)
        trace.append(x.index_copy(0, live, new))
        if steady:
            live = live[(new != x[live]).any(1)]
            if not len(live):
                break
    trace += [trace[-1]] * (steps + 1 - len(trace))
    return _State(trace, score, passes)


def without_stutter(
    tokens: Int[Tensor, "row position"], lengths: Int[Tensor, " row"]
) -> tuple[Int[Tensor, "row position"], Int[Tensor, " row"]]:
    """Targets without the words that equal their left neighbours."""
    place = torch.arange(tokens.shape[1], device=tokens.device)
    keep = (place < lengths[:, None]) & ~stutters(tokens, place < lengths[:, None] - 1)
    order = (~keep).to(torch.uint8).sort(dim=1, stable=True).indices
    left = keep.sum(1)
    return torch.where(place < left[:, None], tokens.gather(1, order), PAD), left
