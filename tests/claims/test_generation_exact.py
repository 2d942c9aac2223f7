"""The measuring instruments of the exact claims on generation, and how errata lean on what holds."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from sandtable.claims import verifier, vgb
from sandtable.claims.verifier import exact, hidden, slips
from sandtable.claims.vgb import first_leaf, instances
from sandtable.lab import Lab
from sandtable.theory import generation as theory
from sandtable.worlds import HiddenPrefix, Knapsack, Slips

BY_ID = {item.id: item for item in (*verifier.CLAIMS, *vgb.CLAIMS)}
PRINTED = (hidden.hidden_prefix_printed, hidden.support_aware_printed)


@pytest.mark.parametrize("printed", PRINTED, ids=lambda item: item.id)
def test_an_erratum_differs_from_its_correction_in_one_setting(printed):
    corrected = BY_ID[printed.corrected]
    assert printed.measure is corrected.measure
    for scale, settings in printed.scales.items():
        before = dataclasses.asdict(corrected.scales[scale])
        assert sum(before[name] != value for name, value in dataclasses.asdict(settings).items()) == 1


def test_each_line_has_a_tour():
    assert BY_ID["verifier/slip-oracle"].tour
    assert BY_ID["vgb/amplification"].tour


def test_searches_ask_the_oracle_until_it_is_even():
    """Every cost from 1 to M occurs about equally often; with replacement the mean is M."""
    lab = Lab(seeds=(0, 1))
    found = hidden._searches(lab, (4,), 20, 100, "without replacement", "none")["queries"]
    assert found.shape == (2, 20, 100, 1)
    shares = np.bincount(found.astype(int).ravel(), minlength=9)[1:] / found.size
    assert np.abs(shares - 1 / 8).max() < 0.02
    again = hidden._searches(lab, (4,), 20, 100, "with replacement", "none")["queries"]
    assert again.mean() == pytest.approx(8, rel=0.06)
    told = hidden._searches(lab, (4,), 20, 100, "without replacement", "support")["queries"]
    assert told.mean() == pytest.approx(theory.hidden_prefix_tokenwise(4), rel=0.04)


def test_posterior_after_odd_answers():
    assert max(hidden._posterior_errors(4, 0.5)) < 1e-15
    assert max(hidden._posterior_errors(4, 0.7)) > 0.1
    answers = [HiddenPrefix(4, s).answer for s in itertools.product((0, 1), repeat=3)]
    assert hidden._constant_answer(4, 0.5) == answers.count((0, 0, 0, 0)) / 8


def test_slips_are_counted_by_the_decoder():
    found = slips._runs(Lab(seeds=(0,)), Slips(6, 0.3), ((0, 1, "argmax"), (6, 1, "argmax")), 400, "perfect")
    assert found["right"].shape == (1, 2, 400)
    assert found["right"][0, 1].all()
    assert found["right"][0, 0].mean() == pytest.approx(0.7**6, abs=0.06)
    assert (found["queries"][0, 0] == 6).all()


def test_greedy_choice_needs_superincreasing_weights_and_no_table():
    generator = torch.Generator().manual_seed(0)
    settings = exact.SubsetSums(tabled=12)
    assert {exact._greedy(settings, generator) for _ in range(20)} == {(True, False)}
    any_target = dataclasses.replace(settings, target="any")
    assert not all(solved for solved, _ in (exact._greedy(any_target, generator) for _ in range(20)))
    assert exact._greedy(dataclasses.replace(settings, family="arbitrary"), generator) == (True, True)


def test_tables_hold_sums_or_subsets():
    world = Knapsack((1, 2, 3), 6)
    assert exact._entries(world, merged=True) == 1 + 2 + 4 + 7
    assert exact._entries(world, merged=False) == 1 + 2 + 4 + 8


def test_absorption_by_a_linear_system_is_a_law():
    item = instances.instance(3, 3, torch.Generator().manual_seed(0))
    chain = theory.Chain.of(item.tree, item.values)
    hits, visits = first_leaf._absorbed(chain)
    assert hits.sum() == pytest.approx(1)
    assert visits.sum() == pytest.approx(9)
    lazy_hits, lazy_visits = first_leaf._absorbed(chain, lazy=True)
    np.testing.assert_allclose(lazy_hits, hits)
    np.testing.assert_allclose(lazy_visits, 2 * visits)


def test_instances_are_what_they_say():
    (item,) = instances.instances(Lab(seeds=(3,)), ((2, 3),), 1)
    np.testing.assert_allclose(item.target, theory.restricted_law(item.tree, item.reward))
    assert item.values[0] == pytest.approx(theory.base_law(item.tree) @ item.reward)
    off = item.off(0.5, torch.Generator().manual_seed(0)) / item.values
    assert (off[item.tree.leaves] == 1).all()
    assert np.abs(np.log(off)).max() <= np.log(1.5) + 1e-12
    (ended,) = instances.instances(Lab(seeds=(3,)), ((2, 3),), 1, ends=True)
    assert len(np.unique(ended.tree.depth[ended.tree.leaves])) > 1


def test_a_guide_looks_values_up():
    item = instances.instance(2, 3, torch.Generator().manual_seed(0))
    *_, rows = item.tree.prefixes()
    view = type("View", (), {"tokens": rows, "lengths": torch.full((8,), 2)})
    scores = instances.guide(item.tree, item.values).score(view)
    np.testing.assert_allclose(scores, item.values[item.tree.locate(rows[:, :2])])


def test_closed_forms_of_slips_are_the_known_numbers():
    known = (0.392, 0.677, 0.677, 0.957, 0.365, 0.620, 0.488, 0.753)
    assert tuple(round(slips._closed(slips.WORLD, cell)[0], 3) for cell in slips.CELLS) == known
    assert {slips._taken(cell, exchanged=True) for cell in slips.CELLS} == set(slips.CELLS)
