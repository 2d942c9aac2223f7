"""Programs over S_5 against truth tables written as Python expressions, and the facts about 5-cycles by enumeration."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.theory.automata import barrington, compile
from sandtable.theory.automata.barrington import And, Not, Or, Var, depth, program, truth, word_problem
from sandtable.theory.automata.permutations import commutator, times

VARIABLES = 3
TABLE = torch.tensor(list(itertools.product([False, True], repeat=VARIABLES)))


def formulas(deep=3):
    leaf = st.integers(0, VARIABLES - 1).map(Var)
    for _ in range(deep):
        leaf = st.one_of(leaf, leaf.map(Not), st.builds(And, leaf, leaf), st.builds(Or, leaf, leaf))
    return leaf


def value(formula, row):
    """The formula's value, and how many gates lie one inside the other."""
    match formula:
        case Var(index):
            return row[index], 0
        case Not(inside):
            v, deep = value(inside, row)
            return not v, deep
        case And(left, right) | Or(left, right):
            (a, one), (b, other) = value(left, row), value(right, row)
            return (a and b if isinstance(formula, And) else a or b), 1 + max(one, other)


@settings(max_examples=60, deadline=None)
@given(formulas(), st.sampled_from(barrington.full_cycles(5)))
def test_programs(formula, cycle):
    found = program(formula, cycle=cycle)
    rows = TABLE.tolist()
    right = [value(formula, row)[0] for row in rows]
    deep = value(formula, rows[0])[1]
    assert depth(formula) == deep
    assert len(found) == 4**deep
    assert truth(formula, TABLE).tolist() == found.decide(TABLE).tolist() == right
    for row, v, together in zip(rows, right, found.product(TABLE).tolist(), strict=True):
        image = tuple(range(5))
        for step in found.instructions:
            image = times(step.one if row[step.variable] else step.zero, image)
        assert image == tuple(together) == (cycle if v else tuple(range(5)))


@pytest.mark.parametrize("deep", range(5))
def test_drawn_formulas(deep):
    generator = torch.Generator().manual_seed(deep)
    for early in (0.0, 0.5):
        formula = barrington.random_formula(deep, VARIABLES, generator, early=early)
        assert depth(formula) == deep
        assert len(program(formula)) == 4**deep
        assert program(formula).decide(TABLE).equal(truth(formula, TABLE))


def test_a_compiled_network_decides_formulas():
    """Sixteen instructions, four layers."""
    formula = Or(And(Var(0), Not(Var(1))), And(Var(1), Var(2)))
    written = program(formula)
    compiled = compile(word_problem(), len(written))
    assert compiled.sizes.depth == 4
    states = compiled.simulate(written.word(TABLE))[:, -1]
    right = [(a and not b) or (b and c) for a, b, c in TABLE.tolist()]
    assert (states != word_problem().start).tolist() == right


def test_cycles():
    """24 five-cycles, 240 ordered pairs with one as commutator; with fewer points there are none."""
    cycles = barrington.full_cycles(5)
    assert len(cycles) == len(set(cycles)) == 24
    pairs = [(s, t) for s in cycles for t in cycles if commutator(s, t) in cycles]
    assert len(pairs) == 240
    assert set(barrington.cycle_commutators(5)) == set(pairs)
    assert [len(barrington.cycle_commutators(n)) for n in (2, 3, 4)] == [0, 0, 0]
    for cycle in cycles:
        s, t = barrington.split_cycle(cycle)
        back = tuple(s.index(x) for x in range(5)), tuple(t.index(x) for x in range(5))
        image = tuple(range(5))
        for step in (s, t, *back):
            image = times(step, image)
        assert {s, t} <= set(cycles)
        assert image == cycle
        w = barrington.conjugator(cycles[0], cycle)
        assert times(times(w, cycles[0]), tuple(w.index(x) for x in range(5))) == cycle


def test_text():
    assert barrington.text(Or(And(Var(0), Not(Var(1))), Var(2))) == "((x0 ∧ ¬x1) ∨ x2)"


def deep_formula(levels):
    formula = Var(0)
    for _ in range(levels):
        formula = And(formula, formula)
    return formula


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Not(3), "formula=3: must be made of Var, Not, And and Or"),
        (lambda: Var(-1), "index=-1"),
        (lambda: program("x0"), "formula='x0'"),
        (lambda: program(Var(0), cycle=(1, 0, 2, 3, 4)), "must be a cycle of all 5 points"),
        (lambda: program(deep_formula(11)), "formula of depth 11: at most 10"),
        (lambda: program(Var(2)).decide(TABLE[:, :2]), "must be rows of at least 3 values"),
        (lambda: truth(Var(2), TABLE[:, :2]), "2 values a row, but the formula has x2"),
    ],
)
def test_bad_formulas(call, message):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
