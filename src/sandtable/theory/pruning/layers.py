"""The layers of the pruning theorem as ordinary Transformers: g(LN_C(attention(X)) + X), and how to feed them vectors.

One head, keys of a width of their own, no scaling and no biases; the embedding is one-hot and the head the identity,
so tokens 0 … m − 1 are unit vectors. `stream` runs the layers on any real vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, number, typed, whole
from sandtable.models import Block, DeepMLP, Transformer
from sandtable.models.attention import SoftmaxAttention, silent
from sandtable.models.transformer import MOST_LAYERS


@typed
class KeyedAttention(SoftmaxAttention):
    """Softmax attention X W_V with keys and queries of width `key_width`, unscaled: the single-matrix form."""

    def __init__(self, width: int, *, key_width: int, causal: bool = True) -> None:
        super().__init__(width, scale=1.0, causal=causal, output=False)
        self.config |= dict(key_width=whole("key_width", key_width))
        self.W_Q = nn.Parameter(torch.zeros(1, width, key_width))
        self.W_K = nn.Parameter(torch.zeros(1, width, key_width))

    @property
    def key_width(self) -> int:
        return self.W_K.shape[2]


@typed
def random_network(
    width: int,
    *,
    key_width: int,
    hidden: int,
    layers: int,
    generator: torch.Generator,
    eps: float = 0.5,
    causal: bool = True,
) -> Transformer:
    """The large network: `layers` of them with a four-layer ReLU MLP, every entry drawn from U(−1, 1), in float64."""
    model = _transformer(width, key_width, (whole("hidden", hidden),) * 3, layers, eps, causal)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            parameter.copy_(2 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 1)
    return model


@typed
def random_target(
    width: int,
    *,
    key_width: int,
    hidden: int,
    generator: torch.Generator,
    layers: int = 1,
    eps: float = 0.5,
    causal: bool = True,
) -> Transformer:
    """A small network with a two-layer ReLU MLP; every matrix is Gaussian, scaled to spectral norm 1."""
    model = _transformer(width, key_width, (whole("hidden", hidden),), layers, eps, causal)
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(drawn / torch.linalg.matrix_norm(drawn, 2, keepdim=True))
    return model


def _transformer(
    width: int, key_width: int, hidden: Sequence[int], layers: int, eps: float, causal: bool
) -> Transformer:
    number("eps", eps, above=0.0)
    whole("layers", layers, most=MOST_LAYERS)
    blocks = [
        Block(
            KeyedAttention(width, key_width=key_width, causal=causal),
            mlp=DeepMLP(width, hidden, biases=False),
            norm=("inner", None),
            norm_kind="unit",
            residual=(True, False),
            eps=eps,
        )
        for _ in range(whole("layers", layers))
    ]
    return Transformer(width, embedding="one-hot", blocks=blocks).double()


@torch.no_grad()
def stream(model: Transformer, x: Float[Tensor, "batch position width"]) -> Float[Tensor, "batch position width"]:
    """What the layers make of vectors; narrower ones are padded with zeros, as the theorem pads them."""
    if x.shape[-1] > model.width:
        raise ArgumentError(f"x of width {x.shape[-1]}: must be at most the model's ({model.width})")
    x = nn.functional.pad(x, (0, model.width - x.shape[-1]))
    for block in model.layers:
        x = block(x, None, silent)
    return x


def norm12(x: Float[Tensor, "... position width"]) -> Float[Tensor, ...]:
    """‖X‖₁,₂: the largest 2-norm of a position (a column of the theory; Definition 2.2.6 says row)."""
    return torch.linalg.vector_norm(x, dim=-1).amax(-1)


def distance(one: Transformer, other: Transformer, x: Float[Tensor, "batch position width"]) -> float:
    """The largest ‖f(X) − g(X)‖₁,₂ / ‖X‖₁,₂ over the given inputs; outputs of unequal width are padded with zeros."""
    a, b = stream(one, x), stream(other, x)
    wide = max(a.shape[-1], b.shape[-1])
    a, b = (nn.functional.pad(out, (0, wide - out.shape[-1])) for out in (a, b))
    return float((norm12(a - b) / norm12(x)).max())
