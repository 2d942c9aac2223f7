"""What an objective is: draw all randomness first, then a pure loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sandtable.worlds import Batch, Expectation

Example = Mapping[str, Any]
"""Everything a loss needs besides the parameters: a dictionary of tensors, or of tuples and dictionaries of them."""

Apply = Callable[..., Any]
"""`apply(params, inputs, want=(), edits=None)`: one forward pass; with `want` it also returns the named activations.

`edits` replace activations on their way, see `Transformer.forward`."""

Params = Mapping[str, Tensor]


class Objective(Protocol):
    """`draw` holds all randomness (masks, noise, inserted prefixes); `loss` is pure and vectorises over models.

    Optional methods: `draw_block(batch, generator, steps)` draws many steps at once from a batch with leading
    dimensions (step, item), `draw_each(batch, generators, steps)` those of many models, on the device of the batch;
    `expect(expectation)` gives the Example of an exact expectation; `check(model)` refuses a model that does not fit.
    `noisy = False` says that `draw` is not random.
    """

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example: ...

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]: ...


class Noiseless:
    """Nothing is drawn: the same `_example(batch)` for every number of leading dimensions before (row, position)."""

    noisy = False

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        return self._example(batch)

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        return self._example(batch)

    def draw_each(self, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        return self._example(batch)

    def _example(self, batch: Batch) -> Example:
        raise NotImplementedError("say what the loss needs of a batch")


class DrawsEach:
    """Draws for many models and steps at once, `draw_each`; one model and one step are a special case."""

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        block = self.draw_block(batch.fold(1), generator, range(step, step + 1))
        return tree_map(lambda tensor: tensor[0], block)

    def draw_block(self, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        """One Example for every step; `batch` has leading dimensions (step, row)."""
        block = self.draw_each(batch.map(lambda tensor: tensor[None]), [generator], steps)
        return tree_map(lambda tensor: tensor[0], block)

    def draw_each(self, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        """One Example for every generator and step; `batch` has leading dimensions (generator, step, row)."""
        raise NotImplementedError("draw for every generator and step")


class OneForward:
    """The common case: one forward pass on `example["inputs"]`, then `score(outputs, example)`.

    By default the inputs are the batch itself, and an exact expectation hands its weights over as `example["weights"]`.
    """

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        return {"inputs": batch.x}

    def expect(self, expectation: Expectation) -> Example:
        return {"inputs": expectation.batch.x, "weights": expectation.weights}

    def score(self, outputs: Any, example: Example) -> Tensor:
        raise NotImplementedError("say what the outputs are worth")

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        return self.score(apply(params, example["inputs"]), example), {}
