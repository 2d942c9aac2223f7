"""Traces: what was tried, as a tree, in characters, through JSON and back."""

import math

import pytest
import torch
from small_trees import random_tree, random_values

from sandtable import decoding
from sandtable.arguments import ArgumentError
from sandtable.decoding import Event, Trace, backtrack, tokenwise_rejection, vgb

TREE = random_tree(3, 4, eos=2, seed=1)
SCORES = TREE.verifier(random_values(TREE.nodes, 2))
DECODERS = {
    "ancestral": {},
    "greedy": {},
    "backtrack": dict(quota=3, stride=2),
    "rejection": dict(max_tries=5),
    "best_of_n": dict(n=3),
    "block_best_of_n": dict(n=3, boundary=2),
    "block_rejection": dict(boundary=2),
    "tokenwise_rejection": dict(max_tries=5),
    "exhaustive_tokenwise": {},
    "action_level": dict(bound=1.0),
    "vgb": dict(steps=30, max_restarts=2),
    "smc": dict(particles=3),
}


@pytest.mark.parametrize("name", DECODERS)
def test_the_way_kept_is_the_row_and_json_loses_nothing(name):
    given = () if name in ("ancestral", "greedy") else (SCORES,)
    made = getattr(decoding, name)(TREE.lm, [[]] * 12, *given, max_tokens=4, trace=True, generator=3, **DECODERS[name])
    again = Trace.from_json(made.trace.to_json())
    assert again.to_json() == made.trace.to_json()
    for row in range(12):
        assert again.replay(row) == made.rows[row]
        tree = again.tree(row)
        kept = [node.token for node in tree.nodes[1:] if node.kept]
        assert tree.root + kept == made.rows[row]
        # Every prefix ever written is there once, and was written as often as the events say.
        assert len({(node.parent, node.token) for node in tree.nodes}) == len(tree.nodes)
        appended = sum(event.action == "append" for event in again.of_row(row))
        assert sum(node.visits for node in tree.nodes[1:]) == appended


def test_rejected_branches_are_marked():
    made = tokenwise_rejection(TREE.lm, [[]] * 30, SCORES, max_tokens=4, trace=True, max_tries=50)
    for row in range(30):
        nodes = made.trace.tree(row).nodes
        rejected = [number for number, node in enumerate(nodes) if node.rejected]
        assert not any(nodes[number].kept for number in rejected)
        assert sum(nodes[number].visits for number in rejected) == int(made.rejections[row])


def test_a_small_tree_in_characters():
    events = [
        Event(1, 0, "append", 2, 5),
        Event(1, 0, "score", 2, score=0.9),
        Event(2, 0, "append", 3, 6),
        Event(2, 0, "score", 3, score=0.1, passed=False),
        Event(2, 0, "erase", 1, 2),
        Event(3, 0, "append", 2, 7),
    ]
    trace = Trace([[4]], events, 3)
    assert trace.replay(0) == [4, 7]
    assert trace.tree(0).text() == "… *\n├─ 5 0.9\n│  └─ 6 x 0.1\n└─ 7 *"
    assert trace.tree(0).text(lambda token: "abcdefgh"[token]) == "… *\n├─ f 0.9\n│  └─ g x 0.1\n└─ h *"
    assert trace.tree(0).parents == [-1, 0, 1, 0]


def test_erasing_into_the_prompt_moves_the_root():
    never = decoding.Predicate(lambda view: torch.zeros(len(view)))
    made = backtrack(TREE.lm, [[0, 1]], never, max_tokens=2, quota=1, stride=2, protect_prompt=False, trace=True)
    tree = made.trace.tree(0)
    assert tree.root == [0]
    assert tree.nodes[1].token == 1
    assert [*tree.root, *(node.token for node in tree.nodes[1:] if node.kept)] == made.rows[0]


def test_traces_of_walks_show_that_they_came_back():
    made = vgb(TREE.lm, [[]] * 40, SCORES, max_tokens=4, steps=200, trace=True)
    trees = [made.trace.tree(row) for row in range(40)]
    assert any(node.visits > 1 for tree in trees for node in tree.nodes[1:])
    assert all(math.isnan(tree.nodes[0].score) for tree in trees)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"prompts": [], "events": [[1]], "step": 0}'])
def test_what_is_no_trace_gets_one_clear_line(text):
    with pytest.raises(ArgumentError, match="text is not a trace") as error:
        Trace.from_json(text)
    assert "\n" not in str(error.value)
