"""Language models without a network: worlds with exact next-token probabilities, and plain Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, fits_in_memory, typed, whole
from sandtable.decoding.language_model import Hidden, Prompts, Rows, Session, read_prompts
from sandtable.worlds import HasNextToken, Vocab

NextToken = Callable[[Int[Tensor, "batch position"]], Float[Tensor, "batch vocab"]]


@typed
class ExactModel:
    """A law given by its next-token probabilities on rows of equal length, which may be empty.

    `law` is a world with `next_token_probs`, or a function from prefixes to probabilities (rows sum to one).
    """

    def __init__(
        self,
        law: HasNextToken | NextToken,
        *,
        vocab: Vocab | int | None = None,
        eos: int | None = None,
        longest: int | None = None,
    ) -> None:
        self.law = law
        self.probs: NextToken = law.next_token_probs if isinstance(law, HasNextToken) else law
        if not callable(self.probs):
            raise ArgumentError(f"law={law!r}: must be a world with next_token_probs, or a function of prefixes")
        vocab = getattr(law, "vocab", None) if vocab is None else vocab
        if vocab is None:
            raise ArgumentError("vocab=None: a function needs the size of its vocabulary, or a Vocab")
        if not isinstance(vocab, Vocab):
            fits_in_memory("vocab", whole("vocab", vocab), vocab, size=100)  # bytes of a name
            vocab = Vocab(tuple(map(str, range(vocab))))
        self.vocab = vocab
        eos = getattr(law, "eos", None) if eos is None else eos
        self.eos = None if eos is None else whole("eos", eos, least=0, most=len(self.vocab) - 1)
        self.longest = getattr(law, "longest", None) if longest is None else longest
        self.device = torch.device("cpu")

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        return self.vocab.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.vocab.text(tokens)

    def start(self, prompts: Prompts, *, room: int, hidden: Hidden | None = None) -> ExactSession:
        if hidden is not None:
            raise ArgumentError(f"hidden={hidden}: a law without a network has no hidden states")
        return ExactSession(self, read_prompts(self, prompts, empty=True), room)


class ExactSession(Session):
    """Rows under an exact law; rows of one length are asked about together."""

    model: ExactModel

    def _evaluate(self, need: Rows) -> tuple[Tensor, None]:
        logits = torch.zeros(len(self), self.model.vocab_size, dtype=torch.float64)
        for length in self.lengths[need].unique().tolist():
            rows = need & (self.lengths == length)
            probs = self.model.probs(self.tokens[rows, :length])
            logits[rows] = checked_probs(probs, (int(rows.sum()), self.model.vocab_size)).log()
        return logits, None


def checked_probs(probs: Any, shape: tuple[int, int]) -> Float[Tensor, "row vocab"]:
    """What a law returned, if it is one probability for every row and token."""
    probs = torch.as_tensor(probs, dtype=torch.float64)
    if probs.shape != shape:
        raise ArgumentError(f"the law returned shape {tuple(probs.shape)}: must be row × vocab, {shape}")
    if not bool((probs >= 0).all()) or not bool(((probs.sum(-1) - 1).abs() < 1e-6).all()):
        raise ArgumentError("the law returned rows that are not probabilities: non-negative, with sum 1")
    return probs
