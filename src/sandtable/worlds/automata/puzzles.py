"""Rubik's cube as a permutation puzzle: six face turns act on 54 stickers, of which the six centres never move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from sandtable.arguments import names, one_of, typed
from sandtable.worlds.automata.automaton import Automaton
from sandtable.worlds.automata.making import from_permutations

FACES = {"U": (0, 0, 1), "D": (0, 0, -1), "F": (0, -1, 0), "B": (0, 1, 0), "L": (-1, 0, 0), "R": (1, 0, 0)}
"""Faces by the direction that they look in."""


@typed
def rubik(*, tokens: Sequence[str] = ("U", "D", "F", "B", "L", "R"), **fields: Any) -> Automaton:
    """Tokens turn a face clockwise by a quarter; a state is the place of one sticker, "U5" on face U for instance.

    The whole cube is all 54 stickers at once: `rubik().simulate(moves.expand(54, -1), start=torch.arange(54))`. Its
    group has 43 252 003 274 489 856 000 elements (`theory.automata.PermutationGroup.of(rubik()).order`).
    """
    tokens = names("tokens", tokens)
    for token in tokens:
        one_of("tokens", token, FACES)
    stickers = [(place, face) for face, way in FACES.items() for place in _on(way)]
    number = {sticker: i for i, sticker in enumerate(stickers)}
    turns = {token: [number[_turn(sticker, token)] for sticker in stickers] for token in tokens}
    stickered = tuple(f"{face}{i % 9 + 1}" for i, (_, face) in enumerate(stickers))
    return from_permutations(turns, states=stickered, **fields)


def _on(way: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The nine places of the face that looks this way."""
    return [place for place in product((-1, 0, 1), repeat=3) if np.dot(place, way) == 1]


def _turn(sticker: tuple[tuple[int, ...], str], token: str) -> tuple[tuple[int, ...], str]:
    """Where a sticker goes: places on the turning face rotate with it, all others stay."""
    place, face = sticker
    axis = np.array(FACES[token])
    if np.dot(place, axis) != 1:
        return sticker
    place, way = (tuple(int(x) for x in np.dot(v, axis) * axis - np.cross(axis, v)) for v in (place, FACES[face]))
    return place, next(name for name, direction in FACES.items() if direction == way)
