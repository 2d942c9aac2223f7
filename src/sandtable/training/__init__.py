"""Fit one model or a thousand at once; snapshots, checkpoints, resume."""

from sandtable.training.evaluate import evaluate
from sandtable.training.optimizers import SGD, Adam, NormalisedGD, Optimizer
from sandtable.training.recipe import Recipe, fit
from sandtable.training.result import Fit
from sandtable.training.schedules import Cosine, Drops, Flat, Frozen, Linear, Stages
from sandtable.training.single import SingleRecipe, fit_single
from sandtable.training.streams import stream

__all__ = [
    "SGD",
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
