"""What is known about an automaton, as plain numbers and names: the same for people and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandtable.arguments import ArgumentError

if TYPE_CHECKING:
    from sandtable.theory.automata import Algebra, Compiled, PermutationGroup, Semigroup, Verified
    from sandtable.worlds.automata import Automaton


def facts(known: Algebra, length: int) -> dict[str, Any]:
    """The automaton, its algebra, and how many layers every construction needs for inputs of this `length`."""
    from sandtable.theory.automata import depths, shallowest

    found, obstacle = depths(known, length), known.obstacle
    taken = shallowest(found)
    return dict(
        **_automaton(known.automaton),
        order=known.order,
        semigroup=known.semigroup and _semigroup(known.semigroup),
        group=known.group and _group(known.group, known.composition),
        aperiodic=known.is_aperiodic,
        solvable=known.is_solvable,
        obstacle=obstacle and obstacle.text(known.automaton),
        levels=known.holonomy
        and [[dict(states=c.size, group=_named(c.group)) for c in level] for level in known.holonomy.levels],
        length=length,
        depths=[dict(method=d.method, layers=d.layers, why=d.why) for d in found],
        auto=taken and taken.method,
        limits=list(known.limits),
    )


def _automaton(automaton: Automaton) -> dict[str, Any]:
    return dict(
        name=automaton.name or None,
        states=[automaton.state_name(q) for q in range(automaton.n_states)],
        tokens=list(automaton.vocab.tokens),
        start=automaton.state_name(automaton.start),
        labels=automaton.observe,
        table=automaton.table,
    )


def _semigroup(listed: Semigroup) -> dict[str, Any]:
    subgroups = listed.maximal_subgroups()
    return dict(
        order=listed.order,
        is_group=listed.is_group,
        has_identity=listed.has_identity,
        idempotents=len(listed.idempotents),
        d_classes=int(listed.d_class.max()) + 1,
        subgroups=[dict(rank=int(listed.ranks[e]), **_named(group)) for e, group in subgroups],
    )


def _named(group: PermutationGroup) -> dict[str, Any]:
    from sandtable.theory.automata import group_name

    return dict(name=group_name(group), order=group.order)


def _group(group: PermutationGroup, composition: Sequence[int] | None) -> dict[str, Any]:
    from sandtable.theory.automata import derived_orders, prime_series

    try:
        primes = [step.group.order for step in prime_series(group)] + [1] if group.is_solvable else None
    except ArgumentError:  # too large to be taken apart
        primes = None
    return dict(**_named(group), derived=list(derived_orders(group)), primes=primes, composition=composition)


def sizes(compiled: Compiled) -> dict[str, dict[str, float | None]]:
    """Every size that theorems speak of, beside its bound where there is one."""
    from sandtable.theory.automata.compile.sizes import MEASURED

    found = compiled.sizes
    return {name: dict(size=getattr(found, name), bound=compiled.bound.get(name)) for name in MEASURED}


def compiled_facts(compiled: Compiled) -> dict[str, Any]:
    found = compiled.sizes
    return dict(
        automaton=compiled.automaton.name or None,
        method=compiled.method,
        length=compiled.length,
        sizes=sizes(compiled),
        positions=found.positions,
        parameters=found.parameters,
        gates=found.gates,
        wires=found.wires,
    )


def verified_facts(found: Verified, automaton: Automaton) -> dict[str, Any]:
    wrong: Mapping[str, Any] | None = None
    if found.first_wrong is not None:
        start, word = found.first_wrong
        wrong = dict(start=automaton.state_name(start), input=automaton.vocab.text(word))
    return dict(
        exact=found.exact,
        exhaustive=found.exhaustive,
        length=found.length,
        inputs=found.inputs,
        wrong=found.wrong,
        accuracy=found.accuracy,
        first_wrong=wrong,
        residual=found.residual,
        hard_heads=len(found.softness),
        softest=found.softest,
    )
