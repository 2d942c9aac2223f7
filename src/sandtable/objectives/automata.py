"""What is asked of models of automata: the state, or what is seen of it, after every token (Liu et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from sandtable.arguments import ArgumentError, number, whole
from sandtable.inputs import Tokens
from sandtable.objectives.base import Apply, Example, Noiseless, Params
from sandtable.worlds import Batch


@dataclass(frozen=True)
class EveryState(Noiseless):
    """L = −(1/T) Σ_t log softmax(f(σ_{1:T})_t)_{y_t} over real positions, all outputs at once; y_t is the latent `of`.

    "state" is q_t itself, "label" what is observed of it, φ(q_t): the indirect supervision of the paper where φ is not
    injective. The model must be causal. Fits record "accuracy", over all positions, and "last", at the last of a row.
    """

    of: str = "label"

    def _example(self, batch: Batch) -> dict[str, Tensor]:
        """The same for every number of leading dimensions before (row, position)."""
        example = {"inputs": batch.x, "target": _latent(batch, self.of)}
        return example if batch.mask is None else {**example, "real": batch.mask}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        logits, target = apply(params, example["inputs"]), example["target"]
        known = example.get("known", example.get("real"))
        errors = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none")
        if known is not None:
            known = known.flatten().to(errors.dtype)
            errors = errors * known * (known.numel() / known.sum().clamp_min(1))
        return errors.mean(), _accuracy(logits, target, example.get("real"))


@dataclass(frozen=True)
class RevealedStates(EveryState):
    """The same loss where a label is known: each with probability `reveal`, independently. Metrics are of all labels.

    A batch without any known label gives no gradient.
    """

    reveal: float = 0.1
    noisy = True

    def __post_init__(self) -> None:
        number("reveal", self.reveal, above=0.0, most=1.0)

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        return self._revealed(batch, generator)

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        return self._revealed(batch, generator)

    def draw_each(self, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        pieces = [self._revealed(batch.map(lambda t, i=i: t[i]), g) for i, g in enumerate(generators)]
        return tree_map(lambda *tensors: torch.stack(tensors), *pieces)

    def _revealed(self, batch: Batch, generator: torch.Generator) -> Example:
        example = self._example(batch)
        known = (torch.rand(batch.x.shape, generator=generator) < self.reveal).to(batch.x.device)
        return {**example, "known": known & example["real"] if "real" in example else known}


@dataclass(frozen=True)
class Scratchpad(EveryState):
    """The model reads σ_1, q_1, σ_2, q_2, …, q_{T−1}, σ_T, states written as tokens |Σ| + q, and names q_t at each σ_t.

    What it says at states is ignored. `tokens` is |Σ|; at inference it reads its own states
    (`probes.automata.write_states`).
    """

    tokens: int = 2
    of: str = "state"

    def __post_init__(self) -> None:
        whole("tokens", self.tokens)

    def _example(self, batch: Batch) -> dict[str, Tensor]:
        states = _latent(batch, self.of)
        return {**super()._example(batch), "inputs": interleave(batch.x, states, tokens=self.tokens)}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        return super().loss(lambda params, ids: apply(params, ids)[..., ::2, :], params, example)


@dataclass(frozen=True)
class RandomShift:
    """An objective whose batches stand elsewhere: one number in 0 … `most` is added to all positions of a batch.

    It is drawn with the objective's own noise and moves the position vectors alone: what attention sees of distances
    stays as it is. Nothing is shifted at inference.
    """

    objective: Any = EveryState()
    most: int = 400
    noisy = True

    def __post_init__(self) -> None:
        whole("most", self.most, least=0)

    def check(self, model: nn.Module) -> None:
        longest = getattr(model, "longest", None)
        if getattr(model, "pos_embed", None) is None:
            raise ArgumentError("RandomShift: the model adds no position vectors, so there is nothing to shift")
        if longest is not None and longest <= self.most:
            raise ArgumentError(f"most={self.most}: the model was built for positions below longest={longest}")

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        start = torch.randint(self.most + 1, (), generator=generator)
        return {"start": start.to(batch.x.device), "of": self.objective.draw(batch, generator, step)}

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        start = torch.randint(self.most + 1, (len(steps),), generator=generator)
        return {"start": start.to(batch.x.device), "of": self.objective.draw_block(batch, generator, steps)}

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        def shifted(params: Params, ids: Tensor, *args: Any, **options: Any) -> Any:
            return apply(params, Tokens(ids, None, example["start"]), *args, **options)

        return self.objective.loss(shifted, params, example["of"])


def interleave(
    x: Int[Tensor, "*batch position"], states: Int[Tensor, "*batch position"], *, tokens: int
) -> Int[Tensor, "*batch twice"]:
    """σ_1, q_1, …, q_{T−1}, σ_T with states as the tokens |Σ| + q: 2T − 1 of them."""
    return torch.stack([x, states + tokens], dim=-1).flatten(-2)[..., :-1]


def _latent(batch: Batch, name: str) -> Int[Tensor, "*batch position"]:
    if name not in batch.latents:
        known = ", ".join(batch.latents) or "none"
        raise ArgumentError(f"of={name!r}: the batch knows no such latent, only {known}")
    return batch.latents[name].long()


def _accuracy(logits: Tensor, target: Tensor, real: Tensor | None) -> dict[str, Tensor]:
    right = (logits.detach().argmax(-1) == target).to(logits.dtype)
    if real is None:
        return {"accuracy": right.mean(), "last": right[..., -1].mean()}
    counts = real.sum(-1, keepdim=True)
    last = right.gather(-1, (counts - 1).clamp_min(0))
    return {"accuracy": (right * real).sum() / counts.sum().clamp_min(1), "last": last.mean()}
