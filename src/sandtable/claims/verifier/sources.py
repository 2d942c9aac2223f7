"""Where the claims on verifier-assisted generation were printed."""

from __future__ import annotations

from sandtable.lab import Source


def botta(where: str) -> Source:
    """On the query complexity of verifier-assisted language generation."""
    return Source("Botta, Li, Mehta, Ash, Zhang & Risteski", 2025, where)


def rohatgi(where: str) -> Source:
    """Taming imperfect process verifiers."""
    return Source("Rohatgi, Shetty, Saless, Li, Moitra, Risteski & Foster", 2025, where)
