"""The same group on fewer points: blocks of states that tokens permute, as long as no element is lost.

S_5 with its 120 permutations as states acts on five blocks of 24; what composition of maps costs falls with the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Map


@dataclass(frozen=True)
class SmallAction:
    """Tokens as permutations of the states, and of fewer points."""

    maps: tuple[Map, ...]
    points: tuple[Map, ...]

    @property
    def is_smaller(self) -> bool:
        """Fewer points than states."""
        return len(self.points[0]) < len(self.maps[0])

    def elements(self) -> dict[Map, Map]:
        """Every element on the points, with what it does to the states: both groups are walked side by side."""
        start = tuple(range(len(self.points[0])))
        found, queue = {start: tuple(range(len(self.maps[0])))}, [start]
        for element in queue:
            for on_points, on_states in zip(self.points, self.maps, strict=True):
                image = tuple(on_points[x] for x in element)
                if image not in found:
                    found[image] = tuple(on_states[x] for x in found[element])
                    queue.append(image)
        return found


def smallest_action(maps: Sequence[Map]) -> SmallAction:
    """Blocks over blocks, as long as the action on them is faithful and has fewer points."""
    tokens, order = tuple(maps), PermutationGroup.generated(maps).order
    while True:
        best = None
        for x in range(1, len(tokens[0])):
            blocks = _blocks(tokens, x)
            count = max(blocks) + 1
            if 1 < count < (len(best[0]) if best else len(tokens[0])):
                moved = tuple(_on_blocks(image, blocks, count) for image in tokens)
                if PermutationGroup.generated(moved).order == order:
                    best = moved
        if best is None:
            return SmallAction(tuple(maps), tokens)
        tokens = best


def _blocks(tokens: Sequence[Map], x: int) -> list[int]:
    """The finest partition that all tokens respect and that puts 0 and x together: the block of every point."""
    parent = list(range(len(tokens[0])))

    def root(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    queue = [(0, x)]
    while queue:
        a, b = (root(y) for y in queue.pop())
        if a != b:
            parent[b] = a
            # Images of all members must meet as well; those of a and b carry the news.
            members = [y for y in range(len(parent)) if root(y) == a]
            for image in tokens:
                queue += [(image[members[0]], image[y]) for y in members[1:]]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(y), len(numbers)) for y in range(len(parent))]


def _on_blocks(image: Map, blocks: Sequence[int], count: int) -> Map:
    moved = [0] * count
    for point, block in enumerate(blocks):
        moved[block] = blocks[image[point]]
    return tuple(moved)
