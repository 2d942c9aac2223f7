"""Training curves of parity: how unsteady they are, and what averaging the weights does about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.figure import Figure

from sandtable.arguments import one_of
from sandtable.claims.automata.sources import liu
from sandtable.claims.automata.trained import measures
from sandtable.claims.automata.trained.nets import BRACKETS, PAPER_BRACKETS, PAPER_PARITY, PARITY, Family, train
from sandtable.claims.automata.trained.parity import MANY, MOST, SEEDS
from sandtable.lab import Control, Evidence, Lab, Table, claim, orders, passing, statistic
from sandtable.lab.figures import curves, strips
from sandtable.probes import automata as probe

LEARNED, DROP = 0.95, 0.05
SPREAD = math.log(2) / 2.85
"""The standard deviation of log times from which on the slowest of eight nets takes twice as long as the fastest, on
average: the range of eight normal numbers is 2.85 of theirs."""


@dataclass(frozen=True)
class Curves:
    parity: Family = PARITY
    brackets: Family = BRACKETS
    asked: str = "parity"
    learned: float = LEARNED
    untrained: bool = False
    exchanged: bool = False

    def family(self, name: str) -> Family:
        family: Family = getattr(self, one_of("asked", name, ("parity", "brackets")))
        return replace(family, steps=0) if self.untrained else family


def watched(lab: Lab, family: Family) -> tuple[list[int], dict[str, np.ndarray]]:
    """Steps, and accuracy over training of the weights as they are ("raw") and of their moving averages ("ema")."""
    return train(lab, family.gpt).watched_at, lab.measure(measures.curves, family.gpt)


def times(steps: list[int], values: np.ndarray, level: float) -> np.ndarray:
    """The step at which each net is first seen at `level`; the last one where it never is."""
    crossed = probe.crossing(torch.as_tensor(values), level).tolist()
    return np.array([steps[int(place)] if math.isfinite(place) else steps[-1] for place in crossed], dtype=float)


def falls(values: np.ndarray) -> np.ndarray:
    """The deepest fall of each curve below its best so far."""
    return probe.drawdown(torch.as_tensor(values)).numpy()


def _spread(times: np.ndarray) -> float:
    return float(np.log(times + 1).std(ddof=1))


@claim(
    id="automata/instability",
    statement=(
        "Training parity is unsteady. When a GPT first names 95 % of parities differs from seed to seed, so that of "
        "eight nets the slowest takes at least twice as many steps as the fastest, and most curves fall at least 5 "
        "points below their best on the way."
    ),
    source=liu("Figure 3.5b, training curves"),
    scales={"desk": Curves(), "paper": Curves(PAPER_PARITY, PAPER_BRACKETS)},
    controls=(
        Control("brackets, which are learned steadily, at 70 %", {"asked": "brackets", "learned": 0.7}, ("times",)),
        Control("untrained", {"untrained": True}, ("falls",)),
    ),
    seeds=MANY,
)
def instability(settings: Curves, lab: Lab) -> Evidence:
    steps, found = watched(lab, settings.family(settings.asked))
    when, fell = times(steps, found["raw"], settings.learned), falls(found["raw"])
    rows = [
        [seed, int(t), float(f), float(v)]
        for seed, t, f, v in zip(lab.seeds, when, fell, found["raw"][:, -1], strict=True)
    ]
    return Evidence(
        [
            statistic("times", _spread, when, above=SPREAD),
            passing("falls", fell, above=DROP, at_least=MOST),
        ],
        figures={"curves": lambda: _figure(steps, found["raw"], settings.asked)},
        tables={"nets": Table(["seed", f"first at {settings.learned:.0%}, step", "deepest fall", "at the end"], rows)},
        notes=[
            "The check on times shows the standard deviation of their logarithms; a net that never gets there counts "
            f"as if it did at the last step. The fastest takes {when.min():.0f} steps, the slowest {when.max():.0f}. "
            "Published as ten curves: plateaus, jumps at different times, and stretches that go down."
        ],
    )


@claim(
    id="automata/ema",
    statement=(
        "Moving averages of the weights (decay 0.9) train more steadily than the weights themselves: their accuracy "
        "falls less deep below its best, on parity and on brackets."
    ),
    source=liu("appendix B, exponential moving averages"),
    scales={"desk": Curves(), "paper": Curves(PAPER_PARITY, PAPER_BRACKETS)},
    controls=(Control("weights exchanged with averages", {"exchanged": True}, ("parity", "brackets")),),
    seeds=SEEDS,
)
def averages(settings: Curves, lab: Lab) -> Evidence:
    found = {name: watched(lab, settings.family(name))[1] for name in ("parity", "brackets")}
    fell = {name: {kind: falls(values) for kind, values in one.items()} for name, one in found.items()}
    deeper, steadier = ("ema", "raw") if settings.exchanged else ("raw", "ema")
    arms = {f"{name}, {kind}": values for name, one in fell.items() for kind, values in one.items()}
    rows = [[name, float(v.mean()), float(v.max()), float((v > DROP).mean())] for name, v in arms.items()]
    return Evidence(
        [orders(name, one[deeper], one[steadier]) for name, one in fell.items()],
        figures={
            "falls": lambda: strips(
                arms, xlabel="deepest fall below the best so far", title="Weights and their averages"
            )
        },
        tables={"falls": Table(["curve", "deepest fall, mean", "largest", "share above 5 points"], rows)},
        notes=["Published in words: averages with decay 0.9 generally help."],
    )


def _figure(steps: list[int], values: np.ndarray, asked: str) -> Figure:
    return curves(
        steps, {asked: values}, xlabel="steps", ylabel="accuracy", title="Training, one line per seed", band=False
    )


CLAIMS = (instability, averages)
