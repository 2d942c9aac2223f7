"""Our Transformer against Hugging Face's and PyTorch's, with the same weights: equal to the last digits of float64."""

import itertools
import math

import pytest
import torch
from torch import nn

from sandtable.arguments import ArgumentError
from sandtable.models import (
    Bag,
    Documents,
    Normal,
    Rotary,
    Selected,
    SinusoidalPositions,
    SoftmaxAttention,
    Tokens,
    Transformer,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(model, seed=0, scale=25.0):
    """The model in float64 with sizeable random weights (0.02 × 25), so that nothing is nearly linear or uniform."""
    model.initialise(rng(seed), scale)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".b" in name or ".ln" in name or name.startswith("ln"):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng(len(name))))
    return model.double()


def heads_of(weight, heads):
    """A (width, heads · head) matrix as heads × width × head."""
    return weight.unflatten(1, (heads, -1)).permute(1, 0, 2)


def same(a, b, atol=1e-10):
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


# -- against other people's models -----------------------------------------------------------------------------------


def as_gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=17, n_positions=9, n_embd=12, n_layer=2, n_head=3, initializer_range=0.5,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    ours = Transformer(
        17, layers=2, heads=3, width=12, mlp=48, activation="gelu_new", norm="pre", causal=True, biases=True,
        positions="learned", longest=9,
    ).double()  # fmt: skip
    source = theirs.transformer
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
        pairs = {
            "embed.W_E": source.wte.weight,
            "pos_embed.W_pos": source.wpe.weight,
            "ln_final.w": source.ln_f.weight,
            "ln_final.b": source.ln_f.bias,
        }
        for i, block in enumerate(source.h):
            at = f"blocks.{i}"
            for part, weight, bias in zip(
                "QKV", block.attn.c_attn.weight.chunk(3, 1), block.attn.c_attn.bias.chunk(3), strict=True
            ):
                pairs |= {f"{at}.attn.W_{part}": heads_of(weight, 3), f"{at}.attn.b_{part}": bias.unflatten(0, (3, 4))}
            pairs |= {f"{at}.attn.W_O": block.attn.c_proj.weight.unflatten(0, (3, 4))}
            pairs |= {f"{at}.attn.b_O": block.attn.c_proj.bias}
            pairs |= {f"{at}.ln1.w": block.ln_1.weight, f"{at}.ln1.b": block.ln_1.bias}
            pairs |= {f"{at}.ln2.w": block.ln_2.weight, f"{at}.ln2.b": block.ln_2.bias}
            pairs |= {f"{at}.mlp.W_in": block.mlp.c_fc.weight, f"{at}.mlp.b_in": block.mlp.c_fc.bias}
            pairs |= {f"{at}.mlp.W_out": block.mlp.c_proj.weight, f"{at}.mlp.b_out": block.mlp.c_proj.bias}
        assert set(pairs) == set(ours.matching("*"))
        for name, value in pairs.items():
            ours.set(name, value)
    return theirs, ours


def test_gpt2_logits_hidden_states_and_attention():
    theirs, ours = as_gpt2()
    ids = torch.randint(17, (4, 9), generator=rng(1))
    with torch.no_grad():
        want = theirs(ids, output_hidden_states=True, output_attentions=True)
        logits, found = ours(
            ids, want=("blocks.0.hook_resid_post", "blocks.1.attn.hook_pattern", "ln_final.hook_normalized")
        )
    assert float(want.logits.std()) > 0.5
    same(logits, want.logits)
    same(found["blocks.0.hook_resid_post"], want.hidden_states[1])
    same(found["ln_final.hook_normalized"], want.hidden_states[2])
    same(found["blocks.1.attn.hook_pattern"], want.attentions[1])


def test_gpt2_with_padding():
    theirs, ours = as_gpt2()
    ids = torch.randint(17, (3, 8), generator=rng(2))
    mask = torch.arange(8) < torch.tensor([[8], [5], [2]])
    with torch.no_grad():
        same(ours(Tokens(ids, mask))[mask], theirs(ids, attention_mask=mask.long()).logits[mask])


def test_gpt2_gradients():
    theirs, ours = as_gpt2()
    ids = torch.randint(17, (3, 8), generator=rng(2))
    theirs(ids).logits.logsumexp(-1).sum().backward()
    ours(ids).logsumexp(-1).sum().backward()
    # Tied head: the embedding's gradient has both shares.
    same(ours.embed.W_E.grad, theirs.transformer.wte.weight.grad, 1e-9)
    same(
        ours.blocks[0].attn.W_K.grad, heads_of(theirs.transformer.h[0].attn.c_attn.weight.grad.chunk(3, 1)[1], 3), 1e-9
    )


def as_llama():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=13, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=24, initializer_range=0.4, rms_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).double().eval()
    ours = Transformer(
        13, layers=2, heads=2, width=16, causal=True, norm="pre", norm_kind="rms", mlp=20, mlp_kind="gated",
        activation="silu", positions="rotary", longest=24, tied=False, eps=1e-6,
    ).double()  # fmt: skip
    source = theirs.model
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
        pairs = {
            "embed.W_E": source.embed_tokens.weight,
            "ln_final.w": source.norm.weight,
            "unembed.W_U": theirs.lm_head.weight.T,
        }
        for i, layer in enumerate(source.layers):
            at, attn, mlp = f"blocks.{i}", layer.self_attn, layer.mlp
            for part, linear in zip("QKV", (attn.q_proj, attn.k_proj, attn.v_proj), strict=True):
                pairs |= {f"{at}.attn.W_{part}": heads_of(linear.weight.T, 2)}
            pairs |= {f"{at}.attn.W_O": attn.o_proj.weight.T.unflatten(0, (2, 8))}
            pairs |= {f"{at}.ln1.w": layer.input_layernorm.weight, f"{at}.ln2.w": layer.post_attention_layernorm.weight}
            pairs |= {f"{at}.mlp.W_gate": mlp.gate_proj.weight.T, f"{at}.mlp.W_in": mlp.up_proj.weight.T}
            pairs |= {f"{at}.mlp.W_out": mlp.down_proj.weight.T}
        assert set(pairs) == set(ours.matching("*"))
        for name, value in pairs.items():
            ours.set(name, value)
    return theirs, ours


def test_llama_logits_hidden_states_and_attention():
    theirs, ours = as_llama()
    ids = torch.randint(13, (4, 24), generator=rng(1))
    with torch.no_grad():
        want = theirs(ids, output_hidden_states=True, output_attentions=True)
        logits, found = ours(
            ids, want=("blocks.0.hook_resid_post", "blocks.1.attn.hook_pattern", "ln_final.hook_normalized")
        )
    assert float(want.logits.std()) > 0.5
    # Their angles and norms are in float32 whatever the weights.
    same(logits, want.logits, 1e-5)
    same(found["blocks.0.hook_resid_post"], want.hidden_states[1], 1e-5)
    same(found["ln_final.hook_normalized"], want.hidden_states[2], 1e-5)
    same(found["blocks.1.attn.hook_pattern"], want.attentions[1], 1e-5)


def test_llama_at_selected_rows_and_with_padding():
    theirs, ours = as_llama()
    ids, mask = torch.randint(13, (2, 9), generator=rng(2)), torch.arange(9) < torch.tensor([[9], [5]])
    rows = torch.tensor([[8, 0, 4], [4, 1, 3]])
    with torch.no_grad():
        want = theirs(ids, attention_mask=mask.long()).logits
        same(ours(Selected(ids, mask, rows)), want.gather(1, rows[..., None].expand(2, 3, 13)), 1e-5)


def test_rotary_products_depend_on_the_distance_alone():
    turn = Rotary(6, longest=50).double()
    q, k = torch.randn(2, 1, 1, 6, dtype=torch.float64, generator=rng())
    products = {}
    for i, j in itertools.product((0, 3, 17, 30), (0, 3, 17, 30)):
        product = float((turn(q, torch.tensor([i])) * turn(k, torch.tensor([j]))).sum())
        assert products.setdefault(i - j, product) == pytest.approx(product, abs=1e-5)
    assert len({round(p, 4) for p in products.values()}) == len(products)
    everywhere = turn(q.expand(50, 1, 6), None)
    for k in range(3):  # pairs as complex numbers, turned by i / 10000^(2k/6)
        pair = torch.complex(everywhere[:, 0, k], everywhere[:, 0, k + 3])
        angle = torch.arange(50).double() * 10000 ** (-2 * k / 6)
        same(pair, torch.complex(q[0, 0, k], q[0, 0, k + 3]) * torch.polar(torch.ones(50).double(), angle), 1e-5)


def test_bert_hidden_states_with_padding():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=19, hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
        max_position_embeddings=10, initializer_range=0.5, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    ours = Transformer(
        19, layers=2, heads=2, width=12, mlp=20, activation="gelu", norm="post", biases=True, positions="learned",
        longest=10, embedding_norm=True, eps=config.layer_norm_eps,
    ).double()  # fmt: skip
    emb = theirs.embeddings
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
        pairs = {
            "embed.W_E": emb.word_embeddings.weight,
            "pos_embed.W_pos": emb.position_embeddings.weight + emb.token_type_embeddings.weight[0],
            "ln_embed.w": emb.LayerNorm.weight,
            "ln_embed.b": emb.LayerNorm.bias,
        }
        for i, layer in enumerate(theirs.encoder.layer):
            at, attn = f"blocks.{i}", layer.attention
            for part, linear in zip("QKV", (attn.self.query, attn.self.key, attn.self.value), strict=True):
                pairs[f"{at}.attn.W_{part}"] = heads_of(linear.weight.T, 2)
                pairs[f"{at}.attn.b_{part}"] = linear.bias.unflatten(0, (2, 6))
            pairs[f"{at}.attn.W_O"] = attn.output.dense.weight.T.unflatten(0, (2, 6))
            pairs[f"{at}.attn.b_O"] = attn.output.dense.bias
            for ours_, norm in (("ln1", attn.output.LayerNorm), ("ln2", layer.output.LayerNorm)):
                pairs |= {f"{at}.{ours_}.w": norm.weight, f"{at}.{ours_}.b": norm.bias}
            for side, linear in (("in", layer.intermediate.dense), ("out", layer.output.dense)):
                pairs |= {f"{at}.mlp.W_{side}": linear.weight.T, f"{at}.mlp.b_{side}": linear.bias}
        assert set(pairs) == set(ours.matching("*"))
        for name, value in pairs.items():
            ours.set(name, value)
        ids = torch.randint(19, (4, 10), generator=rng(1))
        mask = torch.arange(10) < torch.tensor([[10], [7], [3], [1]])
        want = theirs(ids, attention_mask=mask.long(), output_hidden_states=True)
        _, found = ours(Tokens(ids, mask), want=("blocks.0.hook_resid_post", "blocks.1.hook_resid_post"))
    same(found["blocks.0.hook_resid_post"], want.hidden_states[1])
    same(found["blocks.1.hook_resid_post"], want.last_hidden_state)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("heads", [1, 4])
def test_one_attention_against_torch(causal, biases, heads):
    width, size = 8, 6
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(width, heads, bias=biases, batch_first=True).double()
    ours = SoftmaxAttention(width, heads=heads, biases=biases, causal=causal).double()
    with torch.no_grad():
        for i, part in enumerate("QKV"):
            rows = slice(i * width, (i + 1) * width)
            getattr(ours, f"W_{part}").copy_(heads_of(theirs.in_proj_weight[rows].T, heads))
            if biases:
                theirs.in_proj_bias.normal_()
                getattr(ours, f"b_{part}").copy_(theirs.in_proj_bias[rows].unflatten(0, (heads, -1)))
        for i, part in enumerate("QKV") if biases else ():
            rows = slice(i * width, (i + 1) * width)
            getattr(ours, f"b_{part}").copy_(theirs.in_proj_bias[rows].unflatten(0, (heads, -1)))
        ours.W_O.copy_(theirs.out_proj.weight.T.unflatten(0, (heads, -1)))
        if biases:
            ours.b_O.copy_(theirs.out_proj.bias.normal_())
        x = torch.randn(3, size, width, dtype=torch.float64)
        mask = torch.arange(size) < torch.tensor([[6], [4], [1]])
        future = torch.ones(size, size, dtype=torch.bool).triu(1) if causal else None
        want, pattern = theirs(x, x, x, key_padding_mask=~mask, attn_mask=future, average_attn_weights=False)
        found = {}
        out = ours(x, mask, lambda name, tensor: found.setdefault(name, tensor))
    same(out, want)
    same(found["hook_pattern"], pattern)


def test_sinusoidal_positions():
    waves = SinusoidalPositions(6, longest=11)(11)
    for i, k in itertools.product(range(11), range(3)):
        angle = i / 10000 ** (2 * k / 6)
        assert waves[i, 2 * k] == pytest.approx(math.sin(angle), abs=1e-6)
        assert waves[i, 2 * k + 1] == pytest.approx(math.cos(angle), abs=1e-6)


# -- types instead of positions --------------------------------------------------------------------------------------

OPTIONS = dict(
    heads=(1, 2), biases=(False, True), norm=(None, "pre", "post"), mlp=(None, 5), residual=(False, True),
    tied=(False, True), embedding_norm=(False, True), output=(True, False), head_bias=(True,),
)  # fmt: skip


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
@pytest.mark.parametrize("embedding", ["one-hot", "learned"])
def test_bags_give_what_positions_give(embedding, attention):
    vocab = 6
    ids = torch.tensor([[1, 2, 2, 5, 1, 0], [3, 3, 3, 0, 0, 0], [4, 0, 0, 1, 5, 3]])
    mask = torch.arange(6) < torch.tensor([[5], [3], [6]])
    counts = torch.stack([row[m].bincount(minlength=vocab) for row, m in zip(ids, mask, strict=True)]).double()
    document, _ = mask.nonzero(as_tuple=True)
    bag = Bag(counts, document, ids[mask])
    width = None if embedding == "one-hot" else 8
    tried = 0
    for values in itertools.product(*OPTIONS.values()):
        options = dict(zip(OPTIONS, values, strict=True))
        if not options["output"] and options["heads"] > 1:
            continue
        model = drawn(Transformer(vocab, embedding=embedding, width=width, attention=attention, **options), tried)
        with torch.no_grad():
            logits = model(Tokens(ids, mask))
            same(model(bag), logits[mask], 1e-12 * max(1.0, float(logits.abs().max())))
            if attention == "uniform" and not options["residual"]:
                same(model(Documents(counts)), logits[:, 0], 1e-12 * max(1.0, float(logits.abs().max())))
            else:
                with pytest.raises(ArgumentError, match="use Bag"):
                    model(Documents(counts))
        tried += 1
    assert tried == 2 * 3 * 2 * 2 * 2 * 2 * (2 + 1)


def test_fractional_counts_are_the_limit_of_repetition():
    model = drawn(Transformer(4, embedding="one-hot", residual=False), scale=100)
    ids = torch.tensor([[1, 2, 2, 3]])
    long = model(ids.repeat(1, 50))[0, :4]
    bag = Bag(torch.tensor([[0.0, 0.25, 0.5, 0.25]]).double(), torch.zeros(4, dtype=torch.long), ids[0])
    same(model(bag), long, 1e-12)


def test_bags_need_one_orderless_layer():
    bag = Bag(torch.ones(1, 5), torch.tensor([0]), torch.tensor([1]))
    for options in (dict(layers=2), dict(causal=True), dict(positions="learned", longest=4)):
        with pytest.raises(ArgumentError, match="single, non-causal layer without positions"):
            Transformer(5, embedding="one-hot", **options)(bag)
    with pytest.raises(ArgumentError, match="rotary"):
        Transformer(5, width=4, positions="rotary", longest=4)(bag)


def test_one_hot_is_a_learned_identity():
    for attention, residual, norm in itertools.product(("softmax", "uniform"), (False, True), (None, "pre", "post")):
        options = dict(attention=attention, residual=residual, norm=norm)
        lookup = drawn(Transformer(5, embedding="one-hot", **options))
        learned = Transformer(5, width=5, **options).double()
        with torch.no_grad():
            for name, parameter in lookup.named_parameters():
                learned.set(name, parameter)
            learned.set("embed.W_E", torch.eye(5))
        ids = torch.randint(5, (3, 7), generator=rng())
        same(lookup(ids), learned(ids), 1e-12)


def test_a_one_hot_tied_head_is_the_identity():
    model = drawn(Transformer(5, embedding="one-hot", output=False, residual=False, attention="uniform"))
    assert model.matching("*") == ["blocks.0.attn.W_V"]
    ids = torch.tensor([[1, 1, 4, 2]])
    frequencies = torch.tensor([0, 2, 1, 0, 1]).double() / 4
    same(model(ids)[0, 0], frequencies @ model.blocks[0].attn.W_V[0], 1e-12)


# -- attention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_distribution_over_what_may_be_seen(attention, causal):
    model = drawn(Transformer(7, width=8, heads=2, layers=2, attention=attention, causal=causal))
    ids = torch.randint(7, (3, 6), generator=rng())
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])
    _, found = model(Tokens(ids, mask), want=("blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"))
    for pattern in found.values():
        assert pattern.shape == (3, 2, 6, 6)
        same(pattern.sum(-1), torch.ones(3, 2, 6).double(), 1e-12)
        seen = mask[:, None, None, :].expand_as(pattern)
        seen = seen & torch.ones(6, 6, dtype=torch.bool).tril() if causal else seen
        assert (pattern[~seen] == 0).all()
        assert (pattern[seen] > 0).all()
        if attention == "uniform":
            same(pattern, seen.double() / seen.double().sum(-1, keepdim=True), 1e-15)


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
def test_a_causal_model_never_looks_ahead(attention):
    model = drawn(
        Transformer(9, width=8, heads=2, layers=3, mlp=8, norm="pre", attention=attention, causal=True,
                    positions="learned", longest=8)
    )  # fmt: skip
    ids = torch.randint(9, (2, 8), generator=rng())
    logits = model(ids)
    for cut in range(1, 8):
        changed = ids.clone()
        changed[:, cut:] = (changed[:, cut:] + 1) % 9
        assert torch.equal(model(changed)[:, :cut], logits[:, :cut])
        assert not torch.allclose(model(changed)[:, cut:], logits[:, cut:])


def test_hidden_keys_do_not_matter():
    model = drawn(Transformer(9, width=8, heads=2, layers=2, mlp=8, norm="post"))
    ids = torch.randint(9, (2, 6), generator=rng())
    mask = torch.tensor([[True, True, False, True, False, True]]).expand(2, 6)
    other = torch.where(mask, ids, (ids + 3) % 9)
    same(model(Tokens(ids, mask))[mask], model(Tokens(other, mask))[mask], 1e-13)


def test_uniform_attention_is_softmax_with_zero_queries():
    ids = torch.randint(6, (2, 5), generator=rng())
    softmax = drawn(Transformer(6, width=8, heads=2))
    uniform = Transformer(6, width=8, heads=2, attention="uniform").double()
    softmax.set("blocks.0.attn.W_Q", torch.zeros(2, 8, 4))
    for name in uniform.matching("*"):
        uniform.set(name, softmax.get_parameter(name).detach())
    same(softmax(ids), uniform(ids), 1e-13)


def test_activations_by_name():
    model = drawn(Transformer(6, width=8, heads=2, layers=2, mlp=10, norm="pre", positions="learned", longest=5))
    names = model.hook_names()
    assert len(names) == len(set(names))
    assert {"hook_embed", "blocks.1.attn.hook_pattern", "blocks.0.mlp.hook_post", "blocks.1.hook_resid_post"} <= set(
        names
    )
    ids = torch.randint(6, (2, 5), generator=rng())
    logits, found = model(ids, want=names)
    assert set(found) == set(names)
    same(logits, model(ids), 0)
    resid = found["hook_embed"] + found["hook_pos_embed"]
    for i in range(2):
        resid = resid + found[f"blocks.{i}.hook_attn_out"]
        same(resid, found[f"blocks.{i}.hook_resid_mid"], 1e-12)
        resid = resid + found[f"blocks.{i}.hook_mlp_out"]
        same(resid, found[f"blocks.{i}.hook_resid_post"], 1e-12)
    with pytest.raises(ArgumentError, match=r"blocks\.0\.attn\.hook_patern.*did you mean 'blocks.0.attn.hook_pattern'"):
        model(ids, want=("blocks.0.attn.hook_patern",))


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", [None, "pre", "post"])
def test_outputs_at_selected_rows_are_those_of_all_positions(attention, causal, norm):
    generator = torch.Generator().manual_seed(0)
    model = Transformer(
        11, layers=2, heads=2, width=8, attention=attention, causal=causal, norm=norm, mlp=16, biases=True,
        positions="learned", longest=9, initial={"*": Normal(0.5), "*.b*": Normal(0.5)},
    )  # fmt: skip
    model.double().initialise(generator)
    ids = torch.randint(11, (3, 9), generator=generator)
    mask = torch.arange(9) < torch.tensor([[9], [6], [7]])
    rows = torch.tensor([[0, 3, 8, 3], [1, 2, 5, 0], [6, 4, 0, 0]])
    everywhere = model(Tokens(ids, mask))
    expected = everywhere.gather(1, rows[..., None].expand(-1, -1, 11))
    torch.testing.assert_close(model(Selected(ids, mask, rows)), expected, rtol=0, atol=1e-12)
