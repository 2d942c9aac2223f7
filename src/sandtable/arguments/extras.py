"""How to get what is not installed: the one place that says so."""

from __future__ import annotations

from sandtable.arguments.errors import ArgumentError


def missing(what: str, package: str, extra: str, otherwise: str = "") -> ArgumentError:
    """The error of `what` was asked for, where the `package` it needs is not installed: it comes with an extra."""
    way = f"in a clone of sandtable, `uv sync --extra {extra}` or `pip install '.[{extra}]'`"
    return ArgumentError(f"{what}: needs the package {package}; {way}{otherwise}")
