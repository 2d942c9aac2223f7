"""Running an automaton over many rows at once."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def run(
    table: Int[Tensor, "state token"], inputs: Int[Tensor, "*batch position"], start: Int[Tensor, "*batch"]
) -> Int[Tensor, "*batch position"]:
    """q_t = table[q_{t−1}, σ_t] along the last dimension: one gather over all rows for every position."""
    tokens, flat = table.shape[1], table.flatten()
    columns = inputs.reshape(-1, inputs.shape[-1]).T.contiguous().long()
    states = torch.empty_like(columns)
    state = start.reshape(-1)
    for column, out in zip(columns, states, strict=True):
        state = torch.index_select(flat, 0, state * tokens + column, out=out)
    return states.T.reshape(inputs.shape)
