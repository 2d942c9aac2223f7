"""Models of ours in TransformerLens: against a forward pass written down here, and against the package itself."""

import importlib.util
import re
import sys
from builtins import compile as compile_text
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from sandtable.arguments import ArgumentError
from sandtable.bridges.transformer_lens import lens, to_transformer_lens
from sandtable.models import Block, DeepMLP, SoftmaxAttention, Transformer
from sandtable.theory.automata import compile
from sandtable.theory.dyck import build
from sandtable.worlds.automata import abab, cyclic, dyck, grid, memory

installed = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="TransformerLens is not installed"
)
PRE = dict(layers=2, heads=2, width=12, mlp=20, norm="pre", causal=True, positions="learned", longest=9, biases=True)
MODELS = {
    "pre": PRE | dict(tied=False, outputs=5, head_bias=True, activation="gelu_new"),
    "llama": PRE | dict(norm_kind="rms", mlp_kind="gated", activation="silu", positions="rotary", biases=False),
    "wide heads": PRE | dict(head_width=10, heads=3, biases=False, activation="relu"),
    "attention only": dict(layers=2, heads=3, width=12, causal=True),
    "plain": dict(layers=2, heads=2, width=12, mlp=20, positions="sinusoidal", longest=9, activation="gelu"),
    "uniform": dict(layers=1, embedding="one-hot", attention="uniform", output=False),
    "overwriting": dict(layers=2, heads=2, width=12, residual=(False, True), mlp=8, activation="relu", biases=True),
    "no residual": dict(
        layers=2, embedding="one-hot", residual=False, mlp=9, activation="relu", biases=True, tied=False
    ),
}
IDS = torch.randint(11, (3, 9), generator=torch.Generator().manual_seed(0))


def ours(name):
    """Every parameter random, norms and biases too."""
    model, generator = Transformer(11, **MODELS[name]).double(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def book(config, weights, ids):
    """TransformerLens's forward pass as its documentation has it; logits and the stream after every block."""
    w = weights.get
    places = torch.arange(ids.shape[1])
    future = places[:, None] < places if config["attention_dir"] == "causal" else torch.zeros(len(places), len(places))

    def norm(x, name):
        if config["normalization_type"] == "LN":
            x = x - x.mean(-1, keepdim=True)
        if config["normalization_type"] is None:
            return x
        x = x / (x.square().mean(-1, keepdim=True) + config["eps"]).sqrt() * w(f"{name}.w")
        return x + w(f"{name}.b") if f"{name}.b" in weights else x

    def turn(x):
        if config["positional_embedding_type"] != "rotary":
            return x
        e = config["rotary_dim"]
        angle = places[:, None] / config["rotary_base"] ** (torch.arange(0, e, 2).double() / e)
        pair = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(angle * 0 + 1, angle)[:, None]
        return torch.view_as_real(pair).flatten(-2)

    act = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "gelu_new": lambda x: F.gelu(x, approximate="tanh")}
    x = w("embed.W_E")[ids] + (w("pos_embed.W_pos")[places] if "pos_embed.W_pos" in weights else 0)
    streams = []
    for i in range(config["n_layers"]):
        at = f"blocks.{i}"
        inner = norm(x, f"{at}.ln1")
        q, k, v = (torch.einsum("bpd,hde->bphe", inner, w(f"{at}.attn.W_{n}")) + w(f"{at}.attn.b_{n}") for n in "QKV")
        scores = torch.einsum("bqhe,bkhe->bhqk", turn(q), turn(k)) / config["d_head"] ** 0.5
        pattern = scores.masked_fill(future.bool(), -torch.inf).softmax(-1)
        mixed = torch.einsum("bhqk,bkhe->bqhe", pattern, v)
        x = x + torch.einsum("bqhe,hed->bqd", mixed, w(f"{at}.attn.W_O")) + w(f"{at}.attn.b_O")
        if not config["attn_only"]:
            inner = norm(x, f"{at}.ln2")
            hidden = inner @ w(f"{at}.mlp.W_in") + w(f"{at}.mlp.b_in")
            if config["gated_mlp"]:
                hidden = act[config["act_fn"]](inner @ w(f"{at}.mlp.W_gate")) * hidden
            else:
                hidden = act[config["act_fn"]](hidden)
            x = x + hidden @ w(f"{at}.mlp.W_out") + w(f"{at}.mlp.b_out")
        streams.append(x)
    return norm(x, "ln_final") @ w("unembed.W_U") + w("unembed.b_U"), streams


def longest(model):
    return None if model.longest else 9


@pytest.mark.parametrize("name", MODELS)
def test_weights_by_their_names_give_our_logits(name):
    model = ours(name)
    found = lens(model, longest=longest(model))
    logits, streams = book(found.config, found.weights, IDS)
    with torch.no_grad():
        want, mine = model(IDS, want=[f"blocks.{i}.hook_resid_post" for i in range(len(model.layers))])
    assert float(want.std()) > 0.1
    near = 1e-5 if name == "llama" else 1e-10  # our table of rotary waves is kept in single precision
    torch.testing.assert_close(logits, want, atol=near, rtol=near)
    for layer, last in enumerate([*found.blocks[1:], len(streams)]):
        stream = streams[last - 1]
        here = mine[f"blocks.{layer}.hook_resid_post"]
        torch.testing.assert_close(stream, F.pad(here, (0, stream.shape[-1] - model.width)), atol=near, rtol=near)


COMPILED = {
    "corridor": (grid(9), 6, None),
    "memory": (memory(3), 6, None),
    "counter": (cyclic(5), 6, None),
    "cascade": (abab(), 5, "krohn-rhodes"),
    "log depth": (dyck(3), 6, "log"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_automata_compute_the_same_there(name):
    automaton, length, method = COMPILED[name]
    compiled = compile(automaton, length, **({} if method is None else {"method": method}))
    found = lens(compiled.model)
    inputs = torch.randint(automaton.n_tokens, (20, length), generator=torch.Generator().manual_seed(2))
    ids = compiled.encode(inputs)
    logits, _ = book(found.config, found.weights, ids)
    torch.testing.assert_close(logits, compiled.model(ids), atol=1e-6, rtol=1e-6)
    assert torch.equal(compiled.decode(logits), automaton.simulate(inputs))
    assert len(found.blocks) == len(compiled.model.layers)


def deep(*, norm=None, activation="relu"):
    block = Block(SoftmaxAttention(12, causal=True), mlp=DeepMLP(12, (5, 7), activation=activation), norm=norm)
    return Transformer(11, width=12, blocks=[block])


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (lambda: ours("plain"), dict(longest=10), "longest=10: must be a whole number from 1 to 9"),
        (lambda: ours("uniform"), {}, "longest=None: this model takes any number of tokens"),
        (lambda: Transformer(11, **PRE | dict(embedding_norm=True)), {}, "ln_embed: embedding_norm=True"),
        (
            lambda: Transformer(11, **PRE | dict(final_norm=False)),
            {},
            "norm: LayerNorm in the blocks and no norm before",
        ),
        (lambda: Transformer(11, **PRE | dict(norm="post", final_norm=True)), {}, "norm='post'"),
        (lambda: Transformer(11, **PRE | dict(norm_kind="unit")), {}, "of kind UnitNorm"),
        (lambda: Transformer(11, **PRE | dict(activation="tanh")), {}, "activation='tanh': must be one of relu"),
        (
            lambda: Transformer(11, **PRE | dict(positions="alibi")),
            dict(longest=9),
            "AlibiAttention has no counterpart",
        ),
        (lambda: deep(norm="inner"), dict(longest=9), "blocks.0: norm='inner', a norm behind a part"),
        (lambda: deep(activation="gelu"), dict(longest=9), "only plain ReLU MLPs unroll"),
        (build, dict(longest=9), "blocks.0: norm='inner', a norm behind a part"),
        (lambda: compile(grid(3), 4), {}, "such as `compiled.model`"),
    ],
)
def test_what_has_no_counterpart_is_named(make, options, said):
    with pytest.raises(ArgumentError, match=said):
        lens(make(), **options)


@installed
@pytest.mark.parametrize("name", ["llama", "wide heads", "attention only", "overwriting"])
def test_the_package_gives_our_logits_and_activations(name):
    model = ours(name).float()
    there = to_transformer_lens(model, longest=longest(model))
    with torch.no_grad():
        logits, cache = there.run_with_cache(IDS)
        want, mine = model.run_with_cache(IDS)
    torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)
    pattern = "blocks.0.attn.hook_pattern"
    torch.testing.assert_close(cache[pattern], mine[pattern], atol=1e-5, rtol=1e-5)
    if name != "overwriting":
        shared = [key for key in mine if key in cache and "rot" not in key and key.split("_")[-1] not in "qk"]
        assert {"blocks.1.hook_resid_post", "blocks.0.attn.hook_v", "blocks.0.hook_attn_out"} <= set(shared)


@installed
def test_a_compiled_corridor_inside_the_package():
    automaton = grid(9)
    compiled = compile(automaton, 6)
    there = to_transformer_lens(compiled.model)
    inputs = torch.randint(automaton.n_tokens, (20, 6), generator=torch.Generator().manual_seed(2))
    ids = compiled.encode(inputs)
    with torch.no_grad():
        logits, cache = there.run_with_cache(ids)
    assert torch.equal(compiled.decode(logits), automaton.simulate(inputs))
    _, mine = compiled.model.run_with_cache(ids, "*pattern")
    for layer, block in enumerate(lens(compiled.model).blocks):
        theirs, own = cache[f"blocks.{block}.attn.hook_pattern"], mine["pattern", layer]
        torch.testing.assert_close(theirs[:, : own.shape[1]], own)


@installed
def test_the_documented_lines_run():
    page = Path(__file__).parents[2] / "docs" / "interop.md"
    (block,) = re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL)
    exec(compile_text(block, str(page), "exec"), {})


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformer_lens", None)
    with pytest.raises(ArgumentError, match=r"uv sync --extra transformer-lens"):
        to_transformer_lens(ours("pre"))
