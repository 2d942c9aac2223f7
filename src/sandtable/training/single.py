"""One ordinary module at a time: models that cannot be stacked (Hugging Face), and training on several devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from sandtable.arguments import ArgumentError, as_report, missing, nearest, one_of, place, typed
from sandtable.models import Edit
from sandtable.objectives import Example, Objective, l2_penalty
from sandtable.training.checkpoint import Checkpoint
from sandtable.training.pace import Pace
from sandtable.training.recipe import Recipe, writing_to
from sandtable.training.result import Fit
from sandtable.training.stack import Numbers, Plan, Report, Seeds, Trained, Trainer
from sandtable.training.streams import Source, Supply, stream
from sandtable.worlds import World

PRECISIONS = ("float32", "bfloat16")
_OVER_THE_BATCH = ("weight", "weights", "soft")  # what our objectives divide by the size of the whole batch


@typed
@dataclass(frozen=True)
class SingleRecipe(Recipe):
    """A recipe whose models are trained one after another as ordinary modules: same seeds, same data, same `Fit`.

    `precision="bfloat16"` runs the forward pass under autocast; parameters, loss and optimiser stay in `dtype`.
    `accelerator` spreads every batch over the processes of an `accelerate.Accelerator`; True makes one.
    """

    chunk: int = 1
    stacked: bool = False
    precision: str = "float32"
    accelerator: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("precision", self.precision, PRECISIONS)
        if self.precision == "bfloat16" and self.dtype != "float32":
            raise ArgumentError(f"precision='bfloat16' with dtype={self.dtype!r}: autocast needs dtype='float32'")
        if self.chunk != 1 or self.stacked:
            raise ArgumentError(f"chunk={self.chunk}, stacked={self.stacked}: one model at a time; use fit for stacks")
        keeping = [type(m).__name__ for m in self.model.modules() if getattr(m, "track_running_stats", False)]
        if keeping:
            raise ArgumentError(f"{keeping[0]}: keeps running statistics, which are no parameters; turn them off")

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
        """Train every point of the grid at every seed, one after another; an accelerator brings its own device."""
        accelerator = _accelerator(self.accelerator, device)
        if accelerator is not None:
            device = str(accelerator.device)
            if not accelerator.is_main_process:
                progress = None
        return super().train(seeds, device=device, checkpoint=checkpoint, progress=progress, graph=False, start=start)

    def _run(
        self,
        model: nn.Module,
        supply: Supply,
        plan: Plan,
        *,
        numbers: Sequence[Mapping[str, float]],
        seeds: Sequence[Mapping[str, int]],
        start: Mapping[str, Tensor] | None = None,
        checkpoint: Checkpoint | None = None,
        report: Report | None = None,
    ) -> Trained:
        accelerator = _accelerator(self.accelerator, plan.device)
        trainer = SingleTrainer(model, supply, plan, numbers, seeds, self.precision, accelerator)
        # One process after the other: the first sets a damaged file aside before the others look for it.
        with nullcontext() if accelerator is None else accelerator.main_process_first():
            saved = None if checkpoint is None else checkpoint.load()
        trainer.go_on_from(saved, start)
        if accelerator is not None and not accelerator.is_main_process:
            checkpoint = None
        with trainer.interruption:
            trainer.train(checkpoint, report)
            return trainer.result(checkpoint)

    def _facts(self, *args: Any) -> dict[str, str]:
        return {**super()._facts(*args), "precision": self.precision}

    def describe(self) -> dict[str, Any]:
        """Everything that decides the trained weights; over how many processes a batch is spread does not."""
        return {name: value for name, value in super().describe().items() if name != "accelerator"}


class SingleTrainer(Trainer):
    """A stack of one whose parameters are those of an ordinary module, called and differentiated as such."""

    def __init__(
        self,
        model: nn.Module,
        supply: Supply,
        plan: Plan,
        numbers: Numbers,
        seeds: Seeds,
        precision: str,
        accelerator: Any,
    ) -> None:
        super().__init__(model, supply, plan, numbers, seeds)
        self.precision, self.accelerator = precision, accelerator
        self.rank, self.world = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
        self.noise = seeds[0]["noise"]
        self.stopping = False
        self.model.train()
        for name, parameter in self.model.named_parameters():
            parameter.data = self.params[name][0]  # a view: the optimiser's updates in place reach the module

    def _gradients(
        self, example: Any, shared: bool, names: Sequence[str]
    ) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        if self.world > 1:
            example = share(self.supply.objective, example, self.rank, self.world)
        own = dict(self.model.named_parameters())
        for name, parameter in own.items():
            parameter.requires_grad_(name in names)
        with torch.enable_grad(), self._dropout():
            loss, metrics = self.supply.objective.loss(lambda *args, **kw: self._apply(own, *args, **kw), own, example)
            total = loss
            if self.l2_names:
                wide = {name: own[name][None] for name in self.l2_names}
                total = loss + l2_penalty(wide, self.numbers["l2"], self.l2_names)[0]
            grads = torch.autograd.grad(total, [own[name] for name in names], allow_unused=True)
        grads = [torch.zeros_like(own[name]) if g is None else g for name, g in zip(names, grads, strict=True)]
        records = [loss.detach(), *(metrics[name].detach() for name in metrics)]
        if self.world > 1:
            *together, interrupted = self._mean([*records, *grads, loss.new_tensor(float(self.interruption.asked))])
            records, grads = together[: len(records)], together[len(records) :]
            self.stopping = bool(interrupted > 0)  # decided together: nobody waits for a process that has left
        wide_metrics = {name: value[None] for name, value in zip(metrics, records[1:], strict=True)}
        return records[0][None], wide_metrics, {n: g[None] for n, g in zip(names, grads, strict=True)}

    def _apply(
        self,
        own: Mapping[str, Tensor],
        params: Mapping[str, Tensor],
        inputs: Any,
        want: Sequence[str] = (),
        edits: Mapping[str, Edit] | None = None,
    ) -> Any:
        options = ({"want": want} if want else {}) | ({"edits": edits} if edits else {})
        device = torch.device(self.plan.device).type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bfloat16"):
            if params is own:  # called as it is, so that gradient checkpointing recomputes with the same parameters
                out = self.model(inputs, **options)
            else:
                out = functional_call(self.model, dict(params), (inputs,), options)
        dtype = self.plan.dtype
        return tree_map(lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, out)

    @contextmanager
    def _dropout(self) -> Iterator[None]:
        """Modules draw dropout from the global generators: seeded by noise stream, step and process, then put back."""
        device = torch.device(self.plan.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(stream(f"dropout {self.step} {self.rank}", self.noise).initial_seed())
            yield

    def _mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean over all processes of every tensor, in one message."""
        flat = torch.cat([tensor.to(self.plan.dtype).reshape(-1) for tensor in tensors])
        parts = self.accelerator.reduce(flat, reduction="mean").split([tensor.numel() for tensor in tensors])
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def _stop_if_asked(self) -> None:
        if self.stopping or (self.interruption.asked and self.world == 1):
            raise KeyboardInterrupt


def share(objective: Objective, example: Example, rank: int, world: int) -> Example:
    """The rows rank, rank + world, … of an Example; the mean over all ranks of their losses is the loss of the whole.

    True of losses that are means over rows. Entries called weight, weights or soft sum to one over the whole batch, so
    they are multiplied by `world`; an objective with another law has a method `share(example, rank, world)` of its own.
    """
    own = getattr(objective, "share", None)
    if own is not None:
        return own(example, rank, world)
    sizes = {tensor.shape[0] if tensor.ndim else 0 for tensor in tree_leaves(example)}
    if len(sizes) != 1 or next(iter(sizes)) % world:
        raise ArgumentError(
            f"accelerator: examples with {', '.join(map(str, sorted(sizes)))} rows cannot be spread over {world} "
            f"processes; needs one row per document (form='positions') and a batch_size that {world} divides"
        )
    mine = tree_map(lambda tensor: tensor[rank::world], dict(example))
    return {name: value * world if name in _OVER_THE_BATCH else value for name, value in mine.items()}


def _accelerator(accelerator: Any, device: str) -> Any:
    """The accelerator to use, or None for a single process."""
    if accelerator is None or accelerator is False:
        return None
    if accelerator is not True:
        return accelerator
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise missing("accelerator=True", "accelerate", "text") from error
    return Accelerator(cpu=device == "cpu")


@typed
def fit_single(
    model: nn.Module,
    source: Source,
    objective: Objective,
    *,
    steps: int,
    seeds: int | Sequence[int] = 1,
    device: str = "cpu",
    checkpoint: str | Path | None = None,
    progress: Report | bool = False,
    accelerator: Any = None,
    precision: str = "float32",
    **options: Any,
) -> Fit:
    """What `fit` does, for a module that cannot be stacked: one run after another, with PyTorch's ordinary autograd.

    Initial weights and data are those of `fit` with the same seeds. With `accelerator` (True, or an
    `accelerate.Accelerator`) the script runs once in every process (`accelerate launch script.py`): process r of R
    takes rows r, r + R, … of every batch, gradients are averaged, all end with the same `Fit`, and only the main
    process writes checkpoints and reports. `checkpoint` is then a folder that all processes can read.
    """
    if isinstance(source, World) and "batch_size" not in options:
        options["batch_size"] = 40
    known = [f.name for f in fields(SingleRecipe)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"{name}: not an option of fit_single{nearest(name, known)}")
    recipe = SingleRecipe(model, source, objective, steps, precision=precision, accelerator=accelerator, **options)
    folder = None if checkpoint is None else place("checkpoint", checkpoint)
    report = as_report(progress, Pace().training)
    with writing_to(folder):
        return recipe.train(seeds, device=device, checkpoint=folder, progress=report)
