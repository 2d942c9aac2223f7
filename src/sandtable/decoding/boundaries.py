"""Where a block of tokens ends: after so many tokens, at certain tokens, or where a function says so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.driver import Call
from sandtable.decoding.language_model import LanguageModel
from sandtable.decoding.verifiers.base import View, view_of

Boundary = int | str | Collection[int] | Callable[[View], Any]
Ends = Callable[[Call, Int[Tensor, " row"], Bool[Tensor, " row"]], Bool[Tensor, " row"]]
"""(call, where the blocks of its rows start, the rows in question) → which of these rows end their block."""


def never(call: Call, starts: Tensor, rows: Tensor) -> Bool[Tensor, " row"]:
    """The whole string is one block."""
    return torch.zeros_like(rows)


def ends_of(boundary: Boundary, model: LanguageModel, min_tokens: int) -> Ends:
    """A boundary as a function of a call."""
    whole("min_tokens", min_tokens)
    if isinstance(boundary, str):
        boundary = _tokens_with(boundary, model)
    elif callable(boundary):
        return _where(boundary, min_tokens)
    elif not isinstance(boundary, Collection):
        return _after(whole("boundary", boundary))
    ids = sorted(whole("boundary", token, least=0, most=model.vocab_size - 1) for token in boundary)
    if not ids:
        raise ArgumentError("boundary=[]: must be a number of tokens, token ids, a text or a function of the view")
    return _at(torch.tensor(ids), min_tokens)


def _tokens_with(text: str, model: LanguageModel) -> list[int]:
    """All tokens whose text contains `text`: a newline is the end of many tokens of a real vocabulary."""
    found = [token for token in range(model.vocab_size) if text in model.decode([token])] if text else []
    if not found:
        raise ArgumentError(f"boundary={text!r}: no token of the model contains this text")
    return found


def _after(tokens: int) -> Ends:
    return lambda call, starts, rows: rows & (call.session.lengths - starts >= tokens)


def _at(ids: Int[Tensor, " id"], min_tokens: int) -> Ends:
    def ends(call: Call, starts: Tensor, rows: Tensor) -> Bool[Tensor, " row"]:
        session = call.session
        last = session.tokens.gather(1, (session.lengths - 1).clamp(min=0)[:, None])[:, 0]
        return rows & (session.lengths - starts >= min_tokens) & torch.isin(last, ids)

    return ends


def _where(function: Callable[[View], Any], min_tokens: int) -> Ends:
    def ends(call: Call, starts: Tensor, rows: Tensor) -> Bool[Tensor, " row"]:
        session, ended = call.session, torch.zeros_like(rows)
        index = (rows & (session.lengths - starts >= min_tokens)).nonzero()[:, 0]
        if len(index):
            said = torch.as_tensor(function(view_of(session, index, None))).cpu()
            if said.shape != index.shape:
                raise ArgumentError(
                    f"boundary returned shape {tuple(said.shape)}: must be one truth value a row, {tuple(index.shape)}"
                )
            ended[index] = said.bool()
        return ended

    return ends
