"""Counting distinct correct test cases: Acc_distinct (Botta, Li, Mehta, Ash, Zhang & Risteski 2025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sandtable.arguments import typed
from sandtable.worlds.testcases.parser import read_line
from sandtable.worlds.testcases.prompts import REQUESTED

GIVE_UP = 3
"""Lines without an assert after which, once a test case was found, the rest of a completion is not read."""


@typed
def correct_cases(text: str, name: str, *, requested: int = REQUESTED) -> set[str]:
    """The distinct correct cases among the first `requested` test cases of a completion, right or wrong.

    Two cases differ if the tested list or the appended item does. Errors do not end the reading; `GIVE_UP` lines that
    are no assert do, once a test case was found.
    """
    cases: list[str | None] = []
    strangers = 0
    for line in text.split("\n"):
        if len(cases) == requested or strangers == GIVE_UP:
            break
        read = read_line(line, name)
        if read.case is not None:
            cases.append(read.case if read.kind is None else None)
        elif cases and line.strip() and not line.lstrip().startswith("assert"):
            strangers += 1
    return {case for case in cases if case is not None}


@typed
def distinct_correct(completions: Iterable[str], name: str, *, requested: int = REQUESTED) -> int:
    """Distinct correct cases of one function over all its completions."""
    return len(set().union(*(correct_cases(text, name, requested=requested) for text in completions)))


@typed
def accuracy_distinct(completions: Mapping[str, Sequence[str]], *, requested: int = REQUESTED) -> float:
    """Acc_distinct: distinct correct cases, counted for every function name by itself, over all cases asked for."""
    asked = requested * sum(len(texts) for texts in completions.values())
    found = sum(distinct_correct(texts, name, requested=requested) for name, texts in completions.items())
    return found / asked if asked else 0.0
