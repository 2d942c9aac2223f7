"""Checks of single values: one clear line that names the argument, the value and what is allowed."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from sandtable.arguments.errors import ArgumentError, shown

LARGEST = 2**63 - 1
"""Of whole numbers: what torch and numpy can hold."""


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """`value` as an integer in [least, most], or an `ArgumentError`."""
    allowed = f"a whole number ≥ {least}" if most is None else f"a whole number from {least} to {most}"
    most = LARGEST if most is None else most
    # A tensor without dimensions could be taken for its number here, and then not be one where it is used.
    if isinstance(value, bool) or not hasattr(value, "__index__") or hasattr(value, "__len__"):
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}")
    try:
        value = value.__index__()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}") from error
    if value > LARGEST:
        allowed = f"a whole number from {least} to {most}"
    if not least <= value <= most:
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}")
    return value


def number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, most: float = math.inf
) -> float:
    """`value` as a finite float with above < value, least ≤ value ≤ most, or an `ArgumentError`."""
    bounds = [f"> {above:g}"] * (above > -math.inf) + [f"≥ {least:g}"] * (least > -math.inf)
    bounds += [f"≤ {most:g}"] * (most < math.inf)
    allowed = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
    if (
        isinstance(value, bool | Decimal | Fraction)
        or type(value).__name__ == "bool"
        or not (hasattr(value, "__float__") or hasattr(value, "__index__"))
    ):
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}")
    try:
        result = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}") from error
    if not math.isfinite(result) or result <= above or result < least or result > most:
        raise ArgumentError(f"{name}={shown(value)}: must be {allowed}")
    return result


def probability(name: str, value: Any) -> float:
    """`value` as a number in [0, 1], or an `ArgumentError`."""
    return number(name, value, least=0.0, most=1.0)


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`; otherwise an `ArgumentError` that names the nearest one."""
    options = list(allowed)
    if isinstance(value, str) and value in options:
        return value
    raise ArgumentError(f"{name}={shown(value)}: must be one of {', '.join(options)}{nearest(value, options)}")


def flag(name: str, value: Any) -> bool:
    """`value` if it is True or False, or an `ArgumentError`."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # numpy's
        return bool(value)
    raise ArgumentError(f"{name}={shown(value)}: must be True or False")


def text(name: str, value: Any) -> str:
    """`value` if it is a string that says something, or an `ArgumentError`."""
    if isinstance(value, str) and value.strip():
        return value
    raise ArgumentError(f"{name}={shown(value)}: must be a text that is not empty")


def items(name: str, value: Any, what: str = "values") -> list[Any]:
    """What a list, a tuple or the like holds (a string and a mapping are none), or an `ArgumentError`."""
    if not isinstance(value, str | bytes | Mapping):
        with contextlib.suppress(TypeError):  # not iterable
            return list(value.tolist() if hasattr(value, "tolist") else value)
    raise ArgumentError(f"{name}={shown(value)}: must be a sequence of {what}")


def wholes(name: str, value: Any, *, least: int = 1, most: int | None = None) -> tuple[int, ...]:
    """`value` as a tuple of integers in [least, most], or an `ArgumentError`."""
    return tuple(whole(name, item, least=least, most=most) for item in items(name, value, "whole numbers"))


def numbers(name: str, value: Any, **bounds: float) -> tuple[float, ...]:
    """`value` as a tuple of finite floats within the bounds of `number`, or an `ArgumentError`."""
    return tuple(number(name, item, **bounds) for item in items(name, value, "numbers"))


def names(name: str, value: Any) -> tuple[str, ...]:
    """`value` as a tuple of strings, or an `ArgumentError`; one string alone is not a sequence of its letters."""
    found = items(name, value, "names")
    for item in found:
        if not isinstance(item, str):
            raise ArgumentError(f"{name}={shown(value)}: {shown(item)} is no text")
    return tuple(found)


def place(name: str, value: Any) -> Path:
    """`value` as a path, `~` expanded, or an `ArgumentError` where no file could have such a name."""
    if not isinstance(value, str | Path) or not str(value):
        raise ArgumentError(f"{name}={shown(value)}: must be a path")
    path = Path(os.path.expanduser(value))
    try:
        path.exists()
        if "\0" in str(path):
            raise OSError("a zero byte")
    except OSError as error:
        raise ArgumentError(f"{name}={shown(str(value))}: not a path to use ({error.strerror or error})") from error
    return path


def instance(name: str, value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    """`value` if it is of this kind, `what` in words, or an `ArgumentError`."""
    if isinstance(value, kind):
        return value
    raise ArgumentError(f"{name}={shown(value)}: must be {what}")


def capped_power(base: int, exponent: int) -> int:
    """base^exponent for a base ≥ 2, or `LARGEST` where it is more: numbers of a million digits take a while."""
    return base**exponent if exponent * math.log2(base) < 63 else LARGEST


def free_path(path: str | Path, *, overwrite: bool = False, hint: str = "overwrite it") -> Path:
    """`path` where nothing would be lost that nobody asked to lose; `hint` says how to ask for it."""
    path = place("path", path)
    if path.is_dir() or (path.exists() and not overwrite):
        raise ArgumentError(f"{path}: exists already; choose another name" + f", or {hint}" * path.is_file())
    return path


def nearest(value: Any, options: Sequence[str]) -> str:
    """A hint "; did you mean …?" with the option closest to `value`, or an empty string."""
    close = difflib.get_close_matches(str(value)[:100], list(options), n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""
