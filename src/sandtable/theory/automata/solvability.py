"""Is an automaton aperiodic, is it solvable, and if not, because of which group?"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

from sandtable.theory.automata.holonomy import Holonomy, holonomy
from sandtable.theory.automata.permutations import PermutationGroup, derived_series
from sandtable.worlds.automata import Automaton


@dataclass(frozen=True, eq=False)
class Obstacle:
    """A perfect group inside an automaton: words permute `tiles` of the image set `states` by a group with it in it."""

    states: frozenset[int]
    tiles: tuple[frozenset[int], ...]
    group: PermutationGroup
    perfect: PermutationGroup
    """The last derived subgroup of `group`, which is its own."""

    @classmethod
    def of_group(cls, group: PermutationGroup) -> Obstacle | None:
        """What makes a group of permutations of all states non-solvable."""
        tiles = tuple(frozenset([q]) for q in range(group.degree))
        return cls._inside(group, frozenset(range(group.degree)), tiles)

    @classmethod
    def _inside(
        cls, group: PermutationGroup, states: frozenset[int], tiles: tuple[frozenset[int], ...]
    ) -> Obstacle | None:
        perfect = derived_series(group)[-1]
        return None if perfect.order == 1 else cls(states, tiles, group, perfect)

    @property
    def name(self) -> str:
        """A_n where the perfect group has half the permutations of the n tiles that it moves, or is of order 60."""
        moved = {x for g in self.perfect.generators for x, y in enumerate(g) if x != y}
        if 2 * self.perfect.order == factorial(len(moved)):
            return f"A_{len(moved)}, of order {self.perfect.order:,}"
        return "A_5, of order 60" if self.perfect.order == 60 else f"of order {self.perfect.order:,}"

    def text(self, automaton: Automaton) -> str:
        """One clause that names the subgroup."""
        single = all(len(tile) == 1 for tile in self.tiles)
        what = f"{len(self.tiles)} states" if single else f"{len(self.tiles)} sets of states"
        whole = "" if self.perfect.order == self.group.order else f" (inside a group of order {self.group.order:,})"
        return f"words permute {what} by a group with the perfect subgroup {self.name}{whole}"


def is_aperiodic(automaton: Automaton | str) -> bool:
    """No subgroup of the transition semigroup but trivial ones; from holonomy, so that no semigroup is listed."""
    return holonomy(automaton).is_aperiodic


def is_solvable(automaton: Automaton | str) -> bool:
    """All subgroups of the transition semigroup are solvable."""
    return holonomy(automaton).is_solvable


def obstacle(automaton: Automaton | Holonomy | str) -> Obstacle | None:
    """What makes an automaton non-solvable; None where it is solvable."""
    cascade = automaton if isinstance(automaton, Holonomy) else holonomy(automaton)
    found = (Obstacle._inside(part.group, part.representative, part.tiles) for part in cascade.components)
    return next((one for one in found if one is not None), None)
