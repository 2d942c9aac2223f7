"""Any automaton in ⌈log₂T⌉ layers: prefix composition by doubling (Theorem 10).

Layer l holds, at every position, the map of the last 2^{l−1} tokens as a vector of values 1 … |Q|; one head fetches the
map from 2^{l−1} places before, the MLP composes the two. T pads hold the constant map q_0, so that coordinate q_0 of
the result is the state.

Where all tokens are bijections, `by_points` composes them on as few points as the group acts on faithfully (S_5 with
its 120 permutations as states: five), orbit by orbit; pads then hold the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as tuples

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile.actions import SmallAction
from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import composition
from sandtable.theory.automata.compile.heads import earlier, half_circle
from sandtable.theory.automata.compile.program import Layer, Part, Program, coordinate, part
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Automaton, Map

MOST_UNITS = 4_000
"""Pairs (q, q′) that one composition tells apart; its weights grow like their square."""
MOST_CODES = 1_000_000


def log_depth(
    automaton: Automaton,
    length: int,
    *,
    turn: int = 1,
    values: str = "later",
    read: str = "start",
    product: str = "f(q') where g(q) = q'",
    sharpness: float = 1.0,
) -> Compiled:
    """Depth ⌈log₂T⌉, width 2|Q| + 2, two heads.

    Printed otherwise, and wrong: `turn=-1` (keys turned the other way), `values="earlier"` (W_V from the coordinates
    of the earlier map), `read="any"` (another coordinate than q_0), `product="f(q)"` (the display in Lemma 14).
    `sharpness` multiplies γ.
    """
    require_small(automaton)
    n, tokens = automaton.n_states, automaton.n_tokens
    pads = [(start,) * n for start in range(n)]
    program = _program(
        [*automaton.maps, *pads], n, length, part(composition(n, product=product), *_slots(n)), turn, values, sharpness
    )
    return built(
        program,
        automaton,
        length,
        "log",
        prefix=[[tokens + start] * length for start in range(n)],
        columns=[[q if read == "start" else (q + 1) % n] for q in range(n)],
        codes=[[0, *range(n)]] * n,
        bound=bound(n, length),
    )


def by_points(automaton: Automaton, length: int, action: SmallAction) -> Compiled:
    """The same for bijections, on the points of `action`: one kind of pad, which holds the identity."""
    require_small(automaton, action)
    points, tokens = len(action.points[0]), automaton.n_tokens
    pairs = _pairs(action)
    compose = part(composition(points, pairs=pairs), *_slots(points))
    program = _program([*action.points, tuple(range(points))], points, length, compose)
    if action.is_smaller:
        base = _base(action)
        elements = {tuple(on_points[x] for x in base): on_states for on_points, on_states in action.elements().items()}
        identity = tuple(range(automaton.n_states))
        # Digits count from 1; what no element shows is never met.
        listed = [elements.get(tuple(x - 1 for x in shown), identity) for shown in _digits(points, len(base))]
        columns, digits = [base] * automaton.n_states, [points + 1] * len(base)
        codes = [[g[q] for g in listed] for q in range(automaton.n_states)]
    else:
        columns, digits = [[q] for q in range(points)], [points + 1]
        codes = [[0, *range(points)]] * points
    return built(
        program,
        automaton,
        length,
        "log",
        prefix=[[tokens] * length] * automaton.n_states,
        columns=columns,
        digits=digits,
        codes=codes,
        bound=bound(automaton.n_states, length),
        facts=dict(points=points),
    )


def bound(states: int, length: int) -> dict[str, float]:
    """The theorem's sizes, with the first hidden layer as it must be, 4|Q|² + |Q|."""
    root = 10 * length * math.sqrt(math.log(states) + math.log(length))
    return dict(
        depth=depth(length),
        width=2 * states + 2,
        heads=2,
        head_width=max(states, 2),
        mlp_width=4 * states**2 + states,
        norm=max(4 * states + 2, root, 10.0),
    )


def depth(length: int) -> int:
    """⌈log₂T⌉, and at least one layer."""
    return max(1, (length - 1).bit_length())


def _program(
    maps: Sequence[Map],
    points: int,
    length: int,
    compose: Part,
    turn: int = 1,
    values: str = "later",
    sharpness: float = 1.0,
) -> Program:
    """Tokens and pads by their maps; every layer doubles how far back a map reaches."""
    earlier_map, later_map = _names(points)
    scale = sharpness * max(100.0, 100.0 * length**2 * (math.log(points) + math.log(length)))
    source = tuple(map(coordinate, later_map if values == "later" else earlier_map))
    layers = [
        Layer(
            (
                earlier(2**step, length, scale, source, earlier_map, turn=turn),
                earlier(0, length, scale, source, later_map),
            ),
            ((compose,),),
        )
        for step in range(depth(length))
    ]
    return Program(
        vocab=len(maps),
        longest=2 * length,
        layers=layers,
        outputs=tuple(map(coordinate, later_map)),
        tokens={
            **{name: [0.0] * len(maps) for name in earlier_map},
            **{name: [image[q] + 1.0 for image in maps] for q, name in enumerate(later_map)},
        },
        positions=half_circle(2 * length, length),
    )


def _names(points: int) -> tuple[list[str], list[str]]:
    return [f"earlier {q}" for q in range(points)], [f"later {q}" for q in range(points)]


def _slots(points: int) -> tuple[list[str], list[str]]:
    """What a composition reads and writes."""
    earlier_map, later_map = _names(points)
    return [*earlier_map, *later_map], later_map


def _orbits(maps: Sequence[Map]) -> list[list[int]]:
    """For every point the points that words take it to, in order."""
    found = []
    for q in range(len(maps[0])):
        orbit = [q]
        for x in orbit:
            orbit += [y for y in dict.fromkeys(image[x] for image in maps) if y not in orbit]
        found.append(sorted(orbit))
    return found


def _digits(points: int, count: int):
    return tuples(range(points + 1), repeat=count)


def _pairs(action: SmallAction) -> list[tuple[int, int]]:
    """The pairs (q, q′) that a composition on the points must tell apart."""
    return [(q, image) for q, images in enumerate(_orbits(action.points)) for image in images]


def _base(action: SmallAction) -> tuple[int, ...]:
    """Points whose images tell an element; one is looked at even where no element needs to be told."""
    return PermutationGroup.generated(action.points).chain.base or (0,)


def require_small(automaton: Automaton, action: SmallAction | None = None) -> None:
    """An `ArgumentError` where composition, on the points of `action` or on the states, would be too large."""
    pairs = automaton.n_states**2 if action is None else len(_pairs(action))
    if pairs > MOST_UNITS:
        raise ArgumentError(f"composition would tell {pairs:,} pairs of states apart; at most {MOST_UNITS:,} are made")
    if action is not None and action.is_smaller:
        points, base = len(action.points[0]), _base(action)
        if points ** len(base) > MOST_CODES:
            raise ArgumentError(f"a group on {points} points with a base of {len(base)}: too many codes to read")
