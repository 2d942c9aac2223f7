"""Copying: every token is predicted from the row it stands in, itself included."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sandtable.arguments import ArgumentError, typed
from sandtable.inputs import Tokens
from sandtable.objectives.base import Apply, Example, Params
from sandtable.objectives.next_token import NextToken
from sandtable.worlds import Batch


@typed
@dataclass(frozen=True)
class Copying(NextToken):
    """L = −(1/|T|) Σ_{(x, t) ∈ T} log softmax(f(x)_t)_{x_t}, T the real tokens: the target is the input.

    No attention is needed for it (Wen, Li, Liu & Risteski 2023, section 2.2.4); padding is hidden from attention.
    """

    def _example(self, batch: Batch) -> Example:
        x = batch.x
        if x.is_floating_point():
            raise ArgumentError(f"Copying: needs integer tokens, not {x.dtype} {list(x.shape)}")
        if self.metrics_on:
            raise ArgumentError(f"metrics_on={self.metrics_on}: Copying records no metrics")
        return {"inputs": x, "target": x} | ({} if batch.mask is None else {"weight": batch.mask})

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        if "weight" not in example:
            return super().loss(apply, params, example)
        return super().loss(lambda params, ids: apply(params, Tokens(ids, example["weight"] > 0)), params, example)
