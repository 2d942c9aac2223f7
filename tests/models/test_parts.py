"""Deep MLPs, unit norms, norms inside the residual, recency biases, linear positions, heads of another size."""

import pytest
import torch
from test_transformer import drawn, rng, same
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import Block, Cache, DeepMLP, SoftmaxAttention, Tokens, Transformer, UniformAttention, UnitNorm


def test_a_deep_mlp_is_a_torch_sequential():
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.ReLU(), nn.Linear(3, 4)).double()
    ours = DeepMLP(5, (7, 3), out_width=4).double()
    with torch.no_grad():
        for i, layer in enumerate(theirs[::2]):
            ours.get_parameter(f"W_{i}").copy_(layer.weight.T)
            ours.get_parameter(f"b_{i}").copy_(layer.bias)
    x = torch.randn(6, 5, dtype=torch.float64)
    taps = {}
    same(ours(x, lambda name, tensor: taps.setdefault(name, tensor)), theirs(x))
    same(taps["hook_post_1"], theirs[:4](x))
    assert len(list(DeepMLP(5, (7, 3), biases=False).parameters())) == 3


def test_the_unit_norm_projects_and_scales():
    x = torch.randn(50, 6, dtype=torch.float64, generator=rng(1)) * torch.logspace(-3, 3, 50).double()[:, None]
    centred = x - x.mean(1, keepdim=True)
    same(UnitNorm(6)(x), centred / centred.norm(dim=1, keepdim=True))
    same(UnitNorm(6)(1e-3 * x), UnitNorm(6)(x))
    capped = UnitNorm(6, eps=2.0)(x)
    same(capped, centred / centred.norm(dim=1, keepdim=True).clamp_min(2.0))
    assert float(capped.norm(dim=1).max()) <= 1 + 1e-12
    flat = torch.full((1, 6), 3.0, dtype=torch.float64, requires_grad=True)
    UnitNorm(6)(flat).sum().backward()
    assert bool((UnitNorm(6)(flat) == 0).all())
    assert bool(flat.grad.isfinite().all())


def test_the_layer_of_the_dyck_theory():
    """mlp(norm(attn(x)) + x): written out by hand."""
    blocks = [
        Block(
            UniformAttention(5, causal=True, output=False),
            mlp=DeepMLP(5, (8, 6), out_width=4),
            norm=("inner", None),
            norm_kind="unit",
            residual=(True, False),
            eps=0.0,
        ),
        Block(SoftmaxAttention(4, causal=True, scale=1.0), residual=(False, False)),
    ]
    model = drawn(Transformer(5, embedding="one-hot", tied=False, outputs=3, blocks=blocks))
    ids = torch.randint(5, (2, 7), generator=rng(3))
    x = torch.nn.functional.one_hot(ids, 5).double()
    mean = (x @ model.blocks[0].attn.W_V[0]).cumsum(1) / torch.arange(1, 8)[:, None]
    centred = mean - mean.mean(-1, keepdim=True)
    x = x + centred / centred.norm(dim=-1, keepdim=True)
    mlp = model.blocks[0].mlp
    x = ((x @ mlp.W_0 + mlp.b_0).relu() @ mlp.W_1 + mlp.b_1).relu() @ mlp.W_2 + mlp.b_2
    attn = model.blocks[1].attn
    scores = (x @ attn.W_Q[0]) @ (x @ attn.W_K[0]).mT
    scores = scores.masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -torch.inf)
    x = scores.softmax(-1) @ (x @ attn.W_V[0]) @ attn.W_O[0]
    assert model.unembed.W_U.shape == (4, 3)
    same(model(ids), x @ model.unembed.W_U)


@pytest.mark.parametrize("norm", ["inner", ("inner", "pre"), (None, "post")])
def test_any_placement_of_norms_reads_on_from_a_cache(norm):
    model = drawn(Transformer(7, layers=2, heads=2, width=8, mlp=12, causal=True, norm=norm, positions="alibi"))
    ids = torch.randint(7, (3, 9), generator=rng(2))
    cache, whole = Cache(model, 3, 4), model(ids)
    for i in range(9):
        same(model.extend(ids[:, i : i + 1], torch.full((3, 1), i), cache)[:, 0], whole[:, i], 1e-11)


def test_alibi_is_blooms():
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    model = drawn(Transformer(7, heads=4, width=8, causal=True, positions="alibi"), scale=10.0)
    ids = torch.randint(7, (2, 6), generator=rng(1))
    _, found = model(ids, want=("blocks.0.attn.hook_q", "blocks.0.attn.hook_k", "blocks.0.attn.hook_pattern"))
    q, k = (found[f"blocks.0.attn.hook_{name}"] for name in "qk")
    bias = bloom.build_alibi_tensor(torch.ones(2, 6), 4, torch.float64).view(2, 4, 1, 6)
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / 2**0.5 + bias
    scores = scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
    same(found["blocks.0.attn.hook_pattern"], scores.softmax(-1), 1e-7)
    assert model.longest is None


def test_positions_may_start_anywhere():
    for positions in ("learned", "sinusoidal", "linear"):
        model = drawn(Transformer(7, width=8, causal=True, positions=positions, longest=20))
        ids = torch.randint(7, (2, 12), generator=rng(4))
        start = torch.tensor([3, 8])
        shifted = model(Tokens(ids, start=start), want=("hook_pos_embed",))[1]["hook_pos_embed"]
        table = model.pos_embed(20)
        same(shifted, torch.stack([table[3:15], table[8:20]]))
        same(model(Tokens(ids, start=torch.tensor([0, 0]))), model(ids))


def test_linear_positions_move_at_a_steady_pace():
    model = drawn(Transformer(7, width=8, positions="linear", longest=10))
    table = model.pos_embed(10)
    same(table.diff(dim=0), (model.pos_embed.W_pos / 10).expand(9, -1), 1e-7)
    with pytest.raises(ArgumentError, match="longest=10"):
        model(torch.zeros(1, 11, dtype=torch.long))
    faster = model.replace(position_unit=4)
    same(faster.pos_embed(10), torch.arange(10)[:, None] / 4 * faster.pos_embed.W_pos, 1e-7)
    assert faster.longest == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(width=8, outputs=3), "outputs=3: a tied head"),
        (dict(width=8, norm=("pre", "post", "pre")), "norm=.*pair"),
        (dict(width=8, norm="before"), "norm='before'.*pre"),
        (dict(width=8, positions="alibi", attention="uniform"), "needs softmax"),
        (dict(width=8, positions="linear"), "longest=None"),
        (dict(width=8, positions="linear", longest=9, position_unit=0), "position_unit=0: must be a finite number > 0"),
        (dict(width=8, positions="learned", longest=9, position_unit=3), "position_unit=3: only positions=.linear."),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ArgumentError, match=message):
        Transformer(7, **options)


def test_widths_must_fit():
    with pytest.raises(ArgumentError, match="the mlp reads width 4 and writes 6"):
        Block(UniformAttention(4), mlp=DeepMLP(4, (3,), out_width=6))
    with pytest.raises(ArgumentError, match="mlp of width 5"):
        Block(UniformAttention(4), mlp=DeepMLP(5, (3,)))
