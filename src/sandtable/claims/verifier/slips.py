"""Backtracking on the oracle that slips: the decoder beside its closed forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import botta
from sandtable.decoding import backtrack
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, law, orders
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory
from sandtable.worlds import Slips

Cell = tuple[int, int, str]
"""Quota, stride and redo."""

CELLS: tuple[Cell, ...] = tuple((q, b, r) for r in ("argmax", "sample") for q, b in ((1, 1), (2, 1), (2, 4), (4, 4)))
"""Both redos of every quota and stride, so that one can be taken for the other."""
WORLD = Slips(20, 0.1)
OTHER = {"argmax": "sample", "sample": "argmax"}
QUOTA, SHORT, LONG = 2, 1, 4
"""The quota and the two strides that the decoder is compared at."""
STRIDES, QUOTAS = range(1, 7), range(1, 5)
"""What is compared on the tree of strings."""


@dataclass(frozen=True)
class Slipping:
    world: Slips = WORLD
    cells: tuple[Cell, ...] = CELLS
    rows: int = 10_000
    enumerated: int = 10
    verifier: str = "perfect"
    exchanged: bool = False


@claim(
    id="verifier/slip-oracle",
    statement=(
        "On an oracle that slips with probability η at each of D tokens, Algorithm 1 with argmax redo succeeds with "
        "probability P(Binomial(D, η) ≤ Q) for every stride; with resampling, at equal quota, every longer stride does "
        "worse. Accuracy and queries have closed forms."
    ),
    source=botta("Algorithm 1 (tokenwise rejection with backtracking), where it can be computed"),
    scales={"smoke": Slipping(rows=3000), "desk": Slipping(enumerated=12)},
    controls=(
        Control(
            "each redo taken for the other",
            {"exchanged": True},
            (
                "accuracy",
                "accuracy on the tree",
                "queries on the tree",
                "queries, resampling",
                "queries, argmax",
                "stride 4 as 1, argmax",
                "stride 1 over 4, resampling",
                "argmax over its accuracy at stride 1, on the tree",
                "resampling over one stride less, on the tree",
            ),
        ),
        Control("a verifier that accepts everything", {"verifier": "blind"}, ("accuracy", "queries, resampling")),
    ),
    tour=True,
)
def slip_oracle(settings: Slipping, lab: Lab) -> Evidence:
    world, cells = settings.world, settings.cells
    found = lab.measure(_runs, world, cells, settings.rows, settings.verifier)
    taken = [cells.index(_taken(cell, settings.exchanged)) for cell in cells]
    right, queries = found["right"][:, taken], found["queries"][:, taken]
    share = right.mean((0, 2))
    predicted = np.array([_closed(world, cell) for cell in cells])
    counts = np.stack([right.sum((0, 2)), (~right).sum((0, 2))])
    chances = np.stack([predicted[:, 0], 1 - predicted[:, 0]]) / len(cells)
    small = replace(world, length=settings.enumerated)
    closed = np.array([_closed(small, cell) for cell in cells])
    tree = theory.Tree.of(small)
    enumerated = np.array([_enumerated(tree, small, _taken(cell, settings.exchanged)) for cell in cells])
    grid = {redo: _by_stride(tree, small, _taken((0, 0, redo), settings.exchanged)[2]) for redo in OTHER}
    redo = np.array([cell[2] for cell in cells])
    over = queries / predicted[:, 1, None]
    short, long = ({r: right[:, cells.index((QUOTA, b, r))].ravel() for r in OTHER} for b in (SHORT, LONG))
    lost = theory.slip_accuracy(world.length, world.slip, quota=QUOTA, stride=SHORT, redo="sample")
    lost -= theory.slip_accuracy(world.length, world.slip, quota=QUOTA, stride=LONG, redo="sample")
    apart = short["argmax"].astype(float) - long["argmax"]
    rows = [[*cell, *values] for cell, *values in zip(cells, share, *predicted.T, strict=True)]
    return Evidence(
        [
            law("accuracy", counts.ravel(), chances.ravel(), within=0.025, unit="generation"),
            agrees("queries, argmax", over[:, redo == "argmax"].ravel(), 1.0, within=0.01, unit="generation"),
            agrees("queries, resampling", over[:, redo == "sample"].ravel(), 1.0, within=0.01, unit="generation"),
            agrees("stride 4 as 1, argmax", apart, 0.0, within=lost / 2, shift_absolute=lost, unit="generation"),
            orders(
                "stride 1 over 4, resampling",
                short["sample"],
                long["sample"],
                margin=lost / 2,
                paired=False,
                unit="generation",
            ),
            exact("accuracy on the tree", enumerated[:, 0], closed[:, 0], atol=1e-12, unit="setting"),
            exact("queries on the tree", enumerated[:, 1], closed[:, 1], atol=1e-10, unit="setting"),
            exact(
                "argmax over its accuracy at stride 1, on the tree",
                grid["argmax"] / grid["argmax"][:, :1],
                1.0,
                atol=1e-12,
                unit="setting",
            ),
            bounded(
                "resampling over one stride less, on the tree",
                grid["sample"][:, 1:] / grid["sample"][:, :-1],
                1 - 1e-6,
                unit="setting",
            ),
        ],
        tables={
            f"D = {world.length}, η = {world.slip:g}": Table(
                ["quota", "stride", "redo", "accuracy", "predicted", "predicted queries"], rows
            )
        },
        figures={"accuracy against quota": lambda: _figure(world, cells, share)},
        notes=[
            f"Decoded strides are compared at Q = {QUOTA}, with half of what the longer one costs when resampling "
            f"({lost:.3f}) as margin; on the tree, D = {small.length}, all of Q ≤ {max(QUOTAS)} and B ≤ {max(STRIDES)}."
        ],
    )


def _taken(cell: Cell, exchanged: bool) -> Cell:
    """The cell itself, or the one with the other redo."""
    return (*cell[:2], OTHER[cell[2]]) if exchanged else cell


def _closed(world: Slips, cell: Cell) -> tuple[float, float]:
    """Accuracy and queries in closed form."""
    quota, stride, redo = cell
    options: Any = dict(quota=quota, stride=stride, redo=redo)
    accuracy = theory.slip_accuracy(world.length, world.slip, **options)
    return accuracy, theory.slip_queries(world.length, world.slip, **options)


def _enumerated(tree: theory.Tree, world: Slips, cell: Cell) -> tuple[float, float]:
    """The same by following every state of the algorithm down the tree of strings."""
    quota, stride, redo = cell
    found = theory.backtracking(tree, tree.evaluate(world.accepts), quota=quota, stride=stride, redo=redo)
    return float(found.law @ tree.evaluate(world.valid)[tree.leaves]), found.queries


def _by_stride(tree: theory.Tree, world: Slips, redo: str) -> np.ndarray:
    """Accuracy on the tree at every quota and stride."""
    return np.array([[_enumerated(tree, world, (quota, stride, redo))[0] for stride in STRIDES] for quota in QUOTAS])


def _runs(lab: Lab, world: Slips, cells: tuple[Cell, ...], rows: int, verifier: str) -> dict[str, np.ndarray]:
    """The decoder itself: which rows come out right, and what each costs, for every seed and setting."""
    right = np.zeros((len(lab.seeds), len(cells), rows), dtype=bool)
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
            right[i, j] = world.valid(made.tokens).numpy()
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
