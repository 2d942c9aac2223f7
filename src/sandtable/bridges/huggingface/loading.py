"""Hugging Face models by object, local path or hub name: safetensors only, never code from the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from sandtable.arguments import ArgumentError, missing, one_of, place, resolve_device, typed

# Which Auto class reads the weights; "auto" is the body without any head, which every family has.
KINDS = {"auto": "AutoModel", "masked": "AutoModelForMaskedLM", "causal": "AutoModelForCausalLM"}
OTHER_DEVICES = ("mps",)
"""Besides CPUs and CUDA, what these models run on."""
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tekken.json")


@typed
def load_model(
    source: Any,
    *,
    kind: str = "auto",
    tokenizer: Any = None,
    attentions: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
) -> tuple[Any, Any]:
    """The pair (model, tokenizer) of a folder or a hub name, in evaluation mode; a model object is returned as it is.

    `kind` is "masked" or "causal" for a model with that head, "auto" for one without a head. With `attentions` it
    is loaded so that it can return its attention. `tokenizer` (an object, a folder or a name) replaces the model's own;
    a model given as an object has none of its own. Pickled weights and repositories that bring their own code are
    refused. Without a `device` a loaded model stays on the CPU, an object where it is; `dtype` is a floating type or
    its name, by default that of the weights.
    """
    model = load_network(source, kind=kind, attentions=attentions, device=device, dtype=dtype)
    if model is source:
        return model, None if tokenizer is None else load_tokenizer(tokenizer)
    return model, load_tokenizer(_located("source", source) if tokenizer is None else tokenizer)


def load_network(
    source: Any,
    *,
    kind: str = "auto",
    attentions: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype | str | None = None,
) -> Any:
    """The model alone, for folders that hold no tokenizer; see `load_model`."""
    one_of("kind", kind, KINDS)
    number_type = None if dtype is None else _float_type(dtype)
    device = None if device is None else resolve_device(device, others=OTHER_DEVICES)
    transformers = library()
    if isinstance(source, transformers.PreTrainedModel):
        return source if device is None and dtype is None else source.to(device=device, dtype=number_type)
    name = _located("source", source)
    if Path(name).is_dir() and not list(Path(name).glob("*.safetensors")):
        raise ArgumentError(f"source={name!r}: has no .safetensors weights, and pickled weights (.bin) are never read")
    options: dict[str, Any] = {"attn_implementation": "eager"} if attentions else {}
    options |= {} if number_type is None else {"dtype": number_type}
    try:
        model = getattr(transformers, KINDS[kind]).from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, **options
        )
    except SafetensorError as error:
        raise ArgumentError(f"source={name!r}: its .safetensors file is damaged ({_first_line(error)})") from error
    except Exception as error:  # a stranger's config.json can ask for anything
        raise ArgumentError(f"source={name!r}: {_reason(error, kind)}") from error
    return model.eval() if device is None else model.eval().to(device)


def load_tokenizer(source: Any) -> Any:
    """A tokenizer object as it is, or the one of a folder or a hub name."""
    transformers = library()
    if isinstance(source, transformers.PreTrainedTokenizerBase):
        return source
    name = _located("tokenizer", source)
    # Without this check the library makes up an empty vocabulary for some families instead of failing.
    if Path(name).is_dir() and not any(list(Path(name).glob(pattern)) for pattern in TOKENIZER_FILES):
        raise ArgumentError(f"tokenizer: {name!r} holds none; pass another, tokenizer= or --tokenizer")
    try:
        return transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        raise ArgumentError(f"tokenizer={name!r}: cannot be loaded ({_first_line(error)})") from error


def require_head(network: Any) -> None:
    """Refuse a body without a head, and heads that do not give logits of tokens."""
    if network.get_output_embeddings() is None:
        name = type(network).__name__
        raise ArgumentError(f"source: {name} has no language-model head; load it with AutoModelForCausalLM")


def library() -> Any:
    """The transformers package, or one line that says how to get it."""
    try:
        import transformers
    except ImportError as error:
        raise missing("a Hugging Face model", "transformers", "huggingface") from error
    return transformers


def no_progress_bars() -> None:
    """Keep the library's own bars off the terminal, for programs that show progress themselves."""
    library().utils.logging.disable_progress_bar()


def _float_type(dtype: Any) -> torch.dtype:
    """A floating type by itself or by its name."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ArgumentError(f"dtype={dtype!r}: must be float32, bfloat16, float16 or another floating type of torch")
    return found


def _located(argument: str, source: Any) -> str:
    """`source` as a name that the library takes: an existing folder, or something that can be a hub name."""
    if not isinstance(source, str | Path) or not str(source):
        text = repr(source)
        shown = text if len(text) < 80 and "\n" not in text else f"a {type(source).__name__}"
        kind = "model" if argument == "source" else "tokenizer"
        raise ArgumentError(f"{argument}={shown}: must be a {kind} of transformers, a folder or a hub name")
    path = place(argument, source)
    if path.is_dir():
        if argument == "source" and not (path / "config.json").is_file():
            raise ArgumentError(f"{argument}={str(source)!r}: a folder without config.json is not a saved model")
        return str(path)
    if path.exists():
        raise ArgumentError(f"{argument}={str(source)!r}: a file; must be the folder that save_pretrained wrote")
    text = str(source)
    if isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1 or "\\" in text:
        raise ArgumentError(f"{argument}={text!r}: no such folder")
    return text


def _reason(error: Exception, kind: str) -> str:
    """What went wrong, in one line, for the ways in which the library is known to fail."""
    text = str(error)
    if "connect" in text or "offline" in text or "not a local folder" in text:
        return "neither a folder here nor in the local cache, and the hub has no such model or cannot be reached"
    if "custom code" in text or "trust_remote_code" in text:
        return "needs code from its repository, which is never run"
    if "Unrecognized configuration class" in text:
        return f"this family has no model of kind={kind!r}"
    if "safetensors" in text:
        return "has no .safetensors weights, and pickled weights (.bin) are never read"
    return f"cannot be loaded ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
