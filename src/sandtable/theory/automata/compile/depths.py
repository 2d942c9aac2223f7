"""How many layers every construction needs, told from the algebra alone: no weights are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandtable.arguments import typed, whole
from sandtable.theory.automata.algebra import Algebra, algebra
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.rungs import prime_rungs
from sandtable.theory.automata.permutations import PermutationGroup, derived_orders, derived_series, order_of, power
from sandtable.theory.automata.series import prime_series
from sandtable.worlds.automata import Automaton

TRIED = 1_000
"""Groups beyond this order are not searched for complements."""


@dataclass(frozen=True)
class Depth:
    """What one method of `compile` would give."""

    method: str
    layers: int | None
    """None: the automaton does not admit it."""
    why: str

    @property
    def is_constant(self) -> bool:
        """Whether the depth is the same for every length."""
        return self.method != "log"


@typed
def depths(automaton: Automaton | Algebra, length: int = 100) -> tuple[Depth, ...]:
    """For every method in the order of `compile.METHODS`; sizes may still forbid to build it."""
    length = whole("length", length)
    facts = automaton if isinstance(automaton, Algebra) else algebra(automaton, cap=1)
    layers = max(1, (length - 1).bit_length())
    return (
        *_special(facts.automaton),
        *_of_groups(facts),
        _permutation_reset(facts),
        _krohn_rhodes(facts),
        Depth("log", layers, f"⌈log₂ {length}⌉; any automaton"),
    )


def shallowest(found: Sequence[Depth]) -> Depth:
    """What `method="auto"` takes: the first that applies of constant depth, unless "log" is shallower."""
    *rest, log = found
    constant = [d for d in rest if d.layers is not None and d.method not in ("semidirect", "wreath")]
    return log if not constant or (log.layers or 0) < (constant[0].layers or 0) else constant[0]


def _special(automaton: Automaton) -> tuple[Depth, ...]:
    writes = recognise.writes(automaton) is not None
    count, line = recognise.counting(automaton), recognise.corridor(automaton)
    return (
        Depth(
            "memory",
            1 if writes else None,
            "every token keeps or writes one state" if writes else "a token neither keeps nor writes one state",
        ),
        Depth(
            "counter",
            1 if count else None,
            f"tokens are powers of one permutation of order {count.order}"
            if count
            else "tokens are not powers of one permutation",
        ),
        Depth(
            "grid",
            2 if line else None,
            "tokens move along a line, one place at most" if line else "tokens do not move along a line",
        ),
    )


def _of_groups(facts: Algebra) -> tuple[Depth, ...]:
    group, names = facts.group, ("cocycle", "semidirect", "wreath")
    if group is None:
        return tuple(Depth(name, None, "a token is no bijection") for name in names)
    if not group.is_solvable:
        return tuple(Depth(name, None, "the group is not solvable") for name in names)
    if group.order > recognise.MOST_ELEMENTS:
        why = f"the group has {group.order:,} elements; at most {recognise.MOST_ELEMENTS:,} are listed"
        return tuple(Depth(name, None, why) for name in names)
    orders = derived_orders(group)
    series = " ▷ ".join(map(str, orders))
    steps = prime_series(group)
    primes = [step.group.order for step in steps] + [1]
    if group.order > TRIED:
        split, why = None, f"complements are not sought beyond {TRIED:,} elements"
    else:
        split = _semidirect(group)
        why = "complements all the way to an abelian group" if split else "some step has no complement"
    return (
        Depth("cocycle", max(1, len(orders) - 1), f"derived series {series}"),
        Depth("semidirect", split, why),
        Depth("wreath", _wreath(group), f"prime series {' ▷ '.join(map(str, primes))}, down to a cyclic group"),
    )


def _semidirect(group: PermutationGroup) -> int | None:
    """A layer for every C_p split off, and one for the abelian group that is left."""
    if group.is_abelian:
        return 1
    for step in prime_rungs(group):
        (p,) = step.orders
        if any(x not in step.kernel.places and power(x, p) == group.identity for x in group.elements):
            inner = _semidirect(step.kernel)
            if inner is not None:
                return inner + 1
    return None


def _wreath(group: PermutationGroup) -> int:
    """A layer for every prime step, the cyclic group below counting as one."""
    groups = [step.group for step in prime_series(group)]
    return 1 + next((i for i, part in enumerate(groups) if _is_cyclic(part)), 0)


def _is_cyclic(group: PermutationGroup) -> bool:
    return group.is_abelian and any(order_of(g) == group.order for g in group.elements)


def _permutation_reset(facts: Algebra) -> Depth:
    automaton, name = facts.automaton, "permutation-reset"
    if not recognise.permutes_or_resets(automaton):
        return Depth(name, None, "a token is neither bijection nor constant")
    if automaton.n_states == 1:
        return Depth(name, None, "one state: nothing to decompose")
    group = facts.group or recognise.bijections(automaton)
    if not group.is_solvable:
        return Depth(name, None, "the group of its bijections is not solvable")
    return Depth(name, _length(group) + 1, f"bijections form a group of order {group.order:,}; a memory behind it")


def _krohn_rhodes(facts: Algebra) -> Depth:
    name, cascade = "krohn-rhodes", facts.holonomy
    if cascade is None:
        return Depth(name, None, "not decomposed: too many image sets")
    if not cascade.is_solvable:
        return Depth(name, None, "a component's group is not solvable")
    if not cascade.components:
        return Depth(name, None, "one state: nothing to decompose")
    # In every level the deepest group, then a memory; before every level but the first, a head that looks one back.
    layers = sum(1 + max(_length(component.group) for component in level) for level in cascade.levels)
    levels = len(cascade.levels)
    return Depth(name, layers + levels - 1, f"{levels} level{'s' * (levels > 1)} of its holonomy decomposition")


def _length(group: PermutationGroup) -> int:
    """Of the derived series down to the identity: how many layers of counters."""
    return len(derived_series(group)) - 1
