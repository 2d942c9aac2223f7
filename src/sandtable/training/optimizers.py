"""Optimisers that broadcast over a leading model dimension: every model has its own learning rate and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import number, whole

PerModel = Float[Tensor, " models"]
State = dict[str, Tensor]
_LARGEST_BETA = 0.999999  # at 1 the average never sees a gradient


def wide(value: PerModel, like: Tensor) -> Tensor:
    """One value per model, to be multiplied with what every model has."""
    return value.reshape(-1, *(1,) * (like.ndim - 1))


class Optimizer(Protocol):
    """`settings` names the numbers that may differ between models. Parameters are updated in place, one at a time.

    `elementwise = True`, in the class itself, says that every number is updated by itself, whatever the shape of its
    parameter: several parameters then come as the columns of one matrix, which is faster.
    """

    settings: ClassVar[tuple[str, ...]]

    def start(self, parameter: Tensor) -> State: ...

    def update(
        self, parameter: Tensor, grad: Tensor, state: State, rate: PerModel, per_model: Mapping[str, PerModel]
    ) -> None: ...


@dataclass(frozen=True)
class SGD:
    """v ← μ v + g; θ ← θ − η v (Nesterov: θ ← θ − η (g + μ v)); decoupled weight decay θ ← θ − η w θ."""

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    settings: ClassVar[tuple[str, ...]] = ("lr", "momentum", "weight_decay")
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number("lr", self.lr, least=0.0)
        number("momentum", self.momentum, least=0.0, most=1.0)
        number("weight_decay", self.weight_decay, least=0.0)

    def start(self, parameter: Tensor) -> State:
        return {"velocity": torch.zeros_like(parameter)}

    def update(
        self, parameter: Tensor, grad: Tensor, state: State, rate: PerModel, per_model: Mapping[str, PerModel]
    ) -> None:
        rate, momentum = wide(rate, parameter), wide(per_model["momentum"], parameter)
        velocity = state["velocity"].mul_(momentum).add_(grad)
        direction = grad + momentum * velocity if self.nesterov else velocity
        parameter.mul_(1 - rate * wide(per_model["weight_decay"], parameter)).sub_(rate * direction)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015) with bias correction; `weight_decay` is decoupled (AdamW, Loshchilov & Hutter 2019)."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    settings: ClassVar[tuple[str, ...]] = ("lr", "beta1", "beta2", "eps", "weight_decay")
    elementwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number("lr", self.lr, least=0.0)
        number("beta1", self.beta1, least=0.0, most=_LARGEST_BETA)
        number("beta2", self.beta2, least=0.0, most=_LARGEST_BETA)
        number("eps", self.eps, least=0.0)
        number("weight_decay", self.weight_decay, least=0.0)

    def start(self, parameter: Tensor) -> State:
        count = torch.zeros(len(parameter), dtype=parameter.dtype, device=parameter.device)
        return {"mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter), "count": count}

    def update(
        self, parameter: Tensor, grad: Tensor, state: State, rate: PerModel, per_model: Mapping[str, PerModel]
    ) -> None:
        beta1, beta2 = per_model["beta1"], per_model["beta2"]
        count = state["count"].add_(1)
        mean = state["mean"].lerp_(grad, wide(1 - beta1, grad))
        square = state["square"].mul_(wide(beta2, grad)).addcmul_(grad, grad * wide(1 - beta2, grad))
        step = wide(rate / (1 - beta1**count), grad)
        scale = wide((1 - beta2**count).rsqrt(), grad)
        parameter.mul_(1 - wide(rate * per_model["weight_decay"], parameter))
        parameter.sub_(step * mean / (square.sqrt() * scale + wide(per_model["eps"], grad)))


@dataclass(frozen=True)
class NormalisedGD:
    """θ ← θ − η g / ‖g‖, the norm taken over all trained parameters of a model together."""

    lr: float = 0.1
    settings: ClassVar[tuple[str, ...]] = ("lr",)
    elementwise: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("gradient_norm",)

    def __post_init__(self) -> None:
        number("lr", self.lr, least=0.0)

    def start(self, parameter: Tensor) -> State:
        return {}

    def update(
        self, parameter: Tensor, grad: Tensor, state: State, rate: PerModel, per_model: Mapping[str, PerModel]
    ) -> None:
        norm = per_model["gradient_norm"].clamp_min(torch.finfo(grad.dtype).tiny)
        parameter.sub_(wide(rate / norm, parameter) * grad)


@dataclass(frozen=True)
class AdaFactor:
    """θ ← θ − η max(ρ, rms θ) u / max(1, rms(u)/d), u = g/√v (Shazeer & Stern 2018), with the defaults of T5X.

    v is the average of g² + ε with weights 1 − t^(−`decay`) on the past. Of a matrix with at least `factored` rows and
    columns only the means r of its rows and c of its columns are kept, v = r c / mean(r); of more than two dimensions
    the last two are meant. `clip` is d, `least_scale` ρ: the step is relative to the size of the parameter.
    """

    lr: float = 1e-2
    decay: float = 0.8
    clip: float = 1.0
    eps: float = 1e-30
    least_scale: float = 1e-3
    factored: int = 128
    settings: ClassVar[tuple[str, ...]] = ("lr", "decay", "clip", "eps", "least_scale")

    def __post_init__(self) -> None:
        number("lr", self.lr, least=0.0)
        number("decay", self.decay, above=0.0)
        number("clip", self.clip, above=0.0)
        number("eps", self.eps, above=0.0)
        number("least_scale", self.least_scale, above=0.0)
        whole("factored", self.factored)

    def start(self, parameter: Tensor) -> State:
        count = torch.zeros(len(parameter), dtype=parameter.dtype, device=parameter.device)
        if parameter.ndim > 2 and min(parameter.shape[-2:]) >= self.factored:
            kept = {"rows": torch.zeros_like(parameter[..., 0]), "columns": torch.zeros_like(parameter[..., 0, :])}
        else:
            kept = {"square": torch.zeros_like(parameter)}
        return kept | {"count": count}

    def update(
        self, parameter: Tensor, grad: Tensor, state: State, rate: PerModel, per_model: Mapping[str, PerModel]
    ) -> None:
        fresh = state["count"].add_(1) ** -per_model["decay"]
        square = grad.square() + wide(per_model["eps"], grad)
        if "square" in state:
            direction = grad * state["square"].lerp_(square, wide(fresh, grad)).rsqrt()
        else:
            rows = state["rows"].lerp_(square.mean(-1), wide(fresh, state["rows"]))
            columns = state["columns"].lerp_(square.mean(-2), wide(fresh, state["columns"]))
            share = (rows / rows.mean(-1, keepdim=True)).rsqrt()
            direction = grad * share[..., None] * columns.rsqrt()[..., None, :]
        step = rate * _rms(parameter).maximum(per_model["least_scale"])
        parameter.sub_(wide(step / (_rms(direction) / per_model["clip"]).clamp(min=1.0), grad) * direction)


def _rms(values: Tensor) -> PerModel:
    """The root of the mean square of what every model has."""
    return values.reshape(len(values), -1).square().mean(1).sqrt()


def defaults(optimizer: Optimizer) -> dict[str, float]:
    """The settings of an optimiser that a grid may vary, with their values."""
    named = {field.name for field in fields(optimizer)}  # pyright: ignore[reportArgumentType]
    return {name: float(getattr(optimizer, name)) for name in optimizer.settings if name in named}
