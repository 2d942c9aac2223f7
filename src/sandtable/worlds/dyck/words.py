"""Complete bracket words of bounded depth, ended by a stop rule or of one given length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, fits_in_memory, probability, typed, whole
from sandtable.worlds.base import Batch, Expectation
from sandtable.worlds.dyck.bounded import LARGEST_SUPPORT, MOST, BoundedDyck


@typed
@dataclass(frozen=True)
class DyckWords(BoundedDyck):
    """⟨bos⟩ w ⟨eos⟩ with w a balanced word of depth at most D, then ⟨eos⟩ as padding (`mask` is False there).

    Brackets come as in `DyckPrefixes`; at each return to depth 0, from `shortest` brackets on, the word ends with
    probability `stop`. Words of more than `longest` brackets are left out: the law is that of the words given that
    they are short enough. With `length`, it is their law given that they have exactly so many brackets, and `longest`
    does not matter (stop=0 then gives the prefix law given depth 0 at the end).

    Both are conditioned exactly: with h(i, d) the probability that a word with i brackets, d of them open, will end as
    required, a step from (i, d) to (i+1, d') has probability P(d → d') h(i+1, d') / h(i, d).
    """

    longest: int = 28
    shortest: int = 2
    stop: float = 0.5
    length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "stop", probability("stop", self.stop))
        whole("shortest", self.shortest, least=2)
        if self.length is not None:
            if whole("length", self.length, least=2) % 2:
                raise ArgumentError(f"length={self.length}: must be even, or no word is balanced")
            if self.shortest > self.length:
                raise ArgumentError(f"shortest={self.shortest}: must be at most length={self.length}")
        elif whole("longest", self.longest, least=2) and self.shortest > self.longest - self.longest % 2:
            raise ArgumentError(f"shortest={self.shortest}: no even length from there to longest={self.longest}")
        elif self.stop == 0:
            raise ArgumentError("stop=0: no word would ever end; only words of one `length` may have it")
        fits_in_memory(
            "longest" if self.length is None else "length", self.most, float(self.most) * (self.depth + 1), size=8
        )
        if self.most > MOST:
            raise ArgumentError(f"{self.most} brackets: a word must have at most {MOST:,}")
        if not self._possible:
            size = f"longest={self.longest}" if self.length is None else f"length={self.length}"
            raise ArgumentError(f"{size}, stop={self.stop:g}: no word of depth at most {self.depth} ends so")

    @property
    def most(self) -> int:
        """Brackets of the longest word; rows have two tokens more."""
        return self.longest if self.length is None else self.length

    @cached_property
    def _backward(self) -> tuple[Float[Tensor, "read depth"], bool]:
        """Probabilities to open given how the word must end, and whether any word does end so.

        Going back from the last position, h(i, ·) = what opening contributes + what closing, or stopping, does.
        """
        opens = torch.full((self.depth + 1,), self.q, dtype=torch.float64)
        opens[0], opens[-1] = 1.0, 0.0
        later = torch.zeros_like(opens)  # h(most + 1, ·): too long
        opening = torch.zeros(self.most + 1, self.depth + 1, dtype=torch.float64)
        for i in reversed(range(self.most + 1)):
            stop = self.stop if i >= self.shortest and i % 2 == 0 else 0.0
            up = opens * torch.cat([later[1:], later[:1] * 0])
            up[0] *= 1 - stop
            down = (1 - opens) * torch.cat([later[:1] * 0, later[:-1]])
            down[0] = stop if self.length is None else float(i == self.length)
            later = up + down
            opening[i] = (up / later).nan_to_num(0.0)  # where no word ends as required, the law closes what is open
            if self.length is not None:
                later = later / later.max().clamp(min=1e-300)  # only ratios matter, and long words would underflow
        return opening, bool(later[0] > 0)

    @property
    def opening(self) -> Float[Tensor, "read depth"]:
        return self._backward[0]

    @property
    def _possible(self) -> bool:
        return self._backward[1]

    @property
    def _positions(self) -> int:
        return self.most + 1

    def support(self) -> Expectation:
        """Every row with its probability."""
        size = sum(self.count_words(n) for n in ([self.length] if self.length else range(2, self.longest + 1, 2)))
        if size > LARGEST_SUPPORT:
            raise ArgumentError(f"longest={self.most}: has {size} words; at most {LARGEST_SUPPORT} are enumerated")
        rows = torch.full((1, 1), self.bos)
        for _ in range(self.most + 1):
            row, token = self.next_token_probs(rows).nonzero(as_tuple=True)
            rows = torch.cat([rows[row], token[:, None]], dim=1)
        ends = (rows == self.eos).long()
        batch = Batch(x=rows, mask=ends.cumsum(1) - ends == 0, vocab=self.vocab)
        return Expectation(batch, self.log_prob(batch).exp())
