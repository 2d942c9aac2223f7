"""How many layers every construction needs, told from the algebra alone: no weights are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.theory.automata.algebra import Algebra, algebra
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.actions import smallest_action
from sandtable.theory.automata.compile.factors import factors, quotient
from sandtable.theory.automata.compile.log_depth import depth, require_small
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
def depths(automaton: Automaton | Algebra | str, length: int = 100) -> tuple[Depth, ...]:
    """For every method in the order of `compile.METHODS`; an automaton, its algebra or its name.

    What the sizes of a cascade's tables forbid shows only when it is built.
    """
    length = whole("length", length)
    facts = automaton if isinstance(automaton, Algebra) else algebra(automaton, cap=1)
    return (
        *_special(facts.automaton),
        *_of_groups(facts),
        _product(facts.automaton, length),
        _permutation_reset(facts),
        _krohn_rhodes(facts),
        _log(facts, length),
    )


def shallowest(found: Sequence[Depth]) -> Depth | None:
    """What `method="auto"` takes: the shallowest of constant depth, unless "log" is shallower; None: nothing is left.

    Of several the one that is listed first. The printed semidirect and wreath products are taken only when asked for.
    """
    left = [d for d in found if d.layers is not None and d.method not in ("semidirect", "wreath")]
    return min(left, key=lambda d: d.layers or 0, default=None)


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


def _product(automaton: Automaton, length: int) -> Depth:
    try:
        partitions = factors(automaton)
    except ArgumentError as error:
        return Depth("product", None, str(error))
    if len(partitions) == 1:
        return Depth("product", None, "no smaller automata tell its states side by side")
    parts = [quotient(automaton, blocks) for blocks in partitions]
    best = [shallowest([d for d in depths(part, length) if d.is_constant]) for part in parts]
    layers = [d.layers for d in best if d is not None and d.layers is not None]
    if len(layers) < len(parts):
        return Depth("product", None, "a factor has no constant depth")
    texts = [f"{d.method} of {part.n_states} states" for d, part in zip(best, parts, strict=True) if d is not None]
    return Depth("product", max(layers), "side by side: " + ", ".join(texts))


def _permutation_reset(facts: Algebra) -> Depth:
    automaton, name = facts.automaton, "permutation-reset"
    if not recognise.permutes_or_resets(automaton):
        return Depth(name, None, "a token is neither bijection nor constant")
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


def _log(facts: Algebra, length: int) -> Depth:
    try:
        require_small(facts.automaton, None if facts.group is None else smallest_action(facts.automaton.maps))
    except ArgumentError as error:
        return Depth("log", None, str(error))
    return Depth("log", depth(length), f"⌈log₂ {length}⌉; any automaton")


def _length(group: PermutationGroup) -> int:
    """Of the derived series down to the identity: how many layers of counters."""
    return len(derived_series(group)) - 1
