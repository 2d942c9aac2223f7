"""The automata that nets are trained on, by name: the tasks of the depth sweep, and what else is seen of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sandtable.arguments import ArgumentError, nearest
from sandtable.worlds.automata import TASKS, Automaton, Repeating, fixture, fixtures, observed, symmetric


def _first_entry() -> Automaton:
    """S_5 under five tokens; seen is the first entry of the permutation."""
    group = symmetric(5, tokens=5)
    return observed(group, lambda q: int(group.state_name(q)[0]) - 1)


OBSERVED: Mapping[str, Callable[[], Automaton]] = MappingProxyType(
    {
        "DYCK48-TOP": lambda: fixture("DYCK48"),
        "GRID9-WALL": lambda: observed(fixture("GRID9"), lambda q: int(q in (0, 8))),
        "GRID4-WALL": lambda: observed(fixture("GRID4"), lambda q: int(q in (0, 3))),
        "S5-FIRST": _first_entry,
        "C4-ZERO": lambda: observed(fixture("C4"), lambda q: int(q == 0)),
        "D8-PLACE": lambda: observed(fixture("D8"), lambda q: q % 4),
        "ABAB-ALWAYS": lambda: replace(fixture("ABAB"), law=Repeating((0, 1), 1.0)),
        "ABAB-HALF": lambda: replace(fixture("ABAB"), law=Repeating((0, 1), 0.5)),
    }
)
"""Tasks of the indirect setting: a label that does not tell the state."""


def known(name: str) -> str:
    """The name of a task, or an `ArgumentError`."""
    if name not in OBSERVED and name not in fixtures():
        listed = [*TASKS, *OBSERVED]
        raise ArgumentError(f"task={name!r}: must be one of {', '.join(listed)}{nearest(name, listed)}")
    return name


def task(name: str, length: int) -> Automaton:
    """The automaton of that name, to be read for `length` tokens."""
    known(name)
    return replace(OBSERVED[name]() if name in OBSERVED else fixture(name), length=length, name=name)
