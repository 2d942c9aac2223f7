"""`progress=` wherever work takes a while: nothing, a line on stderr, or a function of the caller's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from sandtable.arguments.errors import ArgumentError, shown


class Ticker:
    """Shows work on stderr: one line rewritten in place on a terminal, elsewhere one line at the end.

    `words(done, total, …)` is what the line says.
    """

    def __init__(self, words: Callable[..., str]) -> None:
        self._words = words

    def __call__(self, done: int, total: int, *more: Any) -> None:
        text = self._words(done, total, *more)
        if sys.stderr.isatty():
            end = "\r" if done < total else "\n"
            print(f"{text:<79}", end=end, file=sys.stderr, flush=True)
        elif done >= total:
            print(text, file=sys.stderr, flush=True)


def as_report(progress: Callable[..., Any] | bool | None, words: Callable[..., str]) -> Callable[..., Any] | None:
    """True is a line on stderr in these words, False and None are nothing, a function is itself."""
    if isinstance(progress, bool) or progress is None:
        return Ticker(words) if progress else None
    if callable(progress):
        return progress
    raise ArgumentError(f"progress={shown(progress)}: must be True, False or a function")
