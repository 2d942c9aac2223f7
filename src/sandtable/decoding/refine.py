"""Translation by parallel refinement: guess a length, fill it with noise, and rewrite all positions a few times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, typed, whole
from sandtable.decoding.draws import as_generator
from sandtable.decoding.rejecters import NO_REJECTERS, LinearSchedule, Rejecter, Round, stutters
from sandtable.decoding.translated import Translated, checked, ended, given_lengths
from sandtable.decoding.truncation import Truncation
from sandtable.inputs import EOS, MASK, PAD, RESERVED, allowed
from sandtable.models import Seq2Seq
from sandtable.models.seq2seq import Prepared, catching
from sandtable.worlds.translation import in_front

NOISES = ("random", "mask")
REPLACEMENTS = ("initial", "previous", "summed")
Ids = Int[Tensor, "row position"]


@typed
@torch.no_grad()
def refine(
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    generator: torch.Generator | int | None = None,
    seen: Bool[Tensor, "row source"] | None = None,
    steps: int = 4,
    lengths: Int[Tensor, " row"] | None = None,
    beams: int = 5,
    noise: str = "random",
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int | None = None,
    rejecters: Sequence[Rejecter] = NO_REJECTERS,
    replacement: str = "initial",
    drop_stutter: bool = False,
    drop_initial: bool = False,
    alpha: float = 0.0,
    length_weight: float = 0.0,
    early_stop: bool = True,
    trace: bool = False,
) -> Translated:
    """X^(t+1) = the likeliest token at every position given X^(t) and the source, `steps` times (Li et al. 2024).

    X^(0) has random words drawn from `generator` (or [MASK]s: `noise`), ⟨eos⟩ at the end. `lengths`, ⟨eos⟩ included,
    are given by an oracle, or the `beams` likeliest are tried and the best hypothesis is kept: the largest sum of the
    last pass's log-probabilities, divided by ((5 + n)/6)^`alpha`, plus `length_weight` times the log-probability of the
    length itself. The published score leaves that out, and then one ⟨eos⟩ is a sure thing to write: where lengths are
    easy to tell, a weight of 1 keeps targets from being far too short. With `temperature` > 0 tokens are drawn instead,
    each from its own law, cut to `top_k` tokens or the nucleus `top_p`; it is the law before the cut that is summed.

    What a rejecter takes back is replaced by the `initial` token, the `previous` one, or the likeliest under the logits
    `summed` over passes. A hypothesis stops when nothing changes, where that tells the rest. At the end `drop_initial`
    deletes words that equal what stood in X^(0) — as the authors' code does for all, and with a small vocabulary also
    by chance — and `drop_stutter` then those that equal their left neighbours; what is deleted does not count in n or
    in the score. By default nothing is taken back and nothing deleted. The published inference takes back words that
    equal their left neighbours after every pass, and in the end deletes them: `rejecters=(Stutter(last=True),)` with
    `drop_initial=True`. One encoder pass and at most `steps` decoder passes a row.
    """
    seen = checked(model, source, seen, causal=False)
    whole("steps", steps)
    for rejecter in rejecters:
        if isinstance(rejecter, type) or not callable(getattr(rejecter, "reject", None)):
            raise ArgumentError(f"rejecters={rejecters!r}: must be rejecters, such as Stutter() or Bottom(k=1)")
    one_of("noise", noise, NOISES)
    one_of("replacement", replacement, REPLACEMENTS)
    number("alpha", alpha, least=0.0)
    number("length_weight", length_weight, least=0.0)
    law = Truncation(temperature, top_p, top_k)
    if generator is None and (noise == "random" or not law.greedy):
        raise ArgumentError("generator=None: random words and sampling need one; without: noise='mask', temperature=0")
    chance = None if generator is None else as_generator(generator)
    rows, most = len(source), model.config["longest_target"]
    memory, scores = model.encode(source, seen)
    if lengths is None:
        width = min(whole("beams", beams), most)
        likeliest = scores.log_softmax(1).topk(width, dim=1)
        lengths, bonus = likeliest.indices + 1, length_weight * likeliest.values.flatten()
    else:
        lengths, width, bonus = given_lengths(model, source, lengths)[:, None], 1, 0.0
    size = lengths.flatten()
    begin = _begin(size, noise, model.size, chance)
    place = torch.arange(begin.shape[1], device=source.device)
    real = place < size[:, None]
    if width > 1:
        owner = torch.arange(rows, device=source.device).repeat_interleave(width)
        memory, seen = memory[owner], None if seen is None else seen[owner]
    prepared = model.prepare(memory, seen, begin.shape[1], None if bool(real.all()) else real)
    loop = _Loop(model, begin, real, steps, law, chance, tuple(rejecters), replacement)
    final, sure, passes, states = loop.run(prepared, early_stop=early_stop, trace=trace)
    tokens, score, n = _ended(final, sure, begin, drop_initial=drop_initial, drop_stutter=drop_stutter)
    score = score / ((5 + n.to(score.dtype)) / 6) ** alpha + bonus
    best = score.view(rows, width).argmax(1) + width * torch.arange(rows, device=source.device)
    return Translated(
        tokens=tokens[best],
        lengths=n[best],
        score=score[best],
        encoder_passes=torch.ones(rows, dtype=torch.long, device=source.device),
        decoder_passes=passes.view(rows, width).amax(1),
        trace=tuple(x[best] for x in states),
    )


@typed
def mask_predict(model: Seq2Seq, source: Int[Tensor, "row source"], *, steps: int = 4, **options) -> Translated:
    """Ghazvininejad et al. 2019: from [MASK]s, with ever fewer of the least probable words masked again each time."""
    for name in ("noise", "rejecters"):
        if name in options:
            raise ArgumentError(f"{name}={options[name]!r}: mask_predict has its own; `refine` takes any")
    return refine(model, source, steps=steps, noise="mask", rejecters=(LinearSchedule(),), **options)


def _begin(size: Int[Tensor, " row"], noise: str, vocab: int, generator: torch.Generator | None) -> Ids:
    """Noise, ⟨eos⟩ at the last position, padding."""
    shape = (len(size), int(size.max()))
    words = torch.full(shape, MASK)
    if noise == "random":
        words = torch.randint(RESERVED, vocab, shape, generator=generator)
    last, place = size[:, None] - 1, torch.arange(shape[1], device=size.device)
    return torch.where(place < last, words.to(size.device), torch.where(place == last, EOS, PAD))


@dataclass(frozen=True)
class _Loop:
    """X^(0) → X^(T)."""

    model: Seq2Seq
    begin: Ids
    real: Bool[Tensor, "row position"]
    steps: int
    law: Truncation
    generator: torch.Generator | None
    rejecters: tuple[Rejecter, ...]
    replacement: str

    def run(
        self, prepared: Prepared, *, early_stop: bool, trace: bool
    ) -> tuple[Ids, Float[Tensor, "row position"], Int[Tensor, " row"], list[Ids]]:
        """X^(T), the log-probabilities of the last pass, how many passes there were, and X^(0) … X^(T) if asked for."""
        rows, device = self.begin.shape[0], self.begin.device
        steady = self.law.greedy and self.replacement != "summed" and all(r.steady for r in self.rejecters)
        stopping = early_stop and steady
        want = ("hook_normalized",) if self.rejecters else ()
        x, final = self.begin, self.begin
        sure = torch.zeros(self.begin.shape, dtype=prepared.bias.dtype, device=device)
        passes = torch.zeros(rows, dtype=torch.long, device=device)
        live = torch.arange(rows, device=device)
        summed, states = None, [x]
        for step in range(self.steps):
            now = x if len(live) == rows else x[live]
            tap, found = catching(want)
            logits = allowed(self.model.write(now, prepared, tap))
            written, logp = self._choose(logits)
            if self.replacement == "summed":
                summed = logits if summed is None else summed + logits
            seen = (live, now, written, logp, found.get("hook_normalized"), summed)
            new = self._after(*seen, step)
            # Where a row stops, the last pass would have written the same, but what it takes back may differ.
            closing = self._after(*seen, self.steps - 1) if stopping and self.rejecters else new
            whole_batch = len(live) == rows
            x, final = (
                (new, closing) if whole_batch else (x.index_copy(0, live, new), final.index_copy(0, live, closing))
            )
            sure = logp if whole_batch else sure.index_copy(0, live, logp)
            passes[live] += 1
            states = [*states, x] if trace else states
            if stopping and step + 1 < self.steps:
                going = (new != now).any(1).nonzero()[:, 0]
                if not len(going):
                    break
                if len(going) < len(live):
                    live, prepared = live[going], prepared.take(going)
        if trace:
            states = [*states[: self.steps], *[x] * (self.steps - len(states)), final]
        return final, sure, passes, states if trace else []

    def _choose(self, logits: Float[Tensor, "row position vocab"]) -> tuple[Ids, Float[Tensor, "row position"]]:
        """A token at every position, and its log-probability."""
        logp = logits.log_softmax(-1)
        if self.law.greedy:
            top = logp.max(-1)
            return top.indices, top.values
        uniform = torch.rand(logits.shape[:2].numel(), generator=self.generator, dtype=torch.float64)
        drawn = self.law.draw(logits.flatten(0, 1), uniform.to(logits.device)).view(logits.shape[:2])
        return drawn, logp.gather(-1, drawn[..., None])[..., 0]

    def _after(
        self,
        live: Int[Tensor, " row"],
        now: Ids,
        written: Ids,
        logp: Float[Tensor, "row position"],
        states: Float[Tensor, "row position width"] | None,
        summed: Float[Tensor, "row position vocab"] | None,
        step: int,
    ) -> Ids:
        """What pass `step` leaves of the tokens it has `written` in the place of `now`."""
        real = self.real[live]
        if self.rejecters and states is not None:
            words = real & F.pad(real[:, 1:], (0, 1))
            seen = Round(written, logp, words, states, step, self.steps)
            back = torch.stack([rejecter.reject(seen) for rejecter in self.rejecters]).any(0)
            instead = self.begin[live] if self.replacement == "initial" else now
            written = torch.where(back, instead if summed is None else summed.argmax(-1), written)
        return torch.where(real, written, PAD)


def without_stutter(tokens: Ids, lengths: Int[Tensor, " row"]) -> tuple[Ids, Int[Tensor, " row"]]:
    """Targets without the words that equal their left neighbours."""
    real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
    tokens, lengths, _ = _kept(real & ~stutters(tokens, real & (tokens != EOS)), tokens, tokens)
    return tokens, lengths


def _ended(
    tokens: Ids, sure: Float[Tensor, "row position"], begin: Ids, *, drop_initial: bool, drop_stutter: bool
) -> tuple[Ids, Float[Tensor, " row"], Int[Tensor, " row"]]:
    """Targets up to ⟨eos⟩ without what is deleted, the sums of their log-probabilities, and their lengths."""
    place = torch.arange(tokens.shape[1], device=tokens.device)
    keep = (place < ended(tokens)[:, None]) & (tokens != PAD)
    if drop_initial:
        keep = keep & ((tokens != begin) | (tokens == EOS))
    tokens, n, sure = _kept(keep, tokens, sure)
    if drop_stutter:
        words = (place < n[:, None]) & (tokens != EOS)
        tokens, n, sure = _kept((place < n[:, None]) & ~stutters(tokens, words), tokens, sure)
    return tokens, sure.sum(1), n


def _kept(keep: Bool[Tensor, "row position"], tokens: Ids, values: Tensor) -> tuple[Ids, Int[Tensor, " row"], Tensor]:
    """What is kept of every row moved to its front, with padding and zeros behind; and how much it is."""
    order, n = in_front(keep), keep.sum(1)
    real = torch.arange(keep.shape[1], device=keep.device) < n[:, None]
    return torch.where(real, tokens.gather(1, order), PAD), n, torch.where(real, values.gather(1, order), 0)
