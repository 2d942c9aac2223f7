"""What the toy oracles share: strings of one length, a next-token law, and a set A of strings that are wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole, with_generator
from sandtable.worlds.base import Batch, Vocab

BITS = Vocab(("0", "1"))


class Oracle(ABC):
    """Strings of `length` tokens drawn one by one, and the set A ⊆ Σ^length of those that are wanted.

    A subclass is a frozen dataclass with a field `length`. Prefixes are rows of equal length, which may be empty.
    """

    length: int

    @property
    def vocab(self) -> Vocab:
        return BITS

    @property
    def longest(self) -> int:
        return self.length

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        """O(s): the law of the token after each row; uniform unless a subclass says otherwise."""
        self._check(prefix, self.length - 1)
        size = len(self.vocab)
        return torch.full((len(prefix), size), 1.0 / size, dtype=torch.float64, device=prefix.device)

    def accepts(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        """The process verifier: whether some completion of each row lies in A (whether or not O ever draws it)."""
        self._check(prefix, self.length)
        return self._completable(prefix)

    def valid(self, tokens: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        """Whether each row is a complete string of A."""
        if tokens.ndim == 2 and tokens.shape[1] < self.length:
            return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        return self.accepts(tokens)

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` strings of O; `latents` say which of them are `valid`."""
        x = torch.zeros(whole("n", n, least=0), self.length, dtype=torch.long)
        for i in range(self.length if n else 0):
            x[:, i] = torch.multinomial(self.next_token_probs(x[:, :i]), 1, generator=generator)[:, 0]
        return Batch(x=x, mask=torch.ones_like(x, dtype=torch.bool), latents={"valid": self.valid(x)}, vocab=self.vocab)

    def log_prob(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """log p_O of each row, complete or not."""
        x = batch.x if isinstance(batch, Batch) else batch
        self._check(x, self.length)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for i in range(x.shape[1]):
            total += self.next_token_probs(x[:, :i]).gather(1, x[:, i : i + 1])[:, 0].log()
        return total

    @abstractmethod
    def _completable(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]:
        """`accepts` for rows that are known to be in order."""

    def _check(self, prefix: Int[Tensor, "batch position"], most: int) -> None:
        if prefix.ndim != 2 or prefix.is_floating_point():
            raise ArgumentError(f"prefix of shape {tuple(prefix.shape)}, {prefix.dtype}: must be row × position ids")
        if prefix.shape[1] > most:
            raise ArgumentError(f"prefix of {prefix.shape[1]} tokens: must have at most {most}")
        if bool(((prefix < 0) | (prefix >= len(self.vocab))).any()):
            raise ArgumentError(f"prefix: holds tokens other than 0 to {len(self.vocab) - 1}")
