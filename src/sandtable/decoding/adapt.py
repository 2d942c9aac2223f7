"""Anything that can continue a prefix, as a `LanguageModel`."""

from __future__ import annotations

from typing import Any

from sandtable.arguments import ArgumentError
from sandtable.decoding.exact_model import ExactModel
from sandtable.decoding.language_model import LanguageModel
from sandtable.decoding.transformer_model import TransformerModel
from sandtable.models import Transformer
from sandtable.worlds import HasNextToken


def as_language_model(lm: Any) -> LanguageModel:
    """A language model as it is; our Transformers and worlds with exact next-token probabilities made into one."""
    if isinstance(lm, LanguageModel):
        return lm
    if isinstance(lm, Transformer):
        return TransformerModel(lm)
    if isinstance(lm, HasNextToken):
        return ExactModel(lm)
    hint = ""
    if hasattr(lm, "config") and hasattr(lm, "generate"):
        hint = "; a Hugging Face model goes through sandtable.bridges.huggingface.load(model, tokenizer=…)"
    elif callable(lm):
        hint = "; a function goes through sandtable.decoding.ExactModel(function, vocab=…)"
    raise ArgumentError(f"lm of type {type(lm).__name__}: cannot be decoded from{hint}")
