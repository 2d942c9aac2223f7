"""Parameters by name: how they start, are set, frozen and replaced — and what is refused."""

import math

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.models import (
    MLP,
    Block,
    Constant,
    FanIn,
    Identity,
    Normal,
    SoftmaxAttention,
    Stack,
    Transformer,
    UniformAttention,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_initialisation_depends_only_on_the_generator():
    model = Transformer(6, width=8, heads=2, layers=2, mlp=10, biases=True, norm="pre")
    first = {n: p.clone() for n, p in model.initialise(rng(5)).named_parameters()}
    torch.manual_seed(99)
    other = Transformer(6, width=8, heads=2, layers=2, mlp=10, biases=True, norm="pre").initialise(rng(5))
    assert all(torch.equal(first[n], p) for n, p in other.named_parameters())
    before = torch.random.get_rng_state()
    model.initialise(rng(6))
    assert torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(first["embed.W_E"], model.embed.W_E)
    for name, parameter in model.named_parameters():
        if ".b" in name:
            assert (parameter == 0).all()
        elif ".ln" in name or name.startswith("ln"):
            assert (parameter == 1).all()
        else:
            assert 0.005 < float(parameter.detach().std()) < 0.05


LLAMA = dict(
    layers=2, heads=2, width=8, causal=True, norm="pre", norm_kind="rms", mlp=6, mlp_kind="gated", activation="silu",
    positions="rotary", longest=9, tied=False,
)  # fmt: skip


def test_a_llama_starts_and_is_replaced_like_any_other():
    model = Transformer(6, biases=True, embedding_norm=True, **LLAMA).initialise(rng(5))
    for name, parameter in model.named_parameters():
        if ".b" in name:
            assert (parameter == 0).all()
        elif name.endswith(".w"):
            assert (parameter == 1).all()
        else:
            assert 0.005 < float(parameter.detach().std()) < 0.05
    names = set(model.matching("*"))
    assert {"blocks.1.mlp.W_gate", "blocks.1.mlp.b_gate", "blocks.0.ln1.w", "ln_embed.w", "ln_final.w"} <= names
    assert not any(name.endswith("ln1.b") or "rotary" in name for name in names)
    assert {"blocks.0.attn.hook_rot_q", "blocks.1.mlp.hook_pre_linear"} <= set(model.hook_names())
    changed = model.replace(longest=20, norm_kind="layer", mlp_kind="plain")
    assert changed.longest == 20
    assert "blocks.0.ln1.b" in changed.matching("*")
    assert not any("gate" in name for name in changed.matching("*"))
    assert model.describe()["config"]["positions"] == "rotary"


def test_the_scale_multiplies_what_is_random():
    make = dict(width=8, heads=2, mlp=10, biases=True, norm="pre", initial={"*.W_V": FanIn(), "*.W_O": Identity(2.0)})
    one = Transformer(6, **make).initialise(rng(5))
    near_zero = Transformer(6, **make).initialise(rng(5), 1e-3)
    for name, parameter in one.named_parameters():
        random = ".W_" in name and not name.endswith("W_O")
        torch.testing.assert_close(near_zero.get_parameter(name), parameter * (1e-3 if random else 1.0))
    zero = Transformer(6, **make).initialise(rng(5), 0.0)
    assert (zero.blocks[0].attn.W_Q == 0).all()


def test_how_parameters_start():
    shape = torch.Size([400, 100])
    assert float(Normal(0.3).draw(shape, rng()).std()) == pytest.approx(0.3, rel=0.02)
    uniform = FanIn().draw(shape, rng())
    assert float(uniform.abs().max()) <= 1 / 20
    assert float(uniform.std()) == pytest.approx(1 / 20 / math.sqrt(3), rel=0.02)
    assert (Constant(3.0).draw(shape, rng()) == 3).all()
    assert torch.equal(Identity(2.0).draw(torch.Size([3, 4, 5]), rng()), 2 * torch.eye(4, 5).expand(3, 4, 5))
    with pytest.raises(ArgumentError, match="std=-1"):
        Normal(-1)


def test_what_was_set_survives_initialisation_and_shifts_nothing():
    free = Transformer(6, embedding="one-hot").initialise(rng(1))
    held = (
        Transformer(6, embedding="one-hot").set("blocks.0.attn.W_V", torch.eye(6)[None], freeze=True).initialise(rng(1))
    )
    assert torch.equal(held.blocks[0].attn.W_V[0], torch.eye(6))
    assert not held.blocks[0].attn.W_V.requires_grad
    assert torch.equal(held.blocks[0].attn.W_Q, free.blocks[0].attn.W_Q)
    assert torch.equal(held.blocks[0].attn.W_O, free.blocks[0].attn.W_O)


def test_freezing_by_pattern():
    model = Transformer(6, width=8, layers=2).freeze("*.W_[QK]", "embed.*")
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"embed.W_E", *(f"blocks.{i}.attn.W_{p}" for i in (0, 1) for p in "QK")}


def test_replace_keeps_what_was_set_and_frozen():
    model = (
        Transformer(6, embedding="one-hot", residual=False).set("blocks.0.attn.W_V", torch.eye(6)[None]).freeze("*.W_K")
    )
    changed = model.replace(residual=True, mlp=7)
    assert changed.blocks[0].residuals == (True, True)
    assert changed.blocks[0].mlp is not None
    assert torch.equal(changed.blocks[0].attn.W_V[0], torch.eye(6))
    assert not changed.blocks[0].attn.W_K.requires_grad
    assert model.blocks[0].mlp is None


def test_replace_can_change_the_vocabulary_of_a_one_hot_model():
    assert Transformer(6, embedding="one-hot").replace(vocab=9).blocks[0].attn.W_V.shape == (1, 9, 9)


def test_replace_decides_the_final_norm_again():
    assert Transformer(6, width=8).replace(norm="pre").ln_final is not None
    assert Transformer(6, width=8, norm="pre").replace(norm=None).ln_final is None
    assert Transformer(6, width=8, norm="pre", final_norm=False).replace(heads=2).ln_final is None


def test_blocks_of_your_own():
    blocks = [
        Block(SoftmaxAttention(6, heads=1, head_width=4, out_width=10), residual=False),
        Block(UniformAttention(10, heads=2), mlp=MLP(10, 5), norm="pre"),
    ]
    model = Transformer(6, embedding="one-hot", tied=False, blocks=blocks).initialise(rng())
    ids = torch.randint(6, (2, 5), generator=rng())
    assert model(ids).shape == (2, 5, 6)
    with pytest.raises(ArgumentError, match="rebuilt by hand"):
        model.replace(heads=2)
    with pytest.raises(ArgumentError, match="tied=False"):
        Transformer(6, embedding="one-hot", blocks=blocks)
    with pytest.raises(ArgumentError, match="residual"):
        Block(SoftmaxAttention(6, out_width=10))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.freeze("blocks.0.attn.W_v"), r"did you mean 'blocks\.0\.attn\.W_V'"),
        (lambda m: m.freeze("*.W_X"), r"'\*\.W_X': no parameter"),
        (lambda m: m.set("embed.W_e", torch.eye(6)), r"did you mean 'embed\.W_E'"),
        (lambda m: m.set("*.W_V", torch.eye(6)), "not a pattern"),
        (lambda m: m.set("embed.W_E", torch.eye(3)), r"shape \(3, 3\)"),
        (lambda m: m.replace(head=2), "did you mean 'heads'"),
        (lambda m: Stack.of(m)["blocks.0.attn.W_v"], r"did you mean 'blocks\.0\.attn\.W_V'"),
        (lambda m: Stack.of(m)[1], "holds 1 model"),
    ],
)
def test_unknown_names(call, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        call(Transformer(6, width=8))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(vocab=0), "vocab=0"),
        (dict(vocab=-3), "vocab=-3"),
        (dict(vocab=2.5), "vocab=2.5"),
        (dict(layers=0), "layers=0"),
        (dict(heads=0), "heads=0"),
        (dict(heads=3), "heads=3"),
        (dict(width=0), "width=0"),
        (dict(width=None), "width=None"),
        (dict(head_width=-1), "head_width=-1"),
        (dict(mlp=0), "hidden=0"),
        (dict(mlp=4, activation="rely"), "did you mean 'relu'"),
        (dict(mlp=4, mlp_kind="gate"), "did you mean 'gated'"),
        (dict(norm="prae"), "did you mean 'pre'"),
        (dict(norm_kind="rmsnorm"), "did you mean 'rms'"),
        (dict(attention="softmx"), "did you mean 'softmax'"),
        (dict(embedding="onehot", width=None), "did you mean 'one-hot'"),
        (dict(embedding="one-hot"), "as wide as the vocabulary"),
        (dict(positions="learned"), "longest=None"),
        (dict(positions="learnt", longest=4), "did you mean 'learned'"),
        (dict(positions="learned", longest=0), "longest=0"),
        (dict(positions="rotary"), "longest=None"),
        (dict(positions="rotary", longest=4, attention="uniform"), "needs softmax attention"),
        (dict(positions="rotary", longest=4, heads=8), "must be even"),
        (dict(positions="rotary", longest=4, blocks=[]), "RotaryAttention"),
        (dict(output=False, heads=2), "output=False"),
        (dict(blocks=[]), "at least one block"),
        (dict(initial={"*.W_X": Normal()}), r"\*\.W_X"),
    ],
)
def test_bad_settings(options, said):
    with pytest.raises(ArgumentError, match=said) as caught:
        Transformer(**{**dict(vocab=6, width=8), **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_too_many_positions(positions):
    with pytest.raises(ArgumentError, match="longest=4"):
        Transformer(6, width=8, positions=positions, longest=4)(torch.zeros(1, 5, dtype=torch.long))
