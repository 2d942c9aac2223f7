"""Verifiers that read text: any function from texts to numbers ≥ 0, for example exp(r) of a reward model's r."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.decoding.language_model import Hidden
from sandtable.decoding.verifiers.base import GRANULARITIES, View


@dataclass(frozen=True)
class Reward:
    """A function of texts as a verifier, called with many at a time and returning one number ≥ 0 for each.

    Reward models give negative numbers as well: give exp(r), or exp(r / temperature), in place of r.

    `reads` says what it is given: a list of "text"s (prompt and completion), a list of "completion"s, or with "pair"
    two lists, prompts and completions. `batch_size` bounds how many at once. Numbers are values, that is of any size;
    with `is_value=False` they must be probabilities. A function of finished texts only has `granularity="whole"`.
    """

    function: Callable[..., Any]
    reads: str = "text"
    batch_size: int | None = None
    is_value: bool = True
    needs: Hidden | None = None
    granularity: str = "token"

    def __post_init__(self) -> None:
        one_of("granularity", self.granularity, GRANULARITIES)
        if not callable(self.function):
            raise ArgumentError(f"function={self.function!r}: must be a function from a list of texts to numbers")
        one_of("reads", self.reads, ("text", "completion", "pair"))
        if self.batch_size is not None:
            whole("batch_size", self.batch_size)

    def score(self, view: View) -> Float[Tensor, " row"]:
        lists = (view.prompt, view.completion) if self.reads == "pair" else (getattr(view, self.reads),)
        size = len(view) if self.batch_size is None else self.batch_size
        parts = []
        for first in range(0, len(view), size):
            texts = [some[first : first + size] for some in lists]
            rewards = torch.as_tensor(self.function(*texts), dtype=torch.float64).cpu()
            if rewards.shape != (len(texts[0]),):
                raise ArgumentError(
                    f"Reward returned shape {tuple(rewards.shape)} for {len(texts[0])} texts: must be one number each"
                )
            parts.append(rewards)
        return torch.cat(parts)
