"""What an objective is: draw all randomness first, then a pure loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from sandtable.worlds import Batch, Expectation

Example = Mapping[str, Any]
"""Everything a loss needs besides the parameters: a dictionary of tensors, or of tuples and dictionaries of them."""

Apply = Callable[..., Any]
"""`apply(params, inputs, want=())`: one forward pass; with `want` it also returns the named activations."""

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
