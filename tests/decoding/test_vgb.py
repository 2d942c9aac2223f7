"""VGB against the powers of its transition matrix, its stationary law and harmonic measure, all written out."""

import numpy as np
import pytest
import torch
from small_trees import Children, distance, network_tree, normalised, random_tree, random_values

from sandtable.arguments import ArgumentError
from sandtable.decoding import Hidden, Predicate, nodes, vgb

ROWS = {"table": 6_000, "network": 2_000}
NEAR = {"table": 0.03, "network": 0.05}
TREES = {
    "table": random_tree(3, 3, eos=2, seed=21, zeros=0.2),
    "network": network_tree(3, 3, eos=2, seed=8),
}
WAYS = {
    "all": {},
    "top_k": dict(children="top_k", k=1, bound=2.0),
    "rejection": dict(children="rejection", bound=2.0),
    "forgetful": dict(cache=False),
    "forgetful rejection": dict(children="rejection", bound=2.0, cache=False),
}


def values_of(tree, seed=1):
    """Wrong values in (0.05, 2) inside, weights of outcomes at the leaves, some of them zero."""
    tau = {leaf: max(0.0, value) for leaf, value in random_values(tree.leaves, seed + 1, -0.5, 2.0).items()}
    return random_values(tree.nodes, seed, 0.05, 2.0) | tau, tau


def chain(tree, values, lazy):
    """The transition matrix over all nodes, from the rule of one step."""
    number = {node: i for i, node in enumerate(tree.nodes)}
    matrix = np.zeros((len(number), len(number)))
    for node, row in number.items():
        weights = {node[:-1]: values[node]} if node else {}
        weights |= {c: p * values[c] for p, c in zip(tree.probs.get(node, ()), tree.children(node), strict=False)}
        total = sum(weights.values())
        for other, weight in weights.items():
            matrix[row, number[other]] = weight / total if total else 0.0
        if lazy:
            matrix[row] /= 2
            matrix[row, row] += 0.5
    return matrix


def leaf_part(tree, law):
    """Law over nodes, given that it is a leaf, and the probability of that."""
    mass = {node: law[i] for i, node in enumerate(tree.nodes) if tree.leaf(node)}
    return normalised(mass), sum(mass.values())


def run(tree, values, rows=None, **options):
    rows = rows or ROWS["network" if tree.prompt else "table"]
    options = dict(max_tokens=tree.horizon, generator=6) | options
    return vgb(tree.lm, [tree.prompt] * rows, tree.verifier(values, is_value=True), **options)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("way", WAYS)
def test_the_last_node_has_the_law_of_the_matrix_power(kind, way):
    tree = TREES[kind]
    values, _ = values_of(tree)
    for lazy, steps in ((True, 7), (True, 4), (False, 5)):
        made = run(tree, values, steps=steps, lazy=lazy, returns="last", max_restarts=0, **WAYS[way])
        power = np.linalg.matrix_power(chain(tree, values, lazy), steps)[0]
        # Rows that end at an inner node fail, and show it: the law of all nodes can be compared.
        assert made.accepted.tolist() == [tree.leaf(tuple(row)) for row in made.completions]
        made.accepted.fill_(True)
        assert distance(tree.frequencies(made), dict(zip(tree.nodes, power, strict=True))) < NEAR[kind]
        assert made.steps.eq(steps).all()


@pytest.mark.parametrize("kind", TREES)
def test_long_walks_end_in_the_tilted_law_whatever_the_values_inside(kind):
    tree = TREES[kind]
    values, tau = values_of(tree)
    leaves = tree.verifier(tau, is_value=True)
    wrong = values | random_values(tree.leaves, 9, 0.1, 1.0)
    made = run(tree, wrong, steps=40, returns="last", leaf_value=leaves, max_restarts=200)
    assert made.accepted.all()
    assert distance(tree.frequencies(made), tree.tilted(tau)) < NEAR[kind]
    # Without τ the leaves have the law ∝ p · V̂.
    made = run(tree, wrong, steps=40, returns="last", max_restarts=200)
    assert distance(tree.frequencies(made), tree.tilted(wrong)) < NEAR[kind]


@pytest.mark.parametrize("way", WAYS)
def test_a_uniform_time_averages_the_matrix_powers(way):
    tree = TREES["table"]
    values, _ = values_of(tree)
    matrix, law, total = chain(tree, values, True), np.eye(len(tree.nodes))[0], 0.0
    for _ in range(9):
        law = law @ matrix
        total = total + law / 9
    made = run(tree, values, steps=9, returns="uniform", max_restarts=100, **WAYS[way])
    assert made.accepted.all()
    assert distance(tree.frequencies(made), leaf_part(tree, total)[0]) < NEAR["table"]
    # Every run is kept with the mean leaf mass: the number of reruns is geometric.
    assert abs(float(made.restarts.double().mean()) - (1 / leaf_part(tree, total)[1] - 1)) < 0.1
    # A walk stops at its drawn time, five of nine steps on the mean, also where it is run again.
    predicted = 5 / leaf_part(tree, total)[1]
    assert abs(float(made.steps.double().mean()) / predicted - 1) < 0.03


def harmonic(tree, values):
    """Law of the first leaf by conductances: a branch is its edge in series with its children in parallel."""
    branch = {}
    for node in reversed(tree.nodes[1:]):
        edge = tree.base(node) * values[node]
        below = sum(branch[c] for c in tree.children(node))
        branch[node] = edge if tree.leaf(node) else edge * below / (edge + below) if edge and below else 0.0
    mass = {(): 1.0}
    for node in tree.nodes:
        total = sum(branch[c] for c in tree.children(node))
        mass |= {c: mass[node] * branch[c] / total if total else 0.0 for c in tree.children(node)}
    return {leaf: mass[leaf] for leaf in tree.leaves}


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("way", WAYS)
def test_the_first_leaf_has_harmonic_measure(kind, way):
    tree = TREES[kind]
    values, tau = values_of(tree)
    expected = harmonic(tree, values)
    for lazy in (True, False):
        made = run(tree, values, steps=2000, lazy=lazy, **WAYS[way])
        assert made.accepted.all()
        assert made.leaf_hits.eq(1).all()
        assert distance(tree.frequencies(made), expected) < NEAR[kind]
        assert made.score.tolist() == pytest.approx([values[tuple(row)] for row in made.completions])
    assert distance(expected, tree.tilted(tau)) > 0.02  # and it is not the law one would like


def test_true_values_make_the_first_leaf_exact_after_horizon_squared_moves():
    tree = random_tree(3, 4, seed=4)
    tau = random_values(tree.leaves, 5)
    made = run(tree, tree.value(tau), rows=20_000, steps=10_000, lazy=False)
    assert distance(tree.frequencies(made), tree.tilted(tau)) < 0.03
    assert abs(float(made.steps.double().mean()) - 16) < 0.4
    lazy = run(tree, tree.value(tau), steps=10_000)
    assert abs(float(lazy.steps.double().mean()) - 32) < 0.8


@pytest.mark.parametrize("kind", TREES)
def test_the_bill(kind):
    tree = TREES[kind]
    values, _ = values_of(tree)
    made = run(tree, values, rows=200, steps=50, returns="last", max_restarts=3, trace=True)
    assert [made.trace.replay(row) for row in range(200)] == made.rows
    for row in range(200):
        inner, node = {()}, ()
        for event in made.trace.of_row(row):
            node = (*node, event.token) if event.action == "append" else node[: len(node) - event.token]
            inner |= {node} if not tree.leaf(node) else set()
        # A node is asked about once, and then all children that can follow it are scored.
        assert len(inner) - 1 - int(made.restarts[row]) <= int(made.queries[row]) <= len(inner)  # ends are not asked
        scored = sum(p > 0 for asked in inner for p in tree.probs[asked])
        assert int(made.verifier_calls[row]) <= scored
        assert int(made.steps[row]) == 50 * (1 + int(made.restarts[row]))
    forgot = run(tree, values, rows=200, steps=50, returns="last", max_restarts=3, cache=False)
    assert forgot.rows == made.rows
    assert forgot.queries.sum() > 2 * made.queries.sum()
    proposals = run(tree, values, rows=200, steps=50, children="rejection", bound=2.0, trace=True)
    assert torch.equal(
        proposals.queries,
        torch.tensor([sum(e.action == "score" for e in proposals.trace.of_row(r)) for r in range(200)]),
    )


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("children", ["all", "top_k", "rejection"])
def test_a_small_cache_costs_queries_and_changes_nothing_else(kind, children):
    tree = TREES[kind]
    values, _ = values_of(tree)
    options = dict(rows=40, steps=60, returns="last", max_restarts=3, children=children, k=1, bound=2.0)
    large, small, none = (run(tree, values, **options, **way) for way in ({}, dict(cache_size=60), dict(cache=False)))
    assert large.rows == small.rows == none.rows
    assert torch.allclose(large.score, small.score, equal_nan=True)
    assert large.passes < small.passes
    if children == "rejection":  # a proposal is a query, whoever holds the law
        assert torch.equal(large.queries, small.queries)
    else:
        assert large.queries.sum() < small.queries.sum() < none.queries.sum()
    assert run(tree, values, **(options | dict(rows=5)), cache_size=1).rows == large.rows[:5]


def test_laws_that_are_held_are_bounded(monkeypatch):
    """Sixty numbers, for laws of three tokens with three values: ten of them, however long the walk."""
    made = []
    monkeypatch.setattr(nodes, "_HELD", 60)
    known = nodes.Nodes.__init__
    monkeypatch.setattr(nodes.Nodes, "__init__", lambda self, *a, **k: (made.append(self), known(self, *a, **k))[1])
    tree = random_tree(3, 6, seed=4)
    run(tree, dict.fromkeys(tree.nodes, 1.0), rows=2, steps=300, returns="last")
    (kept,) = made
    assert kept.most == len(kept.law) == len(kept.values) == 10
    assert len(kept.known) > 30
    held = kept.known.nonzero()[:, 0]
    assert torch.equal(kept.owner[kept.slot[held]], held)
    assert len(held) == 10


def test_a_verifier_that_reads_hidden_states_sees_those_of_the_prefix():
    tree = network_tree(3, 3, eos=2, seed=8)
    known = {}

    def score(hidden):
        return (hidden[:, :2].sum(1) / 4 + 4).sigmoid()

    with torch.no_grad():
        for node in tree.nodes:
            session = tree.lm.start([[*tree.prompt, *node]], room=1, hidden=Hidden(2))
            known[node] = float(score(session.hidden())[0])
    inside = Predicate(lambda view: score(view.hidden), needs=Hidden(2))
    for way in (dict(), dict(children="top_k", k=2), dict(children="rejection"), dict(cache=False)):
        options = dict(max_tokens=3, steps=40, generator=3, **way)
        looked = vgb(tree.lm, [tree.prompt] * 30, inside, **options)
        table = vgb(tree.lm, [tree.prompt] * 30, tree.verifier(known), **options)
        assert looked.accepted.all()
        assert looked.rows == table.rows
        assert torch.equal(looked.queries, table.queries)
        assert torch.equal(looked.verifier_calls, table.verifier_calls)
        split = vgb(tree.lm, [tree.prompt] * 30, inside, batch_size=11, **options)
        assert split.rows == looked.rows


def test_children_at_once_and_a_floor():
    tree = TREES["table"]
    values, tau = values_of(tree)
    one = run(tree, values, rows=300, steps=100)
    many = vgb(tree.lm, [[]] * 300, Children(tree, values, True), max_tokens=3, steps=100, generator=6)
    assert one.rows == many.rows
    # A false zero cuts off half of the tree; a floor opens it again, and leaves keep their own weights.
    cut = values | {(0,): 0.0}
    leaves = tree.verifier(tau, is_value=True)
    made = run(tree, cut, rows=1000, steps=40, returns="last", max_restarts=200, leaf_value=leaves)
    assert all(row[0] != 0 for row in made.completions)
    made = run(tree, cut, steps=40, returns="last", max_restarts=200, leaf_value=leaves, floor=0.3)
    assert distance(tree.frequencies(made), tree.tilted(tau)) < NEAR["table"]


def test_dead_roots_and_short_walks_fail():
    tree = TREES["table"]
    nothing = dict.fromkeys(tree.nodes, 0.0)
    for way, queries in ((dict(), 1), (dict(children="rejection", bound=1.0, max_tries=9), 9)):
        made = run(tree, nothing, rows=5, steps=10, **way)
        assert not made.accepted.any()
        assert made.queries.tolist() == [queries] * 5
        assert made.lengths.eq(0).all()
    made = run(random_tree(3, 4, seed=4), dict.fromkeys(random_tree(3, 4, seed=4).nodes, 1.0), rows=5, steps=2)
    assert not made.accepted.any()
    assert made.restarts.eq(100).all()
    assert made.steps.eq(202).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(steps=0), "steps=0"),
        (dict(returns="first"), "did you mean 'first_leaf'"),
        (dict(children="some"), "children='some'"),
        (dict(children="top_k", k=0), "k=0"),
        (dict(children="top_k"), "bound=None: values of Lookup may be any number"),
        (dict(children="rejection", bound=-1.0), "bound=-1.0"),
        (dict(children="rejection", bound=0.1), "bound=0.1: the verifier returned"),
        (dict(max_restarts=-1), "max_restarts=-1"),
        (dict(max_tries=0), "max_tries=0"),
        (dict(floor=-1), "floor=-1"),
        (dict(lazy="no"), "lazy='no': must be True or False"),
        (dict(cache="no"), "cache='no': must be True or False"),
        (dict(cache_size=0), "cache_size=0"),
    ],
)
def test_bad_input_gets_one_clear_line(options, message):
    tree = TREES["table"]
    with pytest.raises(ArgumentError, match=message) as error:
        run(tree, values_of(tree)[0], rows=50, **(dict(steps=50) | options))
    assert "\n" not in str(error.value)
