"""A recipe: everything that decides a training run except the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, nearest, number, one_of, whole
from sandtable.models import match_names
from sandtable.objectives import Objective
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.optimizers import Adam, Optimizer, defaults
from sandtable.training.result import Fit, Group
from sandtable.training.schedules import Flat, Freezing, Schedule, as_freezing
from sandtable.training.stack import Plan, Report, Watch, run
from sandtable.training.streams import STREAMS, Source, Supply
from sandtable.worlds import Batch, Expectation, World

OWN_NUMBERS = {"init_scale": 1.0, "l2": 0.0, "clip": float("inf"), "ema": 0.0}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Recipe:
    """Model, data, objective, optimiser: what `fit` trains, for any seeds.

    Per-model numbers — the optimiser's settings, `init_scale`, `l2`, `clip`, `ema` — may vary in `grid` within one
    stack; grid keys "model.…", "source.…", "objective.…", "batch_size" change shapes or data and make stacks of their
    own. Seeds name three streams (initialisation, data, noise) that depend on nothing else, so arms of a grid are
    paired; `streams` overrides single ones with a number shared by all models.
    """

    model: nn.Module
    source: Source
    objective: Objective
    steps: int
    batch_size: int | None = None
    optimizer: Optimizer = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Flat)
    frozen: Freezing | Sequence[str] | str = ()
    init_scale: float = 1.0
    l2: float = 0.0
    l2_on: tuple[str, ...] = ("*",)
    clip: float | None = None
    ema: float = 0.0
    tol: float | None = None
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    snapshots: tuple[int, ...] = ()
    watch: Mapping[str, Watch] = field(default_factory=dict)
    watch_every: int = 1
    chunk: int = 8
    block: int = 32
    dtype: str = "float32"
    stacked: bool = True

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=0)
        whole("chunk", self.chunk)
        whole("block", self.block)
        whole("watch_every", self.watch_every)
        if self.batch_size is not None:
            whole("batch_size", self.batch_size)
        if not isinstance(self.source, World | Batch | Expectation):
            raise ArgumentError(f"source={self.source!r}: must be a world, a Batch or an Expectation")
        if isinstance(self.source, World) and self.batch_size is None:
            raise ArgumentError("batch_size=None: sampling from a world needs a batch size")
        number("init_scale", self.init_scale, least=0.0)
        number("l2", self.l2, least=0.0)
        number("ema", self.ema, least=0.0, most=1.0)
        if self.clip is not None:
            number("clip", self.clip, above=0.0)
        if self.tol is not None:
            number("tol", self.tol, above=0.0)
        one_of("dtype", self.dtype, DTYPES)
        for name in self.streams:
            one_of("streams", name, STREAMS)
        names = [name for name, _ in self.model.named_parameters()]
        freezing = as_freezing(self.frozen)
        for step in range(0, max(1, self.steps)):
            match_names(freezing.frozen(step), names)
            if not hasattr(freezing, "stages"):
                break
        match_names(self.l2_on, names)
        for step in self.snapshots:
            whole("snapshots", step, least=0, most=self.steps)
        for key, values in self.grid.items():
            self._check_grid(key, values)

    def _check_grid(self, key: str, values: Sequence[Any]) -> None:
        allowed = [*defaults(self.optimizer), *OWN_NUMBERS, "batch_size", "model.…", "source.…", "objective.…"]
        part, dot, name = key.partition(".")
        if key == "batch_size" or key in defaults(self.optimizer) or key in OWN_NUMBERS:
            pass
        elif dot and part in ("model", "source", "objective"):
            known = self._settings_of(part)
            if name not in known:
                raise ArgumentError(f"grid key {key!r}: {part} has no setting {name!r}{nearest(name, known)}")
        else:
            raise ArgumentError(f"grid key {key!r}: must be one of {', '.join(allowed)}{nearest(key, allowed)}")
        if not isinstance(values, list | tuple) or not values:
            raise ArgumentError(f"grid[{key!r}]={values!r}: must be a non-empty list of values")

    def _settings_of(self, part: str) -> list[str]:
        target = getattr(self, part)
        if part == "model":
            return list(getattr(target, "config", {}))
        return [f.name for f in fields(target)] if is_dataclass(target) else []

    # -- training ----------------------------------------------------------------------------------------------------

    def train(
        self,
        seeds: int | Sequence[int] = 1,
        *,
        device: str = "cpu",
        checkpoint: Path | None = None,
        progress: Report | None = None,
        graph: bool = True,
        start: Fit | None = None,
    ) -> Fit:
        """Train every point of the grid at every seed. `checkpoint` is a folder; a run found there goes on.

        `start` is a shorter fit of this recipe at the same seeds to go on from.
        """
        one_of("device", device.partition(":")[0], ("cpu", "cuda"))
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ArgumentError(f"device={device!r}: no CUDA device is available here; use 'cpu'")
        if isinstance(seeds, int) or not isinstance(seeds, Sequence):
            seeds = range(whole("seeds", seeds))
        rows = [{"seed": whole("seed", s, least=0), **point} for point in self.points() for s in seeds]
        if not rows:
            raise ArgumentError("seeds=[]: needs at least one seed")
        groups: dict[tuple, list[dict]] = {}
        for row in rows:
            shape = tuple((k, repr(v)) for k, v in row.items() if "." in k or k == "batch_size")
            groups.setdefault(shape, []).append(row)
        trained = []
        for i, group in enumerate(groups.values()):
            states = None if start is None else [out.state for out, _ in start.groups[i].parts]
            folder = checkpoint and checkpoint / str(i)
            trained.append(self._group(group, device, folder, progress, graph, states))
        return Fit(self, trained)

    def points(self) -> list[dict[str, Any]]:
        """The grid's points, the last key fastest."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def at(self, row: Mapping[str, Any]) -> tuple[nn.Module, Supply]:
        """Model and data of one point of the grid."""
        parts: dict[str, dict[str, Any]] = {"model": {}, "source": {}, "objective": {}}
        for key, value in row.items():
            part, dot, name = key.partition(".")
            if dot:
                parts[part][name] = value
        model = self.model.replace(**parts["model"]) if parts["model"] else self.model  # pyright: ignore
        source = replace(self.source, **parts["source"]) if parts["source"] else self.source  # pyright: ignore
        objective = replace(self.objective, **parts["objective"]) if parts["objective"] else self.objective  # pyright: ignore
        return model, Supply(source, objective, row.get("batch_size", self.batch_size))

    def plan(self, device: str, *, graph: bool = True) -> Plan:
        return Plan(
            optimizer=self.optimizer,
            steps=self.steps,
            schedule=self.schedule,
            freezing=as_freezing(self.frozen),
            snapshots=tuple(self.snapshots),
            watch=dict(self.watch),
            watch_every=self.watch_every,
            l2_on=tuple(self.l2_on),
            tol=self.tol,
            block=self.block,
            device=device,
            dtype=DTYPES[self.dtype],
            stacked=self.stacked,
            graph=graph,
        )

    def _group(
        self,
        rows: list[dict],
        device: str,
        folder: Path | None,
        progress: Report | None,
        graph: bool,
        states: Sequence[Mapping[str, Tensor]] | None,
    ) -> Group:
        model, supply = self.at(rows[0])
        own = {**OWN_NUMBERS, "init_scale": self.init_scale, "l2": self.l2, "ema": self.ema}
        own["clip"] = float("inf") if self.clip is None else self.clip
        base = {**defaults(self.optimizer), **own}
        parts = []
        size = self.chunk if self.stacked else 1
        for first in range(0, len(rows), size):
            chunk = rows[first : first + size]
            padded = chunk + [chunk[-1]] * (size - len(chunk))
            numbers = [{key: float(row.get(key, value)) for key, value in base.items()} for row in padded]
            seeds = [{name: self.streams.get(name, row["seed"]) for name in STREAMS} for row in padded]
            save = None if folder is None else Checkpoint(folder / f"{first // size}.safetensors")
            out = run(
                model,
                supply,
                self.plan(device, graph=graph),
                numbers=numbers,
                seeds=seeds,
                start=None if states is None else states[first // size],
                checkpoint=save,
                report=progress,
            )
            if save is not None:
                save.save(out.state)
            parts.append((out, len(chunk)))
        return Group(model, rows, parts)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the trained weights; watches are named, since they only look."""
        out = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "watch"}
        return {**out, "watch": sorted(self.watch)}


def fit(
    model: nn.Module,
    source: Source,
    objective: Objective,
    *,
    steps: int,
    seeds: int | Sequence[int] = 1,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    progress: Report | Callable | None = None,
    **options: Any,
) -> Fit:
    """Train `seeds` × `grid` models in one stacked computation; `options` are the fields of `Recipe`.

    The source is a world (fresh samples), a fixed `Batch` (full batch, or shuffled epochs with `batch_size`) or an exact
    `Expectation`. With `checkpoint`, a folder, a killed run resumes and ends with the same bits.
    """
    if isinstance(source, World) and "batch_size" not in options:
        options["batch_size"] = 40
    known = [f.name for f in fields(Recipe)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"{name}: not an option of fit{nearest(name, known)}")
    recipe = Recipe(model, source, objective, steps, **options)
    folder = None if checkpoint is None else Path(checkpoint)
    return recipe.train(seeds, device=device, checkpoint=folder, progress=progress)
