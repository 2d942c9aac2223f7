"""The error of a mistake in the call, and how it quotes values."""

from __future__ import annotations

from typing import Any

LONGEST_MESSAGE = 600
"""Longer ones lose their middle: nobody reads ten thousand digits."""


class ArgumentError(ValueError):
    """A mistake in the call, worded for the person who made it, in one line whatever values it quotes.

    The command line turns it into exit status 2.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(_shortened(" ".join(message.split()), LONGEST_MESSAGE))


def shown(value: Any) -> str:
    """`value` as a message quotes it: in one short line."""
    try:
        words = repr(value)
    except Exception:  # whatever a stranger's __repr__ raises; numbers of thousands of digits raise too
        words = f"<{type(value).__name__}>"
    return _shortened(" ".join(words.split()), 120)


def _shortened(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most // 2]} … {words[-most // 3 :]}"
