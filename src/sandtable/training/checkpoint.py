"""State on disk, written atomically: a killed run goes on from its last checkpoint as if nothing had happened."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import safetensors
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.models.files import read_tensors, write_tensors


class Checkpoint:
    """A file that holds the state of one stack; saved at most every `every` seconds.

    `facts` say what decides the run: a checkpoint of a run with other facts is refused, not taken for this one.
    """

    def __init__(self, path: Path, *, facts: Mapping[str, str] | None = None, every: float = 20.0) -> None:
        self.path, self.facts, self.every = Path(path), dict(facts or {}), every
        self.last = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.last >= self.every

    def save(self, state: Mapping[str, Tensor]) -> None:
        write_tensors(self.path, state, self.facts)
        self.last = time.monotonic()

    def load(self) -> dict[str, Tensor] | None:
        """The saved state; a file that cannot be read is set aside with a warning."""
        if not self.path.exists():
            return None
        try:
            state, facts = read_tensors(self.path)
        except (safetensors.SafetensorError, ValueError, OSError) as error:
            aside = self.path.with_suffix(".damaged")
            os.replace(self.path, aside)
            warnings.warn(f"{self.path.name} is damaged ({error}); set aside as {aside.name}", stacklevel=2)
            return None
        other = next((name for name, value in self.facts.items() if facts.get(name, value) != value), None)
        if other is not None:
            raise ArgumentError(f"checkpoint {self.path}: is of a run with another {other}; choose another folder")
        return state

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
