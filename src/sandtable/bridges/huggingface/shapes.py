"""What GPT-2 and Llama have in common: pre-norm decoders over a residual stream, one head for every token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.bridges.heads import Heads, heads_of
from sandtable.models import MLP, Block, Transformer


def decoder_of(
    model: Transformer, family: str, *, norm: type, norm_name: str, mlp: type[MLP]
) -> list[tuple[Block, Heads, MLP]]:
    """The blocks of `model`, their attention and MLPs, if it is a decoder of this make; else what is in the way."""
    for place, problem in _in_the_way(model, norm, norm_name, mlp):
        if problem:
            raise ArgumentError(f"{place}: {problem}, which has no counterpart in {family}")
    return [(b, heads_of(b.attn, f"blocks.{i}.attn"), _mlp(b)) for i, b in enumerate(model.layers)]


def _in_the_way(model: Transformer, norm: type, norm_name: str, mlp: type[MLP]) -> Iterable[tuple[str, str]]:
    for i, block in enumerate(model.layers):
        at = f"blocks.{i}"
        yield at, "" if type(block) is Block else f"{type(block).__name__} writes over parts of its residual"
        yield f"{at}.attn", "" if block.attn.causal else "causal=False: attention to what comes later"
        yield at, "" if block.norms == ("pre", "pre") else f"norm={_one(block.norms)!r}: anything but norm='pre'"
        yield at, "" if all(block.residuals) else "residual=False: a part without a residual around it"
        yield f"{at}.mlp", "" if block.mlp is not None else "mlp=None: a block without an MLP"
        wrong = type(block.mlp).__name__
        yield f"{at}.mlp", "" if type(block.mlp) is mlp else f"a {wrong} where {mlp.__name__} belongs"
        yield at, "" if type(block.ln1) is norm else f"a {type(block.ln1).__name__}: any norm but {norm_name!r}"
    yield "ln_embed", "embedding_norm=True: a norm after the embedding" if model.ln_embed is not None else ""
    yield "ln_final", "" if type(model.ln_final) is norm else "final_norm=False, or of another kind"
    yield "unembed", "" if model.outputs == model.size else f"outputs={model.outputs}: other outputs than tokens"
    bias = model.unembed.b_U
    yield "unembed.b_U", "" if bias is None or not bias.any() else "head_bias=True: a bias of the logits"
    for name, values in _shared(model):
        yield name, "" if len(set(values)) == 1 else f"{name} that differ between layers ({values})"


def _shared(model: Transformer) -> Iterable[tuple[str, Sequence[Any]]]:
    """What one configuration says for all layers."""
    norms = [norm for b in model.layers for norm in (b.ln1, b.ln2)]
    yield "eps", [norm.eps for norm in [*norms, model.ln_final] if norm is not None]
    yield "heads", [b.attn.config["heads"] for b in model.layers]
    yield "head_width", [b.attn.config["head_width"] for b in model.layers]
    yield "width", [size for b in model.layers for size in (b.attn.config["width"], b.out_width)]
    yield "mlp", [b.mlp.config["hidden"] for b in model.layers if b.mlp is not None]
    yield "activation", [b.mlp.config["activation"] for b in model.layers if b.mlp is not None]


def _mlp(block: Block) -> MLP:
    assert isinstance(block.mlp, MLP)
    return block.mlp


def _one(pair: Sequence[Any]) -> Any:
    return pair[0] if pair[0] == pair[1] else pair


def embedding_of(model: Transformer) -> Float[Tensor, "vocab width"]:
    """W_E, which for one-hot embeddings is the identity."""
    dtype = model.layers[0].attn.W_V.dtype
    return torch.eye(model.size, dtype=dtype) if model.embed is None else model.embed.W_E.detach()


def merged(weight: Float[Tensor, "heads width head"]) -> Float[Tensor, "width all"]:
    """The heads side by side."""
    return weight.transpose(0, 1).flatten(1)


def split(weight: Float[Tensor, "width all"], heads: int) -> Float[Tensor, "heads width head"]:
    return weight.unflatten(1, (heads, -1)).transpose(0, 1)


def bias_of(bias: Tensor | None, size: int, like: Tensor) -> Tensor:
    return like.new_zeros(size) if bias is None else bias.detach()


def load(module: Any, weights: dict[str, Tensor]) -> Any:
    """`module` with exactly these weights, in their type; a head that is tied to the embedding needs none."""
    dtype = next(iter(weights.values())).dtype
    module = module.to(dtype)
    tied = {"lm_head.weight"} if module.config.tie_word_embeddings else set()
    found = module.load_state_dict(weights, strict=False)
    missing = [name for name in found.missing_keys if name not in tied]
    if missing or found.unexpected_keys:
        raise RuntimeError(f"weights that do not fit: {missing or found.unexpected_keys}")
    return module.eval()


def fill(model: Transformer, weights: dict[str, Tensor]) -> Transformer:
    """`model` with these weights, each of which it must have, and none besides."""
    dtype = weights["embed.W_E"].dtype
    model = model.to(dtype)
    model.load_state_dict({name: value.detach().to("cpu", dtype).clone() for name, value in weights.items()})
    return model
