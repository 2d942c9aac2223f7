"""How many layers it takes: the best and the median of nets by depth, over tasks, beside the published tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from sandtable.arguments import ArgumentError, one_of, wholes
from sandtable.claims.automata.sources import liu
from sandtable.claims.automata.trained import measures
from sandtable.claims.automata.trained.nets import GPT, QUICK, Size
from sandtable.claims.automata.trained.parity import MOST
from sandtable.claims.automata.trained.published import MAXIMUM, MEDIAN
from sandtable.lab import Check, Control, Evidence, Lab, Table, below, bounded, claim, orders, passing
from sandtable.lab.figures import curves
from sandtable.probes import automata as probe

EASY, BITS, SPLIT, TWISTED, HARD = "GRID4", "C2", "D8", "Q8", "S5"
"""A gridworld, parity, two groups of eight elements — D8 splits, Q8 does not —, and one that is not solvable."""
TASKS = (EASY, BITS, SPLIT, TWISTED, HARD)
DEEPER = (SPLIT, TWISTED, HARD)
KNOWN = {EASY: 0.99, BITS: 0.8}
"""What most nets of two layers know at least: the published medians are 100 % and 83 %."""
TWO = 2
TEN_MINUTES = Size(width=128, heads=8, mlp=128, batch=16, lr=5e-4)
"""What ten minutes of one H200 train on rows of 100 tokens. The published nets have width 512 and saw 600,000 to five
million rows, in steps of 16, at learning rates of 3e-5 to 3e-4."""
COMPARED = (1, 2)
"""Depths at which D8 and Q8 are compared: with layers enough, both are known."""
MARGIN, GAIN = 0.05, 0.02
KNOWN_BY_BEST, INSTABLE = 0.99, 0.05
BEST, FEWER, APART = "best nets short of 99 %", "S5 with fewer layers", "parity short of the best"
Cells = dict[str, dict[int, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class Sweep:
    depths: tuple[int, ...] = (1, 2)
    length: int = 12
    size: Size = QUICK
    steps: int = 2000
    hard: str = HARD
    exchanged: bool = False
    published: bool = False
    """Ask as well what the published tables say of the best nets, which takes nets of their size."""

    def __post_init__(self) -> None:
        depths = wholes("depths", self.depths, most=len(MAXIMUM[BITS]))
        if not {TWO, *COMPARED} <= set(depths):
            raise ArgumentError(f"depths={self.depths!r}: must have 1 and 2 among them, at which nets are judged")
        one_of("hard", self.hard, TASKS)

    def net(self, task: str, layers: int) -> GPT:
        return GPT(task, length=self.length, layers=layers, size=self.size, steps=self.steps)


def sweep(settings: Sweep, lab: Lab) -> Cells:
    """For every task and depth the accuracy of every net, over all positions, at the last, and of whole rows."""

    def cell(task: str, depth: int) -> dict[str, np.ndarray]:
        found = lab.measure(measures.in_distribution, settings.net(task, depth))
        return {name: found[name][:, 0] for name in ("overall", "last", "rows")}

    return {task: {depth: cell(task, depth) for depth in settings.depths} for task in TASKS}


def _layers(depth: int) -> str:
    return f"{depth} layer{'s' * (depth > 1)}"


@claim(
    id="automata/depth-sweep",
    statement=(
        "Which automata GPTs learn depends on depth. Most nets of two layers name 99 % of the states of a gridworld "
        "and 80 % of parities, but nets name fewer than 15 % of the last states of S5. With few layers the "
        "quaternions Q8 are known less well than D8, a group of as many elements, by 5 points; the deepest nets know "
        "D8, Q8 and S5 better than those of one layer, by 2 points. (With `published`, which takes nets of the "
        "published size and training: the best nets name 99 % of all tasks, S5 alone needing the most layers, and most "
        "nets 5 points less of parities than the best.)"
    ),
    source=liu("Figures 3.5a, 3.15 and 3.16, depth sweep"),
    scales={
        "desk": Sweep(),
        "paper": Sweep(depths=(1, 2, 4, 8), length=100, size=TEN_MINUTES, steps=5000),
    },
    controls=(
        Control("untrained", {"steps": 0}, (EASY, BITS)),
        Control(
            "exchanged: Q8 with D8, deep with shallow",
            {"exchanged": True},
            (*(f"Q8 below D8, {_layers(d)}" for d in COMPARED), *(f"{task} gains" for task in DEEPER)),
        ),
        Control("parity for S5", {"hard": BITS}, ("last state",)),
        Control("untrained, best nets", {"steps": 0, "published": True}, (BEST,)),
        Control(
            "the gridworld for parity, and for S5 with fewer layers",
            {"exchanged": True, "published": True},
            (FEWER, APART),
        ),
    ),
    seeds={"desk": 24, "paper": 16},  # eight left it undecided at seeds 0 to 7: Q8 below D8 by 0.14 [−0.12, 0.27]
)
def depth_sweep(settings: Sweep, lab: Lab) -> Evidence:
    found = sweep(settings, lab)
    overall = {task: {depth: cell["overall"] for depth, cell in cells.items()} for task, cells in found.items()}
    least, most = min(settings.depths), max(settings.depths)
    return Evidence(
        [
            *(passing(task, overall[task][TWO], above=line, at_least=MOST) for task, line in KNOWN.items()),
            below("last state", found[settings.hard][TWO]["last"], 0.15),
            *(
                _order(settings, f"Q8 below D8, {_layers(d)}", overall[SPLIT][d], overall[TWISTED][d], MARGIN)
                for d in COMPARED
            ),
            *(_order(settings, f"{task} gains", overall[task][most], overall[task][least], GAIN) for task in DEEPER),
            *(_of_best(settings, overall) if settings.published else ()),
        ],
        figures={"accuracy": lambda: _figure(settings, overall)},
        tables={"accuracy": _table(found), "depth": _sufficient(settings, overall)},
        notes=[
            f"Nets of width {settings.size.width} saw {settings.steps * settings.size.batch:,} rows of "
            f"{settings.length} tokens; the published ones have width 512 and saw 600,000 to five million rows of 100. "
            f"Where a printed number cannot be read it is left out. Accuracies are means over {settings.length} "
            "positions, the first of which are easy; the last state is judged alone."
        ],
    )


def _order(settings: Sweep, name: str, larger: np.ndarray, smaller: np.ndarray, margin: float) -> Check:
    return orders(name, *((smaller, larger) if settings.exchanged else (larger, smaller)), margin=margin)


def _of_best(settings: Sweep, overall: dict[str, dict[int, np.ndarray]]) -> list[Check]:
    """As published, of the very nets that were trained: the best knows its task, with less than the most layers but
    for S5, and of parities most nets fall short of it."""
    nets = {task: np.stack([cells[depth] for depth in sorted(cells)], 1) for task, cells in overall.items()}
    best = [values[:, : None if task == HARD else -1].max() for task, values in nets.items()]
    few, bits = (nets[EASY],) * 2 if settings.exchanged else (nets[HARD][:, :-1], nets[BITS])
    short = np.median((bits.max(0) - bits)[:, 1:], axis=1)
    return [
        bounded(BEST, [KNOWN_BY_BEST - values for values in best], 0.0, unit="task"),
        bounded(FEWER, few, KNOWN_BY_BEST, unit="net"),
        passing(APART, short, above=INSTABLE, at_least=MOST),
    ]


def _figure(settings: Sweep, overall: dict[str, dict[int, np.ndarray]]) -> Figure:
    series = {task: np.stack([cells[depth] for depth in settings.depths], 1) for task, cells in overall.items()}
    return curves(
        settings.depths,
        series,
        xlabel="layers",
        ylabel="accuracy",
        title=f"States of {settings.length} tokens by depth (line: mean)",
    )


def _table(found: Cells) -> Table:
    rows = []
    for task, cells in found.items():
        for depth, cell in cells.items():
            printed = (MAXIMUM[task][depth - 1], MEDIAN[task][depth - 1])
            values, whole = 100 * cell["overall"], 100 * float(np.median(cell["rows"]))
            middle, apart = float(np.median(values)), float(probe.best_less_median(torch.as_tensor(values)))
            rows.append([task, depth, float(values.max()), printed[0], middle, printed[1], apart, whole])
    columns = ["best, %", "published, T = 100", "median, %", "published, T = 100", "best less median", "whole rows, %"]
    return Table(["task", "layers", *columns], rows)


def _sufficient(settings: Sweep, overall: dict[str, dict[int, np.ndarray]]) -> Table:
    """The least depth at which the best net names 99 %."""

    def least(values: dict[int, float | None], line: float) -> str:
        enough = [depth for depth, value in values.items() if value is not None and value >= line]
        return str(min(enough)) if enough else f"more than {max(values)}"

    rows = [
        [
            task,
            least({depth: float(values.max()) for depth, values in cells.items()}, 0.99),
            least(dict(enumerate(MAXIMUM[task], start=1)), 99.0),
        ]
        for task, cells in overall.items()
    ]
    return Table(["task", "layers for 99 %, best net", "published, T = 100"], rows)


CLAIMS = (depth_sweep,)
