"""Fit one model or a thousand at once; snapshots, checkpoints, resume.

`fit(model, source, objective, steps=…, seeds=…, grid=…)` trains seeds × grid models as one stacked computation, each
with streams of its own for initialisation, data and noise. It returns a `Fit`: `fit.models` (stacked), `fit[i]` (one
module), curves, `to_frame()`, `save`, `resume`. A `Recipe` is the same as a value, which the lab stores trained
models by. `fit_single` trains what cannot be stacked, on one or several devices.
"""

from sandtable.training.evaluate import evaluate
from sandtable.training.optimizers import SGD, AdaFactor, Adam, NormalisedGD, Optimizer
from sandtable.training.recipe import Recipe, fit
from sandtable.training.result import Fit
from sandtable.training.schedules import Cosine, Drops, Flat, Frozen, Linear, Stages
from sandtable.training.single import SingleRecipe, fit_single
from sandtable.training.streams import stream

__all__ = [
    "SGD",
    "AdaFactor",
    "Adam",
    "Cosine",
    "Drops",
    "Fit",
    "Flat",
    "Frozen",
    "Linear",
    "NormalisedGD",
    "Optimizer",
    "Recipe",
    "SingleRecipe",
    "Stages",
    "evaluate",
    "fit",
    "fit_single",
    "stream",
]
