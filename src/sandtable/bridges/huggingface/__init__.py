"""Hugging Face models by object, local path or hub name: safetensors only, never code from the repository."""

from sandtable.bridges.huggingface.exchange import from_hf, to_hf
from sandtable.bridges.huggingface.generate import CustomGenerate, backtracking
from sandtable.bridges.huggingface.language_model import HuggingFaceModel, load
from sandtable.bridges.huggingface.loading import library, load_model, load_tokenizer, no_progress_bars
from sandtable.bridges.huggingface.masked import HuggingFaceMasked, is_masked_lm, load_masked

__all__ = [
    "CustomGenerate",
    "HuggingFaceMasked",
    "HuggingFaceModel",
    "backtracking",
    "from_hf",
    "is_masked_lm",
    "library",
    "load",
    "load_masked",
    "load_model",
    "load_tokenizer",
    "no_progress_bars",
    "to_hf",
]
