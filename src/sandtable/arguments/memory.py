"""How much there is room for."""

from __future__ import annotations

import functools
import math
import os
from typing import Any

from sandtable.arguments.errors import ArgumentError, shown

try:
    import resource
except ImportError:  # Windows
    resource = None


def fits_in_memory(name: str, value: Any, numbers: float, *, size: int = 4) -> None:
    """An `ArgumentError` if so many numbers of `size` bytes are more than this machine, or this process, may hold."""
    if numbers * size > most_memory():
        raise ArgumentError(
            f"{name}={shown(value)}: asks for {numbers * size / 2**30:,.0f} GiB of numbers, "
            f"more than the {most_memory() / 2**30:,.0f} GiB there are"
        )


@functools.cache
def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return math.inf


def most_memory() -> float:
    """Bytes of memory of this machine, or what the process is limited to."""
    if resource is None:
        return _physical_memory()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return _physical_memory() if limit == resource.RLIM_INFINITY else min(limit, _physical_memory())
