"""Translation one word after another, with keys and values kept: greedy, sampled, or the best of several beams."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, typed, whole
from sandtable.decoding.draws import Draws
from sandtable.decoding.translated import Translated, checked, ended, given_lengths, log_probs
from sandtable.decoding.truncation import Truncation
from sandtable.inputs import EOS, PAD, allowed
from sandtable.models import Seq2Seq

HOW = ("greedy", "sample")


@torch.no_grad()
def autoregress(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    how: str = "greedy",
    generator: torch.Generator | int | None = None,
    seen: Bool[Tensor, "row source"] | None = None,
    longest: int | None = None,
    shortest: int = 1,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int | None = None,
) -> Translated:
    """The likeliest next token each time, or one drawn from softmax(logits / `temperature`), until ⟨eos⟩.

    The law is cut to `top_k` tokens or to the nucleus `top_p`, as `score` is that of the law before the cut. There are
    `shortest` tokens at least, ⟨eos⟩ included; after `longest` a row is ended as it stands. One encoder pass, and one
    decoder pass a token.
    """
    seen = checked(model, source, seen, causal=True)
    sampling = one_of("how", how, HOW) == "sample"
    law = Truncation(temperature, top_p, top_k)
    if sampling and not law.greedy and generator is None:
        raise ArgumentError("generator=None: sampling needs a generator")
    longest = _longest(model, longest)
    whole("shortest", shortest, most=longest)
    rows, device = len(source), source.device
    memory, _ = model.encode(source, seen)
    progress = model.start(memory, seen, longest)
    draws = Draws.of(generator, rows) if sampling and generator is not None else None
    tokens = source.new_full((rows, longest), PAD)
    word = source.new_full((rows,), PAD)
    live = torch.arange(rows, device=device)
    score = torch.zeros(rows, dtype=memory.dtype, device=device)
    for place in range(longest):
        logits, progress = model.extend(word, progress)
        logits = allowed(logits)
        if place + 1 < shortest:
            logits[:, EOS] = -torch.inf
        logp = logits.log_softmax(-1)
        word = logp.argmax(-1) if draws is None else law.draw(logits, draws.uniform())
        chosen = logp.gather(1, word[:, None])[:, 0]
        whole_batch = len(live) == rows
        if whole_batch:  # without an index, which would wait for nothing but costs its time at every token
            tokens[:, place], score = word, score + chosen
        else:
            tokens[live, place] = word
            score[live] += chosen
        if place + 1 < shortest:
            continue
        going = (word != EOS).nonzero()[:, 0]
        if not len(going):
            break
        if len(going) < len(live):
            live, word, progress = live[going], word[going], progress.take(going)
            draws = None if draws is None else draws.take(going.cpu())
    lengths = ended(tokens)
    return Translated(tokens, lengths, score, torch.ones_like(lengths), lengths.clone())


@typed
@torch.no_grad()
def beam_search(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    beams: int = 5,
    seen: Bool[Tensor, "row source"] | None = None,
    lengths: Int[Tensor, " row"] | None = None,
    longest: int | None = None,
    alpha: float = 0.0,
) -> Translated:
    """Of all continuations of the `beams` best prefixes by one token, again the best, until all of them have ended.

    Ended hypotheses keep their place in the beam and their score; at the end the one with the largest log-probability
    divided by ((5 + n)/6)^`alpha` is taken. With the `lengths` of an oracle, ⟨eos⟩ included, targets end just there,
    and what they lose by not ending elsewhere stays in their score. The beams of a row are decoded together: a decoder
    pass for each token of the longest of them.
    """
    seen = checked(model, source, seen, causal=True)
    whole("beams", beams)
    number("alpha", alpha, least=0.0)
    if lengths is not None:
        lengths, longest = given_lengths(model, source, lengths), int(lengths.max())
    longest = _longest(model, longest)
    rows, size, device = len(source), model.size, source.device
    memory, _ = model.encode(source, seen)
    fork = torch.arange(rows, device=device).repeat_interleave(beams)
    progress = model.start(memory, seen, longest).take(fork)
    first = torch.arange(rows, device=device)[:, None] * beams
    tokens = source.new_full((rows * beams, longest), PAD)
    word = source.new_full((rows * beams,), PAD)
    # All beams start alike: only the first one counts, or the best prefix would fill them all.
    score = torch.full((rows, beams), -torch.inf, dtype=memory.dtype, device=device)
    score[:, 0] = 0.0
    done = torch.zeros(rows, beams, dtype=torch.bool, device=device)
    passes = torch.zeros(rows, dtype=torch.long, device=device)
    is_end = torch.arange(size, device=device) == EOS
    for place in range(longest):
        # A beam of score −∞ is none: there were fewer prefixes than beams.
        going = (~done & ~score.isneginf()).any(1)
        if not bool(going.any()):
            break
        passes += going
        logits, progress = model.extend(word, progress)
        step = log_probs(logits).view(rows, beams, size)
        if lengths is not None:
            closing = (lengths == place + 1)[:, None, None]
            step = step.where(is_end == closing, -torch.inf)
        step = torch.where(done[..., None], -torch.inf, step)
        step[..., PAD] = torch.where(done, 0.0, step[..., PAD])
        score, flat = (score[..., None] + step).flatten(1).topk(beams, dim=1)
        origin = (first + flat // size).flatten()
        word = (flat % size).flatten()
        tokens, progress = tokens[origin], progress.take(origin, same_source=True)
        done = done.flatten()[origin].view(rows, beams) | (word == EOS).view(rows, beams)
        tokens[:, place] = word
    lengths = ended(tokens).view(rows, beams)
    ranked = score / ((5 + lengths.to(score.dtype)) / 6) ** alpha
    best = ranked.argmax(1)
    chosen = (first[:, 0] + best).clone()
    pick = (torch.arange(rows, device=device), best)
    return Translated(tokens[chosen], lengths[pick], ranked[pick], torch.ones_like(passes), passes)


def _longest(model: Seq2Seq, longest: int | None) -> int:
    most = model.config["longest"]
    return model.config["longest_target"] if longest is None else whole("longest", longest, most=most)
