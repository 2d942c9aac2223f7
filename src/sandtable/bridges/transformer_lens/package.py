"""The package itself: a HookedTransformer of TransformerLens 2 and 3, a TransformerBridge of TransformerLens 4."""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor

from sandtable.arguments import ArgumentError, missing
from sandtable.bridges.transformer_lens.convert import Lens, lens
from sandtable.models import Transformer

_OWN_BUFFERS = ("mask", "IGNORE", "rotary_sin", "rotary_cos")


def to_transformer_lens(model: Transformer, *, longest: int | None = None) -> Any:
    """The model of TransformerLens that computes what `model` does, with hooks everywhere; see `lens`.

    That is a HookedTransformer in versions 2 and 3, a TransformerBridge in version 4. Compiled models go in as
    `compiled.model`, and are fed with `compiled.encode`.
    """
    found = lens(model, longest=longest)
    try:
        package: Any = importlib.import_module("transformer_lens")
    except ImportError as error:
        raise missing("to_transformer_lens", "transformer-lens", "transformer-lens") from error
    try:
        hooked = package.HookedTransformer
    except (ImportError, AttributeError):  # since version 4
        return _bridge(package, found)
    return _hooked(hooked, package.HookedTransformerConfig(**found.config), found)


def _bridge(package: Any, found: Lens) -> Any:
    """Version 4 builds small models natively; their gated MLPs have no biases."""
    native = importlib.import_module("transformer_lens.model_bridge.sources.native")
    convert = importlib.import_module("transformer_lens.utilities.tl_checkpoint_conversion").convert_tl_checkpoint
    config = package.TransformerBridgeConfig.from_dict(found.config)
    gated = found.config["gated_mlp"]
    weights: dict[str, Tensor] = {}
    for name, value in found.weights.items():
        if gated and name.endswith(("b_in", "b_out")):
            if value.any():
                raise ArgumentError(f"{name}: a bias there has no counterpart in TransformerLens 4")
        else:
            weights[name] = value
    model = native.boot(config, dtype=found.config["dtype"])
    model.load_state_dict(convert(weights, config), strict=True)
    return model.eval()


def _hooked(kind: Any, config: Any, found: Lens) -> Any:
    model = kind(config)
    left = model.load_state_dict(found.weights, strict=False)
    absent = [name for name in left.missing_keys if not name.endswith(_OWN_BUFFERS)]
    if absent or left.unexpected_keys:
        raise RuntimeError(f"TransformerLens has other weights: {absent or left.unexpected_keys}")
    return model.eval()
