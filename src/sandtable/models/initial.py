"""How parameters start: small objects that draw a tensor from an explicit generator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sandtable.arguments import number


class Initial(Protocol):
    """`draw(shape, generator, scale)` gives a tensor; `scale` multiplies what is random and nothing else."""

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor: ...


@dataclass(frozen=True)
class Normal:
    """Independent N(0, std²) entries."""

    std: float = 0.02

    def __post_init__(self) -> None:
        number("std", self.std, least=0.0)

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=generator) * (self.std * scale)


@dataclass(frozen=True)
class FanIn:
    """Uniform on ±1/√(fan in), PyTorch's default for linear maps; weights act as x @ W, so fan in is dimension −2."""

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        bound = scale / math.sqrt(shape[-2] if len(shape) > 1 else shape[-1])
        return (2 * torch.rand(shape, generator=generator) - 1) * bound


@dataclass(frozen=True)
class Constant:
    """Every entry equal to `value`."""

    value: float = 0.0

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        return torch.full(shape, float(self.value))


@dataclass(frozen=True)
class Identity:
    """`value` times the identity in the last two dimensions."""

    value: float = 1.0

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        return (self.value * torch.eye(shape[-2], shape[-1])).expand(shape).clone()


@dataclass(frozen=True)
class Uniform:
    """Independent entries, uniform on ±bound."""

    bound: float

    def __post_init__(self) -> None:
        number("bound", self.bound, least=0.0)

    def draw(self, shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
        return (2 * torch.rand(shape, generator=generator) - 1) * (self.bound * scale)
