"""Our Transformers as Hugging Face's and theirs as ours: GPT-2 and Llama shapes, the same logits both ways."""

from __future__ import annotations

from typing import Any

from sandtable.arguments import ArgumentError, one_of
from sandtable.bridges.huggingface import gpt2, llama
from sandtable.bridges.huggingface.loading import library, load_network, require_head
from sandtable.models import RotaryAttention, Transformer

FAMILIES = {"gpt2": gpt2, "llama": llama}


def to_hf(model: Transformer, family: str | None = None) -> Any:
    """A GPT2LMHeadModel or a LlamaForCausalLM with the weights of `model` and, to rounding, its logits.

    Rotary positions make it a Llama, position vectors a GPT-2, unless `family` names one. Llama has root-mean-square
    norms and gated MLPs, GPT-2 layer norms and plain MLPs, both norms in front; what has no counterpart is refused.
    """
    if not isinstance(model, Transformer):
        raise ArgumentError(f"model={type(model).__name__}: must be a Transformer of sandtable.models")
    if family is None:
        turns = all(isinstance(block.attn, RotaryAttention) for block in model.layers)
        if model.pos_embed is None and not turns:
            raise ArgumentError(
                "positions: neither vectors, which GPT-2 adds, nor rotary in every layer, as Llama's are"
            )
        family = "gpt2" if model.pos_embed is not None else "llama"
    return FAMILIES[one_of("family", family, FAMILIES)].write(model, library())


def from_hf(source: Any, *, longest: int | None = None) -> Transformer:
    """The Transformer that a GPT-2 or Llama of Hugging Face is: a model, a folder of `save_pretrained` or a hub name.

    Keys and values that a Llama shares among heads are given to each head. `longest` shortens the tables of positions.
    """
    theirs = load_network(source, kind="causal")
    name = getattr(theirs.config, "model_type", type(theirs).__name__)
    if name not in FAMILIES:
        raise ArgumentError(f"source: type {name!r} has no counterpart here, only {', '.join(FAMILIES)} have")
    require_head(theirs)
    return FAMILIES[name].read(theirs, longest)
