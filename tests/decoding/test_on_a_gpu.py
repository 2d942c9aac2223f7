"""A model on a GPU is decoded as it is on the CPU: books are kept on the CPU, its numbers come from where it is."""

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from sandtable import decoding
from sandtable.bridges.huggingface import load
from sandtable.decoding import (
    Hidden,
    MonteCarloValue,
    Predicate,
    ProbeVerifier,
    Random,
    ScaledNoise,
    TransformerModel,
)
from sandtable.models import Transformer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

VOCAB = 11
PROMPTS = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]
EVEN = Predicate(lambda view: (view.tokens.sum(1) % 3 > 0).double() * 0.9 + 0.05, is_value=False)
INSIDE = Predicate(lambda view: view.hidden.double().mean(-1).sigmoid(), needs=Hidden(1))
WAYS = {
    "ancestral": (None, {}),
    "greedy": (None, {}),
    "rejection": (EVEN, dict(max_tries=3, abort=True)),
    "best_of_n": (EVEN, dict(n=3)),
    "block_best_of_n": (EVEN, dict(n=3, boundary=2)),
    "block_rejection": (INSIDE, dict(max_tries=3, boundary=2)),
    "tokenwise_rejection": (INSIDE, dict(max_tries=20)),
    "exhaustive_tokenwise": (EVEN, {}),
    "action_level": (EVEN, dict(bound=1.0)),
    "backtrack": (INSIDE, dict(quota=3, stride=2, protect_prompt=False)),
    "smc": (EVEN, dict(particles=4)),
    "vgb": (EVEN, dict(steps=60, returns="last", children="top_k", k=3, max_restarts=0)),
}


def ours():
    network = Transformer(VOCAB, layers=2, heads=2, width=16, causal=True, norm="pre", positions="learned", longest=40)
    return network.initialise(torch.Generator().manual_seed(0), 3.0).double()


def theirs():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
    return GPT2LMHeadModel(config).double().eval()


def on(device, make):
    network = copy.deepcopy(make()).to(device)
    return TransformerModel(network, eos=0) if make is ours else load(network, eos=0)


@pytest.mark.parametrize("make", [ours, theirs])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_of_decoding_writes_the_same_rows(name, make):
    verifier, options = WAYS[name]
    given = () if verifier is None else (verifier,)
    there, here = (
        getattr(decoding, name)(on(device, make), PROMPTS, *given, max_tokens=8, generator=5, top_p=0.95, **options)
        for device in ("cuda", "cpu")
    )
    assert there.rows == here.rows
    assert torch.allclose(there.score, here.score, equal_nan=True)
    assert torch.equal(there.queries, here.queries)
    assert torch.allclose(there.log_prob(), here.log_prob())


@pytest.mark.parametrize("make", [ours, theirs])
def test_verifiers_that_ask_a_model(make):
    models = on("cuda", make), on("cpu", make)
    rows = torch.randint(VOCAB, (24, 5), generator=torch.Generator().manual_seed(1)).tolist()
    labels = torch.arange(24) % 2

    def probe(lm):
        return ProbeVerifier.fit(lm, rows, labels, torch.Generator().manual_seed(0), hidden=Hidden(1))

    def odd(lm):
        return MonteCarloValue(lm, lambda view: view.tokens.sum(1) % 2, 5, rollouts=4)

    for make_verifier in (odd, probe, lambda lm: Random(3), lambda lm: ScaledNoise(probe(lm), 0.1)):
        made = [decoding.backtrack(lm, PROMPTS, make_verifier(lm), max_tokens=5, generator=2) for lm in models]
        assert made[0].rows == made[1].rows
