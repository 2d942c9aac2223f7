"""Keys and values of tokens already read, so that a causal model goes on from them without reading them again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole

if TYPE_CHECKING:
    from sandtable.models.transformer import Transformer


@typed
class Cache:
    """Keys and values of every layer, one slot per position, each row as long as it is.

    A token at position i reads the slots 0 … i of its row, and what is written there replaces what was. So a row is
    rewound, by any amount, simply by going on from an earlier position; what lies beyond is never seen. Slots lie
    "row heads slot head" in memory: attention from a few tokens then reads them as they are, without a copy.
    """

    def __init__(self, model: Transformer, rows: int, capacity: int = 64) -> None:
        whole("rows", rows, least=0)
        self._most = model.longest
        capacity = whole("capacity", capacity) if self._most is None else min(whole("capacity", capacity), self._most)
        self.keys: list[Float[Tensor, "row heads slot key"]] = []
        self.values: list[Float[Tensor, "row heads slot head"]] = []
        with torch.inference_mode(False):  # made in inference mode, they could not be written outside it
            for block in model.layers:
                heads, _, width = block.attn.W_V.shape
                # Zeros: an unseen slot has weight 0, and 0 times whatever lay in memory may be NaN.
                self.keys.append(block.attn.W_V.detach().new_zeros(rows, heads, capacity, block.attn.key_width))
                self.values.append(block.attn.W_V.detach().new_zeros(rows, heads, capacity, width))

    @property
    def rows(self) -> int:
        return self.values[0].shape[0]

    @property
    def capacity(self) -> int:
        return self.values[0].shape[2]

    def grow(self, capacity: int) -> None:
        """Room for at least `capacity` slots. It doubles at least, so that growing slot by slot is cheap all in all."""
        if whole("capacity", capacity) <= self.capacity:
            return
        double = 2 * self.capacity if self._most is None else min(2 * self.capacity, self._most)
        capacity = max(capacity, double)

        def grown(old: Tensor) -> Tensor:
            new = old.new_zeros(*old.shape[:2], capacity, old.shape[3])
            new[:, :, : old.shape[2]] = old
            return new

        self._change(self, grown)

    def take(self, index: Int[Tensor, " row"]) -> Cache:
        """A new cache whose row i is a copy of row index[i]: to fork rows, to drop them, to change their order."""
        index = torch.as_tensor(index, device=self.values[0].device)
        if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise ArgumentError(f"index of shape {tuple(index.shape)}, {index.dtype}: must be a list of row numbers")
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < self.rows:
            raise ArgumentError(f"index from {int(index.min())} to {int(index.max())}: the cache has {self.rows} rows")
        other = copy.copy(self)
        self._change(other, lambda old: old.index_select(0, index))
        return other

    def _change(self, other: Cache, change: Callable[[Tensor], Tensor]) -> None:
        with torch.inference_mode(False), torch.no_grad():
            other.keys, other.values = [change(t) for t in self.keys], [change(t) for t in self.values]

    def put(
        self,
        layer: int,
        used: int,
        places: Int[Tensor, "row new"],
        keys: Float[Tensor, "row new heads key"],
        values: Float[Tensor, "row new heads head"],
    ) -> tuple[Float[Tensor, "row slot heads key"], Float[Tensor, "row slot heads head"]]:
        """Writes the new keys and values of a layer at their places; gives those in its first `used` slots."""
        rows = torch.arange(self.rows, device=places.device)[:, None]
        for buffer, new in ((self.keys[layer], keys), (self.values[layer], values)):
            buffer[rows, :, places] = new
        return self.keys[layer][:, :, :used].transpose(1, 2), self.values[layer][:, :, :used].transpose(1, 2)
