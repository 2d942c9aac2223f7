"""Translation one word after another, with keys and values kept: greedy, sampled, or the best of several beams."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, whole
from sandtable.decoding.translated import Translated, checked, ended, log_probs
from sandtable.inputs import EOS, PAD
from sandtable.models import Seq2Seq
from sandtable.models.seq2seq import take_rows

HOW = ("greedy", "sample")


@torch.no_grad()
def autoregress(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    how: str = "greedy",
    generator: torch.Generator | None = None,
    seen: Bool[Tensor, "row source"] | None = None,
    longest: int | None = None,
    temperature: float = 1.0,
) -> Translated:
    """The likeliest next token each time, or one drawn from softmax(logits / `temperature`), until ⟨eos⟩.

    After `longest` tokens a row is ended as it stands. One encoder pass, and one decoder pass a token.
    """
    seen = checked(model, source, seen, causal=True)
    one_of("how", how, HOW)
    number("temperature", temperature, above=0.0)
    if how == "sample" and generator is None:
        raise ArgumentError("generator=None: sampling needs a generator")
    longest = _longest(model, longest)
    rows = len(source)
    memory, _ = model.encode(source, seen)
    cache = model.start(memory)
    tokens = source.new_full((rows, longest), PAD)
    word = source.new_full((rows,), PAD)
    live = torch.arange(rows, device=source.device)
    score = torch.zeros(rows, dtype=memory.dtype, device=source.device)
    passes = torch.zeros(rows, dtype=torch.long, device=source.device)
    for place in range(longest):
        logits, cache = model.extend(word, cache, seen[live])
        passes[live] += 1
        logp = log_probs(logits / temperature if how == "sample" else logits)
        if how == "sample":
            word = torch.multinomial(logp.exp().cpu(), 1, generator=generator)[:, 0].to(source.device)
        else:
            word = logp.argmax(-1)
        tokens[live, place] = word
        score[live] += logp.gather(1, word[:, None])[:, 0]
        going = (word != EOS).nonzero()[:, 0]
        if not len(going):
            break
        if len(going) < len(live):
            live, word, cache = live[going], word[going], take_rows(cache, going)
    return Translated(tokens, ended(tokens), score, torch.ones_like(passes), passes)


@torch.no_grad()
def beam_search(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    beams: int = 5,
    seen: Bool[Tensor, "row source"] | None = None,
    longest: int | None = None,
    alpha: float = 0.0,
) -> Translated:
    """Of all continuations of the `beams` best prefixes by one token, again the best, until all of them have ended.

    Ended hypotheses keep their place in the beam and their score; at the end the one with the largest log-probability
    divided by ((5 + n)/6)^`alpha` is taken. The beams of a row are decoded together: a decoder pass for each token of
    the longest of them.
    """
    seen = checked(model, source, seen, causal=True)
    whole("beams", beams)
    number("alpha", alpha, least=0.0)
    longest = _longest(model, longest)
    rows, size = len(source), model.size
    device = source.device
    memory, _ = model.encode(source, seen)
    cache = take_rows(model.start(memory), torch.arange(rows, device=device).repeat_interleave(beams))
    seen = seen.repeat_interleave(beams, 0)
    first = torch.arange(rows, device=device)[:, None] * beams
    tokens = source.new_full((rows * beams, longest), PAD)
    word = source.new_full((rows * beams,), PAD)
    # All beams start alike: only the first one counts, or the best prefix would fill them all.
    score = torch.full((rows, beams), -torch.inf, dtype=memory.dtype, device=device)
    score[:, 0] = 0.0
    done = torch.zeros(rows, beams, dtype=torch.bool, device=device)
    passes = torch.zeros(rows, dtype=torch.long, device=device)
    for place in range(longest):
        passes += ~done.all(1)
        logits, cache = model.extend(word, cache, seen)
        step = log_probs(logits).view(rows, beams, size)
        step = torch.where(done[..., None], -torch.inf, step)
        step[..., PAD] = torch.where(done, 0.0, step[..., PAD])
        score, flat = (score[..., None] + step).flatten(1).topk(beams, dim=1)
        origin = (first + flat // size).flatten()
        word = (flat % size).flatten()
        tokens, cache = tokens[origin], take_rows(cache, origin)
        done = done.flatten()[origin].view(rows, beams) | (word == EOS).view(rows, beams)
        tokens[:, place] = word
        # A beam of score −∞ is none: fewer prefixes than beams so far.
        if bool((done | score.isneginf()).all()):
            break
    lengths = ended(tokens).view(rows, beams)
    ranked = score / ((5 + lengths.to(score.dtype)) / 6) ** alpha
    best = ranked.argmax(1)
    chosen = (first[:, 0] + best).clone()
    pick = (torch.arange(rows, device=device), best)
    return Translated(tokens[chosen], lengths[pick], ranked[pick], torch.ones_like(passes), passes)


def _longest(model: Seq2Seq, longest: int | None) -> int:
    most = model.config["longest"]
    return model.config["longest_target"] if longest is None else whole("longest", longest, most=most)
