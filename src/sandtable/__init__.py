"""Sandtable: small worlds, small models, closed forms, and honest verdicts on the theory of language models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_ROOMS = ("worlds", "models", "objectives", "training", "theory", "probes", "decoding", "bridges", "lab", "claims")

if TYPE_CHECKING:
    from sandtable import bridges, claims, decoding, lab, models, objectives, probes, theory, training, worlds
    from sandtable.training import Recipe, evaluate, fit

__all__ = [
    "Recipe",
    "bridges",
    "claims",
    "decoding",
    "evaluate",
    "fit",
    "lab",
    "models",
    "objectives",
    "probes",
    "theory",
    "training",
    "worlds",
]


def __getattr__(name: str):
    """Rooms are imported when first used, so that `import sandtable` stays light."""
    if name in _ROOMS:
        return importlib.import_module(f"sandtable.{name}")
    if name in ("Recipe", "evaluate", "fit"):
        return getattr(importlib.import_module("sandtable.training"), name)
    raise AttributeError(f"module 'sandtable' has no attribute {name!r}")
