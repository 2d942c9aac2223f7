"""Verifiers that give values: against recursion over the tree, within their bounds, the same when asked again."""

import pytest
import torch
from small_trees import distance, network_tree, random_tree, random_values

from sandtable.arguments import ArgumentError
from sandtable.decoding import (
    EnumeratedValue,
    ExactModel,
    Floor,
    Hidden,
    MonteCarloValue,
    Noisy,
    Predicate,
    Random,
    Reward,
    ScaledNoise,
    Truncation,
    ValueTable,
    View,
    action_level,
    best_of_n,
    vgb,
)

TREES = {
    "table": random_tree(3, 4, eos=2, seed=41, zeros=0.2),
    "network": network_tree(3, 3, eos=2, seed=5),
}


def view_of(tree, nodes):
    """A view of some nodes, after the tree's prompt."""
    rows = [[*tree.prompt, *node] for node in nodes]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
    prompts = torch.full_like(lengths, len(tree.prompt))
    return View(tokens, lengths, torch.arange(len(rows)), prompts, tree.lm)


@pytest.mark.parametrize("kind", TREES)
def test_the_enumerated_value_is_the_expectation_of_what_follows(kind):
    tree = TREES[kind]
    tau = random_values(tree.leaves, 3)
    value = EnumeratedValue(tree.lm, tree.verifier(tau), tree.horizon)
    expected = tree.value(tau)
    reached = [node for node in tree.nodes if tree.base(node) > 0]
    for some in (reached[5:9], reached):  # in pieces, and from what was kept
        scores = value.score(view_of(tree, some))
        assert scores.tolist() == pytest.approx([expected[node] for node in some], abs=1e-9)


def test_the_enumerated_value_is_that_of_the_truncated_law():
    tree = random_tree(3, 2, seed=2)
    tau = random_values(tree.leaves, 3)
    value = EnumeratedValue(tree.lm, tree.verifier(tau), 2, law=Truncation(top_k=1))
    node = ()
    while not tree.leaf(node):
        node = (*node, max(range(3), key=tree.probs[node].__getitem__))
    assert value.score(view_of(tree, [()])).tolist() == pytest.approx([tau[node]])


def test_the_enumerated_value_makes_action_level_sampling_exact():
    tree = TREES["table"]
    tau = random_values(tree.leaves, 3)
    value = EnumeratedValue(tree.lm, tree.verifier(tau), tree.horizon)
    made = action_level(tree.lm, [[]] * 10_000, value, max_tokens=tree.horizon, generator=1)
    assert distance(tree.frequencies(made), tree.tilted(tau)) < 0.03


@pytest.mark.parametrize("kind", TREES)
def test_rollouts_estimate_the_value_and_repeat_themselves(kind):
    tree = TREES[kind]
    tau = random_values(tree.leaves, 3)
    expected, nodes = tree.value(tau), [node for node in tree.nodes if tree.base(node) > 0][:12]
    value = MonteCarloValue(tree.lm, tree.verifier(tau), tree.horizon, rollouts=2000, generator=5)
    scores = value.score(view_of(tree, nodes))
    for node, score in zip(nodes, scores.tolist(), strict=True):
        assert score == pytest.approx(expected[node], abs=0 if tree.leaf(node) else 4 * 0.5 / 2000**0.5)
    first = value.queries
    assert value.score(view_of(tree, nodes[::-1])).tolist() == pytest.approx(scores.flip(0).tolist())
    assert value.queries == 2 * first
    other = MonteCarloValue(tree.lm, tree.verifier(tau), tree.horizon, rollouts=2000, generator=6)
    assert other.score(view_of(tree, nodes[:1])) != scores[0]


def test_the_queries_of_rollouts_are_the_tokens_drawn():
    tree = random_tree(3, 4, seed=1)
    value = MonteCarloValue(tree.lm, Predicate(lambda view: torch.ones(len(view))), 4, rollouts=7)
    value.score(view_of(tree, [(), (1,), (0, 1, 2), (0, 0, 0, 0)]))
    assert value.queries == 7 * (4 + 3 + 1)


def test_noise_is_a_function_of_the_prefix_within_its_bound():
    tree = random_tree(4, 5, seed=1)
    base = ValueTable(dict.fromkeys(tree.nodes, 2.0))
    noisy = ScaledNoise(base, eps=0.5, seed=3)
    view = view_of(tree, tree.nodes)
    scores = noisy.score(view)
    assert torch.equal(scores, noisy.score(view))
    assert torch.allclose(scores.flip(0), noisy.score(view_of(tree, tree.nodes[::-1])), rtol=1e-14)
    assert 2 / 1.5 <= float(scores.min()) < 2 / 1.49
    assert 2 * 1.49 < float(scores.max()) <= 2 * 1.5
    # The exponent is uniform on [−1, 1], and prefixes share nothing.
    exponents = (scores / 2).log() / torch.tensor(1.5).log()
    assert torch.allclose(exponents.sort().values, torch.linspace(-1, 1, len(scores)).double(), atol=0.1)
    assert len(scores.unique()) == len(scores)
    assert not torch.equal(scores, ScaledNoise(base, eps=0.5, seed=4).score(view))
    assert torch.equal(ScaledNoise(base, eps=0.0).score(view), base.score(view))


def test_tables_floors_and_draws_made_anew():
    tree = TREES["network"]
    values = random_values(tree.nodes, 2)
    view = view_of(tree, tree.nodes)
    after = ValueTable(values, after_prompt=True)
    rows = ValueTable({(*tree.prompt, *node): value for node, value in values.items()})
    assert after.score(view).tolist() == rows.score(view).tolist() == list(values.values())
    assert ValueTable({}, default=0.3).score(view).eq(0.3).all()
    assert torch.equal(Floor(after, 0.4).score(view), after.score(view).clamp(min=0.4))
    for anew in (Random(), Noisy(after, false_accept=0.5, false_reject=0.5)):
        assert not torch.equal(anew.score(view), anew.score(view))


def test_rewards_read_texts():
    lm = ExactModel(lambda prefix: torch.full((len(prefix), 3), 1 / 3), vocab=3)
    seen = []

    def ones(texts):
        seen.append(len(texts))
        return [float(text.count("1")) for text in texts]

    made = best_of_n(lm, [[2, 1]] * 5, Reward(ones, "completion", batch_size=4), max_tokens=6, n=3)
    assert made.score.tolist() == [float(row.count(1)) for row in made.completions]
    assert max(seen) == 4
    assert sum(seen) == 15
    text = best_of_n(lm, [[2, 1]] * 5, Reward(ones), max_tokens=6, n=3)
    assert text.score.tolist() == [1.0 + row.count(1) for row in text.completions]
    with pytest.raises(
        ArgumentError, match=r"returned -2 for row 0: must be a finite number ≥ 0, for example exp\(r\)"
    ):
        best_of_n(lm, [[2, 1]] * 5, Reward(lambda texts: [-2.0] * len(texts)), max_tokens=6, n=3)
    pair = Reward(lambda prompts, completions: [len(p + c) for p, c in zip(prompts, completions, strict=True)], "pair")
    assert best_of_n(lm, [[2, 1]], pair, max_tokens=2, n=2).score.tolist() == [len("2 1") + len("1 1")]


def test_vgb_takes_all_of_them():
    tree = TREES["table"]
    tau = tree.verifier({leaf: float(value > 0.5) for leaf, value in random_values(tree.leaves, 3).items()})
    value = EnumeratedValue(tree.lm, tau, tree.horizon)
    for verifier in (value, ScaledNoise(value, 0.3), MonteCarloValue(tree.lm, tau, tree.horizon, rollouts=4)):
        made = vgb(tree.lm, [[]] * 20, verifier, max_tokens=4, steps=500, leaf_value=tau, floor=0.01)
        assert made.accepted.all()
        assert made.score.eq(1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tree: ValueTable({}).score(view_of(tree, [(1,)])), r"table has no value for prefix \(1,\)"),
        (lambda tree: ScaledNoise(Random(), eps=-1.0), "eps=-1"),
        (lambda tree: Floor(Random(), -1.0), "least=-1"),
        (lambda tree: MonteCarloValue(tree.lm, Random(), 3, rollouts=0), "rollouts=0"),
        (lambda tree: MonteCarloValue(tree.lm, Predicate(len, needs=Hidden(1)), 3), "tau needs Hidden"),
        (lambda tree: EnumeratedValue(tree.lm, Random(), 0), "max_tokens=0"),
        (lambda tree: EnumeratedValue(tree.lm, Random(), 4, most=5).score(view_of(tree, [()])), "most=5"),
        (lambda tree: Reward(3), "function=3"),
        (lambda tree: Reward(len, "txt"), "did you mean 'text'"),
        (lambda tree: Reward(lambda texts: 1.0).score(view_of(tree, [(1,)])), "must be one number each"),
    ],
)
def test_bad_input_gets_one_clear_line(make, message):
    with pytest.raises(ArgumentError, match=message) as error:
        make(TREES["table"])
    assert "\n" not in str(error.value)
