"""Our Transformers and Hugging Face's, each made of the other: the same logits, through files as well."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface import from_hf, to_hf
from sandtable.models import Block, DeepMLP, RotaryAttention, SoftmaxAttention, Transformer
from sandtable.theory.automata import compile
from sandtable.theory.dyck import build
from sandtable.worlds.automata import grid

transformers = pytest.importorskip("transformers")

GPT2 = dict(vocab=17, layers=2, heads=2, width=12, mlp=20, norm="pre", causal=True, positions="learned", longest=9)
LLAMA = GPT2 | dict(norm_kind="rms", mlp_kind="gated", activation="silu", positions="rotary")
IDS = torch.randint(17, (3, 9), generator=torch.Generator().manual_seed(0))
THEIR_GPT2 = dict(vocab_size=17, n_positions=9, n_embd=12, n_layer=2, n_head=3)
THEIR_LLAMA = dict(
    vocab_size=17, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=12,
)  # fmt: skip


def drawn(module, size=0.4):
    """Every parameter random, norms and biases too: nothing that is left out can hide behind a zero."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def ours(**options):
    return drawn(Transformer(**options))


@torch.no_grad()
def same(model, theirs, ids=IDS):
    logits, want = model(ids), theirs(ids).logits
    assert float(want.std()) > 0.3
    torch.testing.assert_close(logits, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        GPT2,
        GPT2 | dict(tied=False, biases=True, activation="gelu_new"),
        GPT2 | dict(positions="sinusoidal", activation="relu", eps=1e-3),
        GPT2 | dict(embedding="one-hot", width=None, heads=17, activation="tanh", attention="uniform"),
        LLAMA,
        LLAMA | dict(tied=False, biases=True, head_width=10, activation="gelu"),
    ],
    ids=["gpt2", "untied", "sinusoidal", "one-hot", "llama", "llama-biased"],
)
def test_ours_as_theirs_and_back(options, tmp_path):
    model = ours(**options)
    theirs = to_hf(model)
    assert theirs.config.model_type == ("llama" if options["positions"] == "rotary" else "gpt2")
    same(model, theirs)
    theirs.save_pretrained(tmp_path)
    again = type(theirs).from_pretrained(tmp_path)
    same(model, again)
    back = from_hf(tmp_path)
    same(back, again)
    save_file({name: value.contiguous() for name, value in back.state_dict().items()}, tmp_path / "ours.safetensors")
    fresh = from_hf(to_hf(back))
    drawn(fresh, 3.0).load_state_dict(load_file(tmp_path / "ours.safetensors"))
    same(fresh, theirs)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("GPT2", THEIR_GPT2),
        ("GPT2", THEIR_GPT2 | dict(n_inner=7, tie_word_embeddings=False, activation_function="gelu")),
        ("GPT2", THEIR_GPT2 | dict(scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-3)),
        ("GPT2", THEIR_GPT2 | dict(scale_attn_weights=False, activation_function="gelu_pytorch_tanh")),
        ("Llama", THEIR_LLAMA),
        ("Llama", THEIR_LLAMA | dict(num_key_value_heads=2, head_dim=6, tie_word_embeddings=True)),
        ("Llama", THEIR_LLAMA | dict(num_key_value_heads=1, attention_bias=True, hidden_act="gelu")),
        ("Llama", THEIR_LLAMA | dict(mlp_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    ],
)
def test_theirs_as_ours_and_back(family, options, tmp_path):
    config = getattr(transformers, f"{family}Config")(**options)
    name = {"GPT2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM"}[family]
    theirs = drawn(getattr(transformers, name)(config), 0.2)
    model = from_hf(theirs)
    same(model, theirs)
    same(model, to_hf(model))
    assert not any(a.data_ptr() == b.data_ptr() for a in model.parameters() for b in theirs.parameters())
    theirs.save_pretrained(tmp_path)
    short = from_hf(tmp_path, longest=5)
    assert short.longest == 5
    same(short, theirs, IDS[:, :5])


def test_double_precision_stays():
    model = ours(**LLAMA).double()
    theirs = to_hf(model)
    assert theirs.dtype == torch.float64
    with torch.no_grad():  # Hugging Face's norms compute in single precision, whatever the weights are
        torch.testing.assert_close(model(IDS), theirs(IDS).logits, atol=1e-5, rtol=1e-5)


def with_bias():
    model = ours(**GPT2 | dict(head_bias=True))
    return model


def blocks(*made):
    return Transformer(17, width=12, positions="learned", longest=9, final_norm=True, blocks=made)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Transformer(**GPT2 | dict(norm="post")), "norm='post': anything but norm='pre'"),
        (lambda: Transformer(**GPT2 | dict(norm=None)), "blocks.0: norm=None"),
        (lambda: Transformer(**GPT2 | dict(causal=False)), "blocks.0.attn: causal=False"),
        (lambda: Transformer(**GPT2 | dict(mlp=None)), "blocks.0.mlp: mlp=None"),
        (lambda: Transformer(**GPT2 | dict(residual=(True, False))), "residual=False"),
        (lambda: Transformer(**GPT2 | dict(embedding_norm=True)), "ln_embed: embedding_norm=True"),
        (lambda: Transformer(**GPT2 | dict(final_norm=False)), "ln_final: final_norm=False"),
        (lambda: Transformer(**GPT2 | dict(tied=False, outputs=3)), "unembed: outputs=3"),
        (with_bias, "unembed.b_U: head_bias=True"),
        (lambda: Transformer(**GPT2 | dict(norm_kind="rms")), "blocks.0: a RMSNorm: any norm but 'layer'"),
        (lambda: Transformer(**GPT2 | dict(mlp_kind="gated")), "a GatedMLP where MLP belongs, which has no"),
        (lambda: Transformer(**GPT2 | dict(head_width=5)), "head_width=5: GPT-2's heads"),
        (lambda: Transformer(**LLAMA | dict(positions="alibi")), "positions: neither vectors, which GPT-2 adds, nor"),
        (
            lambda: Transformer(**GPT2 | dict(positions=None)),
            "positions: neither vectors, which GPT-2 adds, nor rotary",
        ),
        (lambda: Transformer(**LLAMA | dict(heads=5, head_width=2)), "heads=5: Llama's must divide the width 12"),
        (lambda: Transformer(**LLAMA | dict(positions=None)), "positions: neither vectors"),
        (lambda: blocks(Block(SoftmaxAttention(12, causal=True), mlp=DeepMLP(12, (5, 5)), norm="pre")), "DeepMLP"),
        (lambda: compile(grid(3), 4).model, "PartialBlock writes over parts of its residual"),
        (build, "positions: neither vectors"),
        (lambda: "gpt2", "model=str: must be a Transformer"),
    ],
)
def test_what_has_no_counterpart_is_named(make, said):
    with pytest.raises(ArgumentError, match=said) as error:
        to_hf(make())
    assert "\n" not in str(error.value)


def test_norms_that_a_named_family_has_not_are_named():
    with pytest.raises(ArgumentError, match=r"norm=\('inner', None\)"):
        to_hf(build(), "gpt2")


def test_layers_that_differ_are_refused():
    turns = [
        Block(RotaryAttention(12, heads=heads, head_width=4, causal=True, longest=9),
              mlp=Transformer(**LLAMA).layers[0].mlp, norm="pre", norm_kind="rms")
        for heads in (2, 3)
    ]  # fmt: skip
    model = Transformer(17, width=12, norm_kind="rms", final_norm=True, blocks=turns)
    with pytest.raises(ArgumentError, match=r"heads that differ between layers \(\[2, 3\]\)"):
        to_hf(model)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
            vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)),
         "source: type 'gpt_neox' has no counterpart here"),
        (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**THEIR_GPT2, activation_function="quick_gelu")),
         "activation_function='quick_gelu'"),
        (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **THEIR_LLAMA, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0})),
         "only plain rotary"),
        (lambda: transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**THEIR_GPT2, pad_token_id=0)),
         "GPT2ForSequenceClassification has no language-model head"),
        (lambda: transformers.GPT2Model(transformers.GPT2Config(**THEIR_GPT2)), "GPT2Model has no language-model head"),
        (lambda: transformers.LlamaModel(transformers.LlamaConfig(**THEIR_LLAMA)), "LlamaModel has no language-model"),
        (lambda: transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**THEIR_LLAMA)),
         "LlamaForSequenceClassification has no language-model head"),
        (lambda: "./no/such/folder", "no such folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(make, said):
    with pytest.raises(ArgumentError, match=said):
        from_hf(make())
