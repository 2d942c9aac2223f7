"""How settings are written on the command line: NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sandtable.arguments import ArgumentError, one_of, shown, whole

_NAMED = {"none": None, "true": True, "false": False, "yes": True, "no": False}


Value = bool | int | float | str | None


def parse_value(text: str) -> Value | tuple[Value, ...]:
    """What a person means: none, true or false (yes, no), a number, a word, or several of these with commas between."""
    if "," in text:
        parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
        if not parts:
            raise ArgumentError(f"{text!r}: must be numbers or words with commas between")
        return tuple(_parse_single(part) for part in parts)
    return _parse_single(text)


def _parse_single(text: str) -> Value:
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


MOST = 10_000_000
"""Of steps, samples, completions and the like: more is a slip of the finger, and refused before anything is done."""


def several(name: str, value: int, *, least: int = 1) -> int:
    """How many of something to do, or one line that says how many can be meant."""
    if whole(name, value, least=least) > MOST:
        raise ArgumentError(f"{name}={value}: more than {MOST:,}, which nobody can wait for")
    return value


def parse_time(name: str, text: str) -> datetime:
    """A date, or a date with a time of day, of this place where it names no other."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentError(f"{name}={shown(text)}: must be a date or a time such as 2026-01-31T14:00") from None


def parse_setting(text: str, fields: Sequence[str] | None = None) -> tuple[str, Any]:
    """NAME=VALUE as a pair; with `fields`, NAME must be one of them."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--set {text!r}: must be NAME=VALUE")
    return name if fields is None else one_of("--set", name, fields), parse_value(value)
