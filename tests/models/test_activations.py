"""Activations by TransformerLens's names: the numbers of the forward pass, whole, filtered, and by short names."""

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.models import ActivationCache, Documents, Normal, Tokens, Transformer

IDS = torch.randint(6, (3, 5), generator=torch.Generator().manual_seed(0))


def small(**options):
    make = dict(layers=2, heads=2, width=8, mlp=10, norm="pre", positions="learned", longest=5, causal=True)
    model = Transformer(6, **make | options, initial={"*": Normal(0.5)})
    return model.initialise(torch.Generator().manual_seed(1))


@torch.no_grad()
def test_every_activation_makes_the_next():
    model = small()
    logits, cache = model.run_with_cache(IDS)
    assert torch.equal(logits, model(IDS))
    assert set(cache) == set(model.hook_names())
    assert len(cache) == len(model.hook_names())
    assert all(len(value) == 3 for value in cache.values())  # the batch is in front everywhere
    stream = cache["hook_embed"] + cache["hook_pos_embed"]
    for i, block in enumerate(model.layers):
        torch.testing.assert_close(cache["resid_pre", i], stream)
        inner = cache[f"blocks.{i}.ln1.hook_normalized"]
        torch.testing.assert_close(inner, block.ln1(stream))
        torch.testing.assert_close(cache["q", i], torch.einsum("bpd,hde->bphe", inner, block.attn.W_Q))
        scores = torch.einsum("bqhe,bkhe->bhqk", cache["q", i], cache["k", i]) / 2
        seen = torch.ones(5, 5).tril().bool()
        pattern = scores.where(seen, -torch.inf).softmax(-1)
        torch.testing.assert_close(cache["pattern", i], pattern)
        torch.testing.assert_close(cache["z", i], torch.einsum("bhqk,bkhe->bqhe", pattern, cache["v", i]))
        stream = stream + cache["attn_out", i]
        torch.testing.assert_close(cache[f"blocks.{i}.ln2.hook_normalized"], block.ln2(stream))
        torch.testing.assert_close(cache["post", i], torch.nn.functional.gelu(cache["pre", i]))
        stream = stream + cache["mlp_out", i]
        torch.testing.assert_close(cache["resid_post", i - 2], stream)
    torch.testing.assert_close(cache["ln_final.hook_normalized"] @ model.embed.W_E.T, logits)


def test_filters_and_names():
    model = small()
    for chosen, count in (
        ("blocks.0.attn.hook_pattern", 1),
        ("*hook_pattern", 2),
        (["hook_embed", "*.hook_q"], 3),
        (lambda name: name.endswith("hook_resid_post"), 2),
        (lambda name: False, 0),
    ):
        logits, cache = model.run_with_cache(Tokens(IDS), names_filter=chosen)
        assert isinstance(cache, ActivationCache)
        assert (len(cache), logits.shape) == (count, (3, 5, 6))
    _, cache = model.run_with_cache(IDS, "hook_embed")
    assert torch.equal(cache["embed"], cache["hook_embed"])
    assert "embed" in cache
    assert ("pattern", 0) not in cache
    assert 3 not in cache
    with pytest.raises(KeyError, match=r"'patern': must be one of q, k, .*did you mean 'pattern'"):
        cache["patern", 0]
    with pytest.raises(ArgumentError, match=r"names_filter='\*patern': no such activation"):
        model.run_with_cache(IDS, "*patern")
    with pytest.raises(ArgumentError, match="counts of tokens have no places"):
        small(positions=None, longest=None).run_with_cache(Documents(torch.ones(2, 6)))


def test_one_hot_embeddings_come_as_vectors():
    model = Transformer(6, embedding="one-hot", residual=False)
    _, cache = model.run_with_cache(IDS, "hook_embed")
    assert torch.equal(cache["embed"].argmax(-1), IDS)
    assert cache["embed"].shape == (3, 5, 6)
