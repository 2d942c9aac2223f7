"""What `verify` tells whoever watches; light, so that the command line need not wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from sandtable.arguments import as_report

if TYPE_CHECKING:
    from sandtable.lab.run import Outcome


class Progress:
    """What `verify` tells while it works; this one only speaks of what went wrong."""

    def begins(self, total: int) -> None:
        """So many claims will be run."""

    def doing(self, text: str) -> None:
        """What is running right now."""

    def done(self, outcome: Outcome) -> None:
        """A claim is finished and its record is written."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Counted(Progress):
    """Calls `report(finished, claims)` after every claim."""

    def __init__(self, report: Callable[[int, int], object]) -> None:
        self._report, self._finished, self._total = report, 0, 0

    def begins(self, total: int) -> None:
        self._total = total

    def done(self, outcome: Outcome) -> None:
        self._finished += 1
        self._report(self._finished, self._total)


def as_progress(progress: Progress | Callable[[int, int], object] | bool | None) -> Progress:
    """What `verify` tells: True is a line on stderr, False only trouble, a function is given the numbers of claims."""
    if isinstance(progress, Progress):
        return progress
    report = as_report(progress, lambda done, total: f"{done}/{total} claims")
    return Progress() if report is None else Counted(report)
