"""Checks of what a user passes in: one clear line that names the argument, the value and what is allowed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class ArgumentError(ValueError):
    """A mistake in the call, worded for the person who made it. The command line turns it into exit status 2."""


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """`value` as an integer in [least, most], or an `ArgumentError`."""
    allowed = f"a whole number ≥ {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name}={value!r}: must be {allowed}")
    try:
        value = value.__index__()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{name}={value!r}: must be {allowed}") from error
    if value < least or (most is not None and value > most):
        raise ArgumentError(f"{name}={value!r}: must be {allowed}")
    return value


def number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """`value` as a finite float with above < value, least ≤ value ≤ most, or an `ArgumentError`."""
    bounds = [f"> {above:g}"] * (above > -math.inf) + [f"≥ {least:g}"] * (least > -math.inf)
    bounds += [f"≤ {most:g}"] * (most < math.inf)
    allowed = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
    if isinstance(value, bool) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise ArgumentError(f"{name}={value!r}: must be {allowed}")
    try:
        result = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"{name}={value!r}: must be {allowed}") from error
    if not math.isfinite(result) or result <= above or result < least or result > most:
        raise ArgumentError(f"{name}={value!r}: must be {allowed}")
    return result


def probability(name: str, value: Any) -> float:
    """`value` as a number in [0, 1], or an `ArgumentError`."""
    return number(name, value, least=0.0, most=1.0)


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`; otherwise an `ArgumentError` that names the nearest one."""
    options = list(allowed)
    if isinstance(value, str) and value in options:
        return value
    raise ArgumentError(f"{name}={value!r}: must be one of {', '.join(options)}{nearest(value, options)}")


def free_path(path: str | Path, *, overwrite: bool = False, hint: str = "overwrite it") -> Path:
    """`path` where nothing would be lost that nobody asked to lose; `hint` says how to ask for it."""
    path = Path(path)
    if path.is_dir() or (path.exists() and not overwrite):
        raise ArgumentError(f"{path}: exists already; choose another name" + f", or {hint}" * path.is_file())
    return path


def nearest(value: Any, options: Sequence[str]) -> str:
    """A hint "; did you mean …?" with the option closest to `value`, or an empty string."""
    close = difflib.get_close_matches(str(value), list(options), n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""
