"""Llama (Touvron et al. 2023): rotary positions, root-mean-square norms in front, a gated MLP."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.bridges.huggingface.gpt2 import ACTIVATIONS
from sandtable.bridges.huggingface.shapes import bias_of, decoder_of, embedding_of, fill, load, merged, split
from sandtable.models import Block, GatedMLP, RMSNorm, RotaryAttention, Transformer

_BASE = 10000.0


def write(model: Transformer, transformers: Any) -> Any:
    """The LlamaForCausalLM of a Transformer of ours."""
    parts = decoder_of(model, "Llama", norm=RMSNorm, norm_name="rms", mlp=GatedMLP)
    turns = [(block.attn.config["longest"], block.attn.config["base"]) for block, _, _ in parts
             if isinstance(block.attn, RotaryAttention)]  # fmt: skip
    if model.pos_embed is not None or len(turns) < len(parts) or len(set(turns)) > 1:
        raise ArgumentError("positions: Llama's are rotary in every layer, up to one length and with one base")
    longest, base = turns[0]
    block, heads, mlp = parts[0]
    if model.width % len(heads.W_Q):
        raise ArgumentError(f"heads={len(heads.W_Q)}: Llama's must divide the width {model.width}")
    attention_bias = any(bool(b.any()) for _, h, _ in parts for b in (h.b_Q, h.b_K, h.b_V, h.b_O))
    mlp_bias = any(m.b_in is not None for _, _, m in parts)
    config = transformers.LlamaConfig(
        vocab_size=model.size,
        hidden_size=model.width,
        intermediate_size=mlp.config["hidden"],
        num_hidden_layers=len(parts),
        num_attention_heads=len(heads.W_Q),
        head_dim=heads.W_Q.shape[2],
        hidden_act=mlp.config["activation"],
        max_position_embeddings=longest,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        rms_norm_eps=block.ln1.eps,  # pyright: ignore[reportOptionalMemberAccess]
        tie_word_embeddings=model.unembed.W_U is None,
        attention_bias=attention_bias,
        mlp_bias=mlp_bias,
        bos_token_id=None,
        eos_token_id=None,
    )
    table = embedding_of(model)
    weights: dict[str, Tensor] = {"model.embed_tokens.weight": table, "model.norm.weight": _scale(model.ln_final)}
    if model.unembed.W_U is not None:
        weights["lm_head.weight"] = model.unembed.W_U.detach().T
    for i, (block, heads, mlp) in enumerate(parts):
        assert isinstance(mlp, GatedMLP)
        at, hidden = f"model.layers.{i}", mlp.W_in.shape[1]
        weights |= {
            f"{at}.input_layernorm.weight": _scale(block.ln1),
            f"{at}.post_attention_layernorm.weight": _scale(block.ln2),
            f"{at}.self_attn.q_proj.weight": merged(heads.W_Q).T,
            f"{at}.self_attn.k_proj.weight": merged(heads.W_K).T,
            f"{at}.self_attn.v_proj.weight": merged(heads.W_V).T,
            f"{at}.self_attn.o_proj.weight": heads.W_O.flatten(0, 1).T,
            f"{at}.mlp.gate_proj.weight": mlp.W_gate.detach().T,
            f"{at}.mlp.up_proj.weight": mlp.W_in.detach().T,
            f"{at}.mlp.down_proj.weight": mlp.W_out.detach().T,
        }
        if attention_bias:
            biases = dict(q=heads.b_Q, k=heads.b_K, v=heads.b_V, o=heads.b_O)
            weights |= {f"{at}.self_attn.{name}_proj.bias": bias.flatten() for name, bias in biases.items()}
        if mlp_bias:
            weights |= {
                f"{at}.mlp.gate_proj.bias": bias_of(mlp.b_gate, hidden, table),
                f"{at}.mlp.up_proj.bias": bias_of(mlp.b_in, hidden, table),
                f"{at}.mlp.down_proj.bias": bias_of(mlp.b_out, model.width, table),
            }
    return load(transformers.LlamaForCausalLM(config), weights)


def _scale(norm: Any) -> Tensor:
    return norm.w.detach()


def read(theirs: Any, longest: int | None) -> Transformer:
    """The Transformer of ours that a LlamaForCausalLM is; keys and values of a group go to each of its heads."""
    config, source = theirs.config, theirs.model
    if config.hidden_act not in ACTIVATIONS:
        raise ArgumentError(f"hidden_act={config.hidden_act!r}: has no counterpart here")
    rope = dict(config.rope_parameters or {})
    if rope.get("rope_type", "default") != "default" or rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ArgumentError(f"rope_parameters={rope}: only plain rotary positions have a counterpart here")
    most = config.max_position_embeddings
    table = whole("longest", most if longest is None else longest, most=most)
    width, heads, head = config.hidden_size, config.num_attention_heads, config.head_dim
    base, eps, activation = float(rope.get("rope_theta", _BASE)), config.rms_norm_eps, ACTIVATIONS[config.hidden_act]
    make = partial(
        Transformer, config.vocab_size, width=width, tied=config.tie_word_embeddings, norm="pre", norm_kind="rms",
        eps=eps, causal=True,
    )  # fmt: skip
    if base == _BASE and config.attention_bias == config.mlp_bias:
        model = make(
            layers=config.num_hidden_layers, heads=heads, head_width=head, mlp=config.intermediate_size,
            mlp_kind="gated", activation=activation, biases=config.mlp_bias, positions="rotary", longest=table,
        )  # fmt: skip
    else:
        attend = partial(
            RotaryAttention, width, heads=heads, head_width=head, causal=True, longest=table, base=base,
            biases=config.attention_bias,
        )  # fmt: skip
        mlp = partial(GatedMLP, width, config.intermediate_size, activation=activation, biases=config.mlp_bias)
        blocks = [Block(attend(), mlp=mlp(), norm="pre", norm_kind="rms", eps=eps) for _ in source.layers]
        model = make(final_norm=True, blocks=blocks)
    weights = {"embed.W_E": source.embed_tokens.weight, "ln_final.w": source.norm.weight}
    if not config.tie_word_embeddings:
        weights["unembed.W_U"] = theirs.lm_head.weight.T
    for i, layer in enumerate(source.layers):
        at, attn, mlp = f"blocks.{i}", layer.self_attn, layer.mlp
        for part, linear in zip("QKV", (attn.q_proj, attn.k_proj, attn.v_proj), strict=True):
            own = linear.weight.shape[0] // head
            repeat = heads // own
            weights[f"{at}.attn.W_{part}"] = split(linear.weight.T, own).repeat_interleave(repeat, 0)
            if linear.bias is not None:
                weights[f"{at}.attn.b_{part}"] = linear.bias.unflatten(0, (own, -1)).repeat_interleave(repeat, 0)
        weights |= {
            f"{at}.attn.W_O": attn.o_proj.weight.T.unflatten(0, (heads, -1)),
            f"{at}.mlp.W_gate": mlp.gate_proj.weight.T,
            f"{at}.mlp.W_in": mlp.up_proj.weight.T,
            f"{at}.mlp.W_out": mlp.down_proj.weight.T,
            f"{at}.ln1.w": layer.input_layernorm.weight,
            f"{at}.ln2.w": layer.post_attention_layernorm.weight,
        }
        if config.attention_bias:
            weights[f"{at}.attn.b_O"] = attn.o_proj.bias
        if config.mlp_bias:
            weights |= {
                f"{at}.mlp.b_gate": mlp.gate_proj.bias,
                f"{at}.mlp.b_in": mlp.up_proj.bias,
                f"{at}.mlp.b_out": mlp.down_proj.bias,
            }
    return fill(model, weights)
