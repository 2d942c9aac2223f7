"""Translation, all positions at once: restore a corrupted target, again from one's own answer, and tell its length.

Also the sequential baseline: every word of the target from those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, probability, whole
from sandtable.inputs import EOS, MASK, PAD, RESERVED, Encoded, Pair, allowed
from sandtable.objectives.base import Apply, Example, Noiseless, Params
from sandtable.worlds import Batch

NOISES = ("random", "mask")
COUNTED = ("all", "noised")


def _pair(batch: Batch, who: str) -> dict[str, Tensor]:
    """Source, target and their masks, with any leading dimensions before (row, position)."""
    if batch.given is None or batch.x.is_floating_point():
        raise ArgumentError(f"{who}: needs integer tokens whose `given` is the source, as translation worlds sample")
    given = batch.given
    real = torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None else batch.mask
    seen = torch.ones_like(given.x, dtype=torch.bool) if given.mask is None else given.mask
    return {"source": given.x, "seen": seen, "target": batch.x, "real": real}


def _check(who: str, model: Any, *, causal: bool) -> None:
    if getattr(model, "causal", None) is not causal:
        raise ArgumentError(f"model of {type(model).__name__}: {who} needs a Seq2Seq with causal={causal}")


def _errors(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none").view_as(target)


@dataclass(frozen=True)
class Refinement:
    """L = (1/S) Σ_s CE(decoder(X^(s−1), source), target) + λ CE(length), means over real positions (Li et al. 2024).

    X^(0) is the target with every word but ⟨eos⟩ replaced, independently with probability 1 − `unmask`, by a random
    word (`noise="random"`) or by [MASK]; X^(s) is the likeliest word at every position given X^(s−1), and no gradient
    goes through that choice. `counted="noised"` leaves out of the first stage the words that were shown. `length`
    weighs the cross-entropy λ of the number of tokens. Fits record the loss of every stage and that of the length.
    """

    unmask: float = 0.15
    noise: str = "random"
    stages: int = 2
    counted: str = "all"
    length: float = 1.0

    def __post_init__(self) -> None:
        probability("unmask", self.unmask)
        one_of("noise", self.noise, NOISES)
        whole("stages", self.stages)
        one_of("counted", self.counted, COUNTED)
        number("length", self.length, least=0.0)

    def check(self, model: Any) -> None:
        _check("Refinement", model, causal=False)

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        return self.draw_block(batch, generator, range(step, step + 1))

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        """The same for every number of leading dimensions before (row, position)."""
        example = _pair(batch, "Refinement")
        if batch.vocab is None:
            raise ArgumentError("Refinement: needs a vocabulary to draw random words from")
        target = example["target"]
        shown = (torch.rand(target.shape, generator=generator) < self.unmask) | (target == EOS)
        words = torch.randint(RESERVED, len(batch.vocab), target.shape, generator=generator)
        noise = words if self.noise == "random" else torch.full_like(words, MASK)
        start = torch.where(example["real"], torch.where(shown, target, noise), PAD)
        counts = example["real"] & (~shown | (target == EOS)) if self.counted == "noised" else example["real"]
        return {**example, "start": start, "counts": counts}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        target, real, seen = example["target"], example["real"], example["seen"]
        pair = Pair(example["source"], seen, example["start"], real)
        logits, read = apply(params, pair, want=("hook_memory", "hook_length"))
        most = read["hook_length"].shape[-1]
        if target.shape[-1] > most:
            raise ArgumentError(f"targets of {target.shape[-1]} positions: this model has longest_target={most}")
        losses = []
        for stage in range(self.stages):
            if stage:
                own = torch.where(real, allowed(logits.detach()).argmax(-1), PAD)
                logits = apply(params, Encoded(read["hook_memory"], seen, own, real))
            weight = (example["counts"] if stage == 0 else real).to(logits.dtype)
            losses.append((weight * _errors(logits, target)).sum() / weight.sum())
        length = F.cross_entropy(read["hook_length"], real.sum(-1) - 1)
        metrics = {f"stage {i + 1}": loss for i, loss in enumerate(losses)} | {"length": length}
        return torch.stack(losses).mean() + self.length * length, metrics


@dataclass(frozen=True)
class TeacherForcing(Noiseless):
    """L = mean over real t of −log softmax(decoder(⟨pad⟩ target_{<t}, source))_{target_t}, for causal decoders."""

    def check(self, model: Any) -> None:
        _check("TeacherForcing", model, causal=True)

    def _example(self, batch: Batch) -> Example:
        example = _pair(batch, "TeacherForcing")
        return {**example, "start": F.pad(example["target"][..., :-1], (1, 0), value=PAD)}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        real = example["real"]
        logits = apply(params, Pair(example["source"], example["seen"], example["start"], real))
        weight = real.to(logits.dtype)
        return (weight * _errors(logits, example["target"])).sum() / weight.sum(), {}
