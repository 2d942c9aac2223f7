"""Running an automaton over many rows at once."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

_PACKED = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers that hold so many states of one byte each."""
_MANY = 1 << 16
"""Tokens from which on tables of words pay, and most entries of such a table."""
_FEW = 36
"""Rows up to which a loop over words in Python is faster than a gather over rows for every word."""
_ROWS = 8192
"""Rows that go through the tables together, so that they stay in cache."""


def run(
    table: Int[Tensor, "state token"], inputs: Int[Tensor, "*batch position"], start: Int[Tensor, "*batch"]
) -> Int[Tensor, "*batch position"]:
    """q_t = table[q_{t−1}, σ_t] along the last dimension.

    Few tokens: one gather over all rows for every position. Many: one gather for every two, four or eight positions,
    from a table of all words of that length; and where rows are few, only the states between words one by one.
    """
    if inputs.numel() == 0:
        return inputs.long()
    rows, first = inputs.reshape(-1, inputs.shape[-1]), start.reshape(-1)
    width = next((w for w in _PACKED if table.shape[0] * table.shape[1] ** w <= _MANY and len(table) <= 256), 1)
    if rows.numel() < _MANY:
        states = _by_token(table, rows, first)
    elif len(rows) <= _FEW:
        states = _one_by_one(table, rows, first, width)
    else:
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
    device, words, blocks = rows.device, table.shape[1] ** width, -(-rows.shape[1] // width)
    through, place = _words(table, width)
    packed = through.to(torch.uint8).view(_PACKED[width]).flatten()
    after = through[:, -1] * words
    states = torch.empty(len(rows), blocks * width, dtype=torch.long, device=device)
    padded = torch.zeros(min(len(rows), _ROWS), blocks * width, device=device)
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS]
        padded[: len(part), : rows.shape[1]] = part
        numbers = _numbers(padded[: len(part)], place).T.contiguous()
        found = torch.empty(blocks, len(part), dtype=packed.dtype, device=device)
        now = state[first : first + _ROWS] * words
        for number, out in zip(numbers, found, strict=True):
            index = now + number
            torch.index_select(packed, 0, index, out=out)
            now = after[index]
        # A clone, as a single block counts as contiguous however far apart its numbers lie.
        states[first : first + _ROWS] = found.T.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return states[:, : rows.shape[1]]


def _one_by_one(
    table: Int[Tensor, "state token"], rows: Int[Tensor, "row position"], state: Int[Tensor, " row"], width: int
) -> Int[Tensor, "row position"]:
    """Words numbered all at once, the states before them found word by word in Python, those inside all at once."""
    through, place = _words(table, width)
    words = table.shape[1] ** width
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % width))
    numbers = _numbers(padded.float(), place)
    after, before = through[:, -1].view(-1, words).tolist(), []
    for row, q in zip(numbers.tolist(), state.tolist(), strict=True):
        for number in row:
            before.append(q)
            q = after[q][number]
    index = torch.tensor(before, device=rows.device).view_as(numbers) * words + numbers
    return through[index].flatten(1)[:, : rows.shape[1]]


def _numbers(rows: Float[Tensor, "row position"], place: Int[Tensor, " place"]) -> Int[Tensor, "row word"]:
    """Words as numbers, by a product of floats: it is the fastest way, and they are exact up to 2²⁴."""
    return (rows.view(-1, len(place)) @ place.float()).long().view(len(rows), -1)


def _words(
    table: Int[Tensor, "state token"], width: int
) -> tuple[Int[Tensor, "state_and_word position"], Int[Tensor, " position"]]:
    """The states inside and after all words of that length, row |Σ|^width·q + word, and what a position counts in a
    word's number."""
    tokens, device = table.shape[1], table.device
    place = tokens ** torch.arange(width - 1, -1, -1, device=device)
    spelled = torch.arange(tokens**width, device=device)[:, None] // place % tokens
    begin = torch.arange(len(table), device=device).repeat_interleave(len(spelled))
    return _by_token(table, spelled.repeat(len(table), 1), begin).contiguous(), place
