"""Hugging Face models by object, local path or hub name: safetensors only, never code from the repository."""

from sandtable.bridges.huggingface.generate import CustomGenerate, backtracking
from sandtable.bridges.huggingface.language_model import HuggingFaceModel, load
from sandtable.bridges.huggingface.loading import library, load_model, load_tokenizer, no_progress_bars

__all__ = [
    "CustomGenerate",
    "HuggingFaceModel",
    "backtracking",
    "library",
    "load",
    "load_model",
    "load_tokenizer",
    "no_progress_bars",
]
