"""Backtracking on the oracle that slips: the decoder beside its closed forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import botta
from sandtable.decoding import backtrack
from sandtable.lab import Control, Evidence, Lab, Table, agrees, claim, exact, law
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory
from sandtable.worlds import Slips

Cell = tuple[int, int, str]
"""Quota, stride and redo."""

CELLS: tuple[Cell, ...] = (
    (1, 1, "argmax"),
    (4, 4, "argmax"),
    (1, 1, "sample"),
    (2, 4, "sample"),
    (4, 4, "sample"),
)
WORLD = Slips(20, 0.1)
OTHER = {"argmax": "sample", "sample": "argmax"}


@dataclass(frozen=True)
class Slipping:
    world: Slips = WORLD
    cells: tuple[Cell, ...] = CELLS
    rows: int = 40_000
    enumerated: int = 10
    verifier: str = "perfect"
    closed: str = "own"


@claim(
    id="verifier/slip-oracle",
    statement=(
        "On an oracle that slips with probability η at each of D tokens, Algorithm 1 with argmax redo succeeds with "
        "probability P(Binomial(D, η) ≤ Q) for every stride; with resampling, longer strides do worse. Accuracy and "
        "queries have closed forms."
    ),
    source=botta("Algorithm 1 (tokenwise rejection with backtracking), where it can be computed"),
    scales={"smoke": Slipping(rows=4000), "desk": Slipping(enumerated=14)},
    controls=(
        Control(
            "closed forms of the other redo",
            {"closed": "other"},
            ("accuracy", "accuracy on the tree", "queries on the tree", "queries, resampling", "queries, argmax"),
        ),
        Control("a verifier that accepts everything", {"verifier": "blind"}, ("accuracy", "queries, resampling")),
    ),
    tour=True,
)
def slip_oracle(settings: Slipping, lab: Lab) -> Evidence:
    world, cells = settings.world, settings.cells
    found = lab.measure(_runs, world, cells, settings.rows, settings.verifier)
    right = found["right"].sum(0)
    runs = settings.rows * len(lab.seeds)
    predicted = np.array([_closed(world, cell, settings.closed) for cell in cells])
    counts = np.stack([right, runs - right])
    chances = np.stack([predicted[:, 0], 1 - predicted[:, 0]]) / len(cells)
    small = replace(world, length=settings.enumerated)
    closed = np.array([_closed(small, cell, settings.closed) for cell in cells])
    enumerated = np.array([_enumerated(small, cell) for cell in cells])
    redo = np.array([cell[2] for cell in cells])
    over = found["queries"] / predicted[:, 1, None]
    rows = [[*cell, *values] for cell, *values in zip(cells, right / runs, *predicted.T, strict=True)]
    return Evidence(
        [
            law("accuracy", counts.ravel(), chances.ravel(), within=0.025, unit="generation"),
            agrees("queries, argmax", over[:, redo == "argmax"].ravel(), 1.0, within=0.01, unit="generation"),
            agrees("queries, resampling", over[:, redo == "sample"].ravel(), 1.0, within=0.01, unit="generation"),
            exact("accuracy on the tree", enumerated[:, 0], closed[:, 0], atol=1e-12, unit="setting"),
            exact("queries on the tree", enumerated[:, 1], closed[:, 1], atol=1e-10, unit="setting"),
        ],
        tables={
            f"D = {world.length}, η = {world.slip:g}": Table(
                ["quota", "stride", "redo", "accuracy", "predicted", "predicted queries"], rows
            )
        },
        figures={"accuracy against quota": lambda: _figure(world, cells, right / runs)},
    )


def _closed(world: Slips, cell: Cell, closed: str) -> tuple[float, float]:
    """Accuracy and queries in closed form."""
    quota, stride, redo = cell
    redo = redo if closed == "own" else OTHER[redo]
    options: Any = dict(quota=quota, stride=stride, redo=redo)
    accuracy = theory.slip_accuracy(world.length, world.slip, **options)
    return accuracy, theory.slip_queries(world.length, world.slip, **options)


def _enumerated(world: Slips, cell: Cell) -> tuple[float, float]:
    """The same by following every state of the algorithm down the tree of strings."""
    quota, stride, redo = cell
    tree = theory.Tree.of(world)
    found = theory.backtracking(tree, tree.evaluate(world.accepts), quota=quota, stride=stride, redo=redo)
    return float(found.law @ tree.evaluate(world.valid)[tree.leaves]), found.queries


def _runs(lab: Lab, world: Slips, cells: tuple[Cell, ...], rows: int, verifier: str) -> dict[str, np.ndarray]:
    """The decoder itself: how many rows come out right, and what every row costs, for every seed and setting."""
    right = np.zeros((len(lab.seeds), len(cells)), dtype=int)
    queries = np.zeros((len(lab.seeds), len(cells), rows))
    judge = world if verifier == "perfect" else (lambda view: torch.ones(len(view)))
    for i, seed in enumerate(lab.seeds):
        for j, (quota, stride, redo) in enumerate(cells):
            made = backtrack(
                world,
                torch.zeros(rows, 0, dtype=torch.long),
                judge,
                quota=quota,
                stride=stride,
                redo=redo,
                max_tokens=world.length,
                generator=lab.generator(seed, f"quota {quota}, stride {stride}, {redo}"),
            )
            right[i, j] = int(world.valid(made.tokens).sum())
            queries[i, j] = made.queries.numpy()
    return {"right": right, "queries": queries}


def _figure(world: Slips, cells: tuple[Cell, ...], accuracy: np.ndarray):
    quotas = range(7)
    arms = {
        "argmax, any stride": (1, "argmax"),
        "resampled, stride 1": (1, "sample"),
        "resampled, stride 4": (4, "sample"),
    }
    predictions = {
        name: [theory.slip_accuracy(world.length, world.slip, quota=q, stride=b, redo=redo) for q in quotas]
        for name, (b, redo) in arms.items()
    }
    measured = {name: np.full(len(quotas), np.nan) for name in arms}
    for (quota, stride, redo), share in zip(cells, accuracy, strict=True):
        for name, arm in arms.items():
            if arm == (stride, redo) or (redo == arm[1] == "argmax"):
                measured[name][quota] = share
    return curves(
        list(quotas),
        measured,
        predictions=predictions,
        xlabel="quota of backtracks",
        ylabel="strings without a wrong token",
        title="Backtracking on an oracle that slips",
    )


CLAIMS = (slip_oracle,)
