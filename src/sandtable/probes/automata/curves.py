"""What training curves do: when they cross a line, how far and how often they fall back; how far nets lie apart."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import number, typed, whole

Curves = Float[Tensor, "models times"]
PerModel = Float[Tensor, " models"]


def smooth(curves: Curves, window: int) -> Curves:
    """Means over consecutive windows; what does not fill the last one is left out."""
    whole("window", window, most=curves.shape[1])
    return curves[:, : curves.shape[1] // window * window].unflatten(1, (-1, window)).mean(-1)


def drawdown(curves: Curves) -> PerModel:
    """The deepest fall below the best so far: max over s ≤ t of y_s − y_t."""
    return (curves.cummax(1).values - curves).max(1).values


def crossing(curves: Curves, level: float) -> PerModel:
    """The first time at or above `level`, ∞ where there is none."""
    there = curves >= number("level", level)
    return torch.where(there.any(1), there.double().argmax(1).double(), math.inf)


@typed
def drops(curves: Curves, size: float) -> PerModel:
    """How often a curve falls by more than `size` from its highest point since it last did."""
    number("size", size, least=0.0)
    count, best = torch.zeros(len(curves), dtype=torch.double), curves[:, 0].clone()
    for now in curves.unbind(1):
        fallen = best - now > size
        count += fallen
        best = torch.where(fallen, now, torch.maximum(best, now))
    return count


def best_less_median(scores: Float[Tensor, "models ..."]) -> Float[Tensor, " ..."]:
    """How much better the best model is than the one in the middle, of an even number the mean of both there."""
    return scores.max(0).values - scores.double().quantile(0.5, dim=0)
