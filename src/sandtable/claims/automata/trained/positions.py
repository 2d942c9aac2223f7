"""Waves or a straight line: which position vectors serve, at trained lengths and at twice as many tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandtable.claims.automata.sources import liu
from sandtable.claims.automata.trained import measures
from sandtable.claims.automata.trained.nets import GPT, PAPER, QUICK, Size
from sandtable.claims.automata.trained.tasks import known
from sandtable.lab import Control, Evidence, Lab, Table, claim, orders
from sandtable.lab.figures import strips

SINE, LINE = "sinusoidal", "linear"
WORD = "ABAB-HALF"
POINT = 0.01


@dataclass(frozen=True)
class Positions:
    grid: str = "GRID4"
    length: int = 14
    layers: int = 2
    size: Size = QUICK
    steps: int = 1500
    exchanged: bool = False

    def __post_init__(self) -> None:
        known(self.grid)

    def net(self, task: str, positions: str) -> GPT:
        return GPT(
            task, length=self.length, layers=self.layers, size=self.size, steps=self.steps, positions=positions
        )  # fmt: skip


DESK = Positions()
FULL = Positions(grid="GRID9", length=40, layers=8, size=PAPER, steps=20_000)


def by_positions(settings: Positions, lab: Lab, task: str) -> dict[str, np.ndarray]:
    """Accuracy at the trained length and at twice that, for nets with either kind of position vectors."""
    lengths = (settings.length, 2 * settings.length)
    nets = {kind: settings.net(task, kind) for kind in (SINE, LINE)}
    return {kind: lab.measure(measures.by_length, net, lengths)["overall"] for kind, net in nets.items()}


NOTE = (
    "Published as bars: on Grid9 both know the trained length and sinusoidal ones are clearly worse at twice that; on "
    "(abab)* sinusoidal ones are clearly better at the trained length, and little of that is left."
)


@claim(
    id="automata/positions",
    statement=(
        "On a gridworld GPTs with sinusoidal positions lose more when rows become twice as long as in training than "
        "GPTs whose positions lie on a line."
    ),
    source=liu("Figure 3.22, sinusoidal and linear positions"),
    scales={"desk": DESK, "paper": FULL},
    controls=(Control("kinds exchanged", {"exchanged": True}, ("gridworld",)),),
    seeds=48,
)
def positions(settings: Positions, lab: Lab) -> Evidence:
    return _evidence(settings, {"gridworld": by_positions(settings, lab, settings.grid)})


@claim(
    id="automata/printed-positions-on-words",
    statement=(
        "On words of (abab)*, of which acceptance is seen, too, GPTs with sinusoidal positions lose more when rows "
        "become twice as long as in training than GPTs whose positions lie on a line."
    ),
    source=liu("Figure 3.22, sinusoidal and linear positions"),
    scales={"desk": DESK},
    expected="refuted",
    erratum=(
        "Small nets on words of 14 letters, with positions (i / T)·W, lose about as much either way, with waves half a "
        "point less. How far apart the published positions on the line lie is not said."
    ),
    corrected="automata/positions",
    seeds=48,  # eight left it undecided at seeds 0 to 7: 0.013 [−0.021, 0.075]
)
def on_words(settings: Positions, lab: Lab) -> Evidence:
    return _evidence(settings, {"(abab)*": by_positions(settings, lab, WORD)})


@claim(
    id="automata/printed-linear-positions",
    statement=(
        "Of words of (abab)*, of which acceptance is seen, GPTs with sinusoidal positions know more than those with "
        "positions on a line, by a point at least."
    ),
    source=liu("Figure 3.18, indirect supervision"),
    scales={"desk": DESK},
    expected="refuted",
    erratum=(
        "How far apart the positions on the line lie is not printed, and decides: with (i / T)·W, W trained from the "
        "size of embeddings, small nets on short words know all labels either way; with steps 18 times smaller they "
        "were 0.016 behind. With T = 40 and eight layers it has not been asked."
    ),
    corrected="automata/indirect",
    seeds=48,
)
def on_a_line(settings: Positions, lab: Lab) -> Evidence:
    known_at = {kind: accuracy[:, 0] for kind, accuracy in by_positions(settings, lab, WORD).items()}
    more, less = (LINE, SINE) if settings.exchanged else (SINE, LINE)
    return Evidence(
        [orders("sinusoidal over linear", known_at[more], known_at[less], margin=POINT)],
        figures={"accuracy": lambda: strips(known_at, xlabel="accuracy at T", title="Waves or a line, on words")},
        tables={"accuracy": Table(["positions", "at T"], [[name, float(v.mean())] for name, v in known_at.items()])},
        notes=[NOTE],
    )


def _evidence(settings: Positions, found: dict[str, dict[str, np.ndarray]]) -> Evidence:
    loss = {task: {kind: acc[:, 0] - acc[:, 1] for kind, acc in arms.items()} for task, arms in found.items()}
    more, less = (LINE, SINE) if settings.exchanged else (SINE, LINE)
    rows = [
        [task, kind, float(acc[:, 0].mean()), float(acc[:, 1].mean())]
        for task, arms in found.items()
        for kind, acc in arms.items()
    ]
    return Evidence(
        [orders(task, one[more], one[less]) for task, one in loss.items()],
        figures={
            "loss": lambda: strips(
                {f"{task}, {kind}": values for task, one in loss.items() for kind, values in one.items()},
                xlabel="accuracy at T less that at 2T",
                title="What twice the length costs",
            )
        },
        tables={"accuracy": Table(["task", "positions", "at T", "at 2T"], rows)},
        notes=[NOTE],
    )


CLAIMS = (positions, on_words, on_a_line)
