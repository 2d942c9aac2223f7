"""Measurements on models: blocks, attention, norms and rotations."""

from sandtable.probes import topics

__all__ = ["topics"]
