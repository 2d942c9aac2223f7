"""Sessions of Hugging Face models: with a cache that each row rewinds by its own amount, and without any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface.sight import Mask, Sight
from sandtable.decoding.cached import CachedSession
from sandtable.decoding.language_model import Hidden, Rows, Session

if TYPE_CHECKING:
    from sandtable.bridges.huggingface.language_model import HuggingFaceModel


_ALIGNED = 16


class HuggingFaceSession(CachedSession):
    """Rows whose keys and values stay in `Slots`.

    Where all rows go on from the same position the library builds the causal mask itself. Else each token gets a mask
    of its own; or with `steps`, for families that only take one mask for a whole row, one token is read at a time.
    """

    model: HuggingFaceModel

    def __init__(
        self,
        model: HuggingFaceModel,
        prompts: Sequence[Tensor],
        room: int,
        hidden: Hidden | None,
        sight: Sight,
        *,
        steps: bool = False,
    ) -> None:
        from sandtable.bridges.huggingface.slots import Slots

        super().__init__(model, prompts, room)
        self._cache = Slots(_aligned(self.tokens.shape[1]))
        self._wanted, self._sight, self._steps = hidden, sight, steps
        self._dtype, self._device = model.dtype, model.device

    def _read(
        self, ids: Int[Tensor, "line new"], positions: Tensor, at: Tensor, used: int
    ) -> tuple[Tensor, Tensor | None]:
        new = ids.shape[1]
        if used > self._sight.steady:
            raise ArgumentError(
                f"room: a row of {used} tokens, but from {self._sight.steady:.0f} on this model encodes positions anew "
                "and nothing can be kept; start the session with room for it"
            )
        if len(ids) == 1 or bool((positions == positions[:1]).all()):
            return self._run(ids, positions, at, used, used - new, None)
        if not self._steps:
            used = max(used, min(_aligned(used), self._cache.capacity))
            mask = self._sight.mask(positions.to(self._device), used, self._dtype)
            return self._run(ids, positions, at, used, None, mask)
        logits = hidden = None
        for step in range(new):
            here = positions[:, step : step + 1]
            mask = (torch.arange(used) <= here).long().to(self._device)
            said, state = self._run(ids[:, step : step + 1], here, torch.zeros_like(at), used, None, mask)
            last = (at == step)[:, None]
            logits = said if logits is None else said.where(last.to(said.device), logits)
            if state is not None:
                hidden = state if hidden is None else state.where(last.to(state.device), hidden)
        assert logits is not None
        return logits, hidden

    def _run(
        self,
        ids: Tensor,
        positions: Tensor,
        at: Tensor,
        used: int,
        first: int | None,
        mask: Mask | dict[str, Mask] | None,
    ) -> tuple[Tensor, Tensor | None]:
        ids, positions = torch.stack([ids, positions]).to(self._device)  # one copy for both
        self._cache.aim(positions, used, first)
        return self.model.run(
            ids,
            at,
            self._wanted,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
        )

    def _take_lines(self, lines: Int[Tensor, " line"]) -> None:
        self._cache = self._cache.take(lines)


def _aligned(slots: int) -> int:
    """So many slots, and a few that nobody sees: fused attention copies masks of other widths, in every layer."""
    return -(-slots // _ALIGNED) * _ALIGNED


class RecomputeSession(Session):
    """Rows that are read from their beginning every time, with nothing kept: exact for every causal model.

    What follows a token never changes what the model says at it, so rows are padded on the right; `by_length` reads
    rows of different lengths apart, for models to which the length of the batch matters.
    """

    model: HuggingFaceModel

    def __init__(
        self,
        model: HuggingFaceModel,
        prompts: Sequence[Tensor],
        room: int,
        hidden: Hidden | None,
        *,
        by_length: bool = False,
    ) -> None:
        super().__init__(model, prompts, room)
        self._wanted, self._by_length = hidden, by_length

    def _evaluate(self, need: Rows):
        index = need.nonzero()[:, 0]
        parts = [index]
        if self._by_length:
            parts = [index[self.lengths[index] == length] for length in self.lengths[index].unique().tolist()]
        logits = hidden = None
        for part in parts:
            lengths = self.lengths[part]
            ids = self.tokens[part, : int(lengths.max())].to(self.model.device)
            said, state = self.model.run(ids, lengths - 1, self._wanted, use_cache=False)
            logits = self._put(logits, part, said)
            hidden = None if state is None else self._put(hidden, part, state)
        assert logits is not None
        return logits, hidden

    def _put(self, values: Tensor | None, part: Tensor, new: Tensor) -> Tensor:
        if len(part) == len(self):
            return new
        values = new.new_zeros(len(self), new.shape[1]) if values is None else values
        return values.index_copy_(0, part.to(new.device), new)
