"""Nets trained on toy translation: refiners that write all positions at once, and readers of one word after another.

The published data cannot be had here, so three tasks stand in for them, with several right answers or, distilled, with
one. Encoders have vectors of absolute positions besides T5's relative biases: without them nets of this size never find
out where in the source they are. Arms with the same seed see the same sources. The unit of replication is the trained
net; every net is asked about sources of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sandtable.arguments import one_of
from sandtable.lab import Lab
from sandtable.models import Seq2Seq
from sandtable.objectives import Refinement, TeacherForcing
from sandtable.training import Adam, Cosine, Recipe
from sandtable.worlds import translation_task

TASKS = ("drop", "fertility", "dialect")
SEEDS = 10
FEW = {"desk": 5, "paper": SEEDS}
"""Where nets differ by much more than their spread."""
MANY = 20
"""Where they do not."""
MOST = 0.5
"""The share of nets, at least, of which something is claimed: "most"."""


@dataclass(frozen=True)
class Size:
    """How large tasks, nets and runs are; `distilled_steps` are enough where there is one right answer."""

    drop: tuple[int, int] = (24, 8)
    fertility: tuple[int, int] = (12, 6)
    dialect: tuple[int, int] = (12, 6)
    layers: int = 2
    heads: int = 4
    width: int = 48
    batch: int = 64
    steps: int = 600
    distilled_steps: int = 400
    lr: float = 4e-3
    inputs: int = 1000
    chunk: int = 5

    def task(self, name: str, *, distilled: bool) -> Any:
        symbols, length = getattr(self, one_of("task", name, TASKS))
        return translation_task(name, symbols=symbols, length=length, distilled=distilled)


DESK = Size()
PAPER = Size(
    drop=(32, 12),
    fertility=(16, 8),
    dialect=(16, 8),
    heads=8,
    width=256,
    steps=1500,
    distilled_steps=800,
    lr=2e-3,
    chunk=SEEDS,
)
"""Wider and not deeper: with four layers a side, nets stayed for 600 steps where they know symbols and no places."""


@dataclass(frozen=True)
class Net:
    """What is trained: a refiner, or with `kind="sequential"` the baseline that writes one word after another."""

    task: str = "drop"
    distilled: bool = False
    size: Size = DESK
    kind: str = "refiner"
    stages: int = 2
    unmask: float = 0.15
    noise: str = "random"
    counted: str = "all"
    positional: bool = True
    untrained: bool = False

    @property
    def world(self) -> Any:
        return self.size.task(self.task, distilled=self.distilled)

    def recipe(self) -> Recipe:
        size, world = self.size, self.world
        sequential = one_of("kind", self.kind, ("refiner", "sequential")) == "sequential"
        model = Seq2Seq(
            world.vocab,
            layers=size.layers,
            heads=size.heads,
            width=size.width,
            causal=sequential,
            positional=self.positional,
            source_positions=True,
            longest=world.longest,
            longest_target=world.longest,
        )
        objective = Refinement(unmask=self.unmask, noise=self.noise, stages=self.stages, counted=self.counted)
        steps = size.distilled_steps if self.distilled else size.steps
        return Recipe(
            model,
            world,
            TeacherForcing() if sequential else objective,
            0 if self.untrained else steps,
            batch_size=size.batch,
            optimizer=Adam(size.lr),
            schedule=Cosine(warmup=steps // 10),
            chunk=size.chunk,
        )

    def at(self, **changes: Any) -> Net:
        return replace(self, **changes)


def trained(lab: Lab, net: Net) -> Iterator[tuple[int, Seq2Seq]]:
    """Every seed and its net, on the lab's device."""
    models = lab.fit(net.recipe()).models
    for place, seed in enumerate(lab.seeds):
        yield seed, models[place].to(lab.device).eval()
