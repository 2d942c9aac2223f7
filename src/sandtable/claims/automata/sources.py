"""Where the claims on automata were printed."""

from __future__ import annotations

from sandtable.lab import Source


def liu(where: str) -> Source:
    return Source("Liu, Ash, Goel, Krishnamurthy & Zhang", 2023, where)
