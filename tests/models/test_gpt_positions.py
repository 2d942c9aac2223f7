"""GPT-2 with other positions: against Hugging Face with its table of positions replaced, and shifts of them."""

import pytest
import torch
from test_transformer import drawn, heads_of, rng, same

from sandtable.models import SinusoidalPositions, Tokens, Transformer

SHAPE = dict(layers=2, heads=3, width=12, mlp=12, activation="gelu_new", norm="pre", causal=True, biases=True)


def as_classifier(positions):
    """A GPT-2 of the automaton experiments — MLP as wide as the stream, a head of its own — in both forms."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=4, n_positions=20, n_embd=12, n_layer=2, n_head=3, n_inner=12, num_labels=5,
        initializer_range=0.5, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.GPT2ForTokenClassification(config).double().eval()
    longest = None if positions is None else 20
    ours = drawn(Transformer(4, tied=False, outputs=5, head_bias=True, positions=positions, longest=longest, **SHAPE))
    source = theirs.transformer
    with torch.no_grad():
        pairs = {
            "embed.W_E": source.wte.weight, "ln_final.w": source.ln_f.weight, "ln_final.b": source.ln_f.bias,
            "unembed.W_U": theirs.classifier.weight.T, "unembed.b_U": theirs.classifier.bias,
        }  # fmt: skip
        for i, block in enumerate(source.h):
            at, qkv = f"blocks.{i}", block.attn.c_attn
            for part, weight, bias in zip("QKV", qkv.weight.chunk(3, 1), qkv.bias.chunk(3), strict=True):
                pairs |= {f"{at}.attn.W_{part}": heads_of(weight, 3), f"{at}.attn.b_{part}": bias.unflatten(0, (3, 4))}
            pairs |= {f"{at}.attn.W_O": block.attn.c_proj.weight.unflatten(0, (3, 4))}
            pairs |= {f"{at}.attn.b_O": block.attn.c_proj.bias}
            for norm, name in ((block.ln_1, "ln1"), (block.ln_2, "ln2")):
                pairs |= {f"{at}.{name}.w": norm.weight, f"{at}.{name}.b": norm.bias}
            for layer, name in ((block.mlp.c_fc, "in"), (block.mlp.c_proj, "out")):
                pairs |= {f"{at}.mlp.W_{name}": layer.weight, f"{at}.mlp.b_{name}": layer.bias}
        for name, value in pairs.items():
            ours.set(name, value)
        assert set(ours.matching("*")) == set(pairs) | (
            {"pos_embed.W_pos"} if positions in ("learned", "linear") else set()
        )
        table = torch.zeros(20, 12, dtype=torch.float64) if ours.pos_embed is None else ours.pos_embed(20)
        source.wpe.weight.copy_(table)
    return theirs, ours


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "linear", None])
def test_logits_are_those_of_gpt2_with_these_positions(positions):
    theirs, ours = as_classifier(positions)
    ids = torch.randint(4, (3, 9), generator=rng(1))
    with torch.no_grad():
        same(ours(ids), theirs(ids).logits)
        shifted = theirs(ids, position_ids=torch.arange(9)[None] + 6).logits
        same(ours(Tokens(ids, None, torch.tensor(6))), shifted)
        same(ours(Tokens(ids, None, torch.tensor(0))), ours(ids))


def test_a_shift_moves_the_waves_before_they_are_taken():
    waves = SinusoidalPositions(8, longest=500)
    same(waves.at(torch.arange(5) + 400), waves(405)[400:])


def test_recency_biases_do_not_feel_a_shift():
    model = drawn(Transformer(4, tied=False, outputs=5, positions="alibi", **SHAPE))
    ids = torch.randint(4, (2, 9), generator=rng(2))
    same(model(Tokens(ids, None, torch.tensor(6))), model(ids))
