"""Dropout: another objective, with part of the activations left out while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sandtable.arguments import ArgumentError, nearest, number
from sandtable.objectives.base import Apply, Example, Params
from sandtable.worlds import Batch
from sandtable.worlds.bits import tensor_bits

BRANCHES = "*hook_*_out"
"""What layers add to the stream: that of attention of every kind, and of MLPs."""
_BITS = 24
Edit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Dropout:
    """The loss of `objective` with x ⊙ m / (1 − rate) in the place of activations x, every m being 0 with
    probability `rate` and else 1 (Srivastava et al. 2014).

    `where` is the name of an activation or a shell pattern of names (`model.hook_names()`): by default what layers add
    to the stream. Embeddings are "hook_embed", attention weights "*hook_pattern"; for several places put one `Dropout`
    around another. One number is drawn from the noise stream for every model and step, and all masks are hashes of it,
    new ones in every forward pass: the same on every device, whatever is trained beside. Evaluation drops nothing.
    """

    objective: Any
    rate: float = 0.1
    where: str = BRANCHES
    noisy = True

    def __post_init__(self) -> None:
        number("rate", self.rate, least=0.0, most=0.99)
        for name in ("draw", "loss"):
            if not callable(getattr(self.objective, name, None)):
                raise ArgumentError(f"objective={self.objective!r}: must be an objective, with `draw` and `loss`")
        if not isinstance(self.where, str) or not self.where:
            raise ArgumentError(f"where={self.where!r}: must be the name of an activation, or a pattern of names")

    def check(self, model: Any) -> None:
        """An `ArgumentError` where the model has no such activation, or does not fit the objective itself."""
        if not hasattr(model, "hook_names"):
            raise ArgumentError(f"Dropout: {type(model).__name__} has no activations with names (`hook_names`)")
        names = model.hook_names()
        if not any(fnmatchcase(name, self.where) for name in names):
            raise ArgumentError(f"where={self.where!r}: the model has no such activation{nearest(self.where, names)}")
        if hasattr(self.objective, "check"):
            self.objective.check(model)

    # -- drawing -----------------------------------------------------------------------------------------------------

    def draw(self, batch: Batch, generator: torch.Generator, step: int) -> Example:
        return {"key": _keys((), generator, batch), "of": self.objective.draw(batch, generator, step)}

    @property
    def draw_block(self) -> Callable[..., Example] | None:
        """Many steps at once, where the objective can."""
        inner = getattr(self.objective, "draw_block", None)
        return None if inner is None else partial(self._draw_block, inner)

    def _draw_block(self, inner: Any, batch: Batch, generator: torch.Generator, steps: range) -> Example:
        return {"key": _keys((len(steps),), generator, batch), "of": inner(batch, generator, steps)}

    @property
    def draw_each(self) -> Callable[..., Example] | None:
        """Many models and steps at once, where the objective can."""
        inner = getattr(self.objective, "draw_each", None)
        return None if inner is None else partial(self._draw_each, inner)

    def _draw_each(self, inner: Any, batch: Batch, generators: Sequence[torch.Generator], steps: range) -> Example:
        keys = torch.stack([_keys((len(steps),), generator, batch) for generator in generators])
        return {"key": keys, "of": inner(batch, generators, steps)}

    # -- the loss ----------------------------------------------------------------------------------------------------

    def loss(self, apply: Apply, params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
        seeds = _seeds(example["key"])

        def drop(x: Tensor) -> Tensor:
            kept = uniform(next(seeds), x.numel()).view(x.shape) >= self.rate
            return x * kept / (1 - self.rate)

        def dropping(
            params: Params, inputs: Any, want: Sequence[str] = (), edits: Mapping[str, Edit] | None = None
        ) -> Any:
            others = dict(edits or {})
            before = others.pop(self.where, None)
            own = drop if before is None else lambda x: drop(before(x))
            return apply(params, inputs, want, edits={**others, self.where: own})

        return self.objective.loss(dropping if self.rate else apply, params, example["of"])


def uniform(seed: Int[Tensor, ""], count: int) -> Tensor:
    """`count` numbers in [0, 1) that are hashes of the seed, the same on every device."""
    bits = tensor_bits(seed[None], count)[0]
    return ((bits >> (64 - _BITS)) & (2**_BITS - 1)) / 2**_BITS


def _keys(shape: tuple[int, ...], generator: torch.Generator, batch: Batch) -> Int[Tensor, ...]:
    return torch.randint(torch.iinfo(torch.int64).max, shape, generator=generator).to(batch.x.device)


def _seeds(key: Int[Tensor, ""]) -> Iterator[Int[Tensor, ""]]:
    """A seed for every mask: hashes of the key, so that their streams do not run into one another."""
    number = 0
    while True:
        number += 1
        yield tensor_bits(key[None], number)[0, -1]
