"""The loss of trained models on fresh data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map

from sandtable.arguments import resolve_device, typed, whole
from sandtable.models import Stack
from sandtable.objectives import Example, Objective, Params
from sandtable.training.streams import Source, Supply, stream
from sandtable.worlds import Batch


@typed
def evaluate(
    models: Stack,
    source: Source,
    objective: Objective,
    *,
    batches: int = 50,
    batch_size: int = 40,
    seed: int = 0,
    device: str = "cpu",
) -> Float[Tensor, " models"]:
    """Mean loss of every model over the same `batches` fresh batches.

    A fixed `Batch` is used whole each time, with fresh noise; an exact expectation gives the expected loss.
    """
    device = resolve_device(device)
    supply = Supply(source, objective, None if isinstance(source, Batch) else whole("batch_size", batch_size))
    params = {name: value.to(device) for name, value in models.params.items()}
    dtype = next(iter(params.values())).dtype
    template = copy.deepcopy(models.template).to(device, dtype)

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)

    def one(params: Params, example: Example) -> Tensor:
        def apply(params: Params, inputs: Any, want: Sequence[str] = ()) -> Any:
            return functional_call(template, dict(params), (inputs,), {"want": want} if want else {})

        return objective.loss(apply, params, example)[0]

    with torch.no_grad():
        if supply.constant:
            return vmap(one, in_dims=(0, None))(params, tree_map(place, supply.example())).cpu()
        drawn = supply.draw(0, whole("batches", batches), stream("evaluation", seed), stream("evaluation-noise", seed))
        total = torch.zeros(len(models), dtype=torch.float64)
        for b in range(batches):
            example = tree_map(lambda t, b=b: place(t[b]), drawn)
            total += vmap(one, in_dims=(0, None))(params, example).double().cpu()
    return total / batches
