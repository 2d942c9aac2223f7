"""Holonomy decomposition: any automaton as a cascade of permutation-reset automata (Krohn & Rhodes, constructively).

I holds the images Q·w of all words, Q itself and all single states. P ≤ R where P lies inside an image of R that words
lead to; P ~ R both ways. Height counts strict steps up from the single states. A *tile* of P is a maximal member of I
strictly inside P; words carry P's tiles to those of any R ~ P. So a state is written by the tiles one descends through,
Q ⊋ tile ⊋ … ⊋ {q}, each carried to its class's representative: one coordinate for every class of ~ with more than one
state. On a token, a coordinate is permuted where the token maps the old set of the chain onto the new one, and reset
otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.theory.automata.image_sets import Action, ImageSets, states_in
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton

MOST_SETS = 4_000


@dataclass(frozen=True, eq=False)
class Component:
    """A permutation-reset automaton of the cascade: one class of image sets, its states the representative's tiles."""

    level: int
    """Counted from the top, 0 first."""
    height: int
    representative: frozenset[int]
    tiles: tuple[frozenset[int], ...]
    group: PermutationGroup
    """Which permutations of the tiles words induce."""
    members: tuple[frozenset[int], ...]
    """All sets of the class."""

    @property
    def size(self) -> int:
        return len(self.tiles)


@dataclass(frozen=True, eq=False)
class Holonomy:
    """The cascade of an automaton. Coordinates are a tuple with one tile number for every component, top level first;
    components that the chain does not pass through hold what they held before, and are 0 in `encode`."""

    automaton: Automaton
    components: tuple[Component, ...]
    _sets: ImageSets = field(repr=False)

    @cached_property
    def levels(self) -> tuple[tuple[Component, ...], ...]:
        """Components of equal height, from the top down."""
        heights = sorted({c.height for c in self.components}, reverse=True)
        return tuple(tuple(c for c in self.components if c.height == height) for height in heights)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many states every component has."""
        return tuple(component.size for component in self.components)

    @property
    def coordinates(self) -> int:
        """Number of tuples of coordinates."""
        return int(np.prod([1, *self.sizes], dtype=object))

    @property
    def is_solvable(self) -> bool:
        return all(component.group.is_solvable for component in self.components)

    @property
    def is_aperiodic(self) -> bool:
        return all(component.group.order == 1 for component in self.components)

    # -- states and coordinates --------------------------------------------------------------------------------------

    def encode(self, state: int | str) -> tuple[int, ...]:
        """The tiles one descends through from Q to {state}."""
        q = 1 << self.automaton.state(state)
        found, sets = [0] * len(self.components), self._sets
        current = sets.top
        while (number := sets.component.get(current)) is not None:
            tile = next(tile for tile in sets.tiles[current] if tile & q)
            found[number] = sets.tile_number(current, tile)
            current = tile
        return tuple(found)

    def decode(self, coordinates: Sequence[int]) -> int:
        """The state at the end of the chain."""
        return self.chain(coordinates)[-1].bit_length() - 1

    def chain(self, coordinates: Sequence[int]) -> list[int]:
        """Q ⊋ tile ⊋ … ⊋ {q}, as bits: what coordinates stand for."""
        self._require(coordinates)
        sets = self._sets
        found = [sets.top]
        while (number := sets.component.get(found[-1])) is not None:
            found.append(sets.tile_of(found[-1], coordinates[number]))
        return found

    def step(self, coordinates: Sequence[int], token: int | str) -> tuple[int, ...]:
        """The coordinates after one token."""
        found = list(coordinates)
        for number, action in self.actions(coordinates, token).items():
            found[number] = action(found[number])
        return tuple(found)

    def actions(self, coordinates: Sequence[int], token: int | str) -> dict[int, Action]:
        """What the token does to each component; those that are not named keep their state.

        A component's action is decided by the token, old coordinates above it and new coordinates above it.
        """
        sets, sigma = self._sets, self.automaton.token(token)
        old, new = self.chain(coordinates), sets.top
        found: dict[int, Action] = {}
        while (number := sets.component.get(new)) is not None:
            # The old chain's member at this height: the first that is no higher than the new set.
            before = next(p for p in old if sets.height[p] <= sets.height[new])
            action = sets.action(before, new, sigma)
            found[number] = action
            new = sets.tile_of(new, action(coordinates[number]))
        return found

    # -- many at once ------------------------------------------------------------------------------------------------

    def simulate(self, inputs: Int[Tensor, "*batch position"], start: int | None = None) -> Tensor:
        """States q_1 … q_T through coordinates alone: encode once, step along, decode."""
        table, states, first = self._table(self.automaton.start if start is None else start)
        walk = Automaton(tuple(map(tuple, table.tolist())), start=first)
        return torch.tensor(states)[walk.simulate(inputs)]

    def _table(self, start: int) -> tuple[Int[np.ndarray, "tuple token"], list[int], int]:
        """All tuples of coordinates that are reached from a state, numbered: their steps, and the states they mean."""
        found = [self.encode(start)]
        place = {found[0]: 0}
        rows = []
        for coordinates in found:
            row = []
            for token in range(self.automaton.n_tokens):
                after = self.step(coordinates, token)
                if after not in place:
                    place[after] = len(found)
                    found.append(after)
                row.append(place[after])
            rows.append(row)
        return np.array(rows), [self.decode(coordinates) for coordinates in found], 0

    def _require(self, coordinates: Sequence[int]) -> None:
        if len(coordinates) != len(self.components):
            raise ArgumentError(f"coordinates={tuple(coordinates)}: must be {len(self.components)} numbers")
        for value, size in zip(coordinates, self.sizes, strict=True):
            whole("coordinate", value, least=0, most=size - 1)


def holonomy(automaton: Automaton | str, *, cap: int = MOST_SETS) -> Holonomy:
    """The holonomy decomposition; stops with an error beyond `cap` sets."""
    automaton = as_automaton(automaton)
    sets = ImageSets(automaton, whole("cap", cap))
    heights = sorted({sets.height[members[0]] for members in sets.classes}, reverse=True)
    components = tuple(
        Component(
            level=heights.index(sets.height[members[0]]),
            height=sets.height[members[0]],
            representative=states_in(members[0]),
            tiles=tuple(map(states_in, sets.root_tiles(number))),
            group=sets.group(number),
            members=tuple(map(states_in, members)),
        )
        for number, members in enumerate(sets.classes)
    )
    return Holonomy(automaton, components, sets)
