"""Image sets of an automaton's states: which words carry into which, how high they stand, and their tiles.

Sets of states are the bits of a whole number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Automaton, Map


@dataclass(frozen=True)
class Action:
    """What one token does to one component: permute its tiles, or reset to one of them (`permutation` is None)."""

    permutation: Map | None = None
    reset: int | None = None

    def __call__(self, tile: int) -> int:
        if self.reset is not None:
            return self.reset
        return tile if self.permutation is None else self.permutation[tile]

    @property
    def is_identity(self) -> bool:
        return self.reset is None and (
            self.permutation is None or self.permutation == tuple(range(len(self.permutation)))
        )


class ImageSets:
    """The image sets, their heights, tiles and classes, and the maps that carry a class's members to one another."""

    def __init__(self, automaton: Automaton, cap: int) -> None:
        self.maps = automaton.maps
        self.top = (1 << automaton.n_states) - 1
        self.all = self._close(automaton, cap)
        place = {p: i for i, p in enumerate(self.all)}
        below = self._below(place)
        strict = below & ~below.T
        self.height = dict(zip(self.all, self._heights(below, strict), strict=True))
        self.tiles = {p: tiles for p, tiles in zip(self.all, self._tiles(), strict=True) if len(tiles) > 1}
        self.classes = self._classes(below & below.T)
        self.component: dict[int, int] = {}
        self.out: dict[int, Map] = {}
        """Maps that carry the representative onto a member …"""
        self.home: dict[int, Map] = {}
        """… and back, undoing the former on the representative."""
        for number, members in enumerate(self.classes):
            self._carry(members)
            self.component |= dict.fromkeys(members, number)

    def _close(self, automaton: Automaton, cap: int) -> list[int]:
        found = dict.fromkeys([self.top, *(1 << q for q in range(automaton.n_states))])
        queue = [self.top]
        while queue:
            if len(found) > cap:
                raise ArgumentError(
                    f"cap={cap}: {automaton.name or 'this automaton'} has more single states and image sets; "
                    f"{len(found)} were found"
                )
            p = queue.pop()
            for token in self.maps:
                image = image_of(p, token)
                if image not in found:
                    found[image] = None
                    queue.append(image)
        return list(found)

    def _below(self, place: dict[int, int]) -> Bool[np.ndarray, "lower upper"]:
        """P ≤ R: P lies inside an image of R."""
        size = len(self.all)
        after = np.array([[place[image_of(p, token)] for token in self.maps] for p in self.all])
        reach = np.eye(size, dtype=bool)
        while True:
            wider = reach | reach[after].any(1)
            if (wider == reach).all():
                break
            reach = wider
        inside = self._inside()
        return (inside.astype(np.float32) @ reach.T.astype(np.float32)) > 0

    def _inside(self) -> Bool[np.ndarray, "lower upper"]:
        """P ⊆ R."""
        bits = self._bits.astype(np.float32)
        return bits @ (1 - bits).T == 0

    @cached_property
    def _bits(self) -> Bool[np.ndarray, "set state"]:
        return np.array([[p >> q & 1 for q in range(self.top.bit_length())] for p in self.all], dtype=bool)

    def _heights(self, below: np.ndarray, strict: np.ndarray) -> list[int]:
        """0 for single states, however they follow one another; else one more than the highest set strictly below."""
        height = np.zeros(len(self.all), dtype=np.int64)
        for i in np.argsort(below.sum(0), kind="stable"):  # whatever is strictly below has fewer sets below it
            if self._bits[i].sum() > 1:
                height[i] = height[strict[:, i]].max() + 1
        return height.tolist()

    def _tiles(self) -> list[tuple[int, ...]]:
        inside = self._inside()
        proper = inside & ~inside.T
        between = (proper.astype(np.float32) @ proper.astype(np.float32)) > 0
        return [tuple(self.all[j] for j in np.flatnonzero(column)) for column in (proper & ~between).T]

    def _classes(self, same: np.ndarray) -> list[list[int]]:
        """Classes of sets with more than one state, highest first, each with its first member in front."""
        found, seen = [], set()
        order = sorted(range(len(self.all)), key=lambda i: (-self.height[self.all[i]], i))
        for i in order:
            if i not in seen and self.all[i] in self.tiles:
                members = np.flatnonzero(same[i]).tolist()
                seen |= set(members)
                found.append([self.all[j] for j in members])
        return found

    def _carry(self, members: list[int]) -> None:
        inside, root = set(members), members[0]
        self.out[root] = tuple(range(self.top.bit_length()))
        queue = [root]
        for p in queue:  # breadth first: shortest words
            for token in self.maps:
                image = image_of(p, token)
                if image in inside and image not in self.out:
                    self.out[image] = tuple(token[x] for x in self.out[p])
                    queue.append(image)
        back = self._ways_back(inside, root)
        for p in members:
            there, again = self.out[p], back[p]
            once = tuple(again[x] for x in there)  # permutes the root
            # again·(there·again)^{k−1}, k the order of there·again on the root
            home, states = again, [q for q in range(len(once)) if root >> q & 1]
            while any(home[there[q]] != q for q in states):
                home = tuple(once[x] for x in home)
            self.home[p] = home

    def _ways_back(self, inside: set[int], root: int) -> dict[int, Map]:
        """For every member a map of a word that leads it to the root."""
        into: dict[int, list[tuple[int, Map]]] = {p: [] for p in inside}
        for p in inside:
            for token in self.maps:
                if (image := image_of(p, token)) in inside:
                    into[image].append((p, token))
        found, queue = {root: tuple(range(self.top.bit_length()))}, [root]
        for p in queue:
            for source, token in into[p]:
                if source not in found:
                    found[source] = tuple(found[p][x] for x in token)
                    queue.append(source)
        return found

    # -- tiles of members, by those of the representative ------------------------------------------------------------

    def root_tiles(self, number: int) -> tuple[int, ...]:
        return self.tiles[self.classes[number][0]]

    def tile_of(self, p: int, number: int) -> int:
        """The tile of `p` that corresponds to this one of its representative."""
        return image_of(self.root_tiles(self.component[p])[number], self.out[p])

    def tile_number(self, p: int, tile: int) -> int:
        """The representative's tile that corresponds to a tile of `p`."""
        return self.root_tiles(self.component[p]).index(image_of(tile, self.home[p]))

    def action(self, before: int, after: int, sigma: int) -> Action:
        """What a token does to the component of `after`, the old chain being at `before` there: before·σ ⊆ after."""
        token = self.maps[sigma]
        image = image_of(before, token)
        if image == after:
            return Action(permutation=self._permutation(before, after, sigma))
        return Action(reset=self.tile_number(after, next(t for t in self.tiles[after] if image & ~t == 0)))

    def _permutation(self, before: int, after: int, sigma: int) -> Map:
        tiles = self.root_tiles(self.component[after])
        carried = [image_of(image_of(image_of(t, self.out[before]), self.maps[sigma]), self.home[after]) for t in tiles]
        return tuple(tiles.index(t) for t in carried)

    def group(self, number: int) -> PermutationGroup:
        inside = set(self.classes[number])
        found = [
            self._permutation(p, image, sigma)
            for p in self.classes[number]
            for sigma, token in enumerate(self.maps)
            if (image := image_of(p, token)) in inside
        ]
        return PermutationGroup.generated(found, len(self.root_tiles(number)))


def image_of(states: int, image: Map) -> int:
    """The set of images of a set of states."""
    found = 0
    while states:
        low = states & -states
        found |= 1 << image[low.bit_length() - 1]
        states ^= low
    return found


def states_in(states: int) -> frozenset[int]:
    return frozenset(q for q in range(states.bit_length()) if states >> q & 1)
