"""Masked prediction with any mask law: a block is hidden, and each of its positions is predicted on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.objectives.base import Example, OneForward
from sandtable.objectives.masked_lm import soft_loss
from sandtable.worlds import Batch, Expectation, MaskLaw


@dataclass(frozen=True)
class MaskedBlocks(OneForward):
    """L = E_x E_{K ~ p(· | x)} Σ_{i ∈ K} −log softmax(f(x with [MASK] on K)_i)_{x_i}.

    The model reads the token `mask` at hidden positions and scores `symbols` symbols at each. Its best loss is
    E_K Σ_{i ∈ K} H(x_i | x_−K), more than that of the joint conditional by the total correlation of x_K given x_−K.
    The loss of an exact expectation has one row for every x_−K that can be seen.
    """

    masks: MaskLaw
    mask: int
    symbols: int

    def __post_init__(self) -> None:
        if not isinstance(self.masks, MaskLaw):
            raise ArgumentError(f"masks={self.masks!r}: must be a mask law, such as UniformSize(positions, k)")
        whole("symbols", self.symbols, least=2)
        whole("mask", self.mask, least=0)

    def check(self, model: Any) -> None:
        """An `ArgumentError` where a model does not read the token `mask`, or scores another number of symbols."""
        size, outputs = getattr(model, "size", None), getattr(model, "outputs", None)
        if isinstance(size, int) and self.mask >= size:
            raise ArgumentError(f"mask={self.mask}: the model reads tokens from 0 to {size - 1}")
        if isinstance(outputs, int) and outputs != self.symbols:
            raise ArgumentError(f"symbols={self.symbols}: the model scores {outputs}; it needs outputs={self.symbols}")

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        x, hidden = batch.x, self.masks.hide(batch.x, generator)
        return self._example(x, hidden, torch.full((len(x),), 1 / len(x), dtype=torch.float64, device=x.device))

    def expect(self, expectation: Expectation) -> Example:
        x, chosen = expectation.batch.x, self.masks.probs(expectation.batch.x)
        weights = expectation.weights[:, None] * chosen
        state, block = (weights > 0).nonzero(as_tuple=True)
        example = self._example(x[state], self.masks.family[block], weights[state, block])
        inputs, row = example["inputs"].unique(dim=0, return_inverse=True)
        target = example["target"].new_zeros(len(inputs), *example["target"].shape[1:])
        return {"inputs": inputs, "target": target.index_add(0, row, example["target"])}

    def score(self, outputs: Any, example: Example) -> Tensor:
        if outputs.shape != example["target"].shape:
            wanted = f"{tuple(example['target'].shape)}, a score for every symbol at every position"
            raise ArgumentError(f"model: its outputs have the shape {tuple(outputs.shape)}; must be {wanted}")
        return soft_loss("cross-entropy", outputs.flatten(0, -2), example["target"].flatten(0, -2))

    def _example(
        self, x: Int[Tensor, "row position"], hidden: Bool[Tensor, "row position"], weight: Float[Tensor, " row"]
    ) -> dict[str, Tensor]:
        target = F.one_hot(x, self.symbols) * (hidden * weight[:, None])[..., None]
        return {"inputs": x.masked_fill(hidden, self.mask), "target": target}
