"""Causal language modelling: every token is predicted from those before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.objectives.base import Apply, Example, Noiseless, OneForward, Params
from sandtable.worlds import Batch, Expectation


@typed
@dataclass(frozen=True)
class NextToken(Noiseless, OneForward):
    """L = −(1/|T|) Σ_{(x, t) ∈ T} log softmax(f(x_{<t}))_{x_t}, T the real tokens but the first of each row.

    The model must be causal, and rows padded on the right: then no real token sees the padding. With `metrics_on`, ids
    of tokens, fits also record "accuracy": how often the likeliest token is the true one where that is one of them
    (NaN in a batch without any). An exact expectation weighs the tokens of a sequence by its probability.
    """

    metrics_on: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics_on", tuple(whole("metrics_on", i, least=0) for i in self.metrics_on))

    def expect(self, expectation: Expectation) -> Example:
        example = dict(self._example(expectation.batch))
        weight = expectation.weights[:, None].expand(example["target"].shape)
        return {**example, "weight": weight * example["weight"] if "weight" in example else weight}

    def _example(self, batch: Batch) -> Example:
        """The same for every number of leading dimensions before (row, position)."""
        x = batch.x
        if x.is_floating_point() or x.shape[-1] < 2:
            raise ArgumentError(
                f"NextToken: needs integer tokens, two at least in a row, not {x.dtype} {list(x.shape)}"
            )
        example = {"inputs": x[..., :-1], "target": x[..., 1:]}
        if batch.mask is not None:
            example["weight"] = batch.mask[..., 1:]
            if not bool(example["weight"].flatten(-2).any(-1).all()):
                raise ArgumentError("NextToken: a batch of rows with a single token has nothing to predict")
        if self.metrics_on:
            on = torch.isin(example["target"], torch.tensor(self.metrics_on, device=x.device))
            example["on"] = on & example["weight"] if "weight" in example else on
        return example

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        logits, target = apply(params, example["inputs"]), example["target"]
        errors = F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none")
        weight = example["weight"].flatten().to(errors.dtype) if "weight" in example else torch.ones_like(errors)
        loss = (weight * errors).sum() / weight.sum()
        if "on" not in example:
            return loss, {}
        on = weight * example["on"].flatten()
        right = (logits.argmax(-1) == target).flatten()
        return loss, {"accuracy": (on * right).sum() / on.sum()}
