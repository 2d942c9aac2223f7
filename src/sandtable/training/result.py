"""What training leaves behind: models, histories, snapshots — saved, loaded, joined and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, missing, place, whole
from sandtable.models import Stack
from sandtable.models.files import read_tensors, write_tensors
from sandtable.training.stack import Trained

if TYPE_CHECKING:
    import pandas as pd

    from sandtable.training.recipe import Recipe


@dataclass
class Group:
    """Models of one shape: `rows` say seed and grid values of each, `parts` are the trained chunks and their sizes."""

    template: nn.Module
    rows: list[dict[str, Any]]
    parts: list[tuple[Trained, int]]

    def gather(self, pick: Callable[[Trained], Tensor]) -> Tensor:
        """A per-model tensor of all chunks, padding left out; models are the first dimension of `pick(trained)`."""
        return torch.cat([pick(out)[:size] for out, size in self.parts])


class Fit:
    """The trained models of a recipe.

    `fit.models` is the stack of all models, `fit[i]` one ordinary module, `fit.rows[i]` its seed and grid values,
    `fit.losses` the loss before every step, `fit.watched` what was watched, `fit.snapshot(step)` the models at a step.
    """

    def __init__(self, recipe: Recipe, groups: list[Group]) -> None:
        self.recipe, self.groups = recipe, groups

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for group in self.groups for row in group.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _group(self) -> Group:
        if len(self.groups) != 1:
            raise ArgumentError(
                f"this fit holds models of {len(self.groups)} different shapes; choose with where(…) first"
            )
        return self.groups[0]

    @property
    def models(self) -> Stack:
        group = self._group
        return Stack(group.template, {n: group.gather(lambda out, n=n: out.params[n]) for n in self._names(group)})

    @property
    def averaged(self) -> Stack:
        """The exponential moving averages of the models."""
        group = self._group
        if not group.parts[0][0].ema:
            raise ArgumentError("ema=0: this fit kept no averages; train with ema=0.99 or so")
        return Stack(group.template, {n: group.gather(lambda out, n=n: out.ema[n]) for n in self._names(group)})

    def snapshot(self, step: int) -> Stack:
        """The models as they were after `step` updates."""
        group = self._group
        taken = sorted(group.parts[0][0].snapshots)
        if step not in taken:
            raise ArgumentError(f"snapshot {step}: this fit kept {taken or 'none'}; ask for it with snapshots=(…)")
        return Stack(
            group.template,
            {n: group.gather(lambda out, n=n: out.snapshots[step][n]) for n in self._names(group)},
        )

    @staticmethod
    def _names(group: Group) -> list[str]:
        return list(group.parts[0][0].params)

    def __getitem__(self, index: int) -> nn.Module:
        if not -len(self) <= index < len(self):
            raise ArgumentError(f"model {index}: this fit holds {len(self)} models")
        places = [(group, i) for group in self.groups for i in range(len(group.rows))]
        group, i = places[index]
        return Fit(self.recipe, [group]).models[i]

    def __iter__(self) -> Iterator[nn.Module]:
        return (self[i] for i in range(len(self)))

    @property
    def losses(self) -> Float[Tensor, "models steps"]:
        return self.history.get("loss", torch.zeros(len(self), 0))

    @property
    def history(self) -> dict[str, Float[Tensor, "models steps"]]:
        """The loss and the objective's metrics before every step."""
        return _over_time(self.groups, lambda out: out.history)

    @property
    def watched(self) -> dict[str, Float[Tensor, "models times ..."]]:
        return _over_time(self.groups, lambda out: out.watched)

    @property
    def watched_at(self) -> list[int]:
        """The steps at which `watched` was recorded."""
        every, done = self.recipe.watch_every, max(out.step for group in self.groups for out, _ in group.parts)
        return sorted({*range(0, done + 1, every), done})

    @property
    def stopped(self) -> Tensor:
        """Which models stopped early because their gradient fell below `tol`."""
        return torch.cat([group.gather(lambda out: out.stopped) for group in self.groups])

    # -- choosing and joining ----------------------------------------------------------------------------------------

    def where(self, **values: Any) -> Fit:
        """The models whose row has these values, e.g. `where(lr=0.01)`; dots are written as underscores twice."""
        wanted = {key.replace("__", "."): value for key, value in values.items()}
        unknown = [key for key in wanted if key not in self.rows[0]]
        if unknown:
            raise ArgumentError(f"where: {unknown[0]!r} is not one of {', '.join(self.rows[0])}")
        return self._filter(lambda row: all(row[key] == value for key, value in wanted.items()))

    def select(self, seeds: Sequence[int]) -> Fit:
        """The models of these seeds."""
        return self._filter(lambda row: row["seed"] in set(seeds))

    def _filter(self, keep: Callable[[Mapping[str, Any]], bool]) -> Fit:
        groups = []
        for group in self.groups:
            chosen = [i for i, row in enumerate(group.rows) if keep(row)]
            if chosen:
                groups.append(_subset(group, chosen))
        if not groups:
            raise ArgumentError("no model of this fit matches")
        return Fit(self.recipe, groups)

    @staticmethod
    def join(fits: Sequence[Fit]) -> Fit:
        """One fit of several that share a recipe; models are ordered by grid point, then by seed."""
        groups = []
        for parts in zip(*(f.groups for f in fits), strict=True):
            rows = [row for group in parts for row in group.rows]
            merged = Group(parts[0].template, rows, [part for group in parts for part in group.parts])
            order = sorted(range(len(rows)), key=lambda i: (_point(rows[i], fits[0].recipe), rows[i]["seed"]))
            groups.append(_subset(merged, order))
        return Fit(fits[0].recipe, groups)

    # -- tables, disk, more steps ------------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """A pandas table with one line per model: seed, grid values, first and last loss, last watched values."""
        try:
            import pandas as pd
        except ImportError as error:
            raise missing("to_frame", "pandas", "frames") from error
        columns: dict[str, Any] = {key: [row[key] for row in self.rows] for key in self.rows[0]}
        columns |= {name: values[:, -1].tolist() for name, values in self.history.items()}
        for name, values in self.watched.items():
            columns[name] = values[:, -1].tolist()
        return pd.DataFrame(columns)

    def to_tensorboard(self, folder: str | Path) -> list[Path]:
        """Losses, metrics and watched values as TensorBoard event files, one run for every model; gives their folders.

        Show them with `tensorboard --logdir FOLDER`.
        """
        from sandtable.training import tensorboard

        return tensorboard.write(self, folder)

    def save(self, folder: str | Path) -> Path:
        """Write weights and state as safetensors and the rows as JSON."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for g, group in enumerate(self.groups):
            for p, (out, _) in enumerate(group.parts):
                write_tensors(folder / f"{g}-{p}.safetensors", out.state or _as_state(out))
        # Rows are kept as (grid point, seed): grid values need not be JSON, and come back exactly as they were.
        rows = [
            {
                "rows": [(_point(row, self.recipe), row["seed"]) for row in group.rows],
                "sizes": [size for _, size in group.parts],
            }
            for group in self.groups
        ]
        temporary = folder / f".fit.json.{os.getpid()}"
        temporary.write_text(json.dumps({"groups": rows}))
        os.replace(temporary, folder / "fit.json")
        return folder

    @staticmethod
    def load(folder: str | Path, recipe: Recipe) -> Fit:
        """Read a saved fit of `recipe`."""
        folder = Path(folder)
        if not (folder / "fit.json").exists():
            raise ArgumentError(f"{folder}: holds no saved fit")
        try:
            return Fit._load(folder, recipe)
        except ArgumentError:
            raise
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ArgumentError(f"{folder}: holds no whole fit ({type(error).__name__}: {error})") from error

    @staticmethod
    def _load(folder: Path, recipe: Recipe) -> Fit:
        facts = json.loads((folder / "fit.json").read_text())
        groups, points = [], recipe.points()
        if any(point >= len(points) for group in facts["groups"] for point, _ in group["rows"]):
            raise ArgumentError(f"{folder}: holds a fit of another recipe, with a larger grid")
        for g, group in enumerate(facts["groups"]):
            rows = [{"seed": seed, **points[point]} for point, seed in group["rows"]]
            template, _ = recipe.at(rows[0])
            parts = [
                (_from_state(read_tensors(folder / f"{g}-{p}.safetensors")[0]), size)
                for p, size in enumerate(group["sizes"])
            ]
            groups.append(Group(template, rows, parts))
        return Fit(recipe, groups)

    def resume(self, *, steps: int, device: str = "cpu", checkpoint: str | Path | None = None) -> Fit:
        """Go on to `steps` updates in all, with every optimiser and random stream where it stood."""
        done = max(out.step for group in self.groups for out, _ in group.parts)
        whole("steps", steps, least=done)
        if not all(any(n.startswith("optimizer.") for n in out.state) for g in self.groups for out, _ in g.parts):
            raise ArgumentError("resume: needs the fit as it was trained, not a selection or a join of fits")
        recipe = replace(self.recipe, steps=steps)
        seeds = list(dict.fromkeys(row["seed"] for row in self.rows))
        folder = None if checkpoint is None else place("checkpoint", checkpoint)
        return recipe.train(seeds, device=device, checkpoint=folder, start=self)


def _over_time(
    groups: Sequence[Group], pick: Callable[[Trained], Mapping[str, Tensor]]
) -> dict[str, Float[Tensor, "models times ..."]]:
    """Records of all models; a stack whose models had all stopped earlier keeps its last value to the end."""
    parts = [(pick(out), size) for group in groups for out, size in group.parts]
    together = {}
    for name in parts[0][0]:
        pieces = [records[name].transpose(0, 1)[:size] for records, size in parts]
        longest = max(piece.shape[1] for piece in pieces)
        pieces = [torch.cat([p, *[p[:, -1:]] * (longest - p.shape[1])], dim=1) for p in pieces]
        together[name] = torch.cat(pieces)
    return together


def _point(row: Mapping[str, Any], recipe: Recipe) -> int:
    return recipe.points().index({key: value for key, value in row.items() if key != "seed"})


def _subset(group: Group, chosen: Sequence[int]) -> Group:
    """The chosen models as one part. Its state cannot be resumed, since the stack it was trained in is gone."""
    index = torch.tensor(chosen)

    def pick(get: Callable[[Trained], Mapping[str, Tensor]]) -> Any:
        first = get(group.parts[0][0])
        return {key: group.gather(lambda out, key=key: get(out)[key])[index] for key in first}

    example = group.parts[0][0]
    subset = Trained(
        params=pick(lambda out: out.params),
        ema=pick(lambda out: out.ema),
        history={
            n: values[index].transpose(0, 1) for n, values in _over_time([group], lambda out: out.history).items()
        },
        watched={
            n: values[index].transpose(0, 1) for n, values in _over_time([group], lambda out: out.watched).items()
        },
        snapshots={
            s: {n: group.gather(lambda out, s=s, n=n: out.snapshots[s][n])[index] for n in example.snapshots[s]}
            for s in example.snapshots
        },
        stopped=group.gather(lambda out: out.stopped)[index],
        step=max(out.step for out, _ in group.parts),
        state={},
    )
    return replace(group, rows=[group.rows[i] for i in chosen], parts=[(subset, len(chosen))])


def _as_state(out: Trained) -> dict[str, Tensor]:
    state = {f"params.{n}": v for n, v in out.params.items()}
    state |= {f"ema.{n}": v for n, v in out.ema.items()}
    state |= {f"watched.{n}": v for n, v in out.watched.items()}
    state |= {f"snapshots.{s}.{n}": v for s, values in out.snapshots.items() for n, v in values.items()}
    state |= {f"history.{n}": v for n, v in out.history.items()}
    state |= {"active": ~out.stopped, "step": torch.tensor(out.step)}
    return {name: value.contiguous().clone() for name, value in state.items()}


def _from_state(state: dict[str, Tensor]) -> Trained:
    rooms: dict[str, dict[str, Tensor]] = {"params": {}, "ema": {}, "watched": {}, "history": {}}
    snapshots: dict[int, dict[str, Tensor]] = {}
    for name, value in state.items():
        room, _, rest = name.partition(".")
        if room in rooms:
            rooms[room][rest] = value
        elif room == "snapshots":
            step, _, parameter = rest.partition(".")
            snapshots.setdefault(int(step), {})[parameter] = value
    return Trained(**rooms, snapshots=snapshots, stopped=~state["active"], step=int(state["step"]), state=state)
