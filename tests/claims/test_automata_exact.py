"""How claims ask compiled networks, against the verifier; and what their automata are said to be."""

import pytest
import torch

from sandtable.claims.automata import algebra, cascades, doubling
from sandtable.claims.automata.checking import damaged, every_input, exhaustible, long_inputs
from sandtable.lab import Lab, judge
from sandtable.theory.automata import compile, semigroup, verify
from sandtable.worlds.automata import fixture


@pytest.mark.parametrize("damage", ["none", "positions one late", "last layer left out"])
def test_every_input_is_what_the_verifier_tries(damage):
    compiled = damaged(compile("ABAB", 4, method="log"), damage)
    asked, known = every_input(compiled), verify(compiled)
    assert (asked.inputs, asked.wrong, asked.residual) == (known.inputs, known.wrong, known.residual)
    assert (asked.wrong == 0) == (damage == "none" or "positions" in damage)


def test_a_damaged_clock_is_noticed():
    memory = compile("FLIPFLOP", 30, method="memory")
    assert long_inputs(memory, 10, seed=0).wrong == 0
    assert long_inputs(damaged(memory, "positions one late"), 10, seed=0).wrong > 0


def test_limits_on_inputs():
    assert exhaustible(fixture("FLIPFLOP"), 2 * 3**4) == 4
    assert exhaustible(fixture("S5"), 1) == 1


@pytest.mark.parametrize("points", [2, 3, 4])
def test_all_maps_are_all(points):
    assert semigroup(cascades.all_maps(points)).order == points**points


def test_resets_reset():
    automaton = cascades.with_resets("S3", 2)
    assert automaton.n_states == 3
    assert automaton.simulate(torch.tensor([0, 2, 1, 3])).tolist() == [1, 1, 2, 2]


def test_maps_of_rank_two_and_bijections():
    ranks = semigroup(algebra.maps_of_rank(4, 2)).ranks.tolist()
    assert set(ranks) == {1, 2, 4}
    assert ranks.count(4) == 24


def test_a_chain_of_pairs_leads_one_way():
    """No word leads from a later pair back to an earlier one."""
    chain = algebra.chain_of_pairs(5)
    pairs = [frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4))]
    maps = semigroup(chain).maps
    for j, later in enumerate(pairs):
        images = {frozenset(int(image[q]) for q in later) for image in maps}
        assert not images & set(pairs[:j])
        assert j + 1 == len(pairs) or pairs[j + 1] in images


def test_large_automata_are_asked_on_long_inputs(monkeypatch):
    monkeypatch.setattr(doubling, "LARGE_ROWS", 1)
    settings = doubling.LogDepth(names=("PARITY",), large=("DYCK",), limit=8, length=4, rows=1, lengths=(1,))
    evidence = doubling.doubling(settings, Lab(seeds=(0,)))
    assert judge(evidence.checks).verdict == "holds"
    assert [row[0] for row in evidence.tables["automata"].rows] == ["PARITY", "PARITY", "DYCK"]
    assert {"DYCK", "RUBIK"} <= {*doubling.doubling.scales["desk"].large}
