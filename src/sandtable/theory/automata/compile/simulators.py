"""Layers that turn group elements g_1, g_2, … at the positions into their products g_t ⋯ g_1, by counters alone.

A simulator writes elements as vectors of integers, the identity as zeros. Three ways up from N ◁ G with H = G/N:

- *cocycle*, for every extension: x = t(h)·n, h_t = σ̄_t h_{t−1} is counted, then c_t = t(h_t)⁻¹ σ_t t(h_{t−1}) ∈ N is
  multiplied up, and g_t ⋯ g_1 = t(h_t)·(c_t ⋯ c_1). One copy of N will do, whether G splits or not.
- *semidirect*, G = N⋊H: φ_h(n) = h n h⁻¹; Π φ⁻¹_{h≤τ}(n_τ) = φ⁻¹_{h≤t}(n_{≤t}) (Lemma 18, stages corrected).
- *wreath*, any extension inside N≀H: f_x(h) = t(h) x t(h x̄)⁻¹, |H| copies of N that H permutes (Lemma 19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile.bounds import (
    Bound,
    abelian_bound,
    semidirect_bound,
    solvable_bound,
    wreath_bound,
)
from sandtable.theory.automata.compile.counter import modulo
from sandtable.theory.automata.compile.gadgets import tables_over
from sandtable.theory.automata.compile.heads import counting
from sandtable.theory.automata.compile.program import Layer, coordinate, part
from sandtable.theory.automata.compile.rungs import Rung, derived_rung, prime_rung, prime_rungs, rung
from sandtable.theory.automata.permutations import PermutationGroup, inverse, order_of, power, times
from sandtable.worlds.automata import Map

MOST_ELEMENTS = 5_000
Code = tuple[int, ...]
Built = tuple[list[Layer], list[str]]
"""Layers, and the coordinates in which the codes of the products stand at last."""


@dataclass(frozen=True, eq=False)
class Simulator:
    """How products in a group are computed.

    `build(names, inputs)` gives layers that read the codes of g_t, elements of `inputs`, from the coordinates `names`,
    which they may overwrite; coordinates of their own begin with names[0].
    """

    group: PermutationGroup
    codes: dict[Map, Code]
    sizes: tuple[int, ...]
    """Entry i of a code is below sizes[i]."""
    build: Callable[[list[str], Sequence[Map]], Built]
    bound: Bound
    key: tuple[int, ...]
    """Entries of a code that tell the element."""

    @property
    def dimensions(self) -> int:
        return len(self.sizes)


def _require_listed(group: PermutationGroup) -> None:
    if group.order > MOST_ELEMENTS:
        raise ArgumentError(f"a group of {group.order:,} elements: every one needs a unit, at most {MOST_ELEMENTS:,}")


def trivial(group: PermutationGroup) -> Simulator:
    return Simulator(group, {group.identity: ()}, (), lambda names, inputs: ([], []), Bound(), ())


def abelian(group: PermutationGroup, length: int) -> Simulator:
    """One counter for every cyclic factor of prime power order, all in one layer (Lemmas 15 and 17)."""
    step = rung(group, group.subgroup(()))

    def build(names: list[str], inputs: Sequence[Map]) -> Built:
        return [_counters(names, names, step.orders, length)], names

    return Simulator(group, step.digits, step.orders, build, abelian_bound(step.orders, length), _all(step.orders))


def cocycle(group: PermutationGroup, length: int, *, series: str = "derived") -> Simulator:
    """Up the derived series (abelian quotients, one layer each) or a "prime" series."""
    _require_listed(group)
    if group.order == 1:
        return trivial(group)
    if series == "derived" and group.is_abelian:
        return abelian(group, length)
    step = derived_rung(group) if series == "derived" else prime_rung(group)
    inner = cocycle(step.kernel, length, series=series)
    digits = step.digits
    codes = {g: (*digits[g], *inner.codes[step.rest(g)]) for g in group.elements}
    outer = len(step.orders)

    def build(names: list[str], inputs: Sequence[Map]) -> Built:
        counts = [f"{name} counted" for name in names[:outer]]
        count = _counters(names[:outer], counts, step.orders, length)
        if not inner.dimensions:
            return [count], counts
        rows, left = [], {}
        for g in inputs:
            for after, t_after in step.transversal.items():
                before = digits[times(inverse(g), t_after)]
                c = times(times(inverse(t_after), g), step.transversal[before])
                rows.append(((*codes[g], *after), inner.codes[c]))
                left[c] = None
        wire = part(tables_over(rows), [*names, *counts], names[outer:])
        layers, results = inner.build(names[outer:], list(left))
        return [count.followed_by(wire), *layers], [*counts, *results]

    bound = solvable_bound(group.order, group.degree, length)
    return Simulator(group, codes, (*step.orders, *inner.sizes), build, bound, _all(codes[group.identity]))


def semidirect(group: PermutationGroup, length: int, *, third: str = "N") -> Simulator:
    """G = N⋊C_p step by step where some N of prime index has a complement, down to abelian groups.

    Lemma 18 prints that stage 3 runs the simulator of H (`third="H"`) where N's is meant.
    """
    _require_listed(group)
    if group.order == 1:
        return trivial(group)
    if group.is_abelian:
        return abelian(group, length)
    for step in prime_rungs(group):
        (p,) = step.orders
        outside = [x for x in group.elements if x not in step.kernel.places and power(x, p) == group.identity]
        if outside:
            try:
                inner = semidirect(step.kernel, length)
            except ArgumentError:
                continue
            return _semidirect(Rung(group, step.kernel, (outside[0],), (p,)), inner, length, third)
    raise ArgumentError(
        f"a group of order {group.order}: no normal subgroup of prime index has a complement, so it is no semidirect "
        "product of smaller ones; use method='cocycle' or 'wreath'"
    )


def _semidirect(step: Rung, inner: Simulator, length: int, third: str) -> Simulator:
    (p,), group = step.orders, step.group
    (x,) = step.lifts
    parts = {times(n, power(x, h)): (n, h) for n in step.kernel.elements for h in range(p)}
    codes = {g: (*inner.codes[n], h) for g, (n, h) in parts.items()}
    turns = [power(x, h) for h in range(p)]

    def build(names: list[str], inputs: Sequence[Map]) -> Built:
        *own, h = names
        used = dict.fromkeys(parts[g][0] for g in inputs)
        back = [
            ((*inner.codes[n], k), inner.codes[times(times(inverse(turn), n), turn)])
            for n in used
            for k, turn in enumerate(turns)
        ]
        forth = [
            ((*inner.codes[n], k), inner.codes[times(times(turn, n), inverse(turn))])
            for n in step.kernel.elements
            for k, turn in enumerate(turns)
        ]
        first = _counters([h], [h], (p,), length).followed_by(part(tables_over(back), [*own, h], own))
        turned = {times(times(inverse(turn), n), turn): None for n in used for turn in turns}
        layers, results = inner.build(own, list(turned))
        if third == "H":
            layers, results = [_counters(own, own, (p,) * len(own), length)], own
        last = layers[-1].followed_by(part(tables_over(forth), [*results, h], results))
        return [first, *layers[:-1], last], [*results, h]

    bound = semidirect_bound(inner.bound, p, group.order, length)
    return Simulator(group, codes, (*inner.sizes, p), build, bound, _all(codes[group.identity]))


def wreath(group: PermutationGroup, length: int) -> Simulator:
    """Up a prime series, every step inside N≀C_p: f ∈ N^p and h, with f_x(j) = t(j)·x·t(j·x̄)⁻¹."""
    _require_listed(group)
    if group.order == 1:
        return trivial(group)
    if any(order_of(g) == group.order for g in group.elements):
        return abelian(group, length)
    step = prime_rung(group)
    (p,) = step.orders
    inner = wreath(step.kernel, length)
    t = [step.transversal[(j,)] for j in range(p)]
    size = inner.dimensions

    def tuple_of(g: Map) -> tuple[Map, ...]:
        (h,) = step.digits[g]
        return tuple(times(times(t[j], g), inverse(t[(j + h) % p])) for j in range(p))

    codes = {g: (*(k for f in tuple_of(g) for k in inner.codes[f]), *step.digits[g]) for g in group.elements}

    def build(names: list[str], inputs: Sequence[Map]) -> Built:
        h, copies = names[-1], [names[j * size : (j + 1) * size] for j in range(p)]
        first = _counters([h], [h], (p,), length).followed_by(*_exchange(copies, h, inner.sizes, -1))
        values = list(dict.fromkeys(f for g in inputs for f in tuple_of(g)))
        built = [inner.build(copy, values) for copy in copies]
        layers, results = together([layers for layers, _ in built]), [result for _, result in built]
        last = layers[-1].followed_by(*_exchange(results, h, inner.sizes, 1))
        return [first, *layers[:-1], last], [*(name for result in results for name in result), h]

    bound = wreath_bound(inner.bound, p, step.kernel.order, length)
    return Simulator(group, codes, (*inner.sizes * p, p), build, bound, (*inner.key, p * size))  # x = f(e)·t(h)


def _exchange(copies: Sequence[Sequence[str]], h: str, sizes: Sequence[int], sign: int) -> list:
    """Copy j receives what copy j + sign·h holds, number by number."""
    p, parts = len(copies), []
    for k, size in enumerate(sizes):
        column = [copy[k] for copy in copies]
        for source in range(p):
            rows = []
            for value, turn in product(range(size), range(p)):
                shown = [0] * p
                shown[(source - sign * turn) % p] = value
                rows.append(((value, turn), shown))
            parts.append(part(tables_over(rows), [column[source], h], column))
    return parts


def _counters(reads: Sequence[str], writes: Sequence[str], orders: Sequence[int], length: int) -> Layer:
    heads = tuple(counting((coordinate(a),), (b,)) for a, b in zip(reads, writes, strict=True))
    return Layer(heads, (tuple(modulo(n, length, b, b) for n, b in zip(orders, writes, strict=True)),))


def together(columns: Sequence[Sequence[Layer]]) -> list[Layer]:
    """Lists of layers run side by side: layer by layer, stage by stage."""
    merged = []
    for i in range(max(map(len, columns), default=0)):
        layers = [column[i] for column in columns if i < len(column)]
        depth = max(len(layer.stages) for layer in layers)
        stages = tuple(
            tuple(part for layer in layers if k < len(layer.stages) for part in layer.stages[k]) for k in range(depth)
        )
        merged.append(Layer(tuple(head for layer in layers for head in layer.heads), stages))
    return merged


def _all(code: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(len(code)))
