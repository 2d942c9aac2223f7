"""What a check asks for, in words: a prediction to be met, or a bound that is no prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_BY_KIND = {"agrees": "≈", "exact": "=", "exceeds": ">", "orders": ">", "below": "<", "bounded": "≤", "law": "≤"}
_WHOLE = {"proportion": (0.0, 1.0)}
"""Ends beyond which a quantity of this kind cannot lie, and which nobody asked for."""


def asked(
    check: Mapping[str, Any], target: Sequence[float | None] | None, write: Callable[[Any], str]
) -> tuple[str, str]:
    """("predicted", "≈ 0.3") or ("asked", "≥ 0.95") and the like; `write` puts a number in words.

    Shares and statistics may be asked for on either side: the recorded target tells which.
    """
    kind, number = check.get("kind"), check.get("predicted")
    if number is None:
        return "", write(None)
    if kind in _BY_KIND:
        return ("predicted" if kind in ("agrees", "exact") else "asked"), f"{_BY_KIND[kind]} {write(number)}"
    if not isinstance(target, list | tuple) or len(target) != 2:  # a record of an older version
        return "asked", write(number)
    low, high = target
    least, most = _WHOLE.get(str(kind), (None, None))
    if low in (None, least):
        return "asked", f"≤ {write(high)}"
    if high in (None, most):
        return "asked", f"≥ {write(low)}"
    return ("asked", f"{write(low)} … {write(high)}") if number in (low, high) else ("predicted", f"≈ {write(number)}")
