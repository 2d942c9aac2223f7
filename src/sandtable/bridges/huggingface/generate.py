"""Decoders for users of `model.generate`: a callable for its argument `custom_generate`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface.language_model import NO_EOS, HuggingFaceModel
from sandtable.bridges.huggingface.loading import library, load_tokenizer
from sandtable.bridges.huggingface.trial import evaluating
from sandtable.decoding import Generation, backtrack
from sandtable.decoding.driver import check_settings
from sandtable.decoding.verifiers import as_verifier

# What `generate` prepares for its own loop and the decoders do in another way; anything else would be ignored silently.
_PROCESSORS = {"TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "LogitNormalization"}
_CRITERIA = {"MaxLengthCriteria", "EosTokenCriteria"}
_INPUTS = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position"}
_MODES = ("greedy_search", "sample")
_UNSEEN = ("assistant_model", "streamer")  # what generate does not hand on to a callable
_CALLS = ("lm", "prompts", "verifier", "max_tokens", "generator", "temperature", "top_p", "top_k")
"""What the call of `generate` says, not the method."""
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


def backtracking(
    verifier: Any,
    *,
    quota: int = 4,
    stride: int = 4,
    threshold: float = 0.5,
    redo: str = "argmax",
    verify_redo: bool = False,
    tokenizer: Any = None,
    generator: torch.Generator | int | None = None,
    **options: Any,
) -> CustomGenerate:
    """`model.generate(**inputs, custom_generate=backtracking(verifier), …)`: sampling with `decoding.backtrack`."""
    method = dict(quota=quota, stride=stride, threshold=threshold, redo=redo, verify_redo=verify_redo)
    return CustomGenerate(backtrack, verifier, tokenizer=tokenizer, generator=generator, **method, **options)


class CustomGenerate:
    """A decoder as `custom_generate` of a Hugging Face model.

    Prompts and their padding on the left, `max_new_tokens`, `do_sample`, `temperature`, `top_k`, `top_p` and the tokens
    that end or fill up a row are those of the call of `generate`; of what it asks for besides, nothing is ignored:
    other ways to search, a streamer, an assistant, further processors and criteria are refused. `tokenizer` is for
    verifiers that read text. Without a `generator` (or a seed) the seed is drawn from torch's global generator, as
    `generate` does. `generation` is the last call's result, with its costs.
    """

    generation: Generation | None = None

    def __init__(
        self,
        decoder: Callable[..., Generation],
        verifier: Any = None,
        *,
        tokenizer: Any = None,
        generator: torch.Generator | int | None = None,
        **method: Any,
    ) -> None:
        if method.get("protect_prompt") is False:
            raise ArgumentError("protect_prompt=False: generate gives every prompt back as it was")
        if hasattr(decoder, "method"):  # one of ours, which can be asked before there is a model
            check_settings(decoder, method, _CALLS)
        self.decoder, self.method, self.generator = decoder, method, generator
        self.verifier = () if verifier is None else (as_verifier(verifier),)
        self.tokenizer = None if tokenizer is None else load_tokenizer(tokenizer)

    def __call__(
        self,
        model: Any,
        input_ids: Int[Tensor, "row position"],
        logits_processor: Any = (),
        stopping_criteria: Any = (),
        generation_config: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        asked = generation_config
        # A streamer was given the prompt already, and tokens that may be erased again cannot be streamed.
        caller = sys._getframe(1)
        unseen = [name for name in _UNSEEN if caller.f_code.co_name == "generate" and caller.f_locals.get(name)]
        _refuse_what_is_not_done(logits_processor, stopping_criteria, asked, model_kwargs, unseen)
        real = _real(input_ids, model_kwargs.get("attention_mask"), model_kwargs.get("position_ids"))
        rows = [ids[mask] for ids, mask in zip(input_ids, real, strict=True)]
        law = _law(asked)
        generator = int(torch.randint(2**62, ())) if self.generator is None else self.generator
        with evaluating(model):
            ends = NO_EOS if asked.eos_token_id is None else asked.eos_token_id
            lm = HuggingFaceModel(model, self.tokenizer, eos=ends)
            most = asked.max_length - input_ids.shape[1]
            made = self.decoder(lm, rows, *self.verifier, max_tokens=most, generator=generator, **law, **self.method)
        if len(made) != len(rows):
            raise ArgumentError(
                f"{self.decoder.__name__}: wrote {len(made)} rows for {len(rows)} prompts; must be as many"
            )
        self.generation = made
        sequences = _padded(input_ids, made, _pad(asked))
        if asked.return_dict_in_generate:
            return library().generation.GenerateDecoderOnlyOutput(sequences=sequences)
        return sequences


def _law(asked: Any) -> dict[str, Any]:
    """How the call of `generate` wants tokens drawn."""
    if not asked.do_sample:
        return {"temperature": 0.0}
    return {
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
        "top_k": asked.top_k or None,
    }


def _pad(asked: Any) -> int:
    if asked.pad_token_id is not None:
        return int(asked.pad_token_id)
    ends = asked.eos_token_id
    return 0 if ends is None else int(ends[0] if isinstance(ends, list) else ends)


def _padded(input_ids: Tensor, made: Generation, pad: int) -> Int[Tensor, "row position"]:
    """Prompts as they were given, then what was generated, filled up on the right."""
    new = made.lengths - made.prompts
    columns = torch.arange(int(new.max()))
    index = (made.prompts[:, None] + columns).clamp(max=made.tokens.shape[1] - 1)
    written = made.tokens.gather(1, index).masked_fill(columns >= new[:, None], pad)
    return torch.cat([input_ids, written.to(input_ids)], dim=1)


def _real(input_ids: Tensor, mask: Tensor | None, positions: Tensor | None) -> Bool[Tensor, "row position"]:
    """Which ids are no padding; it must all be on the left, and positions must be counted from its end."""
    real = torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask.to(input_ids.device).bool()
    if bool((real[:, :-1] & ~real[:, 1:]).any()):
        raise ArgumentError("attention_mask: padding must be on the left, with padding_side='left' of the tokenizer")
    if positions is not None and bool((positions.to(real.device) != real.cumsum(1) - 1)[real].any()):
        raise ArgumentError("position_ids: must count the tokens of every row from 0")
    return real


def _refuse_what_is_not_done(
    processors: Any, criteria: Any, asked: Any, inputs: dict[str, Any], unseen: list[str]
) -> None:
    known = [(processors, _PROCESSORS), (criteria, _CRITERIA)]
    extra = [type(each).__name__ for many, done in known for each in many if type(each).__name__ not in done]
    extra += [name for name, value in inputs.items() if name not in _INPUTS and value is not None]
    extra += [name for name in _OUTPUTS if getattr(asked, name, None)]
    extra += unseen
    mode = str(getattr(asked.get_generation_mode(), "value", ""))
    if (getattr(asked, "num_beams", None) or 1) > 1:
        extra.append(f"num_beams={asked.num_beams}")
    elif mode not in _MODES:
        extra.append(mode.replace("_", " "))
    if extra:
        raise ArgumentError(f"generate asks for {', '.join(extra)}: not done by this custom_generate; leave it out")
    cache = inputs.get("past_key_values")
    if cache is not None and cache.get_seq_length():
        raise ArgumentError("past_key_values: must be empty, prompts are read from their beginning")
