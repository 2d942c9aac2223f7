"""Best-of-n, by strings and by blocks, and block rejection, against laws summed over all tuples of candidates."""

from collections import Counter

import pytest
import torch
from small_trees import best_law, distance, network_tree, random_tree, random_values

from sandtable.arguments import ArgumentError
from sandtable.decoding import Predicate, ancestral, best_of_n, block_best_of_n, block_rejection

ROWS = 10_000
TREES = {"table": random_tree(3, 4, eos=2, seed=1), "network": network_tree(3, 3, eos=2, seed=1)}


def rows_of(tree, rows=ROWS):
    return [tree.prompt] * (rows if not tree.prompt else rows // 2)


def scores_of(tree, seed=3):
    """Random scores in steps of a quarter, so that ties happen."""
    return {node: round(4 * value) / 4 for node, value in random_values(tree.nodes, seed).items()}


def highest(scores):
    return lambda candidates: max(range(len(candidates)), key=lambda i: (scores[candidates[i]], -i))


def first_good(scores, threshold):
    def keep(candidates):
        good = [i for i, node in enumerate(candidates) if scores[node] >= threshold]
        return good[0] if good else highest(scores)(candidates)

    return keep


def block_law(tree, ends, n, keep):
    """Law of the final string when blocks up to `ends(start, node)` are drawn n times and one of them is kept."""
    law, final = {(): 1.0}, Counter()
    while law:
        after = Counter()
        for start, mass in law.items():
            block, grown = Counter(), {start: 1.0}
            while grown:
                deeper = Counter()
                for node, weight in grown.items():
                    for p, child in zip(tree.probs[node], tree.children(node), strict=True):
                        over = tree.leaf(child) or ends(start, child)
                        (block if over else deeper)[child] += weight * p
                grown = deeper
            for node, weight in best_law(block, n, keep).items():
                (final if tree.leaf(node) else after)[node] += mass * weight
        law = after
    return dict(final)


BOUNDARIES = {
    "tokens": (2, lambda start, node: len(node) - len(start) == 2),
    "ids": ([1], lambda start, node: len(node) - len(start) >= 2 and node[-1] == 1),
    "function": (
        lambda view: view.tokens.gather(1, view.lengths[:, None] - 1)[:, 0] == 0,
        lambda start, node: len(node) - len(start) >= 2 and node[-1] == 0,
    ),
}


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("n", [1, 3])
def test_best_of_n_is_the_best_of_all_tuples(kind, n):
    tree = TREES[kind]
    scores = scores_of(tree)
    made = best_of_n(tree.lm, rows_of(tree), tree.verifier(scores), max_tokens=tree.horizon, n=n, generator=n)
    expected = best_law({leaf: tree.base(leaf) for leaf in tree.leaves}, n, highest(scores))
    assert distance(tree.frequencies(made), expected) < (0.025 if kind == "table" else 0.04)
    assert made.verifier_calls.eq(n).all()
    assert [scores[tuple(row)] for row in made.completions] == made.score.tolist()
    # Every candidate is on the bill: n times the mean length of a string.
    mean = sum(tree.base(leaf) * len(leaf) for leaf in tree.leaves)
    assert abs(float(made.queries.double().mean()) / n - mean) < 0.03


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("where", BOUNDARIES)
def test_blocks_follow_the_recursion_over_blocks(kind, where):
    tree, (boundary, ends) = TREES[kind], BOUNDARIES[where]
    scores = scores_of(tree, 5)
    options = dict(max_tokens=tree.horizon, boundary=boundary, min_tokens=2, generator=8)
    near = 0.025 if kind == "table" else 0.04
    made = block_best_of_n(tree.lm, rows_of(tree), tree.verifier(scores), n=3, **options)
    assert distance(tree.frequencies(made), block_law(tree, ends, 3, highest(scores))) < near
    made = block_rejection(tree.lm, rows_of(tree), tree.verifier(scores), max_tries=3, threshold=0.75, **options)
    made.accepted.fill_(True)
    assert distance(tree.frequencies(made), block_law(tree, ends, 3, first_good(scores, 0.75))) < near


def test_blocks_of_one_candidate_are_plain_sampling_and_max_blocks_ends_a_row():
    tree = TREES["table"]
    everything = Predicate(lambda view: torch.ones(len(view)))
    made = block_best_of_n(tree.lm, rows_of(tree), everything, max_tokens=4, n=1, boundary=2, max_blocks=1)
    assert made.lengths.max() == 2
    assert made.blocks.eq(1).all()
    assert torch.equal(made.queries, made.lengths)


def test_block_rejection_pays_for_what_it_drew_and_says_what_it_forced():
    tree = TREES["table"]
    nothing, everything = (Predicate(lambda view, c=c: torch.full((len(view),), c)) for c in (0.0, 1.0))
    made = block_rejection(tree.lm, [[]] * 50, everything, max_tokens=4, boundary=2)
    assert torch.equal(made.queries, made.lengths)
    assert made.accepted.all()
    made = block_rejection(tree.lm, [[]] * 50, nothing, max_tokens=4, boundary=2, max_tries=3)
    assert torch.equal(made.forced, made.blocks)
    assert torch.equal(made.verifier_calls, 3 * made.blocks)
    assert made.accepted.all()  # the best of bad ones is a result
    made = block_rejection(tree.lm, [[]] * 50, nothing, max_tokens=4, boundary=2, max_tries=3, otherwise="fail")
    assert made.blocks.eq(1).all()
    assert not made.accepted.any()


def test_the_first_of_equal_candidates_is_kept():
    """Of blocks that all score the same, what was drawn first stays: the row is that of plain sampling."""
    tree = TREES["table"]
    same = Predicate(lambda view: torch.full((len(view),), 0.2))
    options = dict(max_tokens=4, boundary=4, generator=1, trace=True)
    made = block_rejection(tree.lm, [[]] * 200, same, max_tries=3, **options)
    drawn = ancestral(tree.lm, [[]] * 200, max_tokens=4, generator=1)
    assert made.rows == drawn.rows
    best = best_of_n(tree.lm, [[]] * 200, same, max_tokens=4, n=3, generator=1, trace=True)
    for row in range(200):
        first = next(event for event in best.trace.of_row(row) if event.action == "score")
        assert first.passed


@pytest.mark.parametrize("kind", TREES)
def test_traces_replay_to_the_rows_and_batches_change_nothing(kind):
    tree = TREES[kind]
    verifier = tree.verifier(scores_of(tree))
    for decoder, options in [(best_of_n, {}), (block_best_of_n, dict(boundary=2)), (block_rejection, dict(boundary=2))]:
        options = dict(max_tokens=tree.horizon, generator=2) | options
        made = decoder(tree.lm, [tree.prompt] * 20, verifier, trace=True, batch_size=7, **options)
        whole = decoder(tree.lm, [tree.prompt] * 20, verifier, **options)
        assert [made.trace.replay(row) for row in range(20)] == made.rows == whole.rows
        assert torch.equal(made.queries, whole.queries)
        assert torch.equal(made.forwards, whole.forwards)
    drawn = sum(event.how == "candidate" for event in best_of_n(
        tree.lm, [tree.prompt] * 20, verifier, max_tokens=tree.horizon, n=3, trace=True
    ).trace.events)  # fmt: skip
    assert drawn == int(best_of_n(tree.lm, [tree.prompt] * 20, verifier, max_tokens=tree.horizon, n=3).queries.sum())


def test_a_prompt_is_read_once_for_all_candidates():
    tree = network_tree(3, 4, seed=2)
    made = best_of_n(tree.lm, [tree.prompt] * 2, Predicate(lambda view: torch.ones(len(view))), max_tokens=4, n=5)
    assert made.forwards.tolist() == [1 + 5 * 3] * 2
    assert made.queries.tolist() == [20, 20]
    assert made.passes == 4


def test_a_text_is_all_tokens_that_contain_it():
    tree = TREES["table"]
    everything = Predicate(lambda view: torch.ones(len(view)))
    text, ids = (
        block_best_of_n(tree.lm, [[]] * 50, everything, max_tokens=4, boundary=b, min_tokens=1, generator=3)
        for b in ("1", [1])
    )
    assert text.rows == ids.rows
    assert torch.equal(text.blocks, ids.blocks)


@pytest.mark.parametrize(
    ("decoder", "options", "message"),
    [
        (best_of_n, dict(n=0), "n=0: must be a whole number ≥ 1"),
        (block_best_of_n, dict(boundary=0), "boundary=0"),
        (block_best_of_n, dict(boundary=[]), r"boundary=\[\]"),
        (block_best_of_n, dict(boundary=[3]), "boundary=3: must be a whole number from 0 to 2"),
        (block_best_of_n, dict(boundary="x"), "boundary='x': no token"),
        (block_best_of_n, dict(boundary=lambda view: True, min_tokens=1), "boundary returned shape"),
        (block_best_of_n, dict(max_blocks=0), "max_blocks=0"),
        (block_best_of_n, dict(min_tokens=0), "min_tokens=0"),
        (block_rejection, dict(max_tries=0), "max_tries=0"),
        (block_rejection, dict(otherwise="worst"), "otherwise='worst'"),
        (block_rejection, dict(threshold=-1.0), "threshold=-1"),
    ],
)
def test_bad_input_gets_one_clear_line(decoder, options, message):
    tree = TREES["table"]
    with pytest.raises(ArgumentError, match=message) as error:
        decoder(tree.lm, [[]], Predicate(lambda view: torch.ones(len(view))), max_tokens=3, **options)
    assert "\n" not in str(error.value)
