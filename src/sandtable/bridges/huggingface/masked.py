"""Any Hugging Face masked language model as decoding's `Conditional`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.bridges.huggingface.loading import library, load_model
from sandtable.bridges.huggingface.words import WithWords
from sandtable.decoding.conditional import without


@typed
def load_masked(
    source: Any,
    *,
    tokenizer: Any = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    mask: int | None = None,
    never: Sequence[int] | None = None,
) -> HuggingFaceMasked:
    """A masked model, given as an object, a folder or a hub name, for Gibbs samplers; it is put in evaluation mode.

    `tokenizer` (an object, a folder or a name) replaces the model's own; an object has none of its own, and without one
    `mask` names the mask token. `never` are the tokens that are never written, by default all special ones.
    """
    network, own = load_model(source, kind="masked", tokenizer=tokenizer, device=device, dtype=dtype)
    return HuggingFaceMasked(network.eval(), own, mask=mask, never=never)


@typed
class HuggingFaceMasked(WithWords):
    """log p(x_i | what is not hidden) from one pass with the mask token at every hidden position.

    Nobody has made these conditionals those of one joint law: what a chain keeps depends on its blocks and their order.
    Rows of different length are padded with the token `pad`, which nobody attends to.
    """

    length = None

    def __init__(
        self, network: Any, tokenizer: Any = None, *, mask: int | None = None, never: Sequence[int] | None = None
    ) -> None:
        name = type(network).__name__
        if not is_masked_lm(network):
            raise ArgumentError(f"source: {name} is no masked language model; load it with AutoModelForMaskedLM")
        self.network, self.tokenizer = network, tokenizer
        self.vocab_size = int(network.get_output_embeddings().weight.shape[0])
        names = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "mask_token_id")
        named = {kind: getattr(network.config if tokenizer is None else tokenizer, kind, None) for kind in names}
        mask = named["mask_token_id"] if mask is None else mask
        if mask is None:
            raise ArgumentError("mask: neither the model nor its tokenizer names the mask token; pass mask=ID")
        self.mask = whole("mask", mask, least=0, most=self.vocab_size - 1)
        self.pad: int | None = named["pad_token_id"]
        special = named.values() if tokenizer is None else tokenizer.all_special_ids
        tokens = [token for token in special if token is not None] if never is None else never
        self.never = sorted({self.mask, *(whole("never", t, least=0, most=self.vocab_size - 1) for t in tokens)})

    @torch.no_grad()
    def conditional_logits(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        inputs: dict[str, Tensor] = {"input_ids": x.masked_fill(mask, self.mask).to(self.device)}
        if self.pad is not None:
            inputs["attention_mask"] = (inputs["input_ids"] != self.pad).long()
        logits = self.network(**inputs, return_dict=True).logits.to(x.device)
        return without(logits if logits.dtype.itemsize >= 4 else logits.float(), self.never)


def is_masked_lm(model: Any) -> bool:
    """Whether the model's class is one that Hugging Face lists for masked LM, without a decoder."""
    library()
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    config = getattr(model, "config", None)
    listed = any(kind.__name__ in MODEL_FOR_MASKED_LM_MAPPING_NAMES.values() for kind in type(model).__mro__)
    return listed and not any(getattr(config, name, False) for name in ("is_encoder_decoder", "is_decoder"))
