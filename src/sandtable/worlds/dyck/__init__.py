"""Bracket languages: the stack behind every prefix, and the laws that draw from them."""

from sandtable.worlds.dyck.bounded import BoundedDyck
from sandtable.worlds.dyck.fixed_length import DyckError, FirstError, FixedLengthDyck
from sandtable.worlds.dyck.prefixes import DyckPrefixes
from sandtable.worlds.dyck.stack import Brackets, StackTrace
from sandtable.worlds.dyck.words import DyckWords

__all__ = [
    "BoundedDyck",
    "Brackets",
    "DyckError",
    "DyckPrefixes",
    "DyckWords",
    "FirstError",
    "FixedLengthDyck",
    "StackTrace",
]
