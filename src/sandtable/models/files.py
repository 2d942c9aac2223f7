"""Tensors on disk: safetensors with JSON facts in the header, written whole or not at all; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, free_path, place


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> None:
    """Write a safetensors file with JSON facts and a checksum in its header.

    Readers see the old file or the new one, never a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    known = dict(facts or {})
    try:
        _save(dict(tensors), temporary, {"sandtable": json.dumps(known | {"sha256": _digest(tensors, known)})})
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path, *, unchanged: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a file; a `ValueError` where they must be `unchanged` and its checksum says otherwise."""
    with safetensors.safe_open(path, framework="pt") as handle:
        header = handle.metadata() or {}
    tensors, facts = load_file(path), json.loads(header.get("sandtable", "{}"))
    if not isinstance(facts, dict):
        raise ValueError("its header holds no facts")
    found = facts.pop("sha256", None)
    if unchanged and found != _digest(tensors, facts):
        raise ValueError("its checksum does not match")
    return tensors, facts


def _save(tensors: dict[str, Tensor], path: Path, header: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata=header)
    except safetensors.SafetensorError as error:  # a full disk comes as one of these, with its number in the words
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu").contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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
    path = place("path", path)
    if not path.is_file():
        raise ArgumentError(f"{path}: {'a folder, not a file' if Path(path).is_dir() else 'no such file'}")
    try:
        tensors, facts = read_tensors(path, unchanged=False)  # people edit what is theirs; all of it is looked at
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        raise ArgumentError(f"{path}: not a safetensors file ({error})") from error
    if not isinstance(facts, dict) or facts.get("kind") != kind:
        raise ArgumentError(f"{path}: holds no {what} (its header does not say so)")
    return tensors, facts


def misfit(path: str | Path, error: Exception) -> ArgumentError:
    """What to say where the header promises something else than the weights hold."""
    reason = " ".join(str(error).split())
    return ArgumentError(f"{path}: header and weights do not fit together ({reason[:200]})")
