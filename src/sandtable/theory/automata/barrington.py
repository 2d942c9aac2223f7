"""Boolean formulas as words over S_5 (Barrington 1989): why an automaton that is not solvable is hard.

A program is a list of instructions (variable, permutation if it is false, permutation if it is true). Its permutations,
one after the other, carry five points by a fixed 5-cycle α where the formula is true, and nowhere where it is false:

    x:      (x, e, α)
    ¬f:     f for α⁻¹, then α
    f ∧ g:  f for s, g for t, f for s⁻¹, g for t⁻¹,   where s, t, s⁻¹, t⁻¹ one after the other are α

so depth d needs 4ᵈ instructions. The commutator of two 5-cycles can be a 5-cycle because A_5 is perfect; in a solvable
group commutators sink into smaller and smaller subgroups, and so do deep formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import permutations, product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole
from sandtable.theory.automata.permutations import commutator, conjugate, cycles, inverse, times
from sandtable.worlds.automata import Automaton, Map, from_permutations
from sandtable.worlds.automata.groups import one_line

POINTS = 5
IDENTITY: Map = tuple(range(POINTS))
ALPHA: Map = (1, 2, 3, 4, 0)
MOST_DEPTH = 10


# -- formulas --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Var:
    """The variable of this number."""

    index: int

    def __post_init__(self) -> None:
        whole("index", self.index, least=0)


@dataclass(frozen=True)
class Not:
    inside: Formula

    def __post_init__(self) -> None:
        _require(self.inside)


@dataclass(frozen=True)
class And:
    left: Formula
    right: Formula

    def __post_init__(self) -> None:
        _require(self.left, self.right)


@dataclass(frozen=True)
class Or:
    left: Formula
    right: Formula

    def __post_init__(self) -> None:
        _require(self.left, self.right)


Formula = Var | Not | And | Or


def _require(*parts: Formula) -> None:
    for part in parts:
        if not isinstance(part, Formula):
            raise ArgumentError(f"formula={part!r}: must be made of Var, Not, And and Or")


def depth(formula: Formula) -> int:
    """How many of ∧ and ∨ lie one inside the other; ¬ counts nothing."""
    match formula:
        case Var():
            return 0
        case Not(inside):
            return depth(inside)
        case And(left, right) | Or(left, right):
            return 1 + max(depth(left), depth(right))


def truth(formula: Formula, assignments: Bool[Tensor, "row variable"]) -> Bool[Tensor, " row"]:
    """Whether the formula is true, for every row of values."""
    match formula:
        case Var(index):
            if index >= assignments.shape[1]:
                raise ArgumentError(f"assignments: {assignments.shape[1]} values a row, but the formula has x{index}")
            return assignments[:, index].bool()
        case Not(inside):
            return ~truth(inside, assignments)
        case And(left, right):
            return truth(left, assignments) & truth(right, assignments)
        case Or(left, right):
            return truth(left, assignments) | truth(right, assignments)


def text(formula: Formula) -> str:
    """The formula in signs."""
    match formula:
        case Var(index):
            return f"x{index}"
        case Not(inside):
            return f"¬{text(inside)}"
        case And(left, right):
            return f"({text(left)} ∧ {text(right)})"
        case Or(left, right):
            return f"({text(left)} ∨ {text(right)})"


def random_formula(
    depth: int, variables: int, generator: torch.Generator, *, early: float = 0.0, negated: float = 0.5
) -> Formula:
    """A formula of this depth: ∧ or ∨ alike, ¬ with probability `negated`, variables uniform.

    One of the two sides goes on to the full depth; at every step the other ends with probability `early`.
    """
    whole("depth", depth, least=0, most=MOST_DEPTH)
    whole("variables", variables)
    number("early", early, least=0.0, most=1.0)
    number("negated", negated, least=0.0, most=1.0)

    def chance(p: float) -> bool:
        return float(torch.rand((), generator=generator)) < p

    def draw(left: int, full: bool) -> Formula:
        if left == 0 or (not full and chance(early)):
            found: Formula = Var(int(torch.randint(variables, (), generator=generator)))
        else:
            gate, first = And if chance(0.5) else Or, chance(0.5)
            found = gate(draw(left - 1, full and first), draw(left - 1, full and not first))
        return Not(found) if chance(negated) else found

    return draw(depth, True)


# -- programs --------------------------------------------------------------------------------------------------------


class Instruction(NamedTuple):
    """What a variable does to the points."""

    variable: int
    zero: Map
    one: Map


IDLE = Instruction(0, IDENTITY, IDENTITY)


@dataclass(frozen=True)
class Program:
    """Instructions whose permutations, one after the other, are `cycle` where the formula is true, else nothing."""

    formula: Formula
    instructions: tuple[Instruction, ...]
    cycle: Map

    def __len__(self) -> int:
        return len(self.instructions)

    def word(self, assignments: Bool[Tensor, "row variable"]) -> Int[Tensor, "row instruction"]:
        """Every row of values as an input of `word_problem()`."""
        variables, zero, one = self._columns
        if assignments.ndim != 2 or assignments.shape[1] <= int(variables.max()):
            raise ArgumentError(
                f"assignments of shape {tuple(assignments.shape)}: must be rows of at least {int(variables.max()) + 1} "
                "values"
            )
        return torch.where(assignments.bool()[:, variables], one, zero)

    def product(self, assignments: Bool[Tensor, "row variable"]) -> Int[Tensor, "row point"]:
        """What the instructions do together, halves multiplied pair by pair: ⌈log₂ 4ᵈ⌉ rounds."""
        parts = torch.tensor(all_permutations())[self.word(assignments)]
        while parts.shape[1] > 1:
            parts = parts[:, 1::2].gather(2, parts[:, ::2])  # lengths are powers of four
        return parts[:, 0]

    def decide(self, assignments: Bool[Tensor, "row variable"]) -> Bool[Tensor, " row"]:
        """Whether the formula is true, told by where an automaton of five states ends: α moves every point."""
        points = word_problem()
        return points.simulate(self.word(assignments))[:, -1] != points.start

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor, Tensor]:
        place = {p: i for i, p in enumerate(all_permutations())}
        rows = [(i.variable, place[i.zero], place[i.one]) for i in self.instructions]
        variables, zero, one = torch.tensor(rows).T
        return variables, zero, one


Split = Callable[[Map], tuple[Map, Map]]
"""α ↦ s, t for the program of f ∧ g."""


def program(formula: Formula, *, cycle: Map = ALPHA, split: Split | None = None) -> Program:
    """The program of a formula, 4^depth instructions long: shallow parts wait in instructions that do nothing.

    `split` gives s and t for every 5-cycle that a part of the formula is to be carried by; by default conjugates of one
    pair of 5-cycles.
    """
    if len(cycle) != POINTS or not is_cycle(cycle):
        raise ArgumentError(f"cycle={cycle!r}: must be a cycle of all {POINTS} points")
    _require(formula)
    deep = depth(formula)
    if deep > MOST_DEPTH:
        raise ArgumentError(f"formula of depth {deep}: at most {MOST_DEPTH}, which are 4^{MOST_DEPTH} instructions")
    return Program(formula, tuple(_write(formula, deep, cycle, split or split_cycle)), cycle)


def _write(formula: Formula, left: int, cycle: Map, split: Split) -> list[Instruction]:
    """4^left instructions."""
    match formula:
        case Var(index):
            return [Instruction(index, IDENTITY, cycle)] + [IDLE] * (4**left - 1)
        case Not(inside):
            *found, (variable, zero, one) = _write(inside, left, inverse(cycle), split)
            return [*found, Instruction(variable, times(cycle, zero), times(cycle, one))]
        case And(one, other):
            s, t = split(cycle)
            parts = ((one, s), (other, t), (one, inverse(s)), (other, inverse(t)))
            found = [step for part, by in parts for step in _write(part, depth(formula) - 1, by, split)]
            return found + [IDLE] * (4**left - len(found))
        case Or(one, other):
            return _write(Not(And(Not(one), Not(other))), left, cycle, split)


# -- five points -----------------------------------------------------------------------------------------------------


@cache
def all_permutations() -> tuple[Map, ...]:
    """All 120 permutations of five points, in lexicographic order."""
    return tuple(permutations(range(POINTS)))


@cache
def word_problem() -> Automaton:
    """Five points under all 120 permutations: the automaton that decides every formula, by its program as input."""
    chosen = {one_line(p): p for p in all_permutations()}
    return from_permutations(chosen, name="S5 on points")


def is_cycle(p: Map) -> bool:
    """Whether a permutation is one cycle of all its points."""
    return len(cycles(p)) == 1


def full_cycles(points: int) -> list[Map]:
    """All cycles of so many points: (n − 1)! of them."""
    whole("points", points, most=8)
    return [p for p in permutations(range(points)) if is_cycle(p)]


def cycle_commutators(points: int) -> list[tuple[Map, Map]]:
    """Ordered pairs of such cycles whose commutator is one again: 240 for five points, none for two, three or four."""
    chosen = full_cycles(points)
    return [(s, t) for s, t in product(chosen, chosen) if is_cycle(commutator(s, t))]


@cache
def split_cycle(cycle: Map) -> tuple[Map, Map]:
    """5-cycles s, t with "s, then t, then s⁻¹, then t⁻¹" the given one: conjugates of one pair."""
    a, b = _pair()
    w = conjugator(commutator(a, b), cycle)
    return conjugate(w, inverse(b)), conjugate(w, inverse(a))


@cache
def _pair() -> tuple[Map, Map]:
    return cycle_commutators(POINTS)[0]


def conjugator(one: Map, other: Map) -> Map:
    """Some w with w·one·w⁻¹ = other, both being cycles of all points."""
    found, x, y = list(one), 0, 0
    for _ in one:
        found[x], x, y = y, one[x], other[y]
    return tuple(found)
