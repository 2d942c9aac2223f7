"""`compile`: the construction that suits an automaton, or the one asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.actions import smallest_action
from sandtable.theory.automata.compile.bounds import cascade_bound, reset_bound
from sandtable.theory.automata.compile.cascade import Cascade, compile_cascade
from sandtable.theory.automata.compile.compiled import Compiled
from sandtable.theory.automata.compile.counter import counter
from sandtable.theory.automata.compile.factors import factors
from sandtable.theory.automata.compile.grid import grid
from sandtable.theory.automata.compile.groups import from_simulator
from sandtable.theory.automata.compile.krohn_rhodes import holonomy_cascade, single_component
from sandtable.theory.automata.compile.log_depth import by_points, depth, log_depth
from sandtable.theory.automata.compile.memory import memory
from sandtable.theory.automata.compile.side_by_side import side_by_side
from sandtable.theory.automata.compile.simulators import Simulator, cocycle, semidirect, wreath
from sandtable.theory.automata.holonomy import holonomy
from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.theory.automata.semigroup import semigroup
from sandtable.theory.automata.solvability import Obstacle, obstacle
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton

LISTED = 20_000
"""Semigroups beyond this size are not listed for the bound; |Q|^|Q| stands in for them."""


class NotThisWay(ArgumentError):
    """The automaton does not admit the construction that was asked for."""

    def __init__(self, method: str, reason: str, advice: str = "") -> None:
        super().__init__(f"method={method!r}: {reason}{advice}")
        self.reason, self.advice = reason, advice


@typed
def compile(automaton: Automaton | str, length: int = 100, *, method: str = "auto") -> Compiled:
    """A Transformer that gives the states q_1 … q_T of an automaton for every input of at most T = `length` tokens.

    - "memory", "counter" (1 layer), "grid" (2): automata of that kind;
    - "cocycle", "semidirect", "wreath": bijections that generate a solvable group (its series' length);
    - "product": what smaller automata on the same tokens tell side by side, each its shallowest way (the deepest's);
    - "permutation-reset": every token a bijection or constant; "krohn-rhodes": any solvable automaton;
    - "log": any automaton of at most 63 states, and bijections that act on few points, ⌈log₂T⌉ layers;
    - "constant": the shallowest whose depth does not depend on T; "auto": the shallowest of all.
    """
    automaton = as_automaton(automaton)
    length = whole("length", length)
    if one_of("method", method, (*METHODS, "auto", "constant")) in METHODS:
        return METHODS[method](automaton, length)
    try:
        best = _shallowest_constant(automaton, length)
    except NotThisWay as error:
        if method == "constant":
            raise
        return _log_after(automaton, length, error.reason)
    if method == "auto" and depth(length) < best.sizes.depth:
        with suppress(NotThisWay):
            return METHODS["log"](automaton, length)
    return best


def _shallowest_constant(automaton: Automaton, length: int) -> Compiled:
    """The shallowest construction of constant depth, of several the one that is listed first.

    Memories, counters and corridors cannot be had in fewer layers, nor groups in fewer than their derived series has
    steps. Of the others only the cascade of an automaton can have fewer layers than those of its factors, and none has
    fewer than three but those that are found before it.
    """
    best, refusal = None, NotThisWay("constant", "")
    for method in ("memory", "counter", "grid", "cocycle", "product", "permutation-reset", "krohn-rhodes"):
        try:
            made = METHODS[method](automaton, length)
        except NotThisWay as error:
            refusal = NotThisWay("constant", error.reason, error.advice)
            continue
        if best is None or made.sizes.depth < best.sizes.depth:
            best = made
        if method != "product" or best.sizes.depth <= 3:
            return best
    if best is None:
        raise refusal  # that of the construction for everything solvable
    return best


def _log_after(automaton: Automaton, length: int, reason: str) -> Compiled:
    """By doubling; where that is too large as well, both reasons."""
    try:
        return METHODS["log"](automaton, length)
    except NotThisWay as error:
        raise NotThisWay("auto", f"{error.reason}; and no constant depth: {reason}") from None


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
        _require_solvable(method, automaton, Obstacle.of_group(group))
        if group.order == 1:
            return _counter(automaton, length)
        return _within_sizes(method, lambda: from_simulator(automaton, length, simulator(group, length), method))

    return build


def _product(automaton: Automaton, length: int) -> Compiled:
    def build() -> Compiled:
        partitions = factors(automaton)
        if len(partitions) == 1:
            raise NotThisWay("product", f"{_name(automaton)} is not told by smaller automata side by side")
        try:
            return side_by_side(automaton, length, partitions, _shallowest_constant)
        except NotThisWay as error:
            raise NotThisWay("product", f"of a factor: {error.reason}") from None

    return _within_sizes("product", build)


def _permutation_reset(automaton: Automaton, length: int) -> Compiled:
    if not recognise.permutes_or_resets(automaton):
        raise NotThisWay("permutation-reset", f"{_name(automaton)} has tokens that are neither bijections nor constant")
    group = recognise.bijections(automaton)
    _require_solvable("permutation-reset", automaton, Obstacle.of_group(group))

    def build() -> Compiled:
        bound = reset_bound(cocycle(group, length).bound, group.order, automaton.n_states, length)
        return _cascaded(single_component(automaton), automaton, length, "permutation-reset", bound.record)

    return _within_sizes("permutation-reset", build)


def _krohn_rhodes(automaton: Automaton, length: int) -> Compiled:
    def build() -> Compiled:
        decomposed = holonomy(automaton)
        _require_solvable("krohn-rhodes", automaton, obstacle(decomposed))
        try:
            maps = float(semigroup(automaton, cap=LISTED).order)
        except ArgumentError:
            n = automaton.n_states
            maps = float(n) ** n if n < 100 else math.inf
        bound = cascade_bound(automaton.n_states, automaton.n_tokens, maps, length)
        return _cascaded(holonomy_cascade(decomposed), automaton, length, "krohn-rhodes", bound)

    group = recognise.group_of(automaton)
    if group is not None:  # found out sooner, and without a limit on the states
        _require_solvable("krohn-rhodes", automaton, Obstacle.of_group(group))
    return _within_sizes("krohn-rhodes", build)


def _cascaded(cascade: Cascade, automaton: Automaton, length: int, method: str, bound: dict[str, float]) -> Compiled:
    if not cascade.sizes:
        raise NotThisWay(method, f"{_name(automaton)} has one state, so that there is nothing to decompose")
    return compile_cascade(cascade, automaton, length, method, bound=bound)


def _within_sizes(method: str, build: Callable[[], Compiled]) -> Compiled:
    """What is built, or a refusal that says which size was too large."""
    try:
        return build()
    except NotThisWay:
        raise
    except ArgumentError as error:
        raise NotThisWay(method, str(error)) from None


def _log(automaton: Automaton, length: int) -> Compiled:
    if recognise.group_of(automaton) is None:
        return _within_sizes("log", lambda: log_depth(automaton, length))
    return _within_sizes("log", lambda: by_points(automaton, length, smallest_action(automaton.maps)))


METHODS: dict[str, Callable[[Automaton, int], Compiled]] = {
    "memory": _memory,
    "counter": _counter,
    "grid": _grid,
    "cocycle": _group("cocycle", cocycle),
    "semidirect": _group("semidirect", semidirect),
    "wreath": _group("wreath", wreath),
    "product": _product,
    "permutation-reset": _permutation_reset,
    "krohn-rhodes": _krohn_rhodes,
    "log": _log,
}
"""From shallow to deep, the ones for everybody last."""


def _require_solvable(method: str, automaton: Automaton, found: Obstacle | None) -> None:
    if found is not None:
        raise NotThisWay(
            method,
            f"{_name(automaton)} is non-solvable: {found.text(automaton)}; no depth that does not "
            "grow with the length is known for it",
            advice=", use method='log'",
        )


def _name(automaton: Automaton) -> str:
    count = automaton.n_states
    return automaton.name or f"this automaton of {count} state{'s' * (count > 1)}"
