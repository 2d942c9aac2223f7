"""What `verify` tells whoever watches; light, so that the command line need not wait for torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

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
