"""Any solvable automaton: its holonomy decomposition as a cascade of permutation-reset automata (Theorem 11)."""

from __future__ import annotations

from functools import cache

from sandtable.theory.automata.compile.cascade import Cascade, Coordinates
from sandtable.theory.automata.holonomy import Holonomy, holonomy
from sandtable.theory.automata.image_sets import Action
from sandtable.worlds.automata import Automaton


def holonomy_cascade(automaton: Automaton | Holonomy) -> Cascade:
    """Components whose set the new chain does not pass through are reset to 0, so that no old state lingers in them."""
    decomposition = automaton if isinstance(automaton, Holonomy) else holonomy(automaton)
    count = len(decomposition.components)
    levels: dict[int, list[int]] = {}
    for i, component in enumerate(decomposition.components):
        levels.setdefault(component.level, []).append(i)
    idle = Action(reset=0)

    @cache
    def actions(old: Coordinates, token: int) -> tuple[Action, ...]:
        found = decomposition.actions(old, token)
        return tuple(found.get(i, idle) for i in range(count))

    return Cascade(
        levels=tuple(tuple(levels[level]) for level in sorted(levels)),
        sizes=decomposition.sizes,
        actions=actions,
        starts=tuple(decomposition.encode(q) for q in range(decomposition.automaton.n_states)),
        decode=decomposition.decode,
    )


def single_component(automaton: Automaton) -> Cascade:
    """A permutation-reset automaton as a cascade of itself alone."""
    given = [Action(reset=image[0]) if len(set(image)) == 1 else Action(permutation=image) for image in automaton.maps]
    return Cascade(
        levels=((0,),),
        sizes=(automaton.n_states,),
        actions=lambda old, token: (given[token],),
        starts=tuple((q,) for q in range(automaton.n_states)),
        decode=lambda old: old[0],
    )
