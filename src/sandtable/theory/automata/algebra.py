"""All that is found about an automaton at once, as far as sizes allow; what was left out says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.holonomy import Holonomy, holonomy
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.theory.automata.semigroup import Semigroup, most_maps, semigroup
from sandtable.theory.automata.series import composition_factors
from sandtable.theory.automata.solvability import Obstacle, obstacle
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton


@dataclass(frozen=True, eq=False)
class Algebra:
    """An automaton with its semigroup, group and holonomy; parts that would be too large are None."""

    automaton: Automaton
    group: PermutationGroup | None
    """Where all tokens are bijections: the semigroup is this group, whether it is listed or not."""
    semigroup: Semigroup | None
    holonomy: Holonomy | None
    limits: tuple[str, ...]
    """What was left out, and why, one sentence each."""

    @property
    def order(self) -> int | None:
        """Of the semigroup."""
        if self.group is not None:
            return self.group.order
        return None if self.semigroup is None else self.semigroup.order

    @cached_property
    def is_aperiodic(self) -> bool | None:
        """None: not known within the caps."""
        if self.group is not None:
            return self.group.order == 1
        known = self.semigroup or self.holonomy
        return None if known is None else known.is_aperiodic

    @cached_property
    def is_solvable(self) -> bool | None:
        """None: not known within the caps."""
        if self.group is not None:
            return self.group.is_solvable
        known = self.holonomy or self.semigroup
        return None if known is None else known.is_solvable

    @cached_property
    def obstacle(self) -> Obstacle | None:
        """What makes it non-solvable, if anything does and holonomy shows it."""
        return None if self.is_solvable or self.holonomy is None else obstacle(self.holonomy)

    @cached_property
    def composition(self) -> tuple[int, ...] | None:
        """Composition factors of the group; None where it is none, or too large to be taken apart."""
        try:
            return None if self.group is None else composition_factors(self.group)
        except ArgumentError:
            return None


def algebra(automaton: Automaton | str, *, cap: int | None = None) -> Algebra:
    """Semigroup, group and holonomy of an automaton or of a name; `cap` is the most maps that are listed."""
    automaton = as_automaton(automaton)
    most = most_maps(automaton, cap)
    limits: list[str] = []
    decomposed = listed = group = None
    try:
        decomposed = holonomy(automaton)
    except ArgumentError as error:
        limits.append(f"holonomy left out: {error}")
    if all(len(set(image)) == automaton.n_states for image in automaton.maps):
        group = PermutationGroup.of(automaton)
        if decomposed is not None and decomposed.components:
            group = decomposed.components[0].group  # the same permutations, and what is worked out is kept
    try:
        if group is not None and group.order > most:
            raise ArgumentError(f"cap={most}: the group has {group.order:,} elements")
        listed = semigroup(automaton, cap=most)
    except ArgumentError as error:
        limits.append(f"semigroup not listed: {error}")
    return Algebra(automaton, group, listed, decomposed, tuple(limits))
