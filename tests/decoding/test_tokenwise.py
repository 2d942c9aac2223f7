"""Rejection of strings and of tokens against enumerated laws, and their queries against closed forms."""

import pytest
import torch
from small_trees import Children, Lookup, distance, network_tree, normalised, random_tree, random_values

from sandtable.arguments import ArgumentError
from sandtable.decoding import (
    ExactModel,
    Hidden,
    Predicate,
    action_level,
    exhaustive_tokenwise,
    rejection,
    tokenwise_rejection,
)

ROWS = {"table": 8_000, "network": 3_000}
NEAR = {"table": 0.03, "network": 0.05}
TREES = {
    "table": random_tree(3, 4, eos=2, seed=11, zeros=0.2),
    "network": network_tree(3, 3, eos=2, seed=5),
}
COIN = ExactModel(lambda prefix: torch.full((len(prefix), 2), 0.5, dtype=torch.float64), vocab=2)


def zeros(view):
    """The verifier of {0^D}: no 1 so far."""
    return (view.tokens * (torch.arange(view.tokens.shape[1]) < view.lengths[:, None])).sum(1) == 0


def viable(tree, seed=2):
    """A constraint on leaves that about half pass, and whether the model can still reach one, at every node."""
    allowed = {leaf: float(value > 0.5) for leaf, value in random_values(tree.leaves, seed).items()}
    return allowed, {node: float(value > 0) for node, value in tree.value(allowed).items()}


def run(decoder, tree, verifier, rows=None, **options):
    rows = rows or ROWS["network" if tree.prompt else "table"]
    return decoder(tree.lm, [tree.prompt] * rows, verifier, max_tokens=tree.horizon, generator=4, **options)


@pytest.mark.parametrize("kind", TREES)
def test_rejection_samples_the_restricted_law(kind):
    tree = TREES[kind]
    allowed, prefix = viable(tree)
    for verifier, abort in [(allowed | dict.fromkeys(set(tree.nodes) - set(allowed), 0.3), False), (prefix, True)]:
        made = run(rejection, tree, tree.verifier(verifier), abort=abort, max_tries=200)
        assert made.accepted.all()
        assert distance(tree.frequencies(made), tree.tilted(allowed)) < NEAR[kind]
        assert torch.equal(made.queries, made.lengths - made.prompts + made.erased)
        assert torch.equal(made.rejections, made.tries - 1)


@pytest.mark.parametrize("kind", TREES)
def test_tokenwise_methods_share_the_product_law(kind):
    tree = TREES[kind]
    _, prefix = viable(tree)
    expected = tree.descend(lambda p, child: p * prefix[child])
    made = run(tokenwise_rejection, tree, tree.verifier(prefix))
    assert distance(tree.frequencies(made), expected) < NEAR[kind]
    assert torch.equal(made.queries, made.verifier_calls)
    assert torch.equal(made.queries, made.lengths - made.prompts + made.rejections)
    made = run(exhaustive_tokenwise, tree, tree.verifier(prefix))
    assert distance(tree.frequencies(made), expected) < NEAR[kind]
    assert torch.equal(made.queries, made.lengths - made.prompts)
    made = run(exhaustive_tokenwise, tree, tree.verifier(prefix), rows=3, pick="likeliest")
    likeliest = tree.descend(
        lambda p, child: float(
            p == max(q * prefix[s] for q, s in zip(tree.probs[child[:-1]], tree.children(child[:-1]), strict=True))
        )
    )
    assert tree.frequencies(made) == {leaf: 1.0 for leaf, mass in likeliest.items() if mass}


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("bound", [None, 1.7])
def test_action_level_samples_in_proportion_to_values(kind, bound):
    tree = TREES[kind]
    values, tau = random_values(tree.nodes, 7, high=1.7), random_values(tree.leaves, 8, high=1.7)
    expected = tree.descend(lambda p, child: p * values[child])
    made = run(action_level, tree, tree.verifier(values, is_value=True), bound=bound)
    assert distance(tree.frequencies(made), expected) < NEAR[kind]
    # With τ at the leaves and a floor inside.
    floored = {node: max(value, 0.5) for node, value in values.items()} | tau
    expected = tree.descend(lambda p, child: p * floored[child])
    made = run(
        action_level, tree, tree.verifier(values, True), bound=bound, floor=0.5, leaf_value=tree.verifier(tau, True)
    )
    assert distance(tree.frequencies(made), expected) < NEAR[kind]
    # The true value makes it exact.
    made = run(action_level, tree, tree.verifier(tree.value(tau), True), bound=bound)
    assert distance(tree.frequencies(made), tree.tilted(tau)) < NEAR[kind]


@pytest.mark.parametrize("length", [3, 5])
def test_queries_for_zeros_are_the_closed_forms(length):
    options = dict(max_tokens=length, generator=length)
    for made, expected in [
        (rejection(COIN, [[]] * 2000, zeros, max_tries=10_000, **options), length * 2**length),
        (rejection(COIN, [[]] * 2000, zeros, max_tries=10_000, abort=True, **options), 2 ** (length + 1) - 2),
        (tokenwise_rejection(COIN, [[]] * 2000, zeros, **options), 2 * length),
    ]:
        queries = made.queries.double()
        assert made.accepted.all()
        assert not made.tokens.any()
        assert abs(float(queries.mean()) - expected) < 4 * float(queries.std()) / 2000**0.5
    made = exhaustive_tokenwise(COIN, [[]] * 10, zeros, **options)
    assert made.verifier_calls.eq(2 * length).all()
    assert made.rejections.eq(0).all()


def test_proposals_cost_the_bound_over_the_mean_value():
    tree = random_tree(4, 1, seed=3)
    values, bound = random_values(tree.nodes, 1, high=2.0), 2.5
    made = run(action_level, tree, tree.verifier(values, True), bound=bound)
    mean = sum(p * values[(token,)] for token, p in enumerate(tree.probs[()]))
    queries = made.queries.double()
    assert abs(float(queries.mean()) - bound / mean) < 4 * float(queries.std()) / len(made) ** 0.5


def test_one_zero_is_miscalibrated_as_the_closed_form_says():
    """Tokenwise rejection on "at least one 0" gives 1…10 twice its share: TV = (2^D − 2) / (2^D (2^D − 1))."""
    length = 3
    made = tokenwise_rejection(
        COIN, [[]] * 50_000, lambda view: view.tokens.sum(1) < length, max_tokens=length, generator=1
    )
    counts = torch.bincount((made.tokens * torch.tensor([4, 2, 1])).sum(1), minlength=8) / 50_000
    expected = torch.tensor([1, 1, 1, 1, 1, 1, 2, 0]) / 8
    assert (counts - expected).abs().sum() / 2 < 0.01
    restricted = torch.tensor([1.0] * 7 + [0.0]) / 7
    assert float((expected - restricted).abs().sum() / 2) == pytest.approx((2**3 - 2) / (2**3 * (2**3 - 1)), abs=1e-6)


def test_dead_ends_fail_and_nothing_loops():
    nothing = Predicate(lambda view: torch.zeros(len(view)))
    for decoder, options, queries in [
        (rejection, dict(max_tries=5), 5 * 4),
        (rejection, dict(max_tries=5, abort=True), 5),
        (tokenwise_rejection, dict(max_tries=7), 7),
        (action_level, dict(max_tries=7, bound=1.0), 7),
        (action_level, {}, 1),
        (exhaustive_tokenwise, {}, 1),
    ]:
        made = decoder(COIN, [[], [1, 0]], nothing, max_tokens=4, trace=True, **options)
        assert not made.accepted.any()
        assert made.queries.tolist() == [queries] * 2
        assert [made.trace.replay(row) for row in range(2)] == made.rows


def test_a_verifier_that_reads_hidden_states_sees_those_of_the_prefix():
    """A score computed from the hidden state gives the same rows as its table by node, and one pass a draw."""
    tree = network_tree(3, 3, seed=6)
    states = {}

    def inside(view):
        return view.hidden[:, :2].sum(1).sigmoid()

    with torch.no_grad():
        for node in tree.nodes:
            session = tree.lm.start([[*tree.prompt, *node]], room=1, hidden=Hidden(2))
            states[node] = float(session.hidden()[0, :2].sum().sigmoid())
    for decoder, options in [
        (tokenwise_rejection, dict(threshold=0.5, max_tries=20)),
        (exhaustive_tokenwise, dict(threshold=0.5)),
        (rejection, dict(threshold=0.6, max_tries=20)),
        (rejection, dict(threshold=0.5, abort=True, max_tries=20)),
        (action_level, {}),
        (action_level, dict(bound=1.0)),
    ]:
        looked = run(decoder, tree, Predicate(inside, needs=Hidden(2)), rows=300, **options)
        known = run(decoder, tree, tree.verifier(states), rows=300, **options)
        assert looked.rows == known.rows
        assert torch.equal(looked.queries, known.queries)
        assert torch.equal(looked.verifier_calls, known.verifier_calls)
        assert torch.allclose(looked.score, known.score, equal_nan=True)
        if decoder is tokenwise_rejection:
            assert torch.equal(looked.forwards, 1 + looked.queries)
            assert torch.equal(known.forwards[known.accepted], torch.full((int(known.accepted.sum()),), 3))


def test_score_children_is_used_where_it_exists():
    tree = TREES["table"]
    values = random_values(tree.nodes, 7)
    single, many = (run(action_level, tree, kind(tree, values, True), rows=500) for kind in (Lookup, Children))
    assert single.rows == many.rows
    assert torch.equal(single.verifier_calls, many.verifier_calls)


def test_truncation_changes_the_law_that_is_tilted():
    tree = random_tree(4, 2, seed=2)
    values = random_values(tree.nodes, 4)
    made = run(action_level, tree, tree.verifier(values), top_k=2)
    for node, probs in tree.probs.items():
        kept = sorted(probs, reverse=True)[:2]
        tree.probs[node] = [p if p in kept else 0.0 for p in probs]
    expected = normalised({leaf: mass for leaf, mass in tree.descend(lambda p, c: p * values[c]).items() if mass})
    assert distance(tree.frequencies(made), expected) < NEAR["table"]


@pytest.mark.parametrize(
    ("decoder", "options", "message"),
    [
        (rejection, dict(max_tries=0), "max_tries=0"),
        (rejection, dict(threshold=-1), "threshold=-1"),
        (tokenwise_rejection, dict(max_tries=0), "max_tries=0"),
        (tokenwise_rejection, dict(threshold="half"), "threshold='half'"),
        (exhaustive_tokenwise, dict(pick="sampel"), "did you mean 'sample'"),
        (action_level, dict(bound=0.0), "bound=0.0: must be a finite number > 0"),
        (action_level, dict(bound=0.5), "bound=0.5: the verifier returned 1"),
        (action_level, dict(floor=-0.1), "floor=-0.1"),
        (action_level, dict(leaf_value=3), "must be a Verifier"),
        (action_level, dict(leaf_value=Predicate(len, needs=Hidden(1))), "leaf_value needs Hidden"),
        (action_level, dict(max_tries=-1), "max_tries=-1"),
    ],
)
def test_bad_input_gets_one_clear_line(decoder, options, message):
    with pytest.raises(ArgumentError, match=message) as error:
        decoder(COIN, [[]], Predicate(lambda view: torch.ones(len(view))), max_tokens=3, **options)
    assert "\n" not in str(error.value)
