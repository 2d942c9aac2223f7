"""Penalties on parameters, as differentiable terms of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor


def l2_penalty(
    params: Mapping[str, Float[Tensor, "models ..."]], weight: Float[Tensor, " models"], names: Sequence[str]
) -> Float[Tensor, " models"]:
    """λ Σ_θ ‖θ‖²_F over the named parameters, for every model of a stack; its gradient is 2 λ θ."""
    squares = [params[name].square().reshape(len(weight), -1).sum(1) for name in names if name in params]
    return weight * sum(squares, start=weight.new_zeros(()))
