"""Our own causal Transformers as language models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.cached import CachedSession
from sandtable.decoding.language_model import Hidden, Prompts, read_prompts
from sandtable.models import Cache, Transformer
from sandtable.worlds import Vocab


class TransformerModel:
    """A causal `Transformer`; `vocab` gives its tokens names, `eos` is the token that ends a row.

    Hidden states: layer 0 is what enters the first block, layer L what leaves the last; `normed` is after `ln_final`.
    """

    needs_prompt = True

    def __init__(self, network: Transformer, *, vocab: Vocab | None = None, eos: int | None = None) -> None:
        if not all(block.attn.causal for block in network.layers):
            raise ArgumentError("network: only a causal Transformer continues a prefix; build it with causal=True")
        if vocab is not None and len(vocab) != network.size:
            raise ArgumentError(f"vocab of {len(vocab)} tokens: the network knows {network.size}")
        self.network, self.vocab = network, vocab
        self.eos = None if eos is None else whole("eos", eos, least=0, most=network.size - 1)

    @property
    def vocab_size(self) -> int:
        return self.network.size

    @property
    def longest(self) -> int | None:
        return self.network.longest

    @property
    def layers(self) -> int:
        return len(self.network.layers)

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def encode(self, text: str) -> list[int]:
        return self._names().encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._names().text(tokens)

    def _names(self) -> Vocab:
        if self.vocab is None:
            raise ArgumentError("vocab=None: this model was given no names for its tokens; pass vocab= a Vocab")
        return self.vocab

    def start(self, prompts: Prompts, *, room: int, hidden: Hidden | None = None) -> TransformerSession:
        return TransformerSession(self, read_prompts(self, prompts, empty=False), room, hidden)


class TransformerSession(CachedSession):
    model: TransformerModel

    def __init__(self, model: TransformerModel, prompts: Sequence[Tensor], room: int, hidden: Hidden | None) -> None:
        super().__init__(model, prompts, room)
        self._cache = Cache(model.network, len(self), self.tokens.shape[1])
        self._want = [] if hidden is None else [hook_of(model.network, hidden)]

    def _read(self, ids: Int[Tensor, "line new"], positions: Tensor, at: Tensor, used: int):
        if not self._want:
            return self.model.network.extend(ids, positions, self._cache, at=at), None
        logits, found = self.model.network.extend(ids, positions, self._cache, at=at, want=self._want)
        states = found[self._want[0]]
        if states.ndim == 3:
            at = at.to(states.device)
            states = states.gather(1, at[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
        return logits, states

    def _take_lines(self, lines: Tensor) -> None:
        self._cache = self._cache.take(lines)


def hook_of(network: Transformer, hidden: Hidden) -> str:
    """The activation that a hidden state is."""
    layers = len(network.layers)
    whole("layer", hidden.layer, least=0, most=layers)
    if hidden.normed:
        if hidden.layer != layers or network.ln_final is None:
            raise ArgumentError(f"hidden={hidden}: only the last layer ({layers}) of a model with a final norm has it")
        return "ln_final.hook_normalized"
    return "blocks.0.hook_resid_pre" if hidden.layer == 0 else f"blocks.{hidden.layer - 1}.hook_resid_post"
