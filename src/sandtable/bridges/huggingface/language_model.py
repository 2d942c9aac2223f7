"""Any Hugging Face causal model as a `LanguageModel`."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, shown, typed, whole
from sandtable.bridges.huggingface.loading import load_model, require_head
from sandtable.bridges.huggingface.sessions import HuggingFaceSession, RecomputeSession
from sandtable.bridges.huggingface.sight import sight_of
from sandtable.bridges.huggingface.states import Tap, check_hidden, layers_of, pick
from sandtable.bridges.huggingface.trial import MASKS, RECOMPUTE, STEPS, taps_of, way_of
from sandtable.bridges.huggingface.words import WithWords
from sandtable.decoding.language_model import Hidden, Prompts, Session, read_prompts

NO_EOS = "none"


@typed
def load(
    source: Any,
    *,
    tokenizer: Any = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
    eos: int | Sequence[int] | str | None = None,
    cache: bool = True,
    check: bool = True,
) -> HuggingFaceModel:
    """A causal model, given as an object, a folder or a hub name, for every decoder; it is put in evaluation mode.

    `tokenizer` (an object, a folder or a name) replaces the model's own; an object has none of its own, and without one
    prompts are token ids. `eos` is the token that ends a row, or several, by default those that the model or its
    tokenizer names; "none" lets rows run to `max_tokens`. `check` compares a few tokens, some of them erased again,
    with runs without a cache, once for every model; where they differ, or with `cache=False`, every token is computed
    from the whole row.
    """
    network, own = load_model(source, kind="causal", tokenizer=tokenizer, device=device, dtype=dtype)
    return HuggingFaceModel(network.eval(), own, eos=eos, cache=cache, check=check)


@typed
class HuggingFaceModel(WithWords):
    """A Hugging Face causal model as a `LanguageModel`.

    Hidden states are numbered as the library numbers them: layer 0 is the embedding, layer l what leaves the l-th
    block. Its last one, after the final norm, is `Hidden(layers, normed=True)`.
    """

    needs_prompt = True

    def __init__(
        self,
        network: Any,
        tokenizer: Any = None,
        *,
        eos: int | Sequence[int] | str | None = None,
        cache: bool = True,
        check: bool = True,
    ) -> None:
        name = type(network).__name__
        if network.config.is_encoder_decoder:
            raise ArgumentError(f"source: {name} is an encoder–decoder; must be a causal (decoder-only) model")
        require_head(network)
        self.network, self.tokenizer = network, tokenizer
        self.vocab_size = int(network.get_output_embeddings().weight.shape[0])
        if tokenizer is not None and len(tokenizer) > self.vocab_size:
            raise ArgumentError(
                f"tokenizer of {len(tokenizer)} tokens: the model knows {self.vocab_size}; they do not belong together"
            )
        ends = self._ends(eos)
        self.eos, self.other_ends = (ends[0], tuple(ends[1:])) if ends else (None, ())
        self._takes = set(inspect.signature(network.forward).parameters)
        self._sight = sight_of(network.config)
        self._check, self._taps = check, True
        way = way_of(self, self._sight) if check else MASKS if self._sight.unclear is None else RECOMPUTE
        self._way = way if cache else RECOMPUTE

    def _ends(self, eos: Any) -> list[int]:
        if isinstance(eos, str) and eos == NO_EOS:
            return []
        own = eos is None
        if own:
            named = (getattr(self.network, "generation_config", None), self.network.config, self.tokenizer)
            found = (getattr(each, "eos_token_id", None) for each in named)
            eos = next((each for each in found if each is not None), None)
        if eos is None:
            raise ArgumentError(
                "eos: neither the model nor its tokenizer names the token that ends a row; "
                "pass eos=ID, or eos='none' to run to max_tokens"
            )
        ends = eos if isinstance(eos, Sequence) and not isinstance(eos, str) else [eos]
        for each in ends if own else ():
            if each not in range(self.vocab_size):
                raise ArgumentError(
                    f"eos: the model's own end token {shown(each)} is outside its vocabulary of {self.vocab_size}; "
                    "pass eos=ID, or eos='none' to run to max_tokens"
                )
        return [whole("eos", each, least=0, most=self.vocab_size - 1) for each in ends]

    @property
    def longest(self) -> int | None:
        config = self.network.config.get_text_config(decoder=True)
        names = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((getattr(config, name) for name in names if getattr(config, name, None)), None)

    @property
    def layers(self) -> int:
        return layers_of(self.network)

    @property
    def dtype(self) -> torch.dtype:
        return self.network.get_input_embeddings().weight.dtype

    def start(self, prompts: Prompts, *, room: int, hidden: Hidden | None = None) -> Session:
        rows = read_prompts(self, prompts, empty=False)
        if hidden is not None:
            check_hidden(self.network, hidden)
            self._taps = taps_of(self) if self._check else True
        if self.longest is not None and max(map(len, rows)) + room > self.longest:
            warnings.warn(
                f"{type(self.network).__name__}: reads at most {self.longest} tokens, so that some rows end before the "
                f"{room} new ones that were asked for",
                stacklevel=2,
            )
        unsteady = max(map(len, rows)) + room > self._sight.steady
        if unsteady:
            warnings.warn(
                f"{type(self.network).__name__}: encodes positions anew in rows of more than {self._sight.steady:.0f} "
                "tokens; every token is computed from the whole row",
                stacklevel=2,
            )
        # Without room for new tokens the prompts are read once, and a cache would only take memory.
        if room == 0 or unsteady or self._way == RECOMPUTE:
            return RecomputeSession(self, rows, room, hidden, by_length=unsteady)
        return HuggingFaceSession(self, rows, room, hidden, self._sight, steps=self._way == STEPS)

    def run(
        self, ids: Int[Tensor, "row new"], at: Int[Tensor, " row"], hidden: Hidden | None, **inputs: Any
    ) -> tuple[Float[Tensor, "row vocab"], Float[Tensor, "row width"] | None]:
        """One forward pass: logits and hidden state at token `at` (on the CPU) of every row."""
        place = at
        if ids.shape[1] > 1 and "logits_to_keep" in self._takes:
            inputs["logits_to_keep"], place = self._kept(at)
        if "position_ids" not in self._takes:
            inputs.pop("position_ids", None)
        tap = None
        if hidden is not None and self._taps:
            tap = Tap(self.network, hidden, place if hidden.normed else at)  # the head only sees what is kept
        elif hidden is not None:
            inputs["output_hidden_states"] = True
        with nullcontext() if tap is None else tap:
            out = self.network(input_ids=ids, return_dict=True, **inputs)
        state = None if hidden is None else self._state(out, hidden, at) if tap is None else tap.state
        logits = pick(out.logits, place)
        return logits if logits.dtype.itemsize >= 4 else logits.float(), state

    def _kept(self, at: Int[Tensor, " row"]) -> tuple[Tensor, Int[Tensor, " row"]]:
        """Positions that logits are wanted of, and where those of each row then are.

        Before transformers 5.23 all rows share their positions.
        """
        if hasattr(sys.modules[type(self.network).__module__], "slice_logits_to_keep"):
            return at[:, None].to(self.device), torch.zeros_like(at)
        kept, place = at.unique(return_inverse=True)
        return kept.to(self.device), place

    def _state(self, out: Any, hidden: Hidden, at: Tensor) -> Tensor:
        if hidden.layer == self.layers and not hidden.normed:
            raise ArgumentError(f"hidden={hidden}: {type(self.network).__name__} only gives its last layer normed")
        return pick(out.hidden_states[hidden.layer], at)
