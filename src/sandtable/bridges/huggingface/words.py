"""What every Hugging Face model has: a place where it lives, and words if it came with a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sandtable.arguments import ArgumentError


class WithWords:
    """A network and its tokenizer, if there is one."""

    network: Any
    tokenizer: Any

    @property
    def device(self) -> torch.device:
        return self.network.get_input_embeddings().weight.device

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer adds."""
        return list(self._words().encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        return self._words().decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _words(self) -> Any:
        if self.tokenizer is None:
            raise ArgumentError("tokenizer=None: this model was loaded without one; pass tokenizer= to use text")
        return self.tokenizer
