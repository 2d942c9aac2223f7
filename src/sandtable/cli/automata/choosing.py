"""Which automaton is meant: a name, a table in a file, a regular expression, or permutations in cycles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandtable.arguments import ArgumentError

if TYPE_CHECKING:
    from sandtable.worlds.automata import Automaton

Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="A name that `automaton list` knows.")]
Table = Annotated[
    Path | None,
    typer.Option("--table", metavar="FILE", help="JSON: rows of next states, or {state: {token: next state}}."),
]
Regex = Annotated[str | None, typer.Option("--regex", metavar="TEXT", help='As "(ab)*": its minimal automaton.')]
Permutations = Annotated[
    list[str] | None,
    typer.Option("--permutations", metavar="CYCLES", help='A token that permutes points, as "(1 2 3)(4 5)"; repeat.'),
]
Start = Annotated[str | None, typer.Option("--start", help="Start state, by name or number.")]
MOST_POINTS = 10_000


def choose(
    name: str | None, table: Path | None, regex: str | None, permutations: Sequence[str] | None, start: str | None
) -> Automaton:
    """The automaton that the command line describes, in exactly one way."""
    ways = dict(NAME=name, **{"--table": table, "--regex": regex, "--permutations": permutations or None})
    given = [way for way, value in ways.items() if value is not None]
    if len(given) != 1:
        raise ArgumentError(f"give one of {', '.join(ways)}" + f", not {' and '.join(given)}" * bool(given))
    if name is not None:
        from sandtable.worlds.automata import fixture

        found = fixture(name)
    elif table is not None:
        found = from_file(table)
    elif regex is not None:
        from sandtable.worlds.automata import from_regex

        found = from_regex(regex)
    else:
        found = from_cycles(permutations or ())
    if start is None:
        return found
    return replace(found, start=int(start) if start.isdecimal() and start not in found.states else start)


def sampled(settings: Mapping[str, Any]) -> Automaton:
    """The automaton of that `name`, other fields as they are given."""
    from sandtable.worlds.automata import fixture

    fields = {name: value for name, value in settings.items() if name != "name"}
    return replace(fixture(settings["name"]), **fields)


def from_file(path: Path) -> Automaton:
    """A table that is written as JSON: alone, or as "table" beside "start", "states", "tokens", "name", "observe"."""
    from sandtable.worlds.automata import from_table

    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArgumentError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path}: is not JSON ({error})") from None
    fields: dict[str, Any] = {"name": path.stem}
    if isinstance(held, dict) and isinstance(held.get("table"), dict | list):
        allowed = ("start", "states", "tokens", "name", "observe")
        for key in held:
            if key not in ("table", *allowed):
                raise ArgumentError(f"{path}: {key!r} must be one of table, {', '.join(allowed)}")
        fields |= {key: _tuple(value) for key, value in held.items() if key != "table"}
        held = held["table"]
    rows = held.values() if isinstance(held, dict) else held
    if not isinstance(held, dict | list) or not rows or not all(isinstance(row, type(held)) for row in rows):
        raise ArgumentError(f"{path}: must hold rows of next states, or {{state: {{token: next state}}}}")
    try:
        return from_table(held, **fields)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    except TypeError as error:
        raise ArgumentError(f"{path}: names, numbers and lists of them are in the wrong places ({error})") from None


def from_cycles(texts: Sequence[str]) -> Automaton:
    """Tokens that permute the points 1 … n, n the largest that is named; states and tokens are called as written."""
    from sandtable.worlds.automata import from_permutations

    found = [cycles(text) for text in texts]
    points = max((max(cycle) for parts in found for cycle in parts), default=1)
    images = {}
    for text, parts in zip(texts, found, strict=True):
        image = list(range(points))
        for cycle in parts:
            for here, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
                image[here - 1] = after - 1
        if (token := "".join(f"({' '.join(map(str, cycle))})" for cycle in parts) or "()") in images:
            raise ArgumentError(f"--permutations {text!r}: is given twice")
        images[token] = image
    return from_permutations(images, states=tuple(map(str, range(1, points + 1))))


def cycles(text: str) -> list[list[int]]:
    """ "(1 2 3)(4 5)" as lists of points from 1 up, each in one cycle at most; "()" moves none."""

    def fail(why: str) -> ArgumentError:
        return ArgumentError(f"--permutations {text!r}: must be disjoint cycles as (1 2 3)(4 5); {why}")

    found: list[list[int]] = []
    rest = text.replace(",", " ").strip()
    while rest:
        inside, closed, after = rest[1:].partition(")")
        if rest[0] != "(" or not closed:
            raise fail("a bracket is missing")
        words = inside.split()
        if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= MOST_POINTS for word in words):
            raise fail(f"points are whole numbers from 1 to {MOST_POINTS}")
        if words:
            found.append([int(word) for word in words])
        rest = after.strip()
    named = [point for cycle in found for point in cycle]
    twice = next((point for point in named if named.count(point) > 1), None)
    if twice is not None:
        raise fail(f"{twice} stands in it twice")
    if not text.strip():
        raise fail("it is empty")
    return found


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
