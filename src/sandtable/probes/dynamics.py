"""In which order the layers of a Transformer learn: norms of keys, queries and values, and how fast values turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.probes.topics import norm_of, rotation

Watch = Callable[[Mapping[str, Tensor]], Float[Tensor, "models ..."]]

_SPELLINGS = (
    ("W_Q", "W_K", "W_V"),
    ("query.weight", "key.weight", "value.weight"),  # BERT, RoBERTa, ALBERT, ELECTRA
    ("q_lin.weight", "k_lin.weight", "v_lin.weight"),  # DistilBERT
    ("q_proj.weight", "k_proj.weight", "v_proj.weight"),  # BART, OPT, Llama
)
_KINDS = {name: kind for names in _SPELLINGS for kind, name in zip("QKV", names, strict=True)}
_MATRIX = re.compile(rf"(.*?)({'|'.join(re.escape(name) for name in _KINDS)})")


@typed
def attention_matrices(model: nn.Module | Iterable[str]) -> list[dict[str, str]]:
    """Names of the parameters "Q", "K", "V" of every attention layer, in order; one matrix holds all heads of a layer.

    Takes a module, or the names of its parameters, in our spelling or in that of the Hugging Face families.
    """
    names = [name for name, _ in model.named_parameters()] if isinstance(model, nn.Module) else model
    layers: dict[str, dict[str, str]] = {}
    for name in names:
        found = _MATRIX.fullmatch(name)
        if found is not None:
            layers.setdefault(found[1], {})[_KINDS[found[2]]] = name
    whole_layers = [layer for layer in layers.values() if len(layer) == 3]
    if not whole_layers:
        raise ArgumentError("attention_matrices: this model has no separate query, key and value matrices")
    return whole_layers


def watch_norms(model: nn.Module) -> dict[str, Watch]:
    """For `watch=`: ‖W_K‖_F, ‖W_Q‖_F, ‖W_V‖_F of every layer, heads together, called "0.W_K", "0.W_Q", …"""
    layers = attention_matrices(model)
    return {f"{i}.W_{kind}": norm_of(layer[kind]) for i, layer in enumerate(layers) for kind in "KQV"}


def watch_values(model: nn.Module) -> dict[str, Watch]:
    """For `watch=`: the matrices W_V of every layer, heads together, called "0.values", "1.values", …

    Watched every 10 steps, `rotations` of the record is the published measure of how fast a layer's values turn.
    """
    return {f"{i}.values": _matrix(layer["V"]) for i, layer in enumerate(attention_matrices(model))}


def _matrix(name: str) -> Watch:
    return lambda params: params[name].clone()


@typed
def rotations(
    record: Float[Tensor, "models times ..."], steps: Sequence[int], *, lag: int = 10
) -> tuple[list[int], Float[Tensor, "models later"]]:
    """rot(t) = (1 − cos(W(t), W(t − lag))) / 2 ∈ [0, 1] (Li, Li & Risteski 2023), wherever t and t − lag were recorded.

    Returns the steps t and rot there, for every model.
    """
    whole("lag", lag)
    place = {step: i for i, step in enumerate(steps)}
    later = [step for step in steps if step - lag in place]
    if not later:
        raise ArgumentError(f"lag={lag}: no two recorded steps are that far apart; watch with watch_every={lag}")
    now, then = (record[:, [place[step - back] for step in later]].flatten(0, 1) for back in (0, lag))
    return later, rotation(then, now).unflatten(0, (len(record), len(later)))
