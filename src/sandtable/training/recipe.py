"""A recipe: everything that decides a training run except the seeds."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sandtable.arguments import (
    ArgumentError,
    as_report,
    instance,
    nearest,
    number,
    one_of,
    place,
    resolve_device,
    shown,
    typed,
    whole,
)
from sandtable.models import match_names
from sandtable.objectives import Objective
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.optimizers import Adam, Optimizer, defaults
from sandtable.training.pace import Pace
from sandtable.training.result import Fit, Group
from sandtable.training.schedules import Flat, Freezing, Schedule, as_freezing, ever_frozen
from sandtable.training.stack import Plan, Report, Trained, Watch, run
from sandtable.training.streams import STREAMS, Source, Supply
from sandtable.worlds import Batch, Expectation, World

OWN_NUMBERS: dict[str, dict[str, float]] = {
    "init_scale": {"least": 0.0},
    "l2": {"least": 0.0},
    "clip": {"above": 0.0},
    "ema": {"least": 0.0, "most": 1.0},
}
MOST_MODELS = 1_000_000
"""Of one call, whatever they are stacked in."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@typed
@dataclass(frozen=True)
class Recipe:
    """Model, data, objective, optimiser: what `fit` trains, for any seeds.

    Per-model numbers — the optimiser's settings, `init_scale`, `l2`, `clip`, `ema` — may vary in `grid` within one
    stack; grid keys "model.…", "source.…", "objective.…", "batch_size" change shapes or data and make stacks of their
    own. Seeds name three streams (initialisation, data, noise) that depend on nothing else, so arms of a grid are
    paired; `streams` overrides single ones with a number shared by all models. `watch` looks at the models every
    `watch_every` steps, `watch_averaged` at their moving averages θ̄ ← ema · θ̄ + (1 − ema) · θ, from θ̄ = θ at the start.
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
    watch_averaged: Mapping[str, Watch] = field(default_factory=dict)
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
        instance("model", self.model, nn.Module, "a module")
        if isinstance(self.source, type) or not isinstance(self.source, World | Batch | Expectation):
            raise ArgumentError(f"source={shown(self.source)}: must be a world, a Batch or an Expectation")
        _does("objective", self.objective, ("draw", "loss"), "an objective, such as MaskedLM()")
        _does("optimizer", self.optimizer, ("start", "update", "settings"), "an optimizer, such as Adam(lr=0.001)")
        _does("schedule", self.schedule, ("factor",), "a schedule, such as Cosine()")
        if isinstance(self.source, World) and self.batch_size is None:
            raise ArgumentError("batch_size=None: sampling from a world needs a batch size")
        if hasattr(self.objective, "check"):
            self.objective.check(self.model)  # pyright: ignore[reportAttributeAccessIssue]
        for name in OWN_NUMBERS:
            _own_number(name, getattr(self, name))
        if both := sorted(self.watch.keys() & self.watch_averaged.keys()):
            raise ArgumentError(f"watch_averaged={both[0]!r}: watch has this name too; give them different ones")
        if self.watch_averaged and not (self.ema or any(self.grid.get("ema", ()))):
            raise ArgumentError("watch_averaged: needs averages; train with ema=0.9 or so")
        if self.tol is not None:
            number("tol", self.tol, above=0.0)
        one_of("dtype", self.dtype, DTYPES)
        for name in self.streams:
            one_of("streams", name, STREAMS)
            whole(f"streams[{name!r}]", self.streams[name], least=0)
        names = [name for name, _ in self.model.named_parameters()]
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        freezing = as_freezing(self.frozen)
        for patterns in ever_frozen(freezing, self.steps):
            if trained <= set(match_names(patterns, names)) and self.steps:
                raise ArgumentError(f"frozen={patterns!r}: leaves nothing to train")
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
        for value in values:
            if key == "batch_size":
                whole(key, value)
            elif key in OWN_NUMBERS:
                _own_number(key, value)
            elif not dot:
                replace(self.optimizer, **{key: value})  # pyright: ignore[reportArgumentType]

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
        device = resolve_device(device)
        if checkpoint is not None and checkpoint.exists() and not checkpoint.is_dir():
            raise ArgumentError(f"checkpoint={str(checkpoint)!r}: a file is there; must be a folder, or a new one")
        if isinstance(seeds, int) or not isinstance(seeds, Sequence):
            seeds = range(whole("seeds", seeds, most=MOST_MODELS))
        if not seeds or len(set(seeds)) < len(seeds):
            raise ArgumentError(f"seeds={list(seeds)!r}: must be distinct, and at least one")
        count = len(seeds) * math.prod(map(len, self.grid.values()))
        if count > MOST_MODELS:
            raise ArgumentError(f"seeds × grid: {count:,} models are too many for one run, at most {MOST_MODELS:,}")
        rows = [{"seed": whole("seed", s, least=0), **point} for point in self.points() for s in seeds]
        groups: dict[tuple, list[dict]] = {}
        for row in rows:
            shape = tuple((k, repr(v)) for k, v in row.items() if "." in k or k == "batch_size")
            groups.setdefault(shape, []).append(row)
        for group in groups.values():
            self.at(group[0])  # a bad value anywhere in the grid shows before anything is trained
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
            watch_averaged=dict(self.watch_averaged),
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
        base = {**defaults(self.optimizer), **{name: getattr(self, name) for name in OWN_NUMBERS}}
        parts = []
        size = self.chunk if self.stacked else 1
        for first in range(0, len(rows), size):
            chunk = rows[first : first + size]
            padded = chunk + [chunk[-1]] * (size - len(chunk))
            numbers = [{key: _own_number(key, row.get(key, value)) for key, value in base.items()} for row in padded]
            seeds = [{name: self.streams.get(name, row["seed"]) for name in STREAMS} for row in padded]
            save = None
            if folder is not None:
                facts = self._facts(model, supply, numbers, seeds)
                save = Checkpoint(folder / f"{first // size}.safetensors", facts=facts)
            try:
                out = self._run(
                    model,
                    supply,
                    self.plan(device, graph=graph),
                    numbers=numbers,
                    seeds=seeds,
                    start=None if states is None else states[first // size],
                    checkpoint=save,
                    report=progress,
                )
            except IndexError as error:
                _check_vocabulary(model, supply)  # of another size it may be on purpose, as long as no token is missing
                raise error
            parts.append((out, len(chunk)))
        return Group(model, rows, parts)

    def _run(self, model: nn.Module, supply: Supply, plan: Plan, **options: Any) -> Trained:
        """How one chunk is trained."""
        return run(model, supply, plan, **options)

    def _facts(self, model: nn.Module, supply: Supply, numbers: list[dict], seeds: list[dict]) -> dict[str, str]:
        """What a checkpoint must have in common with a run that goes on from it: all but the number of steps."""
        shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        facts = dict(
            model=shapes, source=supply.source, objective=supply.objective, batch_size=supply.batch_size,
            optimizer=self.optimizer, schedule=self.schedule, frozen=self.frozen, l2_on=self.l2_on, tol=self.tol,
            block=self.block, dtype=self.dtype, numbers=numbers, seeds=seeds,
        )  # fmt: skip
        return {name: _wording(value) for name, value in facts.items()}

    def describe(self) -> dict[str, Any]:
        """Everything that decides the trained weights; watches are named, since they only look."""
        looks = ("watch", "watch_averaged")
        out = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in looks}
        return out | {name: sorted(getattr(self, name)) for name in looks if name == "watch" or self.watch_averaged}


def _own_number(name: str, value: Any) -> float:
    """A per-model number as a float; no clipping is clipping at infinity."""
    if name == "clip" and (value is None or value == float("inf")):
        return float("inf")
    return number(name, value, **OWN_NUMBERS.get(name, {}))


def _does(name: str, value: Any, what: Sequence[str], words: str) -> None:
    """An `ArgumentError` unless `value`, which is no class, has all of these."""
    if isinstance(value, type) or not all(hasattr(value, part) for part in what):
        hint = f"; {value.__name__} is a class, call it" if isinstance(value, type) else ""
        raise ArgumentError(f"{name}={shown(value)}: must be {words}{hint}")


def _check_vocabulary(model: nn.Module, supply: Supply) -> None:
    """An `ArgumentError` where the data have more tokens than the model."""
    source = supply.source.batch if isinstance(supply.source, Expectation) else supply.source
    config = getattr(model, "config", None)
    known = config.get("vocab") if isinstance(config, Mapping) else getattr(config, "vocab_size", None)
    tokens = getattr(source, "vocab", None)
    if isinstance(known, int) and tokens is not None and known < len(tokens):
        raise ArgumentError(f"model: has a vocabulary of {known}, and the source one of {len(tokens)}")


def _wording(value: Any) -> str:
    """The same words for the same value in every process; of data and objects without fields only the kind."""
    plain = isinstance(value, str | int | float | tuple | list | dict | None)
    whole_value = plain or (is_dataclass(value) and not isinstance(value, Batch | Expectation))
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value)) if whole_value else type(value).__name__


@typed
def fit(
    model: nn.Module,
    source: Source,
    objective: Objective,
    *,
    steps: int,
    seeds: int | Sequence[int] = 1,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    progress: Report | bool = False,
    **options: Any,
) -> Fit:
    """Train `seeds` × `grid` models in one stacked computation; `options` are the fields of `Recipe`.

    The source is a world (fresh samples), a fixed `Batch` (full batch, or shuffled epochs with `batch_size`) or an
    exact `Expectation`. With `checkpoint`, a folder, a killed run resumes and ends with the same bits. `progress=True`
    shows steps, speed, time left and loss on stderr; a function of (step, steps, model-steps per second, loss) does
    what it likes. Ctrl-C waits for the step under way, so that the checkpoint loses nothing.
    """
    if isinstance(source, World) and "batch_size" not in options:
        options["batch_size"] = 40
    known = [f.name for f in fields(Recipe)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"{name}: not an option of fit{nearest(name, known)}")
    recipe = Recipe(model, source, objective, steps, **options)
    folder = None if checkpoint is None else place("checkpoint", checkpoint)
    report = as_report(progress, Pace().training)
    with writing_to(folder):
        return recipe.train(seeds, device=device, checkpoint=folder, progress=report)


@contextlib.contextmanager
def writing_to(folder: Path | None) -> Iterator[None]:
    """Where checkpoints cannot be written, one line says so; other errors of the system stay as they are."""
    try:
        yield
    except OSError as error:
        if folder is None or not str(error.filename or "").startswith(str(folder)):
            raise
        raise ArgumentError(f"checkpoint={str(folder)!r}: cannot be written ({error.strerror or error})") from error
