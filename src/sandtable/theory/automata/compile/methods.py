"""`compile`: the construction that suits an automaton, or the one asked for."""

from __future__ import annotations

import math
from collections.abc import Callable

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.actions import smallest_action
from sandtable.theory.automata.compile.bounds import cascade_bound, reset_bound
from sandtable.theory.automata.compile.cascade import Cascade, compile_cascade
from sandtable.theory.automata.compile.compiled import Compiled
from sandtable.theory.automata.compile.counter import counter
from sandtable.theory.automata.compile.grid import grid
from sandtable.theory.automata.compile.groups import from_simulator
from sandtable.theory.automata.compile.krohn_rhodes import holonomy_cascade, single_component
from sandtable.theory.automata.compile.log_depth import by_points, depth, log_depth
from sandtable.theory.automata.compile.memory import memory
from sandtable.theory.automata.compile.simulators import Simulator, cocycle, semidirect, wreath
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.theory.automata.semigroup import semigroup
from sandtable.theory.automata.solvability import obstacle
from sandtable.worlds.automata import Automaton, fixture

LISTED = 20_000
"""Semigroups beyond this size are not listed for the bound; |Q|^|Q| stands in for them."""


class NotThisWay(ArgumentError):
    """The automaton does not admit the construction that was asked for."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"method={method!r}: {reason}")
        self.reason = reason


def compile(automaton: Automaton | str, length: int = 100, *, method: str = "auto") -> Compiled:
    """A Transformer that gives the states q_1 … q_T of an automaton for every input of at most T = `length` tokens.

    - "memory", "counter" (1 layer), "grid" (2): automata of that kind;
    - "cocycle", "semidirect", "wreath": bijections that generate a solvable group (its series' length);
    - "permutation-reset": every token a bijection or constant; "krohn-rhodes": any solvable automaton;
    - "log": any automaton, ⌈log₂T⌉ layers;
    - "constant": the shallowest whose depth does not depend on T; "auto": the shallowest of all.
    """
    automaton = fixture(automaton) if isinstance(automaton, str) else automaton
    whole("length", length)
    if one_of("method", method, (*METHODS, "auto", "constant")) in METHODS:
        return METHODS[method](automaton, length)
    best = _shallowest_constant(automaton, length)
    if isinstance(best, NotThisWay) and method == "constant":
        raise NotThisWay(method, best.reason)
    if method == "auto" and (isinstance(best, NotThisWay) or depth(length) < best.sizes.depth):
        try:
            return METHODS["log"](automaton, length)
        except NotThisWay:
            if isinstance(best, NotThisWay):
                raise
    return best  # pyright: ignore[reportReturnType]


def _shallowest_constant(automaton: Automaton, length: int) -> Compiled | NotThisWay:
    """The first construction of constant depth that applies: they are listed from shallow to deep."""
    refusal = NotThisWay("constant", "no construction applies")
    for method in ("memory", "counter", "grid", "cocycle", "permutation-reset", "krohn-rhodes"):
        try:
            return METHODS[method](automaton, length)
        except NotThisWay as error:
            refusal = error
    return refusal


# -- one construction each -------------------------------------------------------------------------------------------


def _memory(automaton: Automaton, length: int) -> Compiled:
    found = recognise.writes(automaton)
    if found is None:
        raise NotThisWay("memory", f"{_name(automaton)} has tokens that neither keep nor write one state")
    return memory(automaton, length, writes=found)


def _counter(automaton: Automaton, length: int) -> Compiled:
    found = recognise.counting(automaton)
    if found is None:
        raise NotThisWay("counter", f"the tokens of {_name(automaton)} are not powers of one permutation")
    return counter(automaton, length, order=found.order, powers=found.powers, states=found.states)


def _grid(automaton: Automaton, length: int) -> Compiled:
    found = recognise.corridor(automaton)
    if found is None:
        raise NotThisWay("grid", f"the tokens of {_name(automaton)} do not move along a line by at most one")
    return grid(automaton, length, order=found.order, moves=found.moves)


def _group(method: str, simulator: Callable[[PermutationGroup, int], Simulator]) -> Callable[..., Compiled]:
    def build(automaton: Automaton, length: int) -> Compiled:
        group = recognise.group_of(automaton)
        if group is None:
            raise NotThisWay(method, f"{_name(automaton)} has tokens that are no bijections")
        _require_solvable(method, automaton, group)
        if group.order == 1:
            return _counter(automaton, length)
        try:
            return from_simulator(automaton, length, simulator(group, length), method)
        except ArgumentError as error:
            raise NotThisWay(method, str(error)) from None

    return build


def _permutation_reset(automaton: Automaton, length: int) -> Compiled:
    if not recognise.permutes_or_resets(automaton):
        raise NotThisWay("permutation-reset", f"{_name(automaton)} has tokens that are neither bijections nor constant")
    group = PermutationGroup.generated(
        [image for image in automaton.maps if len(set(image)) == automaton.n_states], automaton.n_states
    )
    _require_solvable("permutation-reset", automaton, group)
    simulated = cocycle(group, length)
    bound = reset_bound(simulated.bound, group.order, automaton.n_states, length)
    return _cascaded(single_component(automaton), automaton, length, "permutation-reset", bound.record)


def _krohn_rhodes(automaton: Automaton, length: int) -> Compiled:
    _require_solvable("krohn-rhodes", automaton)
    try:
        maps = float(semigroup(automaton, cap=LISTED).order)
    except ArgumentError:
        n = automaton.n_states
        maps = float(n) ** n if n < 100 else math.inf
    bound = cascade_bound(automaton.n_states, automaton.n_tokens, maps, length)
    return _cascaded(holonomy_cascade(automaton), automaton, length, "krohn-rhodes", bound)


def _cascaded(cascade: Cascade, automaton: Automaton, length: int, method: str, bound: dict[str, float]) -> Compiled:
    if not cascade.sizes:
        raise NotThisWay(method, f"{_name(automaton)} has one state, so that there is nothing to decompose")
    try:
        return compile_cascade(cascade, automaton, length, method, bound=bound)
    except ArgumentError as error:
        raise NotThisWay(method, str(error)) from None


def _log(automaton: Automaton, length: int) -> Compiled:
    try:
        if recognise.group_of(automaton) is None:
            return log_depth(automaton, length)
        return by_points(automaton, length, smallest_action(automaton.maps))
    except ArgumentError as error:
        raise NotThisWay("log", str(error)) from None


METHODS: dict[str, Callable[[Automaton, int], Compiled]] = {
    "memory": _memory,
    "counter": _counter,
    "grid": _grid,
    "cocycle": _group("cocycle", cocycle),
    "semidirect": _group("semidirect", semidirect),
    "wreath": _group("wreath", wreath),
    "permutation-reset": _permutation_reset,
    "krohn-rhodes": _krohn_rhodes,
    "log": _log,
}
"""From shallow to deep, the ones for everybody last."""


def _require_solvable(method: str, automaton: Automaton, group: PermutationGroup | None = None) -> None:
    if group is not None and group.is_solvable:
        return
    found = obstacle(automaton)
    if found is not None:
        raise NotThisWay(
            method,
            f"{_name(automaton)} is non-solvable: {found.text(automaton)}; no depth that does not "
            "grow with the length is known for it, use method='log'",
        )


def _name(automaton: Automaton) -> str:
    return automaton.name or f"this automaton of {automaton.n_states} states"
