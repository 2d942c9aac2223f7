"""Tensors on disk: safetensors with JSON facts in the header, written whole or not at all; nothing is unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, free_path


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Write a safetensors file with JSON facts in its header; readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(dict(tensors), temporary, metadata={"sandtable": json.dumps(facts or {})})
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safetensors.safe_open(path, framework="pt") as handle:
        facts = json.loads((handle.metadata() or {}).get("sandtable", "{}"))
    return load_file(path), facts


# -- models that a user keeps ----------------------------------------------------------------------------------------


def weights(model: nn.Module) -> dict[str, Tensor]:
    """A model's state as a file takes it."""
    return {name: value.detach().contiguous() for name, value in model.state_dict().items()}


def save_model(
    path: str | Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, kind: str, overwrite: bool = False
) -> Path:
    """Write a model of some `kind` to a file of its own; an existing one is an error unless told otherwise."""
    path = free_path(path, overwrite=overwrite)
    try:
        write_tensors(path, tensors, {**facts, "kind": kind})
    except (OSError, safetensors.SafetensorError) as error:
        raise ArgumentError(f"{path}: cannot be written ({error})") from error
    return path


def load_model(path: str | Path, *, kind: str, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a file that `save_model` wrote for this `kind`; `what` says it in words."""
    path = Path(path)
    if not path.is_file():
        raise ArgumentError(f"{path}: no such file")
    try:
        tensors, facts = read_tensors(path)
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ArgumentError(f"{path}: not a safetensors file ({error})") from error
    if not isinstance(facts, dict) or facts.get("kind") != kind:
        raise ArgumentError(f"{path}: holds no {what} (its header does not say so)")
    return tensors, facts


def misfit(path: str | Path, error: Exception) -> ArgumentError:
    """What to say where the header promises something else than the weights hold."""
    reason = " ".join(str(error).split())
    return ArgumentError(f"{path}: header and weights do not fit together ({reason[:200]})")
