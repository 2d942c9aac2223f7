"""What every world shares: batches, vocabularies, exact expectations and the small protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, nearest


@dataclass(frozen=True)
class Vocab:
    """The token strings of a world, in the order of their ids; `mask` is the id of the mask token, if there is one."""

    tokens: tuple[str, ...]
    mask: int | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def decode(self, ids: Int[Tensor, " position"]) -> list[str]:
        return [self.tokens[i] for i in ids.tolist()]

    def encode(self, text: str) -> list[int]:
        """The ids of tokens with blanks between them."""
        for word in text.split():
            if word not in self.tokens:
                raise ArgumentError(f"{word!r}: not a token of this vocabulary{nearest(word, self.tokens)}")
        return [self.tokens.index(word) for word in text.split()]

    def text(self, ids: Sequence[int] | Tensor) -> str:
        """Tokens with blanks between them."""
        return " ".join(self.tokens[i] for i in (ids.tolist() if isinstance(ids, Tensor) else ids))


@dataclass(frozen=True)
class Batch:
    """Samples of a world.

    `x` holds integer tokens or real vectors with the batch in front, `mask` tells real positions from padding,
    `latents` the ground truth behind them, `given` an optional batch that this one is conditioned on, and `vocab` the
    vocabulary that integer tokens are written in.
    """

    x: Tensor
    mask: Bool[Tensor, "batch position"] | None = None
    latents: Mapping[str, Tensor] = field(default_factory=dict)
    given: Batch | None = None
    vocab: Vocab | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with `change` applied to every tensor in it."""
        return replace(
            self,
            x=change(self.x),
            mask=None if self.mask is None else change(self.mask),
            latents={name: change(value) for name, value in self.latents.items()},
            given=None if self.given is None else self.given.map(change),
        )

    def to(self, device: str | torch.device) -> Batch:
        return self.map(lambda tensor: tensor.to(device))

    def __getitem__(self, index: slice | Tensor) -> Batch:
        return self.map(lambda tensor: tensor[index])

    def fold(self, steps: int) -> Batch:
        """Split the leading dimension in two: `steps` batches of equal size."""
        return self.map(lambda tensor: tensor.reshape(steps, -1, *tensor.shape[1:]))


@dataclass(frozen=True)
class Expectation:
    """A law with finite support: E f(x) = Σ_s weights[s] · f(batch[s]). `fit` takes it as a source without sampling."""

    batch: Batch
    weights: Float[Tensor, " support"]

    def __post_init__(self) -> None:
        if self.weights.ndim != 1 or len(self.weights) != len(self.batch):
            raise ArgumentError(
                f"weights of shape {tuple(self.weights.shape)}: must be one weight for each of {len(self.batch)} points"
            )
        total = float(self.weights.sum())
        if bool((self.weights < 0).any()) or not abs(total - 1.0) <= 1e-6:
            raise ArgumentError(f"weights with sum {total:g}: must be non-negative and sum to 1")


@runtime_checkable
class World(Protocol):
    """A data law: anything that can be sampled."""

    def sample(self, n: int, generator: torch.Generator) -> Batch: ...


@runtime_checkable
class SamplesEach(World, Protocol):
    """A world that samples for many generators at once, on any device, to the same bits as one by one on the CPU."""

    def sample_each(self, n: int, generators: Sequence[torch.Generator], device: str | torch.device = "cpu") -> Batch:
        """`n` samples from every generator, one generator after another."""
        ...


@runtime_checkable
class TokenWorld(World, Protocol):
    """A world over token sequences."""

    @property
    def vocab(self) -> Vocab: ...


@runtime_checkable
class HasLogProb(Protocol):
    """A world that scores its own samples exactly."""

    def log_prob(self, batch: Batch) -> Float[Tensor, " batch"]: ...


@runtime_checkable
class HasNextToken(Protocol):
    """A world with exact next-token probabilities."""

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]: ...


@runtime_checkable
class HasConditional(Protocol):
    """A world with exact conditionals of the hidden positions given the visible ones."""

    def conditional(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]: ...


@runtime_checkable
class Recogniser(Protocol):
    """A world that tells which prefixes can still be completed."""

    def accepts(self, prefix: Int[Tensor, "batch position"]) -> Bool[Tensor, " batch"]: ...
