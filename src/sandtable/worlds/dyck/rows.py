"""Rows of tokens as they are passed in: a batch or a tensor, whole or up to a length of their own."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, shown
from sandtable.worlds.base import Batch


def tokens_of(tokens: Any) -> Int[Tensor, "batch position"]:
    """`tokens` if they are rows of token ids."""
    if not isinstance(tokens, Tensor):
        raise ArgumentError(
            f"tokens={shown(tokens)}: must be a tensor, batch × position token ids; `prefix` of a world reads text"
        )
    if tokens.ndim != 2 or tokens.is_floating_point():
        raise ArgumentError(
            f"tokens of shape {tuple(tokens.shape)}, {tokens.dtype}: must be batch × position token ids"
        )
    return tokens


def rows_of(batch: Batch | Tensor) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"]]:
    """The tokens, and which of them count."""
    x = tokens_of(batch.x if isinstance(batch, Batch) else batch)
    mask = batch.mask if isinstance(batch, Batch) else None
    return x, torch.ones_like(x, dtype=torch.bool) if mask is None else mask


def lengths_of(tokens: Tensor, lengths: Tensor | None) -> Int[Tensor, " batch"]:
    """How many tokens of each row count: all, unless `lengths` says otherwise."""
    tokens_of(tokens)
    if lengths is None:
        return torch.full((len(tokens),), tokens.shape[1], dtype=torch.long, device=tokens.device)
    if lengths.shape != tokens.shape[:1] or bool((lengths < 0).any()) or bool((lengths > tokens.shape[1]).any()):
        raise ArgumentError(f"lengths={lengths.tolist()}: must be {len(tokens)} numbers from 0 to {tokens.shape[1]}")
    return lengths
