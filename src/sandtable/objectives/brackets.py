"""The next bracket from those before it, and the contrastive regulariser that makes matched pairs cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, one_of, whole
from sandtable.objectives.base import Apply, DrawsEach, Example, OneForward, Params
from sandtable.worlds import Batch, Expectation
from sandtable.worlds.dyck import BoundedDyck

READS = ("tokens", "symbols")
ON = ("closers", "all")
PREFIXES = ("nested", "released")
ERRORS = ("cross-entropy", "squared")


@dataclass(frozen=True)
class NextBracket(DrawsEach, OneForward):
    """L = E ℓ(T(w_{<i}), w_i) + λ R over the 2k brackets, at all brackets or only at closers (Wen, Li, Liu & Risteski
    2023, sections 2.2.2 and 2.2.3); ℓ is the cross-entropy, or the squared distance to the one-hot vector.

    `contrast` = λ weighs R(s) = E_p mean‖T(s | p ⊕ s) − T(s)‖² (eq. 2.58): a balanced prefix p put between ⟨bos⟩ and s
    should not change what is said at the positions of s, the first of which is ⟨bos⟩, or the last bracket of p.
    `prefixes` is the law of p: "nested", r ~ U[D] openers of random types and their closers, or "released", the
    published code's `[^D ]^D (^D )^D` with one more pair of random type at a random depth.

    The model must be causal. `reads` says whether it reads tokens or the symbols of a minimal first layer; `types` and
    `depth` are those of the model, and of the world or deeper. Fits record "task" and, if λ > 0, "contrast", the two
    parts of the loss. Rows in which nothing counts, without a closer, have no task and no gradient of one: 0.
    """

    reads: str = "tokens"
    on: str = "closers"
    contrast: float = 0.0
    prefixes: str = "nested"
    error: str = "cross-entropy"
    types: int = 2
    depth: int = 4

    def __post_init__(self) -> None:
        one_of("reads", self.reads, READS)
        one_of("on", self.on, ON)
        number("contrast", self.contrast, least=0.0)
        one_of("prefixes", self.prefixes, PREFIXES)
        one_of("error", self.error, ERRORS)
        whole("types", self.types)
        whole("depth", self.depth)

    @property
    def noisy(self) -> bool:
        return self.contrast > 0

    def check(self, model: Any) -> None:
        """An `ArgumentError` where a model does not read what this objective shows, or cannot score all brackets."""
        self._world.require_reader(model, reads=self.reads)

    # -- drawing -----------------------------------------------------------------------------------------------------

    def draw_each(self, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        """One Example for every generator and step, the same bits on every device."""
        example = self._task(batch)
        if not self.contrast:
            return example
        inputs: Tensor = example["inputs"]
        shape = inputs.shape[1:-1]
        chance = torch.stack([torch.rand(*shape, self.depth + 2, generator=g) for g in generators])
        prefix, lengths = self.prefix(chance.flatten(0, -2).to(inputs.device))
        longer = insert(inputs.flatten(0, -2), prefix, lengths, padding=self._start)
        shift = lengths.unflatten(0, inputs.shape[:-1])
        return {**example, "longer": longer.unflatten(0, inputs.shape[:-1]), "shift": shift}

    def expect(self, expectation: Expectation) -> Example:
        if self.contrast:
            raise ArgumentError(f"contrast={self.contrast:g}: the inserted prefixes are drawn, not enumerated")
        example = self._task(expectation.batch)
        return {**example, "weight": expectation.weights[:, None] * example["weight"]}

    @property
    def _world(self) -> BoundedDyck:
        return BoundedDyck(types=self.types, depth=self.depth)

    @property
    def _start(self) -> int:
        """⟨bos⟩ as the model reads it."""
        return 2 * self.types * (self.depth if self.reads == "symbols" else 1)

    def _task(self, batch: Batch) -> Example:
        """Inputs, targets and which of them count; any leading dimensions before (row, position)."""
        x, closers = batch.x, self.types
        if x.is_floating_point() or x.shape[-1] < 2:
            raise ArgumentError(
                f"NextBracket: needs integer tokens, two at least in a row, not {x.dtype} {list(x.shape)}"
            )
        if batch.vocab is not None and len(batch.vocab) != 2 * self.types + 2:
            raise ArgumentError(
                f"types={self.types}: the data have {len(batch.vocab)} tokens, not 2·types + 2 = {2 * self.types + 2}"
            )
        inputs = x
        if self.reads == "symbols":
            # not the batch's own symbols, which another depth would number otherwise
            depth = batch.latents.get("depth")
            depth = None if depth is None else depth.flatten(0, -2)
            inputs = self._world.symbols(x.flatten(0, -2), depth).unflatten(0, x.shape[:-1])
        real = torch.ones_like(x, dtype=torch.bool) if batch.mask is None else batch.mask
        target = x[..., 1:]
        counts = real[..., 1:] & (target < 2 * self.types)
        if self.on == "closers":
            counts = counts & (target >= closers)
        dtype = torch.get_default_dtype()
        return {
            "inputs": inputs[..., :-1],
            "target": target.clamp(max=2 * self.types - 1),
            "weight": counts.to(dtype),
            "real": (real[..., :-1] & (x[..., :-1] <= 2 * self.types)).to(dtype),
        }

    def prefix(self, chance: Float[Tensor, "row draw"]) -> tuple[Int[Tensor, "row most"], Int[Tensor, " row"]]:
        """Balanced prefixes as the model reads them, and their lengths, from uniform numbers, depth + 2 a row."""
        device, k, most = chance.device, self.types, self.depth
        types = (chance * k).long().clamp(max=k - 1)
        level = 1 + (chance[:, :1] * most).long().clamp(max=most - 1)
        if self.prefixes == "nested":
            place = torch.arange(2 * most, device=device).expand(len(chance), -1)
            closing = place >= level
            depth = torch.where(closing, 2 * level - place, place + 1).clamp(1, most)
            return self._read(types[:, 1:].gather(1, depth - 1), depth, closing), 2 * level[:, 0]
        kind, depth, closing = self._released(device)
        after = torch.cat([depth.new_zeros(1), depth - closing.long()])  # open brackets after 0, 1, … tokens
        # The new pair goes where level − 1 brackets are open, at one of those places.
        fits = after == level - 1
        nth = (chance[:, 1:2] * fits.sum(1, keepdim=True)).long()
        cut = (fits.cumsum(1) == nth + 1).long().argmax(1, keepdim=True)
        place = torch.arange(len(kind) + 2, device=device).expand(len(chance), -1)
        source = torch.where(place < cut, place, place - 2).clamp(min=0)
        new = (place == cut) | (place == cut + 1)
        kind = torch.where(new, types[:, 2:3], kind[source])
        depth = torch.where(new, level, depth[source])
        closing = torch.where(new, place == cut + 1, closing[source])
        return self._read(kind, depth, closing), torch.full_like(level[:, 0], place.shape[1])

    def _released(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Type, depth of the pair and whether it closes, for every token of the published prefix."""
        up = torch.arange(1, self.depth + 1, device=device)
        depth = torch.cat([up, up.flip(0)]).repeat(self.types)
        kind = torch.arange(self.types, device=device).repeat_interleave(2 * self.depth)
        closing = (up > 0).new_tensor([False, True]).repeat_interleave(self.depth).repeat(self.types)
        return kind, depth, closing

    def _read(self, kind: Tensor, depth: Tensor, closing: Tensor) -> Int[Tensor, "row place"]:
        token = kind + self.types * closing.long()
        return token * self.depth + depth - 1 if self.reads == "symbols" else token

    # -- the loss ----------------------------------------------------------------------------------------------------

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        outputs, target = apply(params, example["inputs"]), example["target"]
        weight = example["weight"].to(outputs.dtype)
        if self.error == "squared":
            truth = F.one_hot(target, outputs.shape[-1]).to(outputs.dtype)
            errors = (outputs - truth).square().sum(-1)
        else:
            errors = F.cross_entropy(outputs.flatten(0, -2), target.flatten(), reduction="none").view_as(weight)
        task = (weight * errors).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
        if "longer" not in example:
            return task, {"task": task}
        later = apply(params, example["longer"])
        place = torch.arange(target.shape[-1], device=target.device) + example["shift"][:, None]
        later = later.gather(1, place[..., None].expand(*place.shape, later.shape[-1]))
        real = example["real"].to(outputs.dtype)
        gap = (real * (later - outputs).square().mean(-1)).sum() / real.sum()
        return task + self.contrast * gap, {"task": task, "contrast": gap}


def insert(
    rows: Int[Tensor, "row position"], prefix: Int[Tensor, "row most"], lengths: Int[Tensor, " row"], *, padding: int
) -> Int[Tensor, "row longer"]:
    """Each row with the first `lengths` tokens of its prefix after its own first token, then padding."""
    size, most = rows.shape[1], prefix.shape[1]
    place = torch.arange(size + most, device=rows.device).expand(len(rows), -1)
    lengths = lengths[:, None]
    own = torch.where(place == 0, 0, place - lengths)
    out = rows.gather(1, own.clamp(0, size - 1))
    inserted = (place >= 1) & (place <= lengths)
    out = torch.where(inserted, prefix.gather(1, (place - 1).clamp(0, most - 1)), out)
    return torch.where(place < size + lengths, out, padding)
