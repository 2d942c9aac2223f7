"""A Transformer of ours as TransformerLens describes one: a configuration and weights by its names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.bridges.heads import Heads, heads_of
from sandtable.bridges.transformer_lens.plain import unrolled
from sandtable.models import (
    MLP,
    Block,
    DeepMLP,
    GatedMLP,
    LayerNorm,
    PartialBlock,
    RMSNorm,
    RotaryAttention,
    Transformer,
)

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu")
_NORMS = {None: None, LayerNorm: "LN", RMSNorm: "RMS"}


@dataclass(frozen=True, eq=False)
class Lens:
    """What TransformerLens needs: `config` for its HookedTransformerConfig or TransformerBridgeConfig, and `weights`.

    Block l of the model starts at block `blocks[l]` here, and its stream is the first coordinates of the stream here: a
    deep MLP takes several blocks.
    """

    config: dict[str, Any]
    weights: dict[str, Tensor] = field(repr=False)
    blocks: tuple[int, ...]


@typed
def lens(model: Transformer, *, longest: int | None = None) -> Lens:
    """The configuration and the weights with which TransformerLens computes the logits of `model`.

    Score scales go into W_Q, uniform attention gets W_Q = 0, missing biases are zeros, narrower heads are padded. Deep
    ReLU MLPs and residuals that overwrite, as compiled models have them, unroll into plain blocks. A model without
    positions takes any number of tokens; TransformerLens wants to know the `longest`.
    """
    if not isinstance(model, Transformer):
        raise ArgumentError(f"model={type(model).__name__}: must be a Transformer, such as `compiled.model`")
    _check_ends(model)
    config, weights = _positions(model, longest)
    if any(_overwrites(block) or isinstance(block.mlp, DeepMLP) for block in model.layers):
        own, parts, starts = _unrolled(model)
    else:
        own, parts, starts = _as_it_is(model)
    width, dtype = own["d_model"], model.layers[0].attn.W_V.dtype
    config |= own | dict(
        d_vocab=model.size, d_vocab_out=model.outputs, dtype=dtype, init_weights=False,
        attention_dir="causal" if model.layers[0].attn.causal else "bidirectional",
    )  # fmt: skip
    table = torch.eye(model.size, dtype=dtype) if model.embed is None else model.embed.W_E.detach()
    head = table.T if model.unembed.W_U is None else model.unembed.W_U.detach()
    bias = model.unembed.b_U
    weights |= {"embed.W_E": table, "unembed.W_U": F.pad(head, (0, 0, 0, width - model.width))}
    weights["unembed.b_U"] = head.new_zeros(model.outputs) if bias is None else bias.detach()
    for name in ("embed.W_E", "pos_embed.W_pos"):
        if name in weights:
            weights[name] = F.pad(weights[name], (0, width - model.width))
    weights |= parts
    weights |= {} if model.ln_final is None else _norm("ln_final", model.ln_final)
    return Lens(config, {name: value.contiguous().clone() for name, value in weights.items()}, starts)


def _check_ends(model: Transformer) -> None:
    if model.ln_embed is not None:
        raise ArgumentError("ln_embed: embedding_norm=True, a norm after the embedding, has no counterpart")
    if len({block.attn.causal for block in model.layers}) > 1:
        raise ArgumentError("blocks: causal in some layers and not in others, which has no counterpart")
    for i, block in enumerate(model.layers):
        for place in block.norms:
            if place not in (None, "pre"):
                raise ArgumentError(f"blocks.{i}: norm={place!r}, a norm behind a part, has no counterpart")
    kinds = {type(block.ln1).__name__ for block in model.layers if block.ln1 is not None}
    final = set() if model.ln_final is None else {type(model.ln_final).__name__}
    if kinds != final:
        here, there = (" and ".join(sorted(names)) or "no norm" for names in (kinds, final))
        raise ArgumentError(
            f"norm: {here} in the blocks and {there} before the head; must be the same, or none anywhere"
        )


def _overwrites(block: Block) -> bool:
    return isinstance(block, PartialBlock) or not block.residuals[0] or not (block.residuals[1] or block.mlp is None)


def _positions(model: Transformer, longest: int | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """How TransformerLens tells places apart, and up to which."""
    turning = [block.attn for block in model.layers if isinstance(block.attn, RotaryAttention)]
    most = model.longest
    if most is None and longest is None:
        raise ArgumentError("longest=None: this model takes any number of tokens, say how many it will be given")
    longest = whole("longest", most if longest is None else longest, most=most)
    if turning:
        facts = {(attn.config["base"], attn.config["head_width"]) for attn in turning}
        if len(turning) < len(model.layers) or len(facts) > 1 or model.pos_embed is not None:
            raise ArgumentError("positions: rotary in every layer alike and nowhere else, or not at all")
        (base, size), = facts  # fmt: skip
        base = int(base) if base == int(base) else base
        rotary = dict(rotary_dim=size, rotary_base=base, rotary_adjacent_pairs=True)
        return dict(n_ctx=longest, positional_embedding_type="rotary", **rotary), {}
    like = model.layers[0].attn.W_V
    table = like.new_zeros(longest, model.width) if model.pos_embed is None else model.pos_embed(longest).detach()
    return dict(n_ctx=longest, positional_embedding_type="standard"), {"pos_embed.W_pos": table}


# -- blocks ----------------------------------------------------------------------------------------------------------


def _as_it_is(model: Transformer) -> tuple[dict[str, Any], dict[str, Tensor], tuple[int, ...]]:
    """Block by block: what differs between layers other than in size has no counterpart."""
    mlps = [block.mlp for block in model.layers if isinstance(block.mlp, MLP)]
    norm = type(model.ln_final) if model.ln_final is not None else None
    for name, values in (
        ("norm", [block.norms if block.mlp is not None else block.norms[:1] * 2 for block in model.layers]),
        ("eps", [n.eps for b in model.layers for n in (b.ln1, b.ln2, model.ln_final) if n is not None]),
        ("mlp_kind", [type(mlp) for mlp in mlps]),
        ("activation", [mlp.config["activation"] for mlp in mlps]),
        ("width", [s for b in model.layers for s in (b.attn.config["width"], b.attn.config["out_width"])]),
    ):
        if len(set(values)) > 1:
            raise ArgumentError(f"{name}: differs between layers ({list(dict.fromkeys(values))}), has no counterpart")
    if model.layers[0].norms[0] not in (None, "pre") or norm not in _NORMS:
        kind = "" if norm is None else f" of kind {norm.__name__}"
        raise ArgumentError(f"norm={model.layers[0].norms[0]!r}{kind}: only layer and rms norms in front, or none")
    activation = mlps[0].config["activation"] if mlps else "relu"
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"activation={activation!r}: must be one of {', '.join(ACTIVATIONS)}")
    gated = bool(mlps) and isinstance(mlps[0], GatedMLP)
    hidden = max((mlp.W_in.shape[1] for mlp in mlps), default=1)
    weights = _attention([heads_of(b.attn, f"blocks.{i}.attn") for i, b in enumerate(model.layers)], model.width,
                         turned=isinstance(model.layers[0].attn, RotaryAttention))  # fmt: skip
    for i, block in enumerate(model.layers):
        if mlps:
            mlp = block.mlp if isinstance(block.mlp, MLP) else None
            weights |= _mlp(f"blocks.{i}.mlp", mlp, model.width, hidden, gated, weights["blocks.0.attn.b_O"])
        if block.ln1 is not None:
            weights |= _norm(f"blocks.{i}.ln1", block.ln1)
            weights |= _norm(f"blocks.{i}.ln2", block.ln2 or norm(model.width)) if mlps and norm else {}
    config = dict(
        d_model=model.width, n_layers=len(model.layers), d_mlp=hidden, act_fn=activation, attn_only=not mlps,
        gated_mlp=gated, normalization_type=_NORMS[norm], eps=1e-5 if model.ln_final is None else model.ln_final.eps,
    )  # fmt: skip
    return config | _sizes(weights), weights, tuple(range(len(model.layers)))


def _unrolled(model: Transformer) -> tuple[dict[str, Any], dict[str, Tensor], tuple[int, ...]]:
    """Constructed models: more and wider blocks, all of them plain."""
    plain, width = unrolled(model)
    hidden = max(1, *(part.W_in.shape[1] for part in plain))
    first = next(part.heads for part in plain if part.heads is not None)
    silent = Heads(*(torch.zeros_like(weight) for weight in first))
    weights = _attention([part.heads or silent for part in plain], width, turned=False)
    for i, part in enumerate(plain):
        more = hidden - part.W_in.shape[1]
        weights |= {
            f"blocks.{i}.mlp.W_in": F.pad(part.W_in, (0, more)),
            f"blocks.{i}.mlp.b_in": F.pad(part.b_in, (0, more)),
            f"blocks.{i}.mlp.W_out": F.pad(part.W_out, (0, 0, 0, more)),
            f"blocks.{i}.mlp.b_out": part.b_out,
        }
    config = dict(
        d_model=width, n_layers=len(plain), d_mlp=hidden, act_fn="relu", attn_only=False, gated_mlp=False,
        normalization_type=None, eps=1e-5,
    )  # fmt: skip
    starts = tuple(i for i, part in enumerate(plain) if part.heads is not None)
    return config | _sizes(weights), weights, starts


def _attention(layers: Sequence[Heads], width: int, *, turned: bool) -> dict[str, Tensor]:
    """The weights of all layers' heads, as many and as wide in each; scores are divided by √(their width)."""
    heads = max(part.W_Q.shape[0] for part in layers)
    size = max(part.W_Q.shape[2] for part in layers)
    weights: dict[str, Tensor] = {}
    for i, part in enumerate(layers):
        own, narrow = part.W_Q.shape[0], part.W_Q.shape[2]
        louder = (size / narrow) ** 0.5
        part = part._replace(W_Q=part.W_Q * louder, b_Q=part.b_Q * louder)
        if turned:
            part = _adjacent(part)
        more, wider = heads - own, size - narrow
        for name in ("Q", "K", "V"):
            weight, bias = getattr(part, f"W_{name}"), getattr(part, f"b_{name}")
            weights[f"blocks.{i}.attn.W_{name}"] = F.pad(weight, (0, wider, 0, 0, 0, more))
            weights[f"blocks.{i}.attn.b_{name}"] = F.pad(bias, (0, wider, 0, more))
        weights[f"blocks.{i}.attn.W_O"] = F.pad(part.W_O, (0, 0, 0, wider, 0, more))
        weights[f"blocks.{i}.attn.b_O"] = part.b_O
    return weights


def _adjacent(part: Heads) -> Heads:
    """The same heads with the coordinates that turn together, k and k + e/2, side by side."""
    half = part.W_Q.shape[2] // 2
    order = torch.arange(2 * half).reshape(2, half).T.flatten()
    turned = {name: getattr(part, name)[..., order] for name in ("W_Q", "W_K", "b_Q", "b_K")}
    return part._replace(**turned)


def _mlp(at: str, mlp: MLP | None, width: int, hidden: int, gated: bool, like: Tensor) -> dict[str, Tensor]:
    """An MLP with as many hidden units as the others have; a layer without one gets zeros."""
    names = ["in", *(["gate"] if gated else [])]
    if mlp is None:
        weights = {f"{at}.W_{name}": like.new_zeros(width, hidden) for name in names}
        weights |= {f"{at}.b_in": like.new_zeros(hidden), f"{at}.W_out": like.new_zeros(hidden, width)}
        return weights | {f"{at}.b_out": like.new_zeros(width)}
    gate: Any = getattr(mlp, "b_gate", None)
    if gate is not None and gate.any():
        raise ArgumentError(f"{at}.b_gate: a bias of the gate has no counterpart")
    more = hidden - mlp.W_in.shape[1]
    weights = {f"{at}.W_{name}": F.pad(getattr(mlp, f"W_{name}").detach(), (0, more)) for name in names}
    weights[f"{at}.W_out"] = F.pad(mlp.W_out.detach(), (0, 0, 0, more))
    weights[f"{at}.b_in"] = like.new_zeros(hidden) if mlp.b_in is None else F.pad(mlp.b_in.detach(), (0, more))
    weights[f"{at}.b_out"] = like.new_zeros(width) if mlp.b_out is None else mlp.b_out.detach()
    return weights


def _norm(name: str, norm: Any) -> dict[str, Tensor]:
    return {f"{name}.{part}": value.detach() for part, value in norm.named_parameters()}


def _sizes(weights: dict[str, Tensor]) -> dict[str, Any]:
    heads, _, size = weights["blocks.0.attn.W_Q"].shape
    return dict(n_heads=heads, d_head=size)
