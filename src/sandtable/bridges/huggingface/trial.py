"""A trial of every model before its cache is trusted: a few tokens, some erased again, against runs without a cache."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.bridges.huggingface.sessions import HuggingFaceSession
from sandtable.bridges.huggingface.sight import SLIDING, Sight
from sandtable.bridges.huggingface.states import Tap
from sandtable.decoding.language_model import Hidden

if TYPE_CHECKING:
    from sandtable.bridges.huggingface.language_model import HuggingFaceModel

_WINDOW = 3
"""The window that sliding attention is tried with: its own is too long to be tried."""


MASKS, STEPS, RECOMPUTE = "masks", "steps", "recompute"
"""How a model is read: with masks of our own, in steps of one token, or each time anew."""

_WAYS: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
_TAPS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def way_of(model: HuggingFaceModel, sight: Sight) -> str:
    """The fastest way to read a model that says what fresh runs say; tried once for every network."""
    known = _WAYS.setdefault(model.network, {})
    attention = str(getattr(model.network.config, "_attn_implementation", None))
    if attention not in known:
        with torch.no_grad(), evaluating(model.network):
            _check_causal(model)
            known[attention] = _reads(model, sight)
        if known[attention] == RECOMPUTE:
            reason = "differs from fresh runs" if sight.unclear is None else f"may not be exact ({sight.unclear})"
            warnings.warn(
                f"{type(model.network).__name__}: a cache whose rows are rewound {reason}; "
                "every token is computed from the whole row",
                stacklevel=4,
            )
    return known[attention]


def taps_of(model: HuggingFaceModel) -> bool:
    """Whether hooks catch what the library calls the hidden states; else it is asked for those of all layers."""
    if model.network not in _TAPS:
        with torch.no_grad(), evaluating(model.network):
            _TAPS[model.network] = _taps(model)
    return _TAPS[model.network]


def _check_causal(model: HuggingFaceModel) -> None:
    """Refuse a model to which what follows a token matters."""
    row = torch.arange(4, device=model.device)[None] % model.vocab_size
    short, long = (model.network(input_ids=row[:, :n], use_cache=False).logits[0, 1] for n in (2, 4))
    if bool(short.isnan().any()):
        name = type(model.network).__name__
        raise ArgumentError(f"source: {name} in {model.dtype} says NaN; its weights are damaged, or need more range")
    if not _close(short, long):
        raise ArgumentError(
            f"source: {type(model.network).__name__} is not causal as it is configured: what follows a token changes "
            "what it says there; must be a causal (decoder-only) model"
        )


def _reads(model: HuggingFaceModel, sight: Sight) -> str:
    if sight.unclear is not None or (model.longest or 8) < 8:
        return RECOMPUTE
    with _narrow(model.network, sight) as narrowed:
        for steps in (False, True) if sight.full else (False,):
            if _agrees(model, narrowed, steps):
                return STEPS if steps else MASKS
    return RECOMPUTE


def _agrees(model: HuggingFaceModel, sight: Sight, steps: bool) -> bool:
    """Whether ragged rows that grow, shrink and grow again have the logits of fresh runs."""
    size = model.vocab_size
    one, two = ((torch.arange(8) * step + 1) % size for step in (3, 5))
    try:
        session = HuggingFaceSession(model, [one[:6], two[:3]], 2, None, sight, steps=steps)
        told = [session.logits()]
        rows = [session.row(0), session.row(1)]
        session.append(torch.stack([one[6], two[3]]))
        told.append(session.logits())
        rows += [session.row(0), session.row(1)]
        session.rewind(torch.tensor([3, 1]))
        session.append(torch.stack([two[4], one[5]]))
        told.append(session.logits())
        rows += [session.row(0), session.row(1)]
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever a family makes of masks and caches that it does not know
        return False
    for said, row in zip(torch.cat(told), rows, strict=True):
        fresh = model.network(input_ids=torch.tensor([row], device=model.device), use_cache=False).logits[0, -1]
        if not _close(said, fresh):
            return False
    return True


def _close(logits: Tensor, fresh: Tensor) -> bool:
    """Equal up to the rounding of another order of summation."""
    relative, finite = 1e-4 if fresh.dtype.itemsize >= 4 else 0.05, fresh.isfinite()
    logits, fresh = logits[finite].float(), fresh[finite].float()
    return bool((logits - fresh).abs().max() <= relative * fresh.abs().max().clamp(min=1e-3))


def _taps(model: HuggingFaceModel) -> bool:
    network, layers = model.network, model.layers
    ids = torch.arange(2, device=model.device)[None] % model.vocab_size
    at = torch.ones(1, dtype=torch.long, device=model.device)
    try:
        with ExitStack() as stack:
            wanted = [*(Hidden(layer) for layer in range(layers)), Hidden(layers, normed=True)]
            taps = [stack.enter_context(Tap(network, hidden, at)) for hidden in wanted]
            states = network(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
        return len(states) == len(taps) and all(
            tap.state is not None and torch.equal(tap.state, state[:, 1])
            for tap, state in zip(taps, states, strict=True)
        )
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a family whose blocks are not where they are looked for
        return False


@contextmanager
def _narrow(network: Any, sight: Sight) -> Iterator[Sight]:
    """The model with a window so short that a few tokens show whether sliding attention is understood."""
    if sight.full:
        yield sight
        return
    config = network.config.get_text_config(decoder=True)
    before = config.sliding_window
    config.sliding_window = min(_WINDOW, before)
    windows = {kind: config.sliding_window if kind == SLIDING else None for kind in sight.windows}
    try:
        yield replace(sight, windows=windows)
    finally:
        config.sliding_window = before


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """The network in evaluation mode, and afterwards as it was."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
