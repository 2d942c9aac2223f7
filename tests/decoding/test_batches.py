"""Rows decoded together are the rows decoded alone, whatever their prompts: no cache, stream or bill is mixed up."""

import pytest
import torch
from small_trees import network_tree

from sandtable import decoding
from sandtable.decoding import Hidden, Predicate

MODEL = network_tree(3, 1, eos=2, seed=5).lm
PROMPTS = [[1], [0, 2, 1], [2, 2], [0, 0, 1, 1], [1, 0], [2], [0, 1, 2, 0], [1, 1, 1]]
METHODS = {
    "ancestral": {},
    "backtrack": dict(quota=4, stride=2),
    "rejection": dict(max_tries=6, threshold=0.6),
    "rejection, abort": dict(max_tries=6, abort=True),
    "best_of_n": dict(n=4),
    "block_best_of_n": dict(n=4, boundary=2),
    "block_rejection": dict(boundary=2, threshold=0.7),
    "tokenwise_rejection": dict(max_tries=20),
    "exhaustive_tokenwise": {},
    "action_level": {},
    "action_level, proposed": dict(bound=1.0),
    "vgb": dict(steps=150, max_restarts=3),
    "vgb, top_k": dict(steps=150, max_restarts=3, children="top_k", k=1),
    "vgb, rejection": dict(steps=150, max_restarts=3, children="rejection"),
    "smc": dict(particles=5, ess_threshold=0.95),
}


def outside(view):
    """A score from 0.3 to 0.97 that depends on every token."""
    inside = torch.arange(view.tokens.shape[1]) < view.lengths[:, None]
    places = 1 + 3 * torch.arange(view.tokens.shape[1])
    return 0.3 + ((view.tokens + 1) * places * inside).sum(1).remainder(68) / 100


def within(view):
    return 0.2 + 0.7 * (view.hidden[:, :3].sum(1) / 3).sigmoid()


VERIFIERS = {"tokens": Predicate(outside), "states": Predicate(within, needs=Hidden(2))}


@pytest.mark.parametrize("kind", VERIFIERS)
@pytest.mark.parametrize("method", METHODS)
def test_a_row_does_not_depend_on_its_neighbours(method, kind):
    decoder = getattr(decoding, method.split(",")[0])
    given = () if method == "ancestral" else (VERIFIERS[kind],)
    options = dict(max_tokens=8, generator=4) | METHODS[method]
    together = decoder(MODEL, PROMPTS, *given, **options)
    alone = decoder(MODEL, PROMPTS, *given, batch_size=1, **options)
    assert together.rows == alone.rows
    assert torch.allclose(together.score, alone.score, equal_nan=True)
    for counter in ("accepted", "queries", "forwards", "verifier_calls", "rejections", "backtracks", "erased"):
        assert torch.equal(getattr(together, counter), getattr(alone, counter)), counter
