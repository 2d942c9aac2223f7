"""Where the claims on generative masked language models were printed."""

from __future__ import annotations

from sandtable.lab import Source


def li2024(where: str) -> Source:
    """Promises and pitfalls of generative masked language modeling."""
    return Source("Li, Kirchmeyer, Mehta, Qin, Dadachev, Papineni, Kumar & Risteski", 2024, where)
