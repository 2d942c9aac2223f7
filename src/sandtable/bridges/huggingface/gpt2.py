"""GPT-2 (Radford et al. 2019): position vectors, layer norms in front, a plain MLP, biases everywhere but the head."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.bridges.huggingface.shapes import (
    bias_of,
    decoder_of,
    embedding_of,
    fill,
    load,
    merged,
    split,
)
from sandtable.models import MLP, Block, LayerNorm, RotaryAttention, SoftmaxAttention, Transformer

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Their names for ours."""


def write(model: Transformer, transformers: Any) -> Any:
    """The GPT2LMHeadModel of a Transformer of ours."""
    parts = decoder_of(model, "GPT-2", norm=LayerNorm, norm_name="layer", mlp=MLP)
    if model.pos_embed is None or any(isinstance(block.attn, RotaryAttention) for block, _, _ in parts):
        raise ArgumentError("positions: GPT-2 adds a vector for every position, and nothing turns")
    _, heads, mlp = parts[0]
    if heads.W_Q.shape[0] * heads.W_Q.shape[2] != model.width:
        raise ArgumentError(f"head_width={heads.W_Q.shape[2]}: GPT-2's heads are as wide as the stream together")
    longest = model.pos_embed.config["longest"]
    config = transformers.GPT2Config(
        vocab_size=model.size,
        n_positions=longest,
        n_embd=model.width,
        n_layer=len(parts),
        n_head=len(heads.W_Q),
        n_inner=mlp.config["hidden"],
        activation_function=mlp.config["activation"],
        layer_norm_epsilon=parts[0][0].ln1.eps,  # pyright: ignore[reportOptionalMemberAccess]
        tie_word_embeddings=model.unembed.W_U is None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    table = embedding_of(model)
    weights: dict[str, Tensor] = {
        "transformer.wte.weight": table,
        "transformer.wpe.weight": model.pos_embed(longest).detach(),
    }
    if model.unembed.W_U is not None:
        weights["lm_head.weight"] = model.unembed.W_U.detach().T
    for i, (block, heads, mlp) in enumerate(parts):
        at = f"transformer.h.{i}"
        weights |= {
            f"{at}.attn.c_attn.weight": torch.cat([merged(w) for w in (heads.W_Q, heads.W_K, heads.W_V)], 1),
            f"{at}.attn.c_attn.bias": torch.cat([b.flatten() for b in (heads.b_Q, heads.b_K, heads.b_V)]),
            f"{at}.attn.c_proj.weight": heads.W_O.flatten(0, 1),
            f"{at}.attn.c_proj.bias": heads.b_O,
            f"{at}.mlp.c_fc.weight": mlp.W_in.detach(),
            f"{at}.mlp.c_fc.bias": bias_of(mlp.b_in, mlp.W_in.shape[1], table),
            f"{at}.mlp.c_proj.weight": mlp.W_out.detach(),
            f"{at}.mlp.c_proj.bias": bias_of(mlp.b_out, model.width, table),
        }
        weights |= _norm(f"{at}.ln_1", block.ln1) | _norm(f"{at}.ln_2", block.ln2)
    return load(transformers.GPT2LMHeadModel(config), weights | _norm("transformer.ln_f", model.ln_final))


def _norm(name: str, norm: Any) -> dict[str, Tensor]:
    return {f"{name}.weight": norm.w.detach(), f"{name}.bias": norm.b.detach()}


def read(theirs: Any, longest: int | None) -> Transformer:
    """The Transformer of ours that a GPT2LMHeadModel is."""
    config, source = theirs.config, theirs.transformer
    if config.activation_function not in ACTIVATIONS:
        raise ArgumentError(f"activation_function={config.activation_function!r}: has no counterpart here")
    if getattr(config, "add_cross_attention", False):
        raise ArgumentError("add_cross_attention=True: attention to another text has no counterpart here")
    longest = config.n_positions if longest is None else whole("longest", longest, most=config.n_positions)
    width, heads, hidden = config.n_embd, config.n_head, config.n_inner or 4 * config.n_embd
    eps, activation = config.layer_norm_epsilon, ACTIVATIONS[config.activation_function]
    make = partial(
        Transformer, config.vocab_size, width=width, tied=config.tie_word_embeddings, positions="learned",
        longest=longest, norm="pre", eps=eps, causal=True,
    )  # fmt: skip
    scales = [_scale(config, layer) for layer in range(config.n_layer)]
    if all(math.isclose(scale, (width // heads) ** -0.5) for scale in scales):
        model = make(layers=config.n_layer, heads=heads, mlp=hidden, activation=activation, biases=True)
    else:
        model = make(
            final_norm=True,
            blocks=[
                Block(
                    SoftmaxAttention(width, heads=heads, causal=True, biases=True, scale=scale),
                    mlp=MLP(width, hidden, activation=activation),
                    norm="pre",
                    eps=eps,
                )
                for scale in scales
            ],
        )
    weights = {
        "embed.W_E": source.wte.weight,
        "pos_embed.W_pos": source.wpe.weight[:longest],
        "ln_final.w": source.ln_f.weight,
        "ln_final.b": source.ln_f.bias,
    }
    if not config.tie_word_embeddings:
        weights["unembed.W_U"] = theirs.lm_head.weight.T
    for i, block in enumerate(source.h):
        at = f"blocks.{i}"
        joint, biases = block.attn.c_attn.weight.chunk(3, 1), block.attn.c_attn.bias.chunk(3)
        for part, weight, bias in zip("QKV", joint, biases, strict=True):
            weights[f"{at}.attn.W_{part}"] = split(weight, heads)
            weights[f"{at}.attn.b_{part}"] = bias.unflatten(0, (heads, -1))
        weights |= {
            f"{at}.attn.W_O": block.attn.c_proj.weight.unflatten(0, (heads, -1)),
            f"{at}.attn.b_O": block.attn.c_proj.bias,
            f"{at}.mlp.W_in": block.mlp.c_fc.weight,
            f"{at}.mlp.b_in": block.mlp.c_fc.bias,
            f"{at}.mlp.W_out": block.mlp.c_proj.weight,
            f"{at}.mlp.b_out": block.mlp.c_proj.bias,
            f"{at}.ln1.w": block.ln_1.weight,
            f"{at}.ln1.b": block.ln_1.bias,
            f"{at}.ln2.w": block.ln_2.weight,
            f"{at}.ln2.b": block.ln_2.bias,
        }
    return fill(model, weights)


def _scale(config: Any, layer: int) -> float:
    """What scores are multiplied by in one layer."""
    scale = (config.n_embd // config.n_head) ** -0.5 if config.scale_attn_weights else 1.0
    return scale / (layer + 1) if config.scale_attn_by_inverse_layer_idx else scale
