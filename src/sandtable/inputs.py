"""What a model reads: tokens in their places, counts of token types where order does not matter, pairs of texts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Tokens(NamedTuple):
    """Token ids; `mask` is false at positions that nobody may attend to (padding, hidden keys).

    With `start` the first token of each row stands there instead of at 0, as far as position vectors are concerned:
    what rotary positions and ALiBi see are differences, which stay the same.
    """

    ids: Int[Tensor, "batch position"]
    mask: Bool[Tensor, "batch position"] | None = None
    start: Int[Tensor, " batch"] | None = None


class Selected(NamedTuple):
    """Tokens in their places, and the positions `rows` of each document at which outputs are wanted.

    The last layer then pays attention from those positions only: what a loss does not read is not computed.
    """

    ids: Int[Tensor, "batch position"]
    mask: Bool[Tensor, "batch position"]
    rows: Int[Tensor, "batch row"]


class Bag(NamedTuple):
    """Documents as counts of token types, and the rows (document, visible token) at which outputs are wanted.

    Without positions, attention from a query depends on a document only through how often each type occurs:
    softmax over positions = softmax over types with log-counts added. Exact, and a row costs O(V) instead of O(N).
    """

    counts: Float[Tensor, "document vocab"]
    document: Int[Tensor, " row"]
    query: Int[Tensor, " row"]


class Documents(NamedTuple):
    """Documents as counts of token types, one row each: enough for attention that ignores the query."""

    counts: Float[Tensor, "document vocab"]


Inputs = Tensor | Tokens | Selected | Bag | Documents

PAD, EOS, MASK, LENGTH = range(4)
"""The first ids of every vocabulary for translation: padding (also the start of a text), its end, [MASK], [LENGTH]."""
NEVER_WRITTEN = (PAD, MASK, LENGTH)
"""What no target contains."""


def allowed(logits: Float[Tensor, "... vocab"]) -> Float[Tensor, "... vocab"]:
    """Logits of −∞ for what no target contains."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    never = torch.stack([ids == token for token in NEVER_WRITTEN]).any(0)
    return logits.masked_fill(never, -torch.inf)


RESERVED = 4
"""Ids from here on are words."""


class Pair(NamedTuple):
    """A source and what stands at the positions of its target; masks are false at padding."""

    source: Int[Tensor, "batch source"]
    seen: Bool[Tensor, "batch source"] | None
    target: Int[Tensor, "batch position"]
    real: Bool[Tensor, "batch position"] | None = None


class Encoded(NamedTuple):
    """A `Pair` whose source was read before: `memory` is what the encoder made of it."""

    memory: Float[Tensor, "batch source width"]
    seen: Bool[Tensor, "batch source"] | None
    target: Int[Tensor, "batch position"]
    real: Bool[Tensor, "batch position"] | None = None
