"""How a model knows where a token stands."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, number, typed, whole


def first(table: Float[Tensor, "longest width"], size: int) -> Float[Tensor, "position width"]:
    """The rows of positions 0 … size − 1."""
    if size > len(table):
        raise ArgumentError(f"{size} positions: this model was built for at most longest={len(table)}")
    return table[:size]


@typed
class LearnedPositions(nn.Module):
    """A trained vector W_pos[i] added at position i."""

    def __init__(self, width: int, *, longest: int) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), longest=whole("longest", longest))
        self.W_pos = nn.Parameter(torch.zeros(longest, width))

    def forward(self, size: int) -> Float[Tensor, "position width"]:
        return first(self.W_pos, size)

    def at(self, places: Int[Tensor, ...]) -> Float[Tensor, "... width"]:
        return F.embedding(places, self.W_pos)


@typed
class SinusoidalPositions(nn.Module):
    """The fixed waves of Vaswani et al. (2017): sin and cos of i / 10000^(2k / width), interleaved."""

    def __init__(self, width: int, *, longest: int) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), longest=whole("longest", longest))
        angle = torch.arange(longest, dtype=torch.float64)[:, None] * torch.exp(
            torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width)
        )
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("waves", waves.float(), persistent=False)

    def forward(self, size: int) -> Float[Tensor, "position width"]:
        return first(self.get_buffer("waves"), size)

    def at(self, places: Int[Tensor, ...]) -> Float[Tensor, "... width"]:
        return F.embedding(places, self.get_buffer("waves"))


@typed
class LinearPositions(nn.Module):
    """(i / unit) · W_pos: one trained direction, along which positions move at a steady pace; `unit` is `longest`
    unless given. With longest far beyond the rows of training, a unit of their length keeps positions from starting
    near 0."""

    def __init__(self, width: int, *, longest: int, unit: float | None = None) -> None:
        super().__init__()
        unit = float(whole("longest", longest)) if unit is None else number("unit", unit, above=0.0)
        self.config = dict(width=whole("width", width), longest=longest, unit=unit)
        self.W_pos = nn.Parameter(torch.zeros(1, width))

    def forward(self, size: int) -> Float[Tensor, "position width"]:
        if size > self.config["longest"]:
            raise ArgumentError(f"{size} positions: this model was built for at most longest={self.config['longest']}")
        return self.at(torch.arange(size, device=self.W_pos.device))

    def at(self, places: Int[Tensor, ...]) -> Float[Tensor, "... width"]:
        return (places / self.config["unit"]).to(self.W_pos.dtype)[..., None] * self.W_pos[0]


@typed
class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021): at position i, the pair (x_k, x_{k + e/2}) turns by the angle i / base^(2k/e).

    Queries and keys turned so have products that depend on positions through their difference alone.
    """

    def __init__(self, width: int, *, longest: int, base: float = 10000.0) -> None:
        super().__init__()
        if whole("head_width", width) % 2:
            raise ArgumentError(f"head_width={width}: rotary positions turn pairs, so it must be even")
        self.config = dict(width=width, longest=whole("longest", longest), base=number("base", base, above=0.0))
        speed = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(longest, dtype=torch.float64)[:, None] * speed
        cos, sin = angle.cos(), angle.sin()
        waves = torch.stack([torch.cat([cos, cos], 1), torch.cat([-sin, sin], 1)], 1)
        self.register_buffer("waves", waves.float(), persistent=False)

    def forward(
        self, x: Float[Tensor, "... position heads head"], places: Int[Tensor, "... position"] | None
    ) -> Float[Tensor, "... position heads head"]:
        """`x` turned to its places, or to positions 0, 1, 2, …"""
        table = self.get_buffer("waves")
        waves = first(table, x.shape[-3]) if places is None else table[places]
        cos, sin = waves.unbind(-2)
        return x * cos[..., None, :] + x.roll(x.shape[-1] // 2, -1) * sin[..., None, :]


POSITIONS: dict[str, type[LearnedPositions] | type[SinusoidalPositions] | type[LinearPositions]] = {
    "learned": LearnedPositions,
    "linear": LinearPositions,
    "sinusoidal": SinusoidalPositions,
}
