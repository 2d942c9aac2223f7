"""What a decoder of translations returns, and which tokens it may write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.draws import as_generator
from sandtable.inputs import EOS, PAD, allowed
from sandtable.models import Seq2Seq


@dataclass(frozen=True)
class Translated:
    """Targets up to their first ⟨eos⟩, then padding, and what they cost, row by row.

    `lengths` count the ⟨eos⟩; a target that has none was ended as it stood. `encoder_passes` and `decoder_passes` count
    how often each side of the network was run on a row; hypotheses of one row that are decoded together count once.
    `score` is the log-probability that ranked the hypotheses. `trace`, where it was asked for, holds X^(0), X^(1), … of
    the chosen hypothesis before anything was cut off or deleted; a row that has stopped stays as it is.
    """

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    score: Float[Tensor, " row"]
    encoder_passes: Int[Tensor, " row"]
    decoder_passes: Int[Tensor, " row"]
    trace: tuple[Int[Tensor, "row position"], ...] = ()

    @property
    def mask(self) -> Bool[Tensor, "row position"]:
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    @staticmethod
    def join(parts: Sequence[Translated]) -> Translated:
        """All rows of several."""
        width = max(part.tokens.shape[1] for part in parts)
        wide = lambda t: F.pad(t, (0, width - t.shape[1]), value=PAD)  # noqa: E731
        rest = {
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("lengths", "score", "encoder_passes", "decoder_passes")
        }
        trace = tuple(torch.cat([wide(x) for x in step]) for step in zip(*(part.trace for part in parts), strict=True))
        return Translated(tokens=torch.cat([wide(part.tokens) for part in parts]), trace=trace, **rest)


def translate(
    decode: Callable[..., Translated],
    model: Seq2Seq,
    source: Int[Tensor, "row source"],
    *,
    seen: Bool[Tensor, "row source"] | None = None,
    lengths: Int[Tensor, " row"] | None = None,
    batch_size: int = 256,
    **options,
) -> Translated:
    """`decode(model, …)` on any number of sources, `batch_size` at a time."""
    if options.get("generator") is not None:
        options["generator"] = as_generator(options["generator"])  # a seed would give every batch the same noise
    parts = []
    for first in range(0, len(source), whole("batch_size", batch_size)):
        rows = slice(first, first + batch_size)
        own = {} if lengths is None else {"lengths": lengths[rows]}
        parts.append(decode(model, source[rows], seen=None if seen is None else seen[rows], **own, **options))
    if not parts:
        raise ArgumentError("source: there is nothing to translate")
    return Translated.join(parts)


def log_probs(logits: Float[Tensor, "... vocab"]) -> Float[Tensor, "... vocab"]:
    """log softmax over the tokens that a target may contain."""
    return allowed(logits).log_softmax(-1)


def checked(
    model: Seq2Seq, source: Int[Tensor, "row source"], seen: Tensor | None, *, causal: bool
) -> Bool[Tensor, "row source"] | None:
    """The mask of the source, or an `ArgumentError` where source and model do not go together."""
    if not isinstance(model, Seq2Seq) or model.causal is not causal:
        raise ArgumentError(f"model of {type(model).__name__}: this decoder needs a Seq2Seq with causal={causal}")
    if source.ndim != 2 or source.is_floating_point() or not source.numel():
        raise ArgumentError(f"source of shape {tuple(source.shape)}, {source.dtype}: must be ids, row × position")
    least, most = (int(edge) for edge in source.aminmax())
    if not 0 <= least <= most < model.size:
        raise ArgumentError(f"source from {least} to {most}: must be ids from 0 to {model.size - 1}")
    if seen is None:
        return None
    if seen.shape != source.shape or seen.dtype != torch.bool:
        raise ArgumentError(
            f"seen of shape {tuple(seen.shape)}, {seen.dtype}: must be booleans of the shape {tuple(source.shape)}"
        )
    if not bool(seen.any(1).all()):
        raise ArgumentError("seen: every source needs at least one token")
    return seen


def given_lengths(
    model: Seq2Seq, source: Int[Tensor, "row source"], lengths: Int[Tensor, " row"]
) -> Int[Tensor, " row"]:
    """An oracle's target lengths, ⟨eos⟩ included, where the sources are."""
    most = model.config["longest_target"]
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ArgumentError(f"lengths of {lengths.dtype}: must be whole numbers")
    if lengths.shape != (len(source),) or not 1 <= int(lengths.min()) <= int(lengths.max()) <= most:
        raise ArgumentError(f"lengths of shape {tuple(lengths.shape)}: must be one from 1 to {most} for every row")
    return lengths.to(source.device)


def ended(tokens: Int[Tensor, "row position"]) -> Int[Tensor, " row"]:
    """Tokens up to the first ⟨eos⟩, which counts; all of them where there is none."""
    stop = tokens == EOS
    first = stop.long().argmax(1) + 1
    return torch.where(stop.any(1), first, tokens.shape[1])
