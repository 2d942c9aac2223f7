"""One stacked computation: the same architecture and data law, many models, each with its own numbers."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map

from sandtable.arguments import ArgumentError
from sandtable.models import Edit, match_names
from sandtable.objectives import Example, Objective, Params, l2_penalty
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.interruption import Interruption
from sandtable.training.optimizers import Optimizer, State, wide
from sandtable.training.parcels import pack
from sandtable.training.schedules import Freezing, Schedule
from sandtable.training.streams import Feed, Supply, stream

Watch = Callable[[Mapping[str, Tensor]], Float[Tensor, "models ..."]]
"""Looks at the stacked parameters: one number, or one tensor, per model."""
Report = Callable[[int, int, float, float], None]
"""Called now and then with (step, steps, model-steps per second, mean loss)."""
Numbers = Sequence[Mapping[str, float]]
"""Each model's own settings, by name: its learning rate, clipping, regularisation and so on."""
Seeds = Sequence[Mapping[str, int]]
"""Each model's three streams: "init", "data" and "noise"."""


@dataclass(frozen=True)
class Plan:
    """How a stack is trained: everything but the models' own numbers."""

    optimizer: Optimizer
    steps: int
    schedule: Schedule
    freezing: Freezing
    snapshots: tuple[int, ...] = ()
    watch: Mapping[str, Watch] = field(default_factory=dict)
    watch_averaged: Mapping[str, Watch] = field(default_factory=dict)
    watch_every: int = 1
    l2_on: tuple[str, ...] = ("*",)
    tol: float | None = None
    block: int = 32
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    stacked: bool = True
    graph: bool = True


@dataclass
class Trained:
    """What a stack leaves behind; all tensors on the CPU, models in front (history: steps in front)."""

    params: dict[str, Tensor]
    ema: dict[str, Tensor]
    history: dict[str, Float[Tensor, "steps models"]]
    watched: dict[str, Tensor]
    snapshots: dict[int, dict[str, Tensor]]
    stopped: Tensor
    step: int
    state: dict[str, Tensor]


def run(
    model: nn.Module,
    supply: Supply,
    plan: Plan,
    *,
    numbers: Numbers,
    seeds: Seeds,
    start: Mapping[str, Tensor] | None = None,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
) -> Trained:
    """Train the stack to `plan.steps`, from the checkpoint or the state `start`, whichever there is."""
    trainer = Trainer(model, supply, plan, numbers, seeds)
    trainer.go_on_from(None if checkpoint is None else checkpoint.load(), start)
    with trainer.interruption:
        trainer.train(checkpoint, report)
        return trainer.result(checkpoint)


class Trainer:
    """The state of a stack in training: parameters, optimisers, averages, records, position in the data."""

    def __init__(self, model: nn.Module, supply: Supply, plan: Plan, numbers: Numbers, seeds: Seeds) -> None:
        self.model, self.supply, self.plan = copy.deepcopy(model).to(plan.device, plan.dtype), supply, plan
        self.size = len(seeds)
        self.step = 0
        self.params = self._start(model, numbers, seeds)
        trainable = [name for name, p in model.named_parameters() if p.requires_grad]
        self.trainable = trainable
        self.parcels = pack(self.params, trainable, plan.optimizer, plan.freezing, plan.steps)
        # Views from here on: what an update does to a parcel shows in its parameters.
        self.optimizer: dict[str, State] = {name: {} for name in trainable}
        for parcel in self.parcels:
            self.params |= parcel.spread(parcel.values, self.params)
            for key, value in parcel.state.items():
                for name, part in parcel.spread(value, self.params).items():
                    self.optimizer[name][key] = part
        every = {key: [row[key] for row in numbers] for key in numbers[0]}
        self.numbers = {key: torch.tensor(v, dtype=plan.dtype, device=plan.device) for key, v in every.items()}
        self.l2_names = match_names(plan.l2_on, list(self.params)) if bool((self.numbers["l2"] > 0).any()) else []
        self.averaging = bool((self.numbers["ema"] > 0).any())
        self.clipping = bool(torch.isfinite(self.numbers["clip"]).any())
        self.averages = [parcel.values.clone() for parcel in self.parcels] if self.averaging else []
        self.ema = {name: value.clone() for name, value in self.params.items()} if self.averaging else {}
        for parcel, average in zip(self.parcels, self.averages, strict=False):
            self.ema |= parcel.spread(average, self.params)
        self.active = torch.ones(self.size, dtype=torch.bool, device=plan.device)
        self.rate = self.numbers["lr"].clone()
        self.history: dict[str, Tensor] = {}
        self.watched: dict[str, list[Tensor]] = {name: [] for name in (*plan.watch, *plan.watch_averaged)}
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self.interruption = Interruption()
        self.feed = None
        self.constant = None
        if supply.constant:
            self.constant = tree_map(self._place, supply.example())
        else:
            pairs = [(row["data"], row["noise"]) for row in seeds]
            workers = 1 if plan.device == "cpu" else torch.get_num_threads()
            self.feed = Feed(supply, pairs, block=plan.block, place=self._place, device=plan.device, workers=workers)
        self._graphs: dict[tuple[str, ...], _Graph] = {}

    def _start(self, model: nn.Module, numbers: Numbers, seeds: Seeds) -> dict[str, Tensor]:
        drawn = [initial_parameters(model, row["init"], n["init_scale"]) for row, n in zip(seeds, numbers, strict=True)]
        return {name: self._place(torch.stack([d[name] for d in drawn])) for name in drawn[0]}

    def _place(self, tensor: Tensor) -> Tensor:
        dtype = self.plan.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.plan.device, dtype, non_blocking=True)

    # -- one step ----------------------------------------------------------------------------------------------------

    def _losses(self, params: Mapping[str, Tensor], example: Any, shared: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Every model's loss and its objective's metrics."""
        objective: Objective = self.supply.objective

        def apply(
            params: Params, inputs: Any, want: Sequence[str] = (), edits: Mapping[str, Edit] | None = None
        ) -> Any:
            options = ({"want": want} if want else {}) | ({"edits": edits} if edits else {})
            return functional_call(self.model, dict(params), (inputs,), options)

        def one(params: Params, example: Example) -> tuple[Tensor, dict[str, Tensor]]:
            return objective.loss(apply, params, example)

        if self.plan.stacked:
            return vmap(one, in_dims=(0, None if shared else 0))(params, example)
        rows = [
            one({n: p[i] for n, p in params.items()}, example if shared else tree_map(lambda t, i=i: t[i], example))
            for i in range(self.size)
        ]
        return torch.stack([loss for loss, _ in rows]), {k: torch.stack([m[k] for _, m in rows]) for k in rows[0][1]}

    def _gradients(
        self, example: Any, shared: bool, names: Sequence[str]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Every model's loss, its metrics, and the gradients of loss and penalty in the named parameters."""
        leaves = {name: self.params[name].detach().requires_grad_() for name in names}
        with torch.enable_grad():
            params = {**self.params, **leaves}
            losses, metrics = self._losses(params, example, shared)
            total = losses
            if self.l2_names:
                total = total + l2_penalty(params, self.numbers["l2"], self.l2_names)
            grads = dict(
                zip(names, torch.autograd.grad(total.sum(), list(leaves.values()), allow_unused=True), strict=True)
            )
        return losses, metrics, {name: torch.zeros_like(leaves[name]) if g is None else g for name, g in grads.items()}

    def _update(self, example: Any, shared: bool, names: Sequence[str]) -> dict[str, Tensor]:
        """One step of every active model, in place; returns loss and metrics before it."""
        losses, metrics, grads = self._gradients(example, shared, names)
        chosen = set(names)
        parcels = [parcel for parcel in self.parcels if parcel.names[0] in chosen]
        moves = [parcel.gather(grads) for parcel in parcels]
        per_model = dict(self.numbers)
        if self.clipping or self.plan.tol is not None or "gradient_norm" in self._needs:
            norm = torch.stack([g.square().reshape(self.size, -1).sum(1) for g in moves]).sum(0).sqrt()
            per_model["gradient_norm"] = norm
            if self.plan.tol is not None:
                self.active.logical_and_(~(norm <= self.plan.tol))
            if self.clipping:
                factor = (self.numbers["clip"] / norm.clamp_min(1e-30)).clamp_max(1.0)
                moves = [g * wide(factor, g) for g in moves]
                per_model["gradient_norm"] = norm * factor
        for parcel, move in zip(parcels, moves, strict=True):
            kept = [parcel.values, *parcel.state.values()]
            before = [t.clone() for t in kept] if self.plan.tol is not None else []
            self.plan.optimizer.update(parcel.values, move, parcel.state, self.rate, per_model)
            for tensor, old in zip(kept, before, strict=False):
                tensor.copy_(torch.where(wide(self.active, tensor), tensor, old))
        for parcel, average in zip(self.parcels, self.averages, strict=False):
            average.lerp_(parcel.values, 1 - wide(self.numbers["ema"], average))
        return {"loss": losses.detach(), **{name: value.detach() for name, value in metrics.items()}}

    @property
    def _needs(self) -> tuple[str, ...]:
        return getattr(self.plan.optimizer, "needs", ())

    # -- the loop ----------------------------------------------------------------------------------------------------

    def train(self, checkpoint: Checkpoint | None, report: Report | None) -> None:
        clock = _Clock(report, self.size, self.plan.steps, self.step)
        between = True  # of two steps: inside one, some parameters have moved and others have not
        try:
            for step, example, shared in self._examples():
                self._stop_if_asked()
                self._observe(step)
                if self.plan.tol is not None and step % self.plan.block == 0 and not bool(self.active.any()):
                    break
                factor = self.plan.schedule.factor(step, self.plan.steps)
                torch.mul(self.numbers["lr"], factor, out=self.rate)
                frozen = self.plan.freezing.frozen(step)
                off = set(match_names(frozen, list(self.params))) if frozen else set()
                names = tuple(name for name in self.trainable if name not in off)
                if not names:
                    raise ArgumentError(f"frozen={frozen!r}: leaves nothing to train at step {step}")
                stepper = self._stepper(names, example, shared)
                between = False
                for name, value in stepper(example).items():
                    self._record(name)[step] = value
                self.step = step + 1
                between = True
                clock.tick(self.step, lambda step=step: float(self.history["loss"][step].mean()))
                if checkpoint is not None and checkpoint.due():
                    checkpoint.save(self.state())
            self._stop_if_asked()
            self._observe(self.step, last=True)
        except KeyboardInterrupt:
            if checkpoint is not None and between:
                checkpoint.save(self.state())
            raise
        finally:
            if self.feed is not None:
                self.feed.close()

    def _stop_if_asked(self) -> None:
        if self.interruption.asked:
            raise KeyboardInterrupt

    def _record(self, name: str) -> Tensor:
        if name not in self.history:
            shape = (self.plan.steps, self.size)
            self.history[name] = torch.full(shape, math.nan, dtype=self.plan.dtype, device=self.plan.device)
        return self.history[name]

    def _examples(self):
        if self.constant is not None:
            for step in range(self.step, self.plan.steps):
                yield step, self.constant, True
            return
        assert self.feed is not None
        shared = len(self.feed.unique) == 1
        many = len(self.feed.unique) < self.size and not shared
        index = torch.tensor(self.feed.index, device=self.plan.device) if many else None
        first = self.step - self.step % self.plan.block
        for start, block in self.feed.blocks(first, self.plan.steps):
            for s in range(min(self.plan.block, self.plan.steps - start)):
                if start + s < self.step:
                    continue
                if shared:
                    example = tree_map(lambda t, s=s: t[s, 0], block)
                else:
                    example = tree_map(lambda t, s=s: t[s] if index is None else t[s][index], block)
                yield start + s, example, shared

    def _stepper(self, names: tuple[str, ...], example: Any, shared: bool) -> Callable[[Any], dict[str, Tensor]]:
        use_graph = self.plan.graph and self.plan.device.startswith("cuda") and self.plan.stacked
        if not use_graph:
            return lambda example: self._update(example, shared, names)
        if names not in self._graphs:
            self._graphs[names] = _Graph(self, example, shared, names)
        return self._graphs[names]

    def _observe(self, step: int, last: bool = False) -> None:
        # Once all models have stopped, later snapshots are the models as they are.
        due = [s for s in self.plan.snapshots if s == step or (last and s > step)]
        for s in due:
            if s not in self.snapshots:
                self.snapshots[s] = {name: value.detach().cpu().clone() for name, value in self.params.items()}
        due = step % self.plan.watch_every == 0 or last
        taken = -(-step // self.plan.watch_every)
        for watches, params in ((self.plan.watch, self.params), (self.plan.watch_averaged, self.ema)):
            for name, function in watches.items() if due else ():
                if len(self.watched[name]) <= taken:
                    self.watched[name].append(function(params).detach().cpu())

    # -- state -------------------------------------------------------------------------------------------------------

    def mutable(self) -> list[Tensor]:
        """Every tensor that a step changes in place."""
        states = [t for state in self.optimizer.values() for t in state.values()]
        return [*self.params.values(), *states, *self.ema.values(), self.active]

    def state(self) -> dict[str, Tensor]:
        """All that is needed to go on as if nothing had happened."""
        out = {f"params.{n}": v for n, v in self.params.items()}
        out |= {f"ema.{n}": v for n, v in self.ema.items()}
        out |= {f"optimizer.{n}.{k}": v for n, state in self.optimizer.items() for k, v in state.items()}
        out |= {f"watched.{n}": torch.stack(v) for n, v in self.watched.items() if v}
        out |= {f"snapshots.{s}.{n}": v for s, values in self.snapshots.items() for n, v in values.items()}
        out |= {f"history.{n}": v[: self.step] for n, v in self.history.items()}
        out |= {"active": self.active, "step": torch.tensor(self.step)}
        if self.feed is not None:
            out["generators"] = self.feed.state(self.step)
        return {name: value.detach().cpu().contiguous().clone() for name, value in out.items()}

    def go_on_from(self, saved: Mapping[str, Tensor] | None, start: Mapping[str, Tensor] | None) -> None:
        """Take up what a killed run saved, or else the state `start`, if there is either."""
        state = saved if saved is not None else start
        if state is None:
            return
        if int(state["step"]) > self.plan.steps:
            step = int(state["step"])
            raise ArgumentError(f"steps={self.plan.steps}: the run to go on from is already at step {step}")
        self.restore(state)

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        place = self.plan.device
        self.step = int(saved["step"])
        for name, value in saved.items():
            room, _, rest = name.partition(".")
            if room == "params":
                self.params[rest].copy_(value.to(place))
            elif room == "ema":
                self.ema[rest].copy_(value.to(place))
            elif room == "optimizer":
                parameter, _, key = rest.rpartition(".")
                self.optimizer[parameter][key].copy_(value.to(place))
            elif room == "history":
                self._record(rest)[: self.step] = value[: self.step].to(place)
            elif room == "watched":
                # What was recorded only because the run ended there is left out: a longer run records elsewhere.
                self.watched[rest] = list(value)[: -(-self.step // self.plan.watch_every)]
            elif room == "snapshots":
                step, _, parameter = rest.partition(".")
                self.snapshots.setdefault(int(step), {})[parameter] = value
        self.active.copy_(saved["active"].to(place))
        if self.feed is not None:
            self.feed.restore(saved["generators"])

    def result(self, checkpoint: Checkpoint | None = None) -> Trained:
        """What is left behind; the checkpoint, if there is one, is then that of the finished run."""
        state = self.state()
        if checkpoint is not None:
            checkpoint.save(state)
        cpu = {name: value.detach().cpu() for name, value in self.params.items()}
        return Trained(
            params=cpu,
            ema={name: value.detach().cpu() for name, value in self.ema.items()},
            history={name: value[: self.step].cpu() for name, value in self.history.items()},
            watched={name: torch.stack(values) for name, values in self.watched.items() if values},
            snapshots=self.snapshots,
            stopped=~self.active.cpu(),
            step=self.step,
            state=state,
        )


class _Graph:
    """A whole training step captured once as a CUDA graph and replayed: no launch overhead."""

    def __init__(self, trainer: Trainer, example: Any, shared: bool, names: tuple[str, ...]) -> None:
        self.example = tree_map(lambda t: t.clone(), example)
        self.constant = trainer.constant is not None
        before = [t.clone() for t in trainer.mutable()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                trainer._update(self.example, shared, names)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        # Data are drawn in another thread meanwhile: only this thread's calls must be capturable.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.outputs = trainer._update(self.example, shared, names)
        for tensor, old in zip(trainer.mutable(), before, strict=True):
            tensor.copy_(old)

    def __call__(self, example: Any) -> dict[str, Tensor]:
        if not self.constant:
            tree_map(lambda mine, new: mine.copy_(new, non_blocking=True), self.example, example)
        self.graph.replay()
        return self.outputs


class _Clock:
    """Reports progress at most twice a second."""

    def __init__(self, report: Report | None, models: int, steps: int, first: int) -> None:
        self.report, self.models, self.steps, self.first = report, models, steps, first
        self.began = self.last = time.monotonic()

    def tick(self, step: int, loss: Callable[[], float]) -> None:
        now = time.monotonic()
        if self.report is None or (now - self.last < 0.5 and step < self.steps):
            return
        self.last = now
        speed = self.models * (step - self.first) / max(1e-9, now - self.began)
        self.report(step, self.steps, speed, loss())


def initial_parameters(model: nn.Module, seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    """Fresh parameters from the initialisation stream of `seed`.

    Models with `initialise(generator, scale)` draw from it. Any other module re-runs its layers' `reset_parameters`,
    and Hugging Face's initialiser where there is one, under a seed of its own; the global generator is put back.
    """
    fresh = copy.deepcopy(model)
    generator = stream("init", seed)
    if hasattr(fresh, "initialise"):
        fresh.initialise(generator, scale)  # pyright: ignore[reportCallIssue]
    else:
        if scale != 1.0:
            raise ArgumentError(f"init_scale={scale:g}: needs a model with initialise(generator, scale)")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            for module in fresh.modules():
                reset = getattr(module, "reset_parameters", None)
                if reset is not None:
                    reset()
            hugging_face = getattr(fresh, "_init_weights", None)
            if hugging_face is not None:
                fresh.apply(hugging_face)
    return {name: parameter.detach().cpu().clone() for name, parameter in fresh.named_parameters()}
