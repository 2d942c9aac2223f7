"""Decoding's first protocol: a model that continues token rows, each row extended and rewound at its own pace."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy as shallow
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, shown, typed, whole

Prompts = Sequence[Any] | Tensor
Rows = Bool[Tensor, " row"]
PAD = 0


@dataclass(frozen=True)
class Hidden:
    """Which hidden state of the last token: `layer` 0 is the embedding, `layer` L the last block's output.

    `normed` asks for it after the model's final norm, which only the last layer goes through.
    """

    layer: int
    normed: bool = False

    def __post_init__(self) -> None:
        whole("layer", self.layer, least=0)


@runtime_checkable
class LanguageModel(Protocol):
    """What decoders need: a next-token law for any prefix. `longest` bounds prompt and continuation together: rows end
    there, also before `max_tokens`.

    A row ends with `eos`, or with any token of `other_ends`, if the model has such a tuple.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos(self) -> int | None: ...

    @property
    def longest(self) -> int | None: ...

    @property
    def device(self) -> torch.device: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def start(self, prompts: Prompts, *, room: int, hidden: Hidden | None = None) -> Session:
        """A session on `prompts` (token ids, or texts where the model has a tokenizer) with `room` for new tokens."""
        ...


@typed
class Session:
    """Rows of tokens under one model, each as long as it is.

    `append` and `rewind` only move the ends of rows; the model is asked when `logits` or `hidden` are, and then only
    about what it has not seen. A subclass gives `_evaluate` and, where it keeps a cache, `_forget`, `_take`, `_retire`.

    - `tokens[r, :lengths[r]]` is row r, of which `prompts[r]` tokens are its prompt;
    - `forwards[r]` counts how often the model was asked about row r, `passes` the batched calls.

    All of these, and whatever decoders make of them, are on the CPU: a step has dozens of small operations on numbers
    a row, each of which would cost a GPU more than the CPU, and many of which somebody has to wait for. Only logits and
    hidden states stay where the model is.
    """

    def __init__(self, model: LanguageModel, prompts: Sequence[Int[Tensor, " position"]], room: int) -> None:
        self.model = model
        sizes = [len(prompt) for prompt in prompts]
        self.prompts = torch.tensor(sizes)
        self.lengths = self.prompts.clone()
        self._reach = max(sizes)
        self.tokens = torch.full((len(prompts), self._reach + max(1, room)), PAD, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self.tokens[row, : len(prompt)] = prompt
        self.forwards = torch.zeros_like(self.lengths)
        self.passes = 0
        self._stale = torch.ones(len(prompts), dtype=torch.bool)
        self._logits: Tensor | None = None
        self._hidden: Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    # -- what the model says -----------------------------------------------------------------------------------------

    def logits(self, rows: Rows | None = None) -> Float[Tensor, "row vocab"]:
        """Next-token logits at the end of every row; outside `rows` they may be out of date."""
        self._refresh(rows)
        assert self._logits is not None
        return self._logits

    def hidden(self, rows: Rows | None = None) -> Float[Tensor, "row width"]:
        """The hidden state, asked for in `start`, of the last token of every row; no further forward pass."""
        self._refresh(rows)
        if self._hidden is None:
            raise ArgumentError("hidden: this session was started without hidden=Hidden(layer, normed)")
        return self._hidden

    def _refresh(self, rows: Rows | None) -> None:
        need = self._stale if rows is None else self._stale & rows
        if bool(need.any()):
            logits, hidden = self._evaluate(need)
            self.forwards += need
            self.passes += 1
            self._stale = self._stale & ~need
            if not bool(need.all()):  # rows that were not asked about keep what they had
                logits = _kept(logits, need, self._logits)
                hidden = None if hidden is None else _kept(hidden, need, self._hidden)
            self._logits, self._hidden = logits, hidden

    def _evaluate(self, need: Rows) -> tuple[Float[Tensor, "row vocab"], Float[Tensor, "row width"] | None]:
        """Logits (and hidden states) at the ends of the rows in `need`; other rows of the result are not read."""
        raise NotImplementedError("a subclass asks its model")

    # -- moving the ends of rows -------------------------------------------------------------------------------------

    def append(self, tokens: Int[Tensor, " row"], rows: Rows | None = None) -> None:
        """Add one token to every row, or to `rows`."""
        rows = torch.ones_like(self._stale) if rows is None else rows
        if self._reach == self.tokens.shape[1]:
            self._reach = int(self.lengths.max())  # a bound until now: rewinding may have left room
            if self._reach == self.tokens.shape[1]:
                self.tokens = torch.cat([self.tokens, torch.full_like(self.tokens, PAD)], dim=1)
        self._reach += 1
        index = self.lengths.clamp(max=self.tokens.shape[1] - 1)[:, None]
        kept = self.tokens.gather(1, index)
        self.tokens.scatter_(1, index, tokens[:, None].where(rows[:, None], kept))
        self.lengths = self.lengths + rows
        self._stale = self._stale | rows

    def rewind(self, amounts: Int[Tensor, " row"]) -> None:
        """Erase the last `amounts[r]` tokens of row r; what the model computed for the rest is kept.

        Where this cuts into a prompt, what is left of it is the row's prompt from then on.
        """
        if bool((amounts < 0).any()) or bool((amounts > self.lengths).any()):
            raise ArgumentError(
                f"amounts={amounts.tolist()}: a row of length {self.lengths.tolist()} can lose 0 to all its tokens"
            )
        self.lengths = self.lengths - amounts
        self.prompts = self.prompts.minimum(self.lengths)
        self._stale = self._stale | (amounts > 0)
        self._forget(amounts)

    def fork(self, index: Int[Tensor, " row"]) -> Session:
        """A session whose row i is a copy of row `index[i]`, with counters at zero."""
        copy = shallow(self)
        for name in ("tokens", "lengths", "prompts", "_stale", "_logits", "_hidden"):
            value = getattr(self, name)
            setattr(copy, name, None if value is None else value[index.to(value.device)])
        copy.forwards, copy.passes = torch.zeros_like(copy.lengths), 0
        copy._take(index)
        return copy

    def retire(self, rows: Rows) -> None:
        """Promise never to ask about `rows` again: a session with a cache may let go of theirs."""

    def row(self, index: int) -> list[int]:
        """Row `index` as a list of tokens."""
        return self.tokens[index, : int(self.lengths[index])].tolist()

    def _forget(self, amounts: Int[Tensor, " row"]) -> None:
        """Rows lost their last tokens: for sessions that keep a cache."""

    def _take(self, index: Int[Tensor, " row"]) -> None:
        """This session became a copy with rows `index`: for sessions that keep a cache."""


def _kept(new: Float[Tensor, "row some"], rows: Rows, old: Tensor | None) -> Float[Tensor, "row some"]:
    """What is new in `rows`, and what there was elsewhere."""
    return new if old is None else new.where(rows[:, None].to(new.device), old)


def read_prompts(model: Any, prompts: Prompts, *, empty: bool) -> list[Int[Tensor, " position"]]:
    """Prompts as rows of token ids: one clear line for what cannot be a prompt of `model`.

    `empty` says whether a row without tokens is allowed: a law can start from nothing, a network cannot.
    """
    if isinstance(prompts, str):
        prompts = [prompts]
    if isinstance(prompts, Tensor):
        if prompts.ndim != 2 or prompts.is_floating_point():
            raise ArgumentError(f"prompts of shape {tuple(prompts.shape)}, {prompts.dtype}: must be row × position ids")
    elif len(prompts) and isinstance(prompts[0], int):
        raise ArgumentError(f"prompts={list(prompts)!r}: must be a list of rows, each a list of token ids or a text")
    if len(prompts) == 0:
        raise ArgumentError("prompts=[]: must hold at least one prompt")
    rows = []
    for number, prompt in enumerate(prompts):
        ids = model.encode(prompt) if isinstance(prompt, str) else prompt
        row = _ids(ids, number)
        if row.ndim != 1:
            raise ArgumentError(f"prompt {number} of shape {tuple(row.shape)}: must be a row of token ids or a text")
        if not len(row) and not empty:
            raise ArgumentError(f"prompt {number} is empty: this model needs at least one token to start from")
        if len(row) and not 0 <= int(row.min()) <= int(row.max()) < model.vocab_size:
            raise ArgumentError(
                f"prompt {number}: token ids from {int(row.min())} to {int(row.max())}, "
                f"the model knows 0 to {model.vocab_size - 1}"
            )
        rows.append(row)
    return rows


def _ids(ids: Any, number: int) -> Tensor:
    """The token ids of prompt `number`, which must be whole numbers: 1.5 is none, and 1.0 is a slip."""
    try:
        if not len(ids):
            return torch.zeros(0, dtype=torch.long)
        row = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"prompt {number}={shown(ids)}: must be a row of token ids or a text") from error
    if row.is_floating_point() or row.is_complex() or row.dtype == torch.bool:
        raise ArgumentError(f"prompt {number}={shown(ids)}: token ids must be whole numbers, not {row.dtype}")
    return row.long().cpu()


def is_end(model: LanguageModel, tokens: Int[Tensor, "*some"]) -> Bool[Tensor, "*some"]:
    """Which of `tokens` end a row of the model."""
    if model.eos is None:
        return torch.zeros_like(tokens, dtype=torch.bool)
    found = tokens == model.eos
    for other in getattr(model, "other_ends", ()):
        found = found | (tokens == other)
    return found


def check_room(model: Any, longest_prompt: int) -> None:
    """Refuse prompts that leave no room for a token within the model's context."""
    if model.longest is not None and longest_prompt >= model.longest:
        raise ArgumentError(
            f"prompt of {longest_prompt} tokens: the model reads at most {model.longest}, new tokens included"
        )
