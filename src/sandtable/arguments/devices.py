"""Names of devices: the same everywhere, and checked against the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandtable.arguments.errors import ArgumentError, shown
from sandtable.arguments.values import nearest

if TYPE_CHECKING:
    import torch


def resolve_device(device: str | torch.device, *, others: Sequence[str] = ()) -> str:
    """`cpu`, `cuda`, `cuda:N`, or for `auto` a GPU if there is one; an `ArgumentError` where it is not there.

    `others` are further kinds of torch's that the caller can work with, such as `mps`.
    """
    import torch  # only now: the command line reads arguments without it

    kinds = ["cpu", "cuda", "auto", *others]
    kind, _, index = str(device).partition(":") if isinstance(device, str | torch.device) else ("", "", "")
    if kind not in kinds or (index and (not index.isdecimal() or kind == "auto" or (kind == "cpu" and int(index)))):
        words = f"cpu, cuda, cuda:N{''.join(f', {other}' for other in others)} or auto"
        raise ArgumentError(f"device={shown(device)}: must be {words}{nearest(kind, kinds) if kind else ''}")
    there = torch.cuda.device_count() if kind in ("cuda", "auto") else 0
    if kind == "auto":
        return "cuda" if there else "cpu"
    if kind == "cuda" and not there:
        raise ArgumentError(f"device={shown(device)}: no CUDA device was found; use cpu or auto")
    if kind == "cuda" and int(index or 0) >= there:
        raise ArgumentError(f"device={shown(device)}: must be below cuda:{there}, devices are counted from 0")
    if kind in others:
        try:
            torch.zeros(0, device=str(device))
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise ArgumentError(f"device={shown(device)}: not a device of this machine; use cpu or auto") from error
    return "cpu" if kind == "cpu" else str(device)
