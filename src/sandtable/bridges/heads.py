"""The weights of any softmax attention of ours as other libraries want them: scores q·k / √(head width), biases."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.models import Attention, RotaryAttention, SoftmaxAttention, UniformAttention


class Heads(NamedTuple):
    """Σ_h softmax(q_h·k_h / √(head width)) v_h W_O[h] + b_O; a scale of one's own has gone into W_Q and b_Q."""

    W_Q: Float[Tensor, "heads width head"]
    W_K: Float[Tensor, "heads width head"]
    W_V: Float[Tensor, "heads width head"]
    W_O: Float[Tensor, "heads head out"]
    b_Q: Float[Tensor, "heads head"]
    b_K: Float[Tensor, "heads head"]
    b_V: Float[Tensor, "heads head"]
    b_O: Float[Tensor, " out"]


def heads_of(attn: Attention, where: str) -> Heads:
    """The weights of `attn`; uniform attention is one whose queries are zero."""
    if type(attn) not in (SoftmaxAttention, RotaryAttention, UniformAttention):
        raise ArgumentError(f"{where}: {type(attn).__name__} has no counterpart there")
    heads, width, head = attn.W_V.shape
    out = attn.config["out_width"]
    no_weight, no_bias = attn.W_V.new_zeros(heads, width, head), attn.W_V.new_zeros(heads, head)
    query, key, query_bias, key_bias = no_weight, no_weight, no_bias, no_bias
    if isinstance(attn, SoftmaxAttention):
        scale = attn.scale * math.sqrt(head)
        query, key = attn.W_Q.detach(), attn.W_K.detach()
        query_bias, key_bias = _or(attn.b_Q, no_bias), _or(attn.b_K, no_bias)
        if not math.isclose(scale, 1.0, rel_tol=1e-12):
            query, query_bias = query * scale, query_bias * scale
    merge = torch.eye(head, dtype=attn.W_V.dtype)[None] if attn.W_O is None else attn.W_O.detach()
    value, merge_bias = _or(attn.b_V, no_bias), _or(attn.b_O, attn.W_V.new_zeros(out))
    return Heads(query, key, attn.W_V.detach(), merge, query_bias, key_bias, value, merge_bias)


def _or(bias: Tensor | None, otherwise: Tensor) -> Tensor:
    return otherwise if bias is None else bias.detach()
