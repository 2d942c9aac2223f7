"""Hugging Face models by object, local path or hub name: safetensors only, never code from the repository."""

from sandtable.bridges.huggingface.loading import library, load_model, load_tokenizer, no_progress_bars

__all__ = ["library", "load_model", "load_tokenizer", "no_progress_bars"]
