"""What heads of nets on a gridworld attend to: everything alike, as sums do, and the walls where the state is reset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from sandtable.arguments import one_of
from sandtable.claims.automata.sources import liu
from sandtable.claims.automata.trained import measures
from sandtable.claims.automata.trained.nets import GPT, PAPER, QUICK, Size
from sandtable.claims.automata.trained.parity import MOST
from sandtable.lab import Check, Control, Evidence, Lab, Table, claim, orders, passing
from sandtable.lab.figures import heatmaps

GRID, WALLS = "GRID9", (0, 8)
FLAT, TIMES, LEAKS = 0.9, 5.0, 0.05
MASS, LEAKAGE = "latest visit, times random", "before the latest visit"
HEADS = ("flattest", "sharpest")


@dataclass(frozen=True)
class Heads:
    length: int = 32
    layers: int = 2
    size: Size = QUICK
    steps: int = 8000
    head: str = "flattest"
    exchanged: bool = False
    published: bool = False
    """Ask as well for heads that see the latest wall and nothing before it."""

    def __post_init__(self) -> None:
        one_of("head", self.head, HEADS)

    @property
    def net(self) -> GPT:
        return GPT(GRID, length=self.length, layers=self.layers, size=self.size, steps=self.steps)


def at_walls(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of the head that attends most to walls, net by net: to its own row's walls, to another row's, and before both,
    its own and another row's."""
    best = found["wall"].argmax(1)[:, None]
    names = {"own": "wall", "another row's": "other wall", "before": "before", "before another row's": "other before"}
    return {name: np.take_along_axis(found[key], best, 1)[:, 0] for name, key in names.items()}


@claim(
    id="automata/attention-heads",
    statement=(
        "GPTs on a gridworld have, in most nets, a head in the first layer that attends to all positions almost alike "
        "(entropy at least 0.9 of the most there can be), as a sum does; and the last layer has a head that attends to "
        "the latest visit at a wall, more than to where walls were in another row. With the published sizes it attends "
        "to that visit 5 times as much as to a random position, and puts at most 5 % before it."
    ),
    source=liu("Figures 3.6 and 3.17, attention maps"),
    scales={"desk": Heads(), "paper": Heads(length=128, layers=4, size=PAPER, steps=20_000, published=True)},
    controls=(
        Control("the sharpest head", {"head": "sharpest"}, ("flat head",)),
        Control("walls exchanged with another row's", {"exchanged": True}, ("walls",)),
        Control("walls of another row", {"exchanged": True, "published": True}, (MASS, LEAKAGE)),
    ),
    seeds={"desk": 16, "paper": 8},
)
def attention_heads(settings: Heads, lab: Lab) -> Evidence:
    found = lab.measure(measures.attention, settings.net, WALLS)
    flat = {"flattest": found["flat"].max(1), "sharpest": found["flat"].min(1)}[settings.head]
    walls = at_walls(found)
    own, other = ("another row's", "own") if settings.exchanged else ("own", "another row's")
    accuracy = lab.measure(measures.in_distribution, settings.net)["overall"][:, 0]
    rows = [
        [
            seed,
            *(float(values[i]) for values in (accuracy, flat, walls["own"], walls["another row's"], walls["before"])),
        ]
        for i, seed in enumerate(lab.seeds)
    ]
    columns = ["seed", "accuracy", "flattest head", "attention to walls", "to another row's", "before the latest"]
    return Evidence(
        [
            passing("flat head", flat, above=FLAT, at_least=MOST),
            orders("walls", walls[own], walls[other]),
            *(_published(walls, settings.exchanged) if settings.published else ()),
        ],
        figures={"attention": lambda: _figure(found)},
        tables={"heads": Table(columns, rows)},
        notes=[
            "Attention to walls is in multiples of that to a position drawn at random. Published is one net with four "
            "layers: some heads of its last layer attend to the latest visit and to nothing before. Asked for at least "
            f"5 times the random share, {np.mean(walls['own'] >= 5):.0%} of nets have such a head here; none of them "
            f"puts less than {walls['before'].min():.0%} before the latest visit."
        ],
    )


def _published(walls: dict[str, np.ndarray], exchanged: bool) -> list[Check]:
    mass, before = ("another row's", "before another row's") if exchanged else ("own", "before")
    return [
        passing(MASS, walls[mass], above=TIMES, at_least=MOST),
        passing(LEAKAGE, walls[before], below=LEAKS, at_least=MOST),
    ]


def _figure(found: dict[str, np.ndarray]) -> Figure:
    """Last layer of the net that attends most to walls: below the diagonal attention, above it columns of visits."""
    net = int(found["wall"].max(1).argmax())
    visits, patterns = found["visits"][net], found["row"][net]
    above = np.triu(np.ones(patterns.shape[1:]), 1)
    columns = np.isin(visits, WALLS).astype(float) * np.where(visits == WALLS[0], -0.6, -0.25)
    panels = {
        f"head {head}": pattern / pattern.max() + above * columns for head, pattern in enumerate(patterns.astype(float))
    }
    return heatmaps(
        panels,
        title="Last layer: attention (red), and above it visits at walls (blue: state 0, light blue: state 8)",
        limit=1.0,
        xlabel="attended position",
        ylabel="position",
    )


CLAIMS = (attention_heads,)
