"""Where a generator first goes wrong: right and wrong prefixes of equal lengths, to train a verifier on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed
from sandtable.decoding.ancestral import ancestral
from sandtable.decoding.draws import as_generator
from sandtable.decoding.generation import Generation

FirstErrors = Callable[[Int[Tensor, "row position"], Int[Tensor, " row"]], Any]
"""(tokens, lengths) → position of the first error of every row, −1 where there is none; or a tuple that begins so."""
Rights = Callable[[Int[Tensor, " row"], torch.Generator], Sequence[Int[Tensor, " position"]]]
"""(lengths, generator) → right prefixes of these lengths."""


@dataclass(frozen=True)
class ErrorPrefixes:
    """As many right prefixes (label 1) as wrong ones (label 0), and equally long ones; wrong ones come first.

    A wrong prefix ends with the first wrong token of a completion. `inducing` are the wrong ones without that token:
    right so far, and yet about to go wrong.
    """

    rows: list[Int[Tensor, " position"]]
    labels: Int[Tensor, " row"]
    generation: Generation
    errors: Int[Tensor, " completion"]
    """Position of the first error of every completion, −1 where there is none."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def wrong(self) -> list[Int[Tensor, " position"]]:
        return [row for row, label in zip(self.rows, self.labels.tolist(), strict=True) if not label]

    @property
    def right(self) -> list[Int[Tensor, " position"]]:
        return [row for row, label in zip(self.rows, self.labels.tolist(), strict=True) if label]

    @property
    def inducing(self) -> list[Int[Tensor, " position"]]:
        return [row[:-1] for row in self.wrong]


@typed
def collect_error_prefixes(
    lm: Any,
    prompts: Sequence[Any],
    first_error: FirstErrors,
    *,
    max_tokens: int,
    generator: torch.Generator | int = 0,
    rights: Rights | None = None,
    **sampling: Any,
) -> ErrorPrefixes:
    """Complete the prompts, cut each completion right after its first error, and match every cut by a right prefix.

    `first_error` finds the errors: `FixedLengthDyck.first_error`, or a parser of text. Right prefixes come from
    `rights(lengths, generator)`; without it they are cut from the completions themselves at the same lengths, before
    any error, from different ones while there are any, and a wrong prefix for which there is none is dropped.
    `sampling` (top_p, temperature, batch_size, …) goes to `ancestral`.
    """
    generator = as_generator(generator)
    made = ancestral(lm, prompts, max_tokens=max_tokens, generator=generator, **sampling)
    found = first_error(made.tokens, made.lengths)
    errors = torch.as_tensor(found[0] if isinstance(found, tuple) else found)
    if errors.shape != made.lengths.shape or bool((errors >= made.lengths).any()):
        raise ArgumentError("first_error: must give for every row a position in it, or −1")
    wrong = (errors >= made.prompts).nonzero()[:, 0]
    if rights is None:
        clean = torch.where(errors >= 0, errors, made.lengths)
        partner = _partners(clean, made.prompts, errors[wrong] + 1, generator)
        wrong, partner = wrong[partner >= 0], partner[partner >= 0]
        right = [made.tokens[row, : errors[at] + 1] for row, at in zip(partner, wrong, strict=True)]
    else:
        right = [torch.as_tensor(row, dtype=torch.long) for row in rights(errors[wrong] + 1, generator)]
        if [len(row) for row in right] != (errors[wrong] + 1).tolist():
            raise ArgumentError("rights: must give one prefix of each of the lengths asked for")
    rows = [*(made.tokens[at, : errors[at] + 1] for at in wrong), *right]
    labels = torch.arange(2).repeat_interleave(len(wrong))
    return ErrorPrefixes(rows, labels, made, errors)


def _partners(
    clean: Int[Tensor, " row"],
    prompts: Int[Tensor, " row"],
    lengths: Int[Tensor, " wanted"],
    generator: torch.Generator,
) -> Int[Tensor, " wanted"]:
    """For every length a random row that is right and generated up to there, no row twice before each was taken once;
    −1 where there is none."""
    partners = torch.full_like(lengths, -1)
    for length in lengths.unique().tolist():
        fits: Bool[Tensor, " row"] = (clean >= length) & (prompts < length)
        rows, wanted = fits.nonzero()[:, 0], (lengths == length).nonzero()[:, 0]
        if len(rows):
            rounds = [torch.randperm(len(rows), generator=generator) for _ in range(-(-len(wanted) // len(rows)))]
            partners[wanted] = rows[torch.cat(rounds)[: len(wanted)]]
    return partners
