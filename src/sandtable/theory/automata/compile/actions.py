"""The same group on fewer points: blocks of states that tokens permute, as long as no element is lost.

S_5 with its 120 permutations as states acts on five blocks of 24; what composition of maps costs falls with the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sandtable.theory.automata.compile.factors import joined
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.worlds.automata import Map

MOST_POINTS = 1_000
"""Larger actions are left as they are."""
LOOKED_AT = 1 << 22
"""Entries of the maps by which actions are told apart."""


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
    """The fewest points found by blocks over blocks, as long as the action on them is faithful.

    The best blocks of blocks need not lie above the best blocks, so all are followed, but only one of those that look
    the same (`_look`): the subgroups of S_5 fall into 19 classes.
    """
    tokens, order = tuple(maps), PermutationGroup.generated(maps).order
    best, seen, actions = tokens, {_look(tokens)}, [tokens]
    for action in actions if len(tokens[0]) <= MOST_POINTS else ():
        for blocks in dict.fromkeys(joined(action, len(action[0]), [(0, x)]) for x in range(1, len(action[0]))):
            count = max(blocks) + 1
            moved = tuple(_on_blocks(image, blocks, count) for image in action)
            if count == 1 or (look := _look(moved)) in seen:
                continue
            seen.add(look)
            if PermutationGroup.generated(moved).order == order:
                actions.append(moved)
                best = min(best, moved, key=lambda action: len(action[0]))
    return SmallAction(tokens, best)


def _look(tokens: Sequence[Map]) -> tuple:
    """How many points there are, and how many of them words of up to three tokens leave where they are."""
    one = words = np.array(tokens)
    still, kept = np.arange(one.shape[1]), [(one == np.arange(one.shape[1])).sum(1)]
    while len(kept) < 3 and len(one) * words.size <= LOOKED_AT:
        words = one[:, words].reshape(-1, len(still))
        kept.append((words == still).sum(1))
    return (len(still), *(counts.tobytes() for counts in kept))


def _on_blocks(image: Map, blocks: Sequence[int], count: int) -> Map:
    moved = [0] * count
    for point, block in enumerate(blocks):
        moved[block] = blocks[image[point]]
    return tuple(moved)
