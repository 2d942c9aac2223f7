"""What a fit recorded, as TensorBoard shows it: one run for every model, scalars over the steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sandtable.arguments import ArgumentError, missing

if TYPE_CHECKING:
    from sandtable.training.result import Fit

FEW = 16
"""Watched values of up to so many numbers are a curve for each, larger ones a histogram."""


def write(fit: Fit, folder: str | Path) -> list[Path]:
    """One folder of event files for every model of the fit, named after its seed and grid values."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing("to_tensorboard", "tensorboard", "tensorboard") from error
    history, watched, times = fit.history, fit.watched, fit.watched_at
    folders = [Path(folder, name) for name in names(fit.rows)]
    for row, place in enumerate(folders):
        if place.exists():
            raise ArgumentError(f"{place}: exists already, and event files would mix; choose another folder")
        with SummaryWriter(str(place)) as writer:
            for name, values in history.items():
                for step, value in enumerate(values[row].tolist()):
                    writer.add_scalar(name, value, step)
            for name, values in watched.items():
                for step, value in zip(times, values[row], strict=False):
                    _add(writer, f"watched/{name}", value, step)
    return folders


def names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """seed-0, or seed-0-lr-0.01 where a grid was trained; unlike each other."""
    return ["-".join(f"{key}-{_plain(value)}" for key, value in row.items()) for row in rows]


def _plain(value: Any) -> str:
    return "".join(c if c.isalnum() or c in "._" else "-" for c in str(value))[:40].strip("-")


def _add(writer: Any, name: str, value: Tensor, step: int) -> None:
    if value.numel() > FEW:
        writer.add_histogram(name, value.float(), step)
        return
    for place, number in _numbers(value):
        writer.add_scalar(name + place, number, step)


def _numbers(value: Tensor, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number with its indices behind a slash."""
    if not value.ndim:
        yield place, float(value)
        return
    for i, part in enumerate(value):
        yield from _numbers(part, f"{place}/{i}")
