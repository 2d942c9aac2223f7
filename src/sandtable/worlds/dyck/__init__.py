"""Bracket languages: the stack behind every prefix, and the laws that draw from them."""

from sandtable.worlds.dyck.fixed_length import DyckError, FirstError, FixedLengthDyck
from sandtable.worlds.dyck.stack import Brackets, StackTrace

__all__ = ["Brackets", "DyckError", "FirstError", "FixedLengthDyck", "StackTrace"]
