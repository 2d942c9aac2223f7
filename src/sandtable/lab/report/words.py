"""How the page writes numbers, dates and the little line that holds measurement against prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def show(value: Any) -> str:
    """A value for a reader: four significant digits, powers of ten written out, a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        mantissa, _, exponent = f"{value:.4g}".replace("-", "−").partition("e")
        return f"{mantissa} × 10{_raised(exponent)}" if exponent else mantissa
    if isinstance(value, int):
        return str(value).replace("-", "−")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moment(date: str) -> str:
    """An ISO date as a person writes it, in UTC; other texts stay as they are."""
    try:
        then = datetime.fromisoformat(date)
    except ValueError:
        return date
    then = then.astimezone(UTC) if then.tzinfo else then
    return f"{then.day} {then:%b %Y, %H:%M} UTC"


def duration(seconds: Any) -> str:
    """So many seconds, minutes or hours."""
    value = _number(seconds)
    if value is None:
        return show(seconds)
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def span(check: Mapping[str, Any]) -> str:
    """The interval as text; nothing where there is none or it is the measurement itself."""
    low, high = check.get("low"), check.get("high")
    if (low is None and high is None) or low == high == check.get("measured"):
        return ""
    return f"[{show(low)}, {show(high)}]"


def strip(check: Mapping[str, Any]) -> dict[str, float] | None:
    """Where measurement, interval, prediction and target lie on a line from 0 to 100, or None without two numbers.

    The line spans at least a tenth of the largest value, so that what agrees looks so. An end that an interval or a
    target does not have runs to the end of the line.
    """
    measured, predicted, low, high = (_number(check.get(key)) for key in ("measured", "predicted", "low", "high"))
    target = check.get("target")
    region = [_number(end) for end in target] if isinstance(target, list) and len(target) == 2 else []
    seen = [value for value in (measured, predicted, low, high, *region) if value is not None]
    if measured is None or len([value for value in (predicted, *region) if value is not None]) == 0:
        return None
    centre, width = min(seen) / 2 + max(seen) / 2, max(max(seen) - min(seen), 0.1 * max(map(abs, seen)))

    def place(value: float | None, end: float) -> float:
        if value is None:
            return end
        return round(50.0 + 80.0 * (value - centre) / width, 2) if width and math.isfinite(width) else 50.0

    found = {"measured": place(measured, 50.0)}
    bare = low is None and high is None
    found |= (
        {"low": found["measured"], "high": found["measured"]}
        if bare
        else {"low": place(low, 0.0), "high": place(high, 100.0)}
    )
    if predicted is not None:
        found["predicted"] = place(predicted, 50.0)
    if region:
        found |= {"least": place(region[0], 0.0), "most": place(region[1], 100.0)}
    return found


def _raised(exponent: str) -> str:
    sign = "⁻" if exponent.startswith("−") else ""
    return sign + exponent.lstrip("+−0").translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
