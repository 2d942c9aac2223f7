"""Keys and values of a Hugging Face model, one slot per position and row, so that rewinding costs nothing."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

States = Float[Tensor, "row heads some head"]


class Slots(Cache):
    """A cache that writes a token at position i into slot i of its row, over whatever was there.

    Call `aim` before the model runs. Layers are made when the model first writes to them.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(layer_class_to_replicate=self._layer)  # pyright: ignore[reportArgumentType]
        self.capacity = capacity
        self.used = self.new = 0
        self.first: int | None = 0
        self._positions: Int[Tensor, "row new"] | None = None
        self._flat: dict[tuple[int, torch.device], Int[Tensor, " place"]] = {}

    def _layer(self) -> SlotLayer:
        return SlotLayer(self)

    def aim(self, positions: Int[Tensor, "row new"], used: int, first: int | None) -> None:
        """Where the coming tokens belong: at `first` onwards in every row, or each row at its `positions`.

        The model will be shown the first `used` slots.
        """
        self.used, self.new, self.first = used, positions.shape[1], first
        self._positions = positions
        self._flat = {}
        if used > self.capacity:
            self.capacity = max(used, 2 * self.capacity)
            for layer in self.layers:
                layer.grow(self.capacity)  # pyright: ignore[reportAttributeAccessIssue]

    def places(self, heads: int, device: torch.device) -> Int[Tensor, " place"]:
        """Places of the coming tokens in a buffer "row heads slot" that is read as one line; the same in all layers."""
        key = (heads, device)
        if key not in self._flat:
            assert self._positions is not None
            positions = self._positions.to(device)
            lines = torch.arange(len(positions) * heads, device=device).view(-1, heads, 1) * self.capacity
            self._flat[key] = (lines + positions[:, None]).flatten()
        return self._flat[key]

    def take(self, lines: Int[Tensor, " line"]) -> Slots:
        """A new cache whose row i is a copy of row lines[i]."""
        other = Slots(self.capacity)
        other.layers = [layer.take(other, lines) for layer in self.layers]  # pyright: ignore
        return other


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, "row heads slot head"."""

    is_sliding = False

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: States, value_states: States) -> None:
        self.keys, self.values = self._room(key_states), self._room(value_states)
        self.is_initialized = True

    def _room(self, like: States) -> States:
        with torch.inference_mode(False):  # made in inference mode, they could not be written outside it
            # Zeros: an unseen slot has weight 0, and 0 times whatever lay in memory may be NaN.
            return like.new_zeros(*like.shape[:2], self.slots.capacity, like.shape[3])

    def grow(self, capacity: int) -> None:
        if self.is_initialized:
            old = self.keys, self.values
            self.lazy_initialization(*old)  # pyright: ignore[reportArgumentType]
            for new, before in zip((self.keys, self.values), old, strict=True):
                new[:, :, : before.shape[2]] = before  # pyright: ignore

    def update(self, key_states: States, value_states: States, *args, **kwargs) -> tuple[States, States]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        slots, keys, values = self.slots, self.keys, self.values
        assert keys is not None
        assert values is not None
        for buffer, new in ((keys, key_states), (values, value_states)):
            if slots.first is not None:
                buffer.narrow(2, slots.first, slots.new).copy_(new)
            else:
                places = slots.places(buffer.shape[1], buffer.device)
                buffer.view(-1, buffer.shape[3]).index_copy_(0, places, new.reshape(-1, buffer.shape[3]))
        return keys.narrow(2, 0, slots.used), values.narrow(2, 0, slots.used)

    def take(self, slots: Slots, lines: Int[Tensor, " line"]) -> SlotLayer:
        other = SlotLayer(slots)
        if self.is_initialized:
            assert self.keys is not None
            assert self.values is not None
            with torch.inference_mode(False), torch.no_grad():
                lines = lines.to(self.keys.device)
                other.keys, other.values = self.keys.index_select(0, lines), self.values.index_select(0, lines)
            other.is_initialized = True
        return other

    # What the library asks when it builds a causal mask itself: all rows then go on from the same position.

    def get_seq_length(self) -> int:
        return self.slots.used - self.slots.new

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots.used, 0

    def get_max_length(self) -> int:
        return -1
