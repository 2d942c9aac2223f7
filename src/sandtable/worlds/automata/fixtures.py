"""Automata by name: the worked examples, and the nineteen tasks of Liu, Ash, Goel, Krishnamurthy & Zhang (2023)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sandtable.arguments import ArgumentError, instance, nearest
from sandtable.worlds.automata import aperiodic, groups
from sandtable.worlds.automata.automaton import Automaton
from sandtable.worlds.automata.making import from_permutations, observed
from sandtable.worlds.automata.puzzles import rubik

TASKS = (
    *(f"C{n}" for n in range(2, 9)),
    *("C2x2", "C2x2x2", "D6", "D8", "Q8", "A4", "A5", "S4", "S5", "GRID4", "GRID9", "DYCK"),
)
"""The nineteen automata of the depth sweep; other token sets are arguments of the constructors."""

_MAKERS: Mapping[str, Callable[[], Automaton]] = MappingProxyType(
    {
        **{f"C{n}": (lambda n=n: groups.cyclic(n)) for n in range(2, 9)},
        "C2x2": lambda: groups.cyclic_power(2, 2),
        "C2x2x2": lambda: groups.cyclic_power(2, 3),
        "D6": lambda: groups.dihedral(3),
        "D8": lambda: groups.dihedral(4),
        "Q8": groups.quaternion,
        "A4": lambda: groups.alternating(4),
        "A5": lambda: groups.alternating(5),
        "S4": lambda: groups.symmetric(4),
        "S5": lambda: groups.symmetric(5),
        "GRID4": lambda: aperiodic.grid(4),
        "GRID9": lambda: aperiodic.grid(9),
        "DYCK": lambda: aperiodic.dyck(4, 2),
        "DYCK48": lambda: replace(aperiodic.dyck(4, 8), observe=aperiodic.stack_top(4, 8)),
        "PARITY": groups.parity,
        "FLIPFLOP": aperiodic.flip_flop,
        "MEMORY4": lambda: aperiodic.memory(4),
        "GRID9-STAY": lambda: aperiodic.grid(9, stay=True),
        "GRID3x3": lambda: aperiodic.grid_2d(3, 3),
        "ABAB": lambda: observed(aperiodic.abab(), lambda q: int(q == 3)),
        "RUBIK": rubik,
        "A5-POINTS": lambda: from_permutations([groups.three_cycle(5, i) for i in range(2, 5)]),
        "S5-POINTS": lambda: from_permutations(groups.symmetric_tokens(5, 8)),
    }
)


def fixtures() -> tuple[str, ...]:
    """Names that `fixture` knows."""
    return tuple(_MAKERS)


def fixture(name: str) -> Automaton:
    """The automaton of that name; case, blanks and separators do not matter ("grid 9", "Grid_9", "GRID9")."""
    known = {_plain(key): key for key in _MAKERS}
    key = known.get(_plain(name)) if isinstance(name, str) else None
    if key is None:
        hint = nearest(name.upper() if isinstance(name, str) else name, list(_MAKERS))
        raise ArgumentError(f"automaton={name!r}: must be one of {', '.join(_MAKERS)}{hint}")
    return replace(_MAKERS[key](), name=key)


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def as_automaton(given: Automaton | str) -> Automaton:
    """An automaton as it is, or the one of that name."""
    return instance(
        "automaton", fixture(given) if isinstance(given, str) else given, Automaton, "an Automaton, or the name of one"
    )
