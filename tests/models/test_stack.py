"""A stack of models against each of its models."""

import pytest
import torch
from torch import nn

from sandtable.models import Normal, Stack, Transformer


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def same(a, b, atol=1e-12):
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


LLAMA = dict(causal=True, norm_kind="rms", mlp_kind="gated", activation="silu", positions="rotary", longest=5)


@pytest.mark.parametrize("options", [{}, LLAMA], ids=["plain", "llama"])
def test_a_stack_runs_every_model(options):
    make = dict(initial={"*": Normal(0.5)}, width=8, heads=2, layers=2, mlp=6, norm="pre", biases=True, **options)
    modules = [Transformer(6, **make).initialise(rng(seed)).double() for seed in range(3)]
    stack = Stack.of(*modules)
    ids = torch.randint(6, (2, 5), generator=rng())
    assert len(stack) == 3
    logits, found = stack(ids, want=("blocks.1.attn.hook_pattern",))
    for i, module in enumerate(modules):
        assert all(torch.equal(p, stack[i].get_parameter(n)) for n, p in module.named_parameters())
        assert torch.equal(stack[i](ids), module(ids))
        same(logits[i], module(ids), 1e-12)
        same(
            found["blocks.1.attn.hook_pattern"][i],
            module(ids, want=("blocks.1.attn.hook_pattern",))[1].popitem()[1],
            1e-12,
        )
    own = torch.randint(6, (3, 2, 5), generator=rng(1))
    for i, logits in enumerate(stack(own, shared=False)):
        same(logits, modules[i](own[i]), 1e-12)
    assert torch.equal(stack[-1].embed.W_E, modules[2].embed.W_E)
    assert torch.equal(stack.select([2, 0])["embed.W_E"], stack["embed.W_E"][[2, 0]])
    stack[0].embed.W_E.data.zero_()
    assert (stack["embed.W_E"][0] != 0).any()


def test_a_stack_of_any_modules():
    torch.manual_seed(0)
    modules = [nn.Linear(3, 2) for _ in range(4)]
    x = torch.randn(5, 3)
    for logits, module in zip(Stack.of(*modules)(x), modules, strict=True):
        same(logits, module(x), 1e-6)
