"""Running an automaton over many rows at once."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

_PACKED = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers that hold so many states of one byte each."""
_MANY = 1 << 16
"""Tokens from which on tables of words, and blocks of rows, pay."""
_SIDE = 128
"""Runs side by side, rows times states, up to which blocks are faster than one long run."""
_ROWS = 8192
"""Rows that go through the tables together, so that they stay in cache."""


def run(
    table: Int[Tensor, "state token"], inputs: Int[Tensor, "*batch position"], start: Int[Tensor, "*batch"]
) -> Int[Tensor, "*batch position"]:
    """q_t = table[q_{t−1}, σ_t] along the last dimension.

    Few tokens: one gather over all rows for every position. Many: one gather for every two, four or eight positions,
    from a table of all words of that length. Few long rows are cut into blocks first.
    """
    if inputs.numel() == 0:
        return inputs.long()
    rows, first = inputs.reshape(-1, inputs.shape[-1]), start.reshape(-1)
    count, length = rows.shape
    if rows.numel() < _MANY:
        states = _by_token(table, rows, first)
    elif count * table.shape[0] < min(length, _SIDE):
        states = _by_blocks(table, rows, first)
    else:
        width = next((w for w in _PACKED if table.shape[0] * table.shape[1] ** w <= _MANY and len(table) <= 256), 1)
        states = _by_token(table, rows, first) if width == 1 else _by_words(table, rows, first, width)
    return states.reshape(inputs.shape)


def _by_token(
    table: Int[Tensor, "state token"], rows: Int[Tensor, "row position"], state: Int[Tensor, " row"]
) -> Int[Tensor, "row position"]:
    tokens, flat = table.shape[1], table.flatten()
    found = torch.empty_like(rows, dtype=torch.long)
    for first in range(0, len(rows), _ROWS):
        columns = rows[first : first + _ROWS].T.to(torch.long, copy=True)
        states, now = torch.empty_like(columns), state[first : first + _ROWS]
        for column, out in zip(columns, states, strict=True):
            now = torch.index_select(flat, 0, column.add_(now, alpha=tokens), out=out)
        found[first : first + _ROWS] = states.T
    return found


def _by_words(
    table: Int[Tensor, "state token"], rows: Int[Tensor, "row position"], state: Int[Tensor, " row"], width: int
) -> Int[Tensor, "row position"]:
    """`width` positions at a time: a word's number and a state give all states on the way, packed in one integer."""
    tokens, device = table.shape[1], rows.device
    words, blocks = tokens**width, -(-rows.shape[1] // width)
    place = tokens ** torch.arange(width - 1, -1, -1, device=device)
    spelled = torch.arange(words, device=device)[:, None] // place % tokens
    begin = torch.arange(len(table), device=device).repeat_interleave(words)
    through = _by_token(table, spelled.repeat(len(table), 1), begin)
    packed = through.to(torch.uint8).contiguous().view(_PACKED[width]).flatten()
    after = through[:, -1] * words
    states = torch.empty(len(rows), blocks * width, dtype=torch.long, device=device)
    padded = torch.zeros(min(len(rows), _ROWS), blocks * width, device=device)  # floats are exact to 2²⁴
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        padded[: len(part), : rows.shape[1]] = part
        numbers = (padded[: len(part)].view(-1, width) @ place.float()).long().view(-1, blocks).T.contiguous()
        found = torch.empty(blocks, len(part), dtype=packed.dtype, device=device)
        now = state[first : first + _ROWS] * words
        for number, out in zip(numbers, found, strict=True):
            index = now + number
            torch.index_select(packed, 0, index, out=out)
            now = after[index]
        states[first : first + _ROWS] = found.T.contiguous().view(torch.uint8)
    return states[:, : rows.shape[1]]


def _by_blocks(
    table: Int[Tensor, "state token"], rows: Int[Tensor, "row position"], state: Int[Tensor, " row"]
) -> Int[Tensor, "row position"]:
    """Long rows cut into blocks: each from every state side by side, then the right ones chosen, block after block."""
    count, length = rows.shape
    size = int(length**0.5)
    blocks = -(-length // size)
    padded = torch.nn.functional.pad(rows, (0, blocks * size - length)).view(count, blocks, 1, size)
    begin = torch.arange(len(table), device=rows.device)
    shape = (count, blocks, len(table))
    every = run(table, padded.expand(*shape, size), begin.expand(shape))
    ends, chosen = every[..., -1], []
    for block in range(blocks):
        chosen.append(state)
        state = ends[:, block].gather(1, state[:, None])[:, 0]
    which = torch.stack(chosen, dim=1)[..., None, None].expand(count, blocks, 1, size)
    return every.gather(2, which).reshape(count, -1)[:, :length]
