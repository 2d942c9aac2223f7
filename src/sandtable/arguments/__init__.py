"""Checks of what a user passes in: one clear line that names the argument, the value and what is allowed."""

from sandtable.arguments.devices import resolve_device
from sandtable.arguments.errors import ArgumentError, shown
from sandtable.arguments.extras import missing
from sandtable.arguments.memory import fits_in_memory, most_memory
from sandtable.arguments.progress import Ticker, as_report
from sandtable.arguments.signature import kind_of, typed, with_generator
from sandtable.arguments.values import (
    LARGEST,
    capped_power,
    flag,
    free_path,
    instance,
    items,
    names,
    nearest,
    number,
    numbers,
    one_of,
    place,
    probability,
    text,
    whole,
    wholes,
)

__all__ = [
    "LARGEST",
    "ArgumentError",
    "Ticker",
    "as_report",
    "capped_power",
    "fits_in_memory",
    "flag",
    "free_path",
    "instance",
    "items",
    "kind_of",
    "missing",
    "most_memory",
    "names",
    "nearest",
    "number",
    "numbers",
    "one_of",
    "place",
    "probability",
    "resolve_device",
    "shown",
    "text",
    "typed",
    "whole",
    "wholes",
    "with_generator",
]
