"""Sequential Monte Carlo: evidence against enumeration, the law of the weighted particles and of the one drawn."""

import math
from collections import Counter

import pytest
import torch
from small_trees import distance, network_tree, random_tree, random_values

from sandtable.arguments import ArgumentError
from sandtable.decoding import smc

TREES = {
    "table": random_tree(3, 4, eos=2, seed=31, zeros=0.2),
    "network": network_tree(3, 3, eos=2, seed=5),
}
RUNS = {"table": 6000, "network": 2000}


def values_of(tree):
    tau = {leaf: max(0.0, value) for leaf, value in random_values(tree.leaves, 5, -1.0, 2.0).items()}
    return random_values(tree.nodes, 4, 0.1, 2.0), tau


def run(tree, runs=None, **options):
    values, tau = values_of(tree)
    runs = runs or RUNS["network" if tree.prompt else "table"]
    options = dict(max_tokens=tree.horizon, leaf_value=tree.verifier(tau, True), generator=2) | options
    return smc(tree.lm, [tree.prompt] * runs, tree.verifier(values, True), **options)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize(
    "options",
    [
        dict(particles=1),
        dict(particles=4, ess_threshold=1.0),
        dict(particles=4, ess_threshold=0.7, resample="multinomial"),
        dict(particles=3, ess_threshold=0.0),
    ],
)
def test_the_evidence_is_unbiased(kind, options):
    tree = TREES[kind]
    made = run(tree, **options)
    _, tau = values_of(tree)
    evidence = made.log_evidence.exp()
    error = float(evidence.std()) / len(made) ** 0.5
    assert abs(float(evidence.mean()) - tree.value(tau)[()]) < 4 * error
    assert torch.equal(made.accepted, evidence > 0)


@pytest.mark.parametrize("kind", TREES)
def test_weighted_particles_are_unbiased_for_every_string(kind):
    """E[Z · weight of y] = p(y) τ(y), with any number of particles and any twist."""
    tree = TREES[kind]
    _, tau = values_of(tree)
    made = run(tree, particles=3, ess_threshold=0.9, returns="all")
    assert len(made) == 3 * RUNS[kind]
    weights, measured = (made.log_weight + made.log_evidence).exp().tolist(), Counter()
    for row, weight in zip(made.completions, weights, strict=True):
        measured[tuple(row)] += weight / RUNS[kind] if math.isfinite(weight) else 0.0
    expected = {leaf: tree.base(leaf) * tau[leaf] for leaf in tree.leaves}
    assert distance(measured, expected) < 0.05 * sum(expected.values())


@pytest.mark.parametrize("kind", TREES)
def test_the_particle_drawn_has_nearly_the_tilted_law(kind):
    tree = TREES[kind]
    _, tau = values_of(tree)
    made = run(tree, particles=40)
    assert distance(tree.frequencies(made), tree.tilted(tau)) < (0.03 if kind == "table" else 0.05)
    assert made.score.tolist() == pytest.approx([tau[tuple(row)] for row in made.completions])


def test_where_all_is_worth_the_same_nothing_is_resampled():
    tree = TREES["table"]
    made = smc(tree.lm, [[]] * 50, tree.verifier(dict.fromkeys(tree.nodes, 0.7)), max_tokens=4, particles=5)
    assert torch.allclose(made.log_evidence.exp(), torch.tensor(0.7, dtype=torch.float64))
    assert made.resampled.eq(0).all()
    assert torch.allclose(made.ess, torch.tensor(5.0, dtype=torch.float64))


@pytest.mark.parametrize("kind", TREES)
def test_the_bill_the_trace_and_the_batches(kind):
    tree = TREES[kind]
    made = run(tree, runs=20, particles=4, trace=True, batch_size=7)
    whole = run(tree, runs=20, particles=4)
    particles = run(tree, runs=20, particles=4, returns="all", trace=True)
    assert made.rows == whole.rows
    assert [made.trace.replay(row) for row in range(20)] == made.rows
    assert [particles.trace.replay(row) for row in range(80)] == particles.rows
    for counter in ("queries", "forwards", "verifier_calls"):
        assert torch.equal(getattr(made, counter), getattr(whole, counter))
        assert torch.equal(getattr(particles, counter).view(20, 4).sum(1), getattr(whole, counter))
    assert torch.equal(whole.queries, whole.verifier_calls)
    assert torch.allclose(particles.log_weight.view(20, 4).exp().sum(1), torch.ones(20, dtype=torch.float64))


def test_a_row_without_weight_fails():
    tree = TREES["table"]
    nothing = tree.verifier(dict.fromkeys(tree.nodes, 0.0))
    made = smc(tree.lm, [[]] * 3, nothing, max_tokens=4, particles=5)
    assert not made.accepted.any()
    assert made.log_evidence.tolist() == [-math.inf] * 3
    assert made.queries.tolist() == [5] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(particles=0), "particles=0"),
        (dict(resample="stratified"), "resample='stratified'"),
        (dict(ess_threshold=1.5), "ess_threshold=1.5"),
        (dict(returns="some"), "returns='some'"),
        (dict(floor=-1.0), "floor=-1"),
    ],
)
def test_bad_input_gets_one_clear_line(options, message):
    with pytest.raises(ArgumentError, match=message) as error:
        run(TREES["table"], runs=2, **options)
    assert "\n" not in str(error.value)
