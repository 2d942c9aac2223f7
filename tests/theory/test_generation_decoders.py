"""Two ways to the same numbers: every decoder, sampled, beside its exact law and cost on the tree."""

import numpy as np
import pytest
import torch

from sandtable import decoding
from sandtable.theory import generation as theory

ROWS, HORIZON, VOCAB, END = 6000, 4, 3, 2


@pytest.fixture(scope="module")
def setting():
    """A random law whose strings may end early, and scores between 0 and 1 with some exactly alike."""
    rng = np.random.default_rng(3)

    def law(prefix):
        return torch.tensor(rng.dirichlet(np.ones(VOCAB), size=len(prefix)))

    tree = theory.Tree.of(law, HORIZON, VOCAB, eos=END)
    values = np.where(tree.leaf, np.round(rng.random(len(tree)), 1), rng.random(len(tree)))
    return tree, values


def block(name, **options):
    return lambda tree, values: getattr(theory, name)(tree, values, block=2, **options)


PAIRS = {
    "rejection": (dict(max_tries=3), lambda t, v: theory.rejection(t, v, tries=3)),
    "rejection, early": (dict(max_tries=3, abort=True), lambda t, v: theory.rejection(t, v, abort=True, tries=3)),
    "best_of_n": (dict(n=3), lambda t, v: theory.best_of_n(t, v, 3)),
    "block_best_of_n": (dict(n=3, boundary=2), block("block_best_of_n", n=3)),
    "block_rejection": (dict(max_tries=2, boundary=2), block("block_rejection", tries=2)),
    "block_rejection, several tries": (
        dict(max_tries=4, boundary=2, threshold=0.9),
        block("block_rejection", tries=4, threshold=0.9),
    ),
    "block_rejection, failing": (
        dict(max_tries=2, boundary=2, otherwise="fail"),
        block("block_rejection", tries=2, otherwise="fail"),
    ),
    "tokenwise_rejection": (dict(max_tries=4), lambda t, v: theory.tokenwise(t, v, tries=4)),
    "exhaustive_tokenwise": ({}, theory.exhaustive_tokenwise),
    "exhaustive_tokenwise, likeliest": (
        dict(pick="likeliest"),
        lambda t, v: theory.exhaustive_tokenwise(t, v, pick="likeliest"),
    ),
    "action_level": ({}, theory.action_level),
    "action_level, proposed": (
        dict(bound=1.0, max_tries=5),
        lambda t, v: theory.action_level(t, v, bound=1.0, tries=5),
    ),
    **{
        f"backtrack, {redo}": (
            dict(quota=3, stride=2, redo=redo),
            lambda t, v, redo=redo: theory.backtracking(t, v, quota=3, stride=2, redo=redo),
        )
        for redo in ("argmax", "sample", "greedy-rest", "released-counter")
    },
    "backtrack, verified": (
        dict(quota=3, stride=2, verify_redo=True),
        lambda t, v: theory.backtracking(t, v, quota=3, stride=2, verify_redo=True),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_decoders_have_their_exact_laws_and_costs(setting, name):
    tree, values = setting
    options, analyse = PAIRS[name]
    expected = analyse(tree, values)
    made = getattr(decoding, name.partition(",")[0])(
        decoding.ExactModel(tree, eos=END),
        torch.zeros(ROWS, 0, dtype=torch.long),
        lambda view: torch.from_numpy(values[tree.locate(view.tokens, view.lengths)]),
        max_tokens=HORIZON,
        generator=1,
        **options,
    )
    kept = made.accepted if expected.fail > 1e-9 else torch.ones(ROWS, dtype=torch.bool)
    assert abs(float(kept.double().mean()) - (1 - expected.fail)) < 4 * np.sqrt(0.25 / ROWS)
    frequencies = tree.counts(made.tokens[kept], made.lengths[kept]) / int(kept.sum())
    assert theory.tv(frequencies, expected.given_success) < 0.04
    for cost in ("queries", "verifier_calls", "backtracks", "erased"):
        spent = getattr(made, cost).double()
        assert abs(float(spent.mean()) - getattr(expected, cost)) < 4 * float(spent.std()) / np.sqrt(ROWS) + 1e-9, cost


@pytest.mark.parametrize("redo", ["argmax", "sample", "greedy-rest", "released-counter"])
@pytest.mark.parametrize("protect_prompt", [True, False])
def test_backtracking_from_a_prompt_that_may_be_erased(setting, redo, protect_prompt):
    tree, values = setting
    options = dict(quota=2, stride=3, redo=redo, protect_prompt=protect_prompt)
    prompt = [0, 1]
    expected = theory.backtracking(tree, values, prompt=int(tree.locate(torch.tensor([prompt]))[0]), **options)
    made = decoding.backtrack(
        decoding.ExactModel(tree, eos=END),
        [prompt] * ROWS,
        lambda view: torch.from_numpy(values[tree.locate(view.tokens, view.lengths)]),
        max_tokens=HORIZON - len(prompt),
        generator=4,
        **options,
    )
    assert theory.tv(tree.counts(made.tokens, made.lengths) / ROWS, expected.law) < 0.03
    assert expected.law.sum() == pytest.approx(1)
    for cost in ("queries", "verifier_calls", "backtracks", "erased"):
        spent = getattr(made, cost).double()
        assert abs(float(spent.mean()) - getattr(expected, cost)) < 4 * float(spent.std()) / np.sqrt(ROWS) + 1e-9, cost


@pytest.mark.parametrize("returns", ["first_leaf", "last", "uniform"])
def test_walks_have_their_exact_laws_and_costs(setting, returns):
    tree, values = setting
    values = np.minimum(values + 0.1, 1.0)
    chain = theory.Chain.of(tree, values)
    steps = 10_000 if returns == "first_leaf" else 20
    made = decoding.vgb(
        decoding.ExactModel(tree, eos=END),
        torch.zeros(2000, 0, dtype=torch.long),
        lambda view: torch.from_numpy(values[tree.locate(view.tokens, view.lengths)]),
        steps=steps,
        returns=returns,
        max_restarts=1000,
        max_tokens=HORIZON,
        generator=2,
    )
    frequencies = tree.counts(made.tokens, made.lengths) / 2000
    if returns == "first_leaf":
        assert theory.tv(frequencies, chain.first_leaf_law) < 0.06
        assert float(made.steps.double().mean()) == pytest.approx(chain.steps_to_leaf(), rel=0.08)
        assert float(made.queries.double().mean()) == pytest.approx(chain.distinct_queries, rel=0.04)
        return
    expected = chain.returned(steps, returns=returns)
    spent = made.queries.double()
    assert abs(float(spent.mean()) - chain.queries(steps, returns=returns)) < 4 * float(spent.std()) / 2000**0.5
    assert theory.tv(frequencies, expected.law) < 0.06
    assert float(made.restarts.double().mean()) + 1 == pytest.approx(1 / expected.leaf_chance, rel=0.1)
