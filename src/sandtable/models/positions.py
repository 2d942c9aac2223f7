"""How a model knows where a token stands."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, whole


class LearnedPositions(nn.Module):
    """A trained vector W_pos[i] added at position i."""

    def __init__(self, width: int, *, longest: int) -> None:
        super().__init__()
        self.config = dict(width=width, longest=whole("longest", longest))
        self.W_pos = nn.Parameter(torch.zeros(longest, width))

    def forward(self, size: int) -> Float[Tensor, "position width"]:
        if size > len(self.W_pos):
            raise ArgumentError(f"{size} positions: this model was built for at most longest={len(self.W_pos)}")
        return self.W_pos[:size]


class SinusoidalPositions(nn.Module):
    """The fixed waves of Vaswani et al. (2017): sin and cos of i / 10000^(2k / width), interleaved."""

    def __init__(self, width: int, *, longest: int) -> None:
        super().__init__()
        self.config = dict(width=width, longest=whole("longest", longest))
        angle = torch.arange(longest, dtype=torch.float64)[:, None] * torch.exp(
            torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width)
        )
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("waves", waves.float(), persistent=False)

    def forward(self, size: int) -> Float[Tensor, "position width"]:
        waves = self.get_buffer("waves")
        if size > len(waves):
            raise ArgumentError(f"{size} positions: this model was built for at most longest={len(waves)}")
        return waves[:size]


POSITIONS: dict[str, type[LearnedPositions] | type[SinusoidalPositions]] = {
    "learned": LearnedPositions,
    "sinusoidal": SinusoidalPositions,
}
