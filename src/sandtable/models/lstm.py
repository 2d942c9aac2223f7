"""An LSTM in plain tensor operations, so that it vectorises over models; a linear head at every position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, nearest, typed, whole
from sandtable.inputs import Tokens
from sandtable.models.activations import Edit, tapped
from sandtable.models.attention import Tap, inside
from sandtable.models.initial import Initial, Normal, Uniform
from sandtable.models.transformer import MOST_LAYERS, Embedding, Unembedding, match_names


class LSTMLayer(nn.Module):
    """i, f, g, o = x_t W_x + h_{t−1} W_h + b;  c_t = σ(f) c_{t−1} + σ(i) tanh g;  h_t = σ(o) tanh c_t.

    The gates are in PyTorch's order; `b` is the sum of its two biases.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), hidden=whole("hidden", hidden))
        self.W_x = nn.Parameter(torch.zeros(width, 4 * hidden))
        self.W_h = nn.Parameter(torch.zeros(hidden, 4 * hidden))
        self.b = nn.Parameter(torch.zeros(4 * hidden))

    def forward(self, x: Float[Tensor, "batch position width"], tap: Tap) -> Float[Tensor, "batch position hidden"]:
        return self.run(x @ self.W_x + self.b, tap)

    def run(self, driven: Float[Tensor, "batch position gates"], tap: Tap) -> Float[Tensor, "batch position hidden"]:
        """The states h_1 … h_T when x_t W_x + b is known: the part that must go from position to position."""
        size = self.config["hidden"]
        h = c = driven.new_zeros(*driven.shape[:-2], size)
        states = []
        for now in driven.unbind(-2):
            take, keep, new, show = (now + h @ self.W_h).chunk(4, -1)
            c = keep.sigmoid() * c + take.sigmoid() * new.tanh()
            h = show.sigmoid() * c.tanh()
            states.append(h)
        return tap("hook_h", torch.stack(states, dim=-2))


@typed
class LSTM(nn.Module):
    """logits_t = h_t W_U + b_U, h the states of the last of `layers` LSTM layers over the embedded tokens.

    `width` is that of the embedding, `outputs` the number of classes (the tokens unless given). Any length is read; a
    state does not know how many came before it. Parameters start as PyTorch's do.
    """

    def __init__(
        self, vocab: Any, *, width: int = 64, hidden: int = 128, layers: int = 1, outputs: int | None = None
    ) -> None:
        super().__init__()
        size = whole("vocab", len(vocab) if hasattr(vocab, "__len__") else vocab)
        outputs = size if outputs is None else whole("outputs", outputs)
        self.config: dict[str, Any] = dict(vocab=size, width=width, hidden=hidden, layers=layers, outputs=outputs)
        self.embed = Embedding(size, whole("width", width))
        widths = [width, *[whole("hidden", hidden)] * whole("layers", layers, most=MOST_LAYERS)]
        self.layers = nn.ModuleList(LSTMLayer(w, hidden) for w in widths[:-1])
        self.unembed = Unembedding(outputs, hidden, tied=False, bias=True)

    def matching(self, *patterns: str) -> list[str]:
        """Names of the parameters that match any of the glob patterns; a pattern without a match is an error."""
        return match_names(patterns, [name for name, _ in self.named_parameters()])

    def initialise(self, generator: torch.Generator, scale: float = 1.0) -> LSTM:
        """Draw every parameter afresh, in the order of their names: N(0, 1) embeddings, all else ±1/√hidden."""
        rules: dict[str, Initial] = {"embed.*": Normal(1.0), "*": Uniform(1 / math.sqrt(self.config["hidden"]))}
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                rule = next(rule for pattern, rule in rules.items() if fnmatchcase(name, pattern))
                parameter.copy_(rule.draw(parameter.shape, generator, scale))
        return self

    def replace(self, **changes: Any) -> LSTM:
        """A model of the same make with some settings changed."""
        for name in changes:
            if name not in self.config:
                raise ArgumentError(f"{name}: not a setting of LSTM{nearest(name, list(self.config))}")
        return LSTM(**{**self.config, **changes})

    def describe(self) -> dict[str, Any]:
        """Everything that decides what this model computes before training."""
        return dict(kind="LSTM", config=self.config)

    def forward(
        self, inputs: Tensor | Tokens, want: Sequence[str] = (), edits: Mapping[str, Edit] | None = None
    ) -> Any:
        """Logits at every position; with `want` ("layers.0.hook_h", …) also those activations, as `edits` left them."""
        ids = inputs.ids if isinstance(inputs, Tokens) else inputs
        if isinstance(inputs, Tokens) and inputs.mask is not None:
            raise ArgumentError("Tokens with a mask: an LSTM reads every position; pad on the right without a mask")
        return tapped(lambda tap: self._run(ids, tap), want, edits, self.hook_names)

    def hook_names(self) -> list[str]:
        """The activations that `forward(ids, want=…)` can return."""
        return [f"layers.{i}.hook_h" for i in range(len(self.layers))]

    def _run(self, ids: Tensor, tap: Tap) -> Tensor:
        first = self.layers[0]
        assert isinstance(first, LSTMLayer)
        # Tokens are few: their share of the gates is worked out once for each, not once for each position.
        x = first.run(F.embedding(ids, self.embed.W_E @ first.W_x + first.b), inside("layers.0", tap))
        for i, layer in enumerate(self.layers):
            x = x if i == 0 else layer(x, inside(f"layers.{i}", tap))
        weight, bias = self.unembed.W_U, self.unembed.b_U
        assert weight is not None
        assert bias is not None
        return x @ weight + bias
