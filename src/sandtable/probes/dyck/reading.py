"""How models of brackets are run: one or many, on tokens or on the symbols of a minimal first layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of
from sandtable.models import Stack
from sandtable.worlds import Batch
from sandtable.worlds.dyck import BoundedDyck

READS = ("tokens", "symbols")
OUTPUTS = ("scores", "probabilities")
Edits = Mapping[str, Callable[[Tensor], Tensor]]
AT_ONCE = 2**21
"""Attention scores of one head that a model computes at once."""


def stacked(models: Stack | nn.Module) -> Stack:
    """The models; a single one is a stack of one."""
    return models if isinstance(models, Stack) else Stack.of(models)


def inputs_of(
    stack: Stack, x: Int[Tensor, "batch position"], world: BoundedDyck, *, reads: str
) -> Int[Tensor, "batch position"]:
    """What the models, which must be of this world, read in these rows of tokens."""
    world.require_reader(stack.template, reads=one_of("reads", reads, READS))
    inputs, size = world.symbols(x) if reads == "symbols" else x, getattr(stack.template, "size", None)
    if size is not None and int(inputs.max()) >= size:  # ⟨eos⟩ in rows for models without it
        raise ArgumentError(f"rows with token {int(inputs.max())}: the models read {size} tokens")
    return inputs


def scores(
    models: Stack | nn.Module,
    batch: Batch,
    world: BoundedDyck,
    *,
    reads: str = "tokens",
    outputs: str = "scores",
    edits: Edits | None = None,
) -> Iterator[tuple[slice, Float[Tensor, "models rows position bracket"]]]:
    """Next-bracket scores of every model, some rows at a time so that long ones fit; all at once with `edits`.

    Scores are logits; of models whose `outputs` are "probabilities", as those of `theory.dyck.build` are, their logs.
    """
    stack, brackets = stacked(models), 2 * world.types
    one_of("outputs", outputs, OUTPUTS)
    inputs = inputs_of(stack, batch.x, world, reads=reads)
    device = next(iter(stack.params.values())).device
    rows = len(inputs) if edits else max(1, AT_ONCE // inputs.shape[1] ** 2)
    for first in range(0, len(inputs), rows):
        part = slice(first, first + rows)
        out: Any = stack(inputs[part].to(device), edits=edits) if edits else stack(inputs[part].to(device))
        if out.shape[-1] < brackets:
            raise ArgumentError(f"models with {out.shape[-1]} outputs: must score all {brackets} brackets")
        out = out[..., :brackets].cpu()
        # rounding leaves a little more or less than 0 of what is impossible
        yield part, out.clamp(min=torch.finfo(out.dtype).tiny).log() if outputs == "probabilities" else out


def refuse_laws(scores: Float[Tensor, "models rows position bracket"], where: Bool[Tensor, "rows position"]) -> None:
    """An `ArgumentError` where all scores asked for are probabilities, to rounding: of trained nets they never are."""
    scores = scores[:, where]
    if bool((scores > -1e-4).all()) and bool(((scores.sum(-1) - 1).abs() < 1e-4).all()):
        raise ArgumentError("outputs='scores': these are probabilities; for such models pass outputs='probabilities'")


def latent(batch: Batch, world: BoundedDyck, name: str) -> Int[Tensor, "batch position"]:
    """A latent of the rows (`depth`, `top` or `opener`), read from the tokens where the batch does not bring it."""
    return batch.latents[name] if name in batch.latents else getattr(world.brackets.trace(batch.x), name)


def real(batch: Batch) -> Tensor:
    """Which positions count."""
    return torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None else batch.mask
