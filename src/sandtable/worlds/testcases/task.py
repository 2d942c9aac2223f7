"""The task as a decoder meets it: prompts to complete, and what the completions are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.worlds.testcases.counting import distinct_correct
from sandtable.worlds.testcases.parser import FirstError, first_error
from sandtable.worlds.testcases.prompts import (
    OOD_NAMES,
    REQUESTED,
    SUMS,
    TRAIN_NAMES,
    prompt,
    random_names,
    random_sums,
)

NAMES = ("test", "ood", "train")


@dataclass(frozen=True)
class TestCaseTask:
    """List eight test cases of a function that appends (Botta, Li, Mehta, Ash, Zhang & Risteski 2025).

    `sums` lines stand in the demonstration of a prompt (the published one has eight); `functions` names are tested.
    """

    sums: int = SUMS
    functions: int = 10

    def __post_init__(self) -> None:
        whole("sums", self.sums, least=0)
        whole("functions", self.functions)

    def prompts(self, repeats: int, generator: torch.Generator, *, names: str = "test") -> list[tuple[str, str]]:
        """(name, prompt) pairs, `repeats` of every name side by side, each with sums of its own.

        `names`: "test" draws new ones of three letters, "ood" are words that contradict the function, "train" those on
        which verifiers are trained.
        """
        repeats = whole("repeats", repeats)
        kind = one_of("names", names, NAMES)
        if kind == "test":
            chosen = random_names(self.functions, generator)
        else:
            known = OOD_NAMES if kind == "ood" else TRAIN_NAMES
            if self.functions > len(known):
                raise ArgumentError(f"functions={self.functions}: there are {len(known)} names of the kind {kind!r}")
            chosen = known[: self.functions]
        return [(name, prompt(name, random_sums(self.sums, generator))) for name in chosen for _ in range(repeats)]

    def first_error(self, name: str, completion: str, *, finished: bool = True) -> FirstError | None:
        """The first error in a completion for the function `name`, its kind and place; see `parser.first_error`."""
        return first_error(completion, name, finished=finished)

    def score(self, completions: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Completions by name → `accuracy` (Acc_distinct), `distinct` correct cases, `asked`, `errors` by kind."""
        asked = REQUESTED * sum(len(texts) for texts in completions.values())
        if not asked:
            raise ArgumentError("completions={}: must hold at least one completion")
        distinct = sum(distinct_correct(texts, name) for name, texts in completions.items())
        found = [first_error(text, name) for name, texts in completions.items() for text in texts]
        errors = Counter(error.kind.value for error in found if error is not None)
        return {
            "accuracy": distinct / asked,
            "distinct": distinct,
            "asked": asked,
            "errors": dict(errors.most_common()),
        }
