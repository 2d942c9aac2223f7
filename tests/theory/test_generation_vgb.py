"""The walk behind VGB against dense matrices built from its definition, and closed forms against both."""

import itertools
import math

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory import generation as theory
from sandtable.worlds import OneZero, Trap, Zeros


def random_tree(seed, vocab, horizon, eos=None, zeros=0.0, **options):
    rng = np.random.default_rng(seed)

    def law(prefix):
        p = rng.gamma(0.7, size=(len(prefix), vocab)) * (rng.random((len(prefix), vocab)) >= zeros)
        p[:, 0] += 0.1
        return torch.tensor(p / p.sum(1, keepdims=True))

    return theory.Tree.of(law, horizon, vocab, eos=eos, **options), rng


CASES = [(0, 2, 4, None, 0.0), (1, 3, 3, None, 0.3), (2, 3, 4, 1, 0.0), (3, 5, 2, 4, 0.2), (4, 2, 1, None, 0.0)]
RANDOM = pytest.mark.parametrize("case", CASES, ids=str)


def dense(tree, values, lazy):
    """The transition matrix, node by node, as the algorithm is printed."""
    n = len(tree)
    matrix = np.zeros((n, n))
    for v in range(n):
        weights = {}
        if v:
            weights[tree.parent[v]] = values[v]
        for child in np.flatnonzero(tree.parent == v):
            weights[child] = tree.step[child] * values[child]
        total = sum(weights.values())
        for u, weight in weights.items():
            matrix[v, u] = weight / total if total else 0.0
        if not total:
            matrix[v, v] = 1.0
    return (matrix + np.eye(n)) / 2 if lazy else matrix


def seen(tree, matrix):
    """Nodes that the walk from the root can reach."""
    reach, before = np.zeros(len(tree), dtype=bool), None
    reach[0] = True
    while before is None or (reach != before).any():
        before = reach.copy()
        reach |= (matrix[reach] > 0).any(0)
    return np.flatnonzero(reach)


@RANDOM
@pytest.mark.parametrize("holes", [0.0, 0.3])
def test_chain_by_dense_algebra(case, holes):
    tree, rng = random_tree(*case)
    values = rng.random(len(tree)) * (rng.random(len(tree)) >= holes)
    values[np.flatnonzero(tree.parent == 0)] += 0.2
    chain = theory.Chain.of(tree, values)
    matrix = dense(tree, values, lazy=True)
    nodes = seen(tree, matrix)
    inside = np.ix_(nodes, nodes)
    np.testing.assert_allclose(chain.transition().toarray()[inside], matrix[inside], atol=1e-14)
    plain = dense(tree, values, lazy=False)[inside]
    np.testing.assert_allclose(chain.transition(lazy=False).toarray()[inside], plain, atol=1e-14)

    # Stationary law: the null vector of (P − 1)ᵀ with sum 1.
    n = len(nodes)
    equations = np.vstack([(matrix[inside] - np.eye(n)).T, np.ones(n)])
    stationary = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0))[0]
    np.testing.assert_allclose(chain.stationary[nodes], stationary, atol=1e-10)
    assert chain.stationary.sum() == pytest.approx(1)
    assert chain.balance_error() < 1e-15
    assert chain.gap() == pytest.approx(1 - np.sort(np.linalg.eigvals(matrix[inside]).real)[-2], abs=1e-9)
    assert chain.leaf_mass == pytest.approx(chain.stationary[tree.leaf].sum())
    assert chain.root_mass == pytest.approx(stationary[0])
    assert chain.level_weights.sum() == pytest.approx(chain.total.sum() / 2)

    # First leaf: the fundamental matrix of the walk killed at leaves.
    inner = nodes[~tree.leaf[nodes]]
    if not tree.leaf[nodes].any():
        assert chain.steps_to_leaf() == math.inf
        return
    for lazy in (True, False):
        law = dense(tree, values, lazy)
        visits = np.linalg.inv(np.eye(len(inner)) - law[np.ix_(inner, inner)])
        assert chain.steps_to_leaf(lazy=lazy) == pytest.approx(visits[0].sum(), rel=1e-8)
        hits = visits[0] @ law[np.ix_(inner, tree.leaves)]
        np.testing.assert_allclose(chain.first_leaf_law, hits, atol=1e-10)
        reached = visits[0] / visits.diagonal()
        np.testing.assert_allclose(chain.reached[inner], reached, atol=1e-9)
    np.testing.assert_allclose(chain.reached[tree.leaves], hits, atol=1e-10)
    assert chain.distinct_queries == pytest.approx(reached.sum())


@RANDOM
def test_walks_of_fixed_length(case):
    tree, rng = random_tree(*case)
    values = rng.random(len(tree)) + 0.1
    chain = theory.Chain.of(tree, values)
    start = np.eye(len(tree))[0]
    for lazy in (True, False):
        matrix = dense(tree, values, lazy)
        powers = [start @ np.linalg.matrix_power(matrix, t) for t in range(8)]
        np.testing.assert_allclose(chain.after(7, lazy=lazy), powers[7], atol=1e-13)
        np.testing.assert_allclose(chain.after(7, lazy=lazy, average=True), np.mean(powers[1:], axis=0), atol=1e-13)
    last = chain.returned(7)
    on_leaves = (start @ np.linalg.matrix_power(dense(tree, values, True), 7))[tree.leaves]
    np.testing.assert_allclose(last.law, on_leaves / on_leaves.sum(), atol=1e-12)
    assert last.leaf_chance == pytest.approx(on_leaves.sum())
    assert last.steps == pytest.approx(7 / on_leaves.sum())
    uniform = chain.returned(7, returns="uniform")
    assert uniform.leaf_chance == pytest.approx(chain.after(7, average=True)[tree.leaves].sum())
    assert uniform.steps == pytest.approx(4 / uniform.leaf_chance)


@RANDOM
def test_leaves_are_exact_whatever_the_inner_values(case):
    tree, rng = random_tree(*case)
    reward = rng.random(len(tree.leaves))
    target = theory.restricted_law(tree, reward)
    values = theory.with_leaves(rng.random(len(tree)) * 5 + 0.01, tree, reward)
    assert theory.tv(theory.Chain.of(tree, values).leaf_law, target) < 1e-12


@pytest.mark.parametrize(("eos", "pad", "exact"), [(None, False, True), (1, True, True), (1, False, False)])
def test_first_leaf_is_exact_for_true_values_if_leaves_are_at_one_depth(eos, pad, exact):
    """Early leaves are met too often: their branches conduct better than their values say."""
    tree, rng = random_tree(2, 3, 4, eos, pad=pad)
    reward = rng.random(len(tree.leaves))
    chain = theory.Chain.of(tree, tree.expect(reward))
    target = theory.restricted_law(tree, reward)
    distance = theory.tv(chain.first_leaf_law, target)
    assert distance < 1e-12 if exact else distance > 0.01
    if not exact:
        early = tree.depth[tree.leaves] == 1
        assert chain.first_leaf_law[early].sum() > target[early].sum() + 0.01


@pytest.mark.parametrize(("vocab", "horizon"), [(2, 3), (3, 4), (2, 7), (1, 5), (4, 1)])
def test_true_values_have_closed_forms(vocab, horizon):
    tree, rng = random_tree(0, vocab, horizon)
    chain = theory.Chain.of(tree, tree.expect(rng.random(len(tree.leaves)) + 0.05))
    assert chain.leaf_mass == pytest.approx(1 / (2 * horizon))
    assert chain.root_mass == pytest.approx(1 / (2 * horizon))
    assert chain.steps_to_leaf(lazy=False) == pytest.approx(horizon**2)
    assert chain.steps_to_leaf() == pytest.approx(2 * horizon**2)
    assert chain.gap() == pytest.approx(theory.exact_gap(horizon, None if vocab == 1 else 0), abs=1e-12)


@pytest.mark.parametrize(("horizon", "first"), [(h, k) for h in (2, 3, 5, 6) for k in range(h)])
def test_gap_where_branching_starts_deeper(horizon, first):
    tree = theory.Tree.of(Zeros(horizon))
    reward = (tree.evaluate(lambda rows: (rows[:, :first] == 0).all(1))[tree.leaves] > 0).astype(float)
    reward *= np.random.default_rng(first).random(len(reward)) + 0.1
    chain = theory.Chain.of(tree, tree.expect(reward))
    assert chain.gap() == pytest.approx(theory.exact_gap(horizon, first), abs=1e-12)


def test_gap_of_larger_trees_by_lanczos():
    tree, rng = random_tree(5, 3, 6)
    assert len(tree) > 1000
    chain = theory.Chain.of(tree, tree.expect(rng.random(len(tree.leaves)) + 0.05))
    assert chain.gap() == pytest.approx(theory.exact_gap(6), abs=1e-9)
    noisy = theory.Chain.of(tree, rng.random(len(tree)) + 0.2)
    small = np.sqrt(noisy.stationary)
    symmetric = small[:, None] * noisy.transition().toarray() / small
    assert noisy.gap() == pytest.approx(1 - np.linalg.eigvalsh(symmetric)[-2], abs=1e-9)


@pytest.mark.parametrize("error", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_under_uniform_error(error, seed):
    tree, rng = random_tree(seed, 2 + seed % 2, 5)
    true = tree.expect(rng.random(len(tree.leaves)) + 0.05)
    noisy = theory.noised(true, tree, error=error, generator=torch.Generator().manual_seed(seed))
    pushed = true * np.where(tree.leaf, 1.0, np.where(tree.depth % 2, 1 + error, 1 / (1 + error)))
    for values in (noisy, pushed):
        chain = theory.Chain.of(tree, values)
        assert chain.leaf_mass >= theory.leaf_mass_bound(5, error) - 1e-12
        assert chain.root_mass >= theory.root_mass_bound(5, error) - 1e-12
        assert chain.gap() >= theory.gap_bound(5, error) - 1e-12


@pytest.mark.parametrize("distance", [0.25, 0.01])
def test_mixing_bound(distance):
    tree, rng = random_tree(0, 2, 5)
    for values in (tree.expect(np.ones(len(tree.leaves))), rng.random(len(tree)) + 0.1):
        chain = theory.Chain.of(tree, values)
        steps = math.ceil(chain.mixing_bound(distance))
        assert theory.tv(chain.after(steps), chain.stationary) <= distance


def test_without_laziness_the_walk_never_settles():
    tree = theory.Tree.of(Zeros(3))
    chain = theory.Chain.of(tree, np.ones(len(tree)))
    for steps in (200, 201):
        assert chain.after(steps, lazy=False)[tree.depth % 2 != steps % 2].sum() == 0


@pytest.mark.parametrize(("world", "tokenwise", "first_leaf"), [(OneZero, 0.0154, 0.0095), (Trap, 0.4697, 0.0567)])
def test_binary_values_repair_calibration(world, tokenwise, first_leaf):
    world = world(6)
    tree = theory.Tree.of(world)
    values = tree.evaluate(world.accepts)
    target = theory.restricted_law(tree, values[tree.leaves])
    chain = theory.Chain.of(tree, values)
    assert theory.tv(theory.tokenwise(tree, values).law, target) == pytest.approx(tokenwise, abs=5e-5)
    assert theory.tv(chain.leaf_law, target) < 1e-14
    assert theory.tv(chain.first_leaf_law, target) == pytest.approx(first_leaf, abs=5e-5)


# -- amplification ---------------------------------------------------------------------------------------------------


def off_values(tree, error):
    last = np.where(tree.token == 1, 1 + error, 1.0)
    return np.where(tree.leaf, 1.0, last)


@pytest.mark.parametrize("length", [1, 2, 4, 8])
@pytest.mark.parametrize("error", [0.0, 0.1, 1.0])
def test_amplification_closed_forms_are_the_tree(length, error):
    tree = theory.Tree.of(Zeros(length))
    uniform = np.full(2**length, 2.0**-length)
    values = off_values(tree, error)
    law = theory.action_level(tree, values).law
    assert theory.action_level_tv(length, error) == pytest.approx(theory.tv(law, uniform), abs=1e-12)
    first = theory.Chain.of(tree, values).first_leaf_law
    bits = theory.first_leaf_bits(length, error)
    product = [math.prod(np.where(s, bits, 1 - bits)) for s in itertools.product((0, 1), repeat=length)]
    np.testing.assert_allclose(first, product, atol=1e-14)
    found = theory.first_leaf_tv(length, error)
    assert theory.tv(first, uniform) - 1e-12 <= found <= theory.tv(first, uniform) + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_product_tv_against_all_strings(seed):
    chances = np.random.default_rng(seed).uniform(0.35, 0.65, size=16)
    ratios = np.ones(1)
    for p in chances:
        ratios = np.concatenate([ratios * 2 * p, ratios * 2 * (1 - p)])
    exact = np.abs(1 - ratios).mean() / 2
    assert exact - 1e-12 <= theory.product_tv(chances) <= exact + 1e-6
    assert theory.product_tv(chances, grid=1e-2) >= theory.product_tv(chances) - 1e-12


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tree: theory.Chain.of(tree, np.zeros(len(tree))), "cannot move"),
        (lambda tree: theory.Chain.of(tree, np.ones(3)), "15 nodes"),
        (lambda tree: theory.Chain.of(tree, np.ones(15)).returned(5, returns="first"), "last, uniform"),
        (lambda tree: theory.Chain.of(tree, np.where(tree.leaf, 0.0, 1.0)).leaf_law, "no leaf"),
        (lambda tree: theory.exact_gap(3, 3), "first_branching=3"),
        (lambda tree: theory.product_tv(np.array([0.5, 1.0])), "strictly between 0 and 1"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ArgumentError, match=message):
        make(theory.Tree.of(Zeros(3)))
