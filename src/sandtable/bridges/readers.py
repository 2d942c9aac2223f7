"""What can be measured of any model, ours or Hugging Face's: its input embedding and its attention."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, resolve_device, typed, whole
from sandtable.bridges import huggingface
from sandtable.bridges.huggingface.loading import OTHER_DEVICES
from sandtable.models import Tokens, Transformer
from sandtable.probes.text_topics import Attended

Ids = Int[Tensor, "batch position"]
Mask = Bool[Tensor, "batch position"]
Pattern = Float[Tensor, "layer batch head query key"]
EAGER = "attn_implementation='eager'"


@typed
def read(source: Any, tokenizer: Any = None, *, device: torch.device | str | None = None) -> Reader:
    """A `Reader` of our own `Transformer`, or of a Hugging Face model given as an object, a folder or a hub name.

    Without a `device` an object is read where it is, and everything else on the CPU.
    """
    if isinstance(source, Reader):
        return source
    device = None if device is None else resolve_device(device, others=OTHER_DEVICES)
    if isinstance(source, Transformer):
        model = source if device is None else source.to(device)
        return TransformerReader(model, None if tokenizer is None else huggingface.load_tokenizer(tokenizer))
    model, tokenizer = huggingface.load_model(source, tokenizer=tokenizer, attentions=True, device=device)
    name = getattr(model.config, "name_or_path", "") or type(model).__name__
    return HuggingFaceReader(model, tokenizer, name if model is source else str(source))


class Reader(ABC):
    """A model reduced to what topics leave in it: embeddings of token types, attention between positions.

    Documents are token ids padded on the right, and a mask that is true at real positions; nothing in a document's
    attention depends on the padding.
    """

    tokenizer: Any
    name: str

    @property
    @abstractmethod
    def embeddings(self) -> Float[Tensor, "vocab width"]:
        """The input embedding of every token, before positions, norms or projections; float32 on the CPU."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The longest document the model can read, special tokens included; None when it sets no limit."""

    @property
    @abstractmethod
    def causal(self) -> bool:
        """Whether a position sees only itself and what came before."""

    @property
    @abstractmethod
    def layers(self) -> int: ...

    @property
    @abstractmethod
    def heads(self) -> int: ...

    @abstractmethod
    def random(self, seed: int) -> Reader:
        """The same architecture, freshly drawn by the model's own initialiser; global random state is not touched."""

    @abstractmethod
    def _pattern(self, ids: Ids, mask: Mask) -> Pattern: ...

    def attention(self, ids: Ids, mask: Mask | None = None) -> Pattern:
        """A[layer, document, head, query, key]: rows at real positions sum to one over the keys they see."""
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        if ids.ndim != 2 or ids.shape != mask.shape:
            raise ArgumentError(f"ids of shape {tuple(ids.shape)}, mask {tuple(mask.shape)}: both batch × position")
        if ids.shape[1] == 0:
            raise ArgumentError("ids: documents of 0 tokens have no attention")
        if not bool((mask[:, :-1] | ~mask[:, 1:]).all()):
            raise ArgumentError("mask: padding must come after the document, not before or inside it")
        size, real = self._size, ids[mask]
        if len(real) and not 0 <= int(real.min()) <= int(real.max()) < size:
            raise ArgumentError(f"ids: from {int(real.min())} to {int(real.max())}, the model knows 0 to {size - 1}")
        if self.longest is not None and ids.shape[1] > self.longest:
            raise ArgumentError(f"ids: documents of {ids.shape[1]} tokens, {self.name} reads at most {self.longest}")
        with torch.no_grad():
            return self._pattern(ids.masked_fill(~mask, 0), mask)

    def attentions(self, batches: Iterable[tuple[Ids, Mask]], *, special: bool = False) -> Iterator[Attended]:
        """The attention of a stream of documents, batch by batch; `special` frames them as `with_special` does."""
        for ids, mask in batches:
            if special:
                ids, mask = self.with_special(ids, mask)
            yield Attended(self.attention(ids, mask), ids, mask, self.causal)

    def with_special(self, ids: Ids, mask: Mask) -> tuple[Ids, Mask]:
        """Documents framed as the tokenizer frames a text: [CLS] … [SEP], <s> … </s>, or nothing for GPT-2."""
        before, after = self._frame
        (batch, positions), lengths = ids.shape, mask.sum(1)
        whole_size = positions + len(before) + len(after)
        framed = ids.new_zeros(batch, whole_size)
        framed[:, : len(before)] = torch.tensor(before, dtype=ids.dtype, device=ids.device)
        framed[:, len(before) : len(before) + positions] = ids
        ends = (len(before) + lengths)[:, None] + torch.arange(len(after), device=ids.device)
        framed.scatter_(1, ends, torch.tensor(after, dtype=ids.dtype, device=ids.device).expand(batch, -1))
        size = lengths[:, None] + len(before) + len(after)
        return framed, torch.arange(whole_size, device=ids.device) < size

    def check_vocabulary(self, size: int) -> None:
        """Refuse tokens that the model has no embedding for."""
        if size > self._size:
            raise ArgumentError(
                f"{self.name}: knows {self._size} tokens, its tokenizer has {size}; they do not belong together"
            )

    @property
    def frame_size(self) -> int:
        """How many tokens `with_special` adds to a document."""
        return sum(map(len, self._frame))

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        if self.tokenizer is None:
            raise ArgumentError(f"special=True: {self.name} was read without a tokenizer; pass tokenizer=")
        inner, full = (list(self.tokenizer.encode("a", add_special_tokens=add)) for add in (False, True))
        added = len(full) - len(inner)
        start = next((i for i in range(added + 1) if full[i : i + len(inner)] == inner), 0)
        return full[:start], full[start + len(inner) :]

    @property
    @abstractmethod
    def _size(self) -> int: ...


class TransformerReader(Reader):
    """Our own Transformer: W_E (the identity for one-hot embeddings) and every layer's `hook_pattern`."""

    def __init__(self, model: Transformer, tokenizer: Any = None, name: str = "Transformer") -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        kinds = {(block.attn.causal, block.attn.W_V.shape[0]) for block in model.layers}
        if len(kinds) > 1:
            raise ArgumentError(f"{name}: layers must agree on heads and on being causal to be read together")
        ((self._causal, self._heads),) = kinds

    @property
    def embeddings(self) -> Float[Tensor, "vocab width"]:
        table = self.model.embed
        return torch.eye(self.model.size) if table is None else table.W_E.detach().float().cpu().clone()

    @property
    def longest(self) -> int | None:
        return self.model.longest

    @property
    def causal(self) -> bool:
        return self._causal

    @property
    def layers(self) -> int:
        return len(self.model.layers)

    @property
    def heads(self) -> int:
        return self._heads

    def random(self, seed: int) -> TransformerReader:
        generator = torch.Generator().manual_seed(whole("seed", seed, least=0))
        model = copy.deepcopy(self.model).initialise(generator)
        return TransformerReader(model, self.tokenizer, f"{self.name} (random, seed {seed})")

    @property
    def _size(self) -> int:
        return self.model.size

    def _pattern(self, ids: Ids, mask: Mask) -> Pattern:
        names = [f"blocks.{i}.attn.hook_pattern" for i in range(self.layers)]
        device = self.model.layers[0].attn.W_V.device
        _, found = self.model(Tokens(ids.to(device), mask.to(device)), want=names)
        return torch.stack([found[name] for name in names]).float()


class HuggingFaceReader(Reader):
    """A Hugging Face model; of an encoder–decoder, the encoder."""

    def __init__(self, model: Any, tokenizer: Any = None, name: str = "model") -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name

    @property
    def embeddings(self) -> Float[Tensor, "vocab width"]:
        return self._table.detach().float().cpu().clone()

    @property
    def longest(self) -> int | None:
        config = self.model.config
        limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
        # Families after RoBERTa count positions from the padding id + 1, and lose that many of the table's rows.
        table = getattr(getattr(self._body, "embeddings", None), "position_embeddings", None)
        first = getattr(table, "padding_idx", None)
        return limit if limit is None or first is None else limit - first - 1

    @property
    def causal(self) -> bool:
        return bool((self._seen.triu(1) == 0).all())

    @property
    def layers(self) -> int:
        return self._seen.shape[0]

    @property
    def heads(self) -> int:
        return self._seen.shape[2]

    def random(self, seed: int) -> HuggingFaceReader:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(whole("seed", seed, least=0))
            model = type(self.model)(copy.deepcopy(self.model.config))
        model = model.to(device=self._table.device, dtype=self._table.dtype).eval()
        return HuggingFaceReader(model, self.tokenizer, f"{self.name} (random, seed {seed})")

    @cached_property
    def _seen(self) -> Pattern:
        """Attention over four tokens: it says how many layers and heads there are, and which keys a query sees."""
        ids = torch.arange(4)[None] % self._size
        with torch.no_grad():
            return self._pattern(ids, torch.ones_like(ids, dtype=torch.bool)).cpu()

    @property
    def _body(self) -> Any:
        return self.model.get_encoder() if self.model.config.is_encoder_decoder else self.model.base_model

    @property
    def _table(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    @property
    def _size(self) -> int:
        return len(self._table)

    def _pattern(self, ids: Ids, mask: Mask) -> Pattern:
        device, pad = self._table.device, getattr(self.model.config, "pad_token_id", None)
        ids, mask = ids.to(device), mask.to(device)
        if pad is not None and 0 <= pad < self._size:  # RoBERTa numbers positions by which ids are padding
            ids = ids.masked_fill(~mask, pad)
        with _eager(self.model):
            out = self._body(input_ids=ids, attention_mask=mask.long(), output_attentions=True, return_dict=True)
        layers = getattr(out, "attentions", None)
        if not layers or any(layer is None for layer in layers):
            raise ArgumentError(f"{self.name}: returns no attentions; load it with from_pretrained(…, {EAGER})")
        if len({layer.shape for layer in layers}) > 1 or layers[0].shape[-2:] != (ids.shape[1], ids.shape[1]):
            raise ArgumentError(f"{self.name}: its layers do not attend between all positions; nothing to compare")
        return torch.stack(tuple(layers)).float()


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """The model in evaluation mode with attention that can be returned, and afterwards as it was."""
    before = getattr(model.config, "_attn_implementation", "eager")
    training = [module for module in model.modules() if module.training]
    switch = before not in ("eager", None) and hasattr(model, "set_attn_implementation")
    model.eval()
    try:
        if switch:
            model.set_attn_implementation("eager")
        yield
    finally:
        if switch:
            model.set_attn_implementation(before)
        for module in training:
            module.training = True
