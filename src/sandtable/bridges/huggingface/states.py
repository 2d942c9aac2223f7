"""Hidden states of a Hugging Face model, taken as they pass by: one layer, one token a row, nothing else is kept."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.language_model import Hidden


def layers_of(network: Any) -> int:
    return network.config.get_text_config(decoder=True).num_hidden_layers


def check_hidden(network: Any, hidden: Hidden) -> None:
    """Refuse a hidden state that the model does not have."""
    layers = layers_of(network)
    whole("layer", hidden.layer, least=0, most=layers)
    if hidden.normed and hidden.layer != layers:
        raise ArgumentError(f"hidden={hidden}: only the last layer ({layers}) goes through the final norm")


class Tap:
    """Catches, while the model runs, the hidden state at token `at` of every row.

    Layer 0 is what enters the first block, layer l what leaves the l-th; `normed`, what enters the head.
    """

    def __init__(self, network: Any, hidden: Hidden, at: Int[Tensor, " row"]) -> None:
        self._network, self._hidden, self._at = network, hidden, at
        self.state: Float[Tensor, "row width"] | None = None

    def __enter__(self) -> Tap:
        blocks, layer = blocks_of(self._network), self._hidden.layer
        if self._hidden.normed:
            self._handle = self._network.get_output_embeddings().register_forward_pre_hook(
                self._enters, with_kwargs=True
            )
        elif layer == 0:
            self._handle = blocks[0].register_forward_pre_hook(self._enters, with_kwargs=True)
        else:
            self._handle = blocks[layer - 1].register_forward_hook(self._leaves)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _leaves(self, module: nn.Module, args: Any, output: Any) -> None:
        self._keep(output if isinstance(output, Tensor) else output[0])

    def _enters(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._keep(args[0] if args else kwargs["hidden_states"])

    def _keep(self, states: Float[Tensor, "row new width"]) -> None:
        self.state = pick(states, self._at)


def pick(states: Float[Tensor, "row new some"], at: Int[Tensor, " row"]) -> Float[Tensor, "row some"]:
    """Token `at` of every row."""
    if states.shape[1] == 1:
        return states[:, 0]
    return states.gather(1, at.to(states.device)[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


def blocks_of(network: Any) -> nn.ModuleList:
    """The list of a model's blocks: the outermost one with as many members as there are layers."""
    layers = layers_of(network)
    for module in network.base_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            return module
    raise ArgumentError(f"{type(network).__name__}: has no list of {layers} blocks to take hidden states from")
