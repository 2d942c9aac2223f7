"""Sessions of networks: keys and values are kept, a row that is rewound goes on from where it was cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.decoding.language_model import LanguageModel, Rows, Session

_PATIENCE = 8
"""How many calls of `retire` pass between looks at whether the cache is half empty."""


class CachedSession(Session):
    """Rows under a network with one cache slot per position and row.

    A token at position i sees slots 0 … i of its own row, and writing a slot replaces what was there. Rewinding is
    therefore free: only how much of a row is in the cache (`_seen`) moves. To get a row's logits its last token is
    read, again if need be. Lines of the cache are rows of the session until finished rows are dropped from it.
    """

    def __init__(self, model: LanguageModel, prompts: Sequence[Tensor], room: int) -> None:
        super().__init__(model, prompts, room)
        self._seen = torch.zeros_like(self.lengths)
        self._rows = torch.arange(len(self))  # the row that each line belongs to
        self._retirements = 0

    def _read(
        self,
        ids: Int[Tensor, "line new"],
        positions: Int[Tensor, "line new"],
        at: Int[Tensor, " line"],
        used: int,
    ) -> tuple[Float[Tensor, "line vocab"], Float[Tensor, "line width"] | None]:
        """Write the new tokens into their slots; logits and hidden states at token `at` of every line.

        `used` is how many slots are in use in the longest line. What is given is on the CPU, what is returned is where
        the model is.
        """
        raise NotImplementedError("a subclass runs its network")

    def _take_lines(self, lines: Int[Tensor, " line"]) -> None:
        """Replace the cache by a copy of some of its lines."""
        raise NotImplementedError("a subclass copies its cache")

    def _evaluate(self, need: Rows) -> tuple[Tensor, Tensor | None]:
        rows = self._rows
        whole = len(rows) == len(self)
        lengths, need = (self.lengths, need) if whole else (self.lengths[rows], need[rows])
        first = torch.where(need, self._seen if whole else self._seen[rows], lengths).minimum(lengths - 1)
        new, used = torch.stack([(lengths - first).max(), lengths.max()]).tolist()
        # Shorter tails are filled up with tokens already read, so that nothing is written past the end of a full row.
        first = first.minimum(lengths - new).clamp(min=0)
        positions = first[:, None] + torch.arange(new)
        ids = (self.tokens if whole else self.tokens[rows]).gather(1, positions.clamp(max=self.tokens.shape[1] - 1))
        logits, hidden = self._read(ids, positions, lengths - 1 - first, max(used, new))
        if whole:
            self._seen = self.lengths.where(need, self._seen)
            return logits, hidden
        self._seen[rows] = lengths.where(need, self._seen[rows])
        return self._spread(logits), None if hidden is None else self._spread(hidden)

    def _spread(self, lines: Float[Tensor, "line some"]) -> Float[Tensor, "row some"]:
        """Values of the lines at the rows they belong to."""
        return lines.new_zeros(len(self), lines.shape[1]).index_copy_(0, self._rows.to(lines.device), lines)

    def _forget(self, amounts: Int[Tensor, " row"]) -> None:
        self._seen = self._seen.minimum(self.lengths)

    def _take(self, index: Int[Tensor, " row"]) -> None:
        # Copies of rows that retired get some line; they are never asked about.
        line_of = torch.zeros(len(self._seen), dtype=torch.long)
        line_of[self._rows] = torch.arange(len(self._rows))
        self._take_lines(line_of[index])
        self._seen = self._seen[index]
        self._rows = torch.arange(len(index))

    def retire(self, rows: Rows) -> None:
        self._retirements += 1
        if self._retirements % _PATIENCE:
            return
        lines = (~rows[self._rows]).nonzero()[:, 0]
        if 0 < len(lines) <= len(self._rows) // 2:
            self._take_lines(lines)
            self._rows = self._rows[lines]
