"""How the learning rate moves with the step, and which parameters are trained when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, runtime_checkable

from sandtable.arguments import ArgumentError, instance, items, names, number, numbers, shown, typed, whole


class Schedule(Protocol):
    """`factor(step, steps)` multiplies every model's learning rate."""

    def factor(self, step: int, steps: int) -> float: ...


@dataclass(frozen=True)
class Flat:
    """The learning rate stays."""

    def factor(self, step: int, steps: int) -> float:
        return 1.0


@dataclass(frozen=True)
class _WarmedUp:
    """Linear warm-up over `warmup` steps, then from 1 to `final` along a curve."""

    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        whole("warmup", self.warmup, least=0)
        number("final", self.final, least=0.0)

    def factor(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return self.final + (1 - self.final) * self._left(min(1.0, done))

    def _left(self, done: float) -> float:
        raise NotImplementedError("say how much is left when a fraction is done")


class Cosine(_WarmedUp):
    """Linear warm-up over `warmup` steps, then half a cosine from 1 to `final`."""

    def _left(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


class Linear(_WarmedUp):
    """Linear warm-up over `warmup` steps, then a straight line from 1 to `final`."""

    def _left(self, done: float) -> float:
        return 1 - done


@typed
@dataclass(frozen=True)
class Drops:
    """Multiply the learning rate by `by` once each of the fractions `at` of the run has passed."""

    at: tuple[float, ...]
    by: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", numbers("at", self.at, least=0.0, most=1.0))
        number("by", self.by, above=0.0)

    def factor(self, step: int, steps: int) -> float:
        return self.by ** sum(step >= fraction * steps for fraction in self.at)


@runtime_checkable
class Freezing(Protocol):
    """`frozen(step)` gives the glob patterns of parameters that stay as they are at that step."""

    def frozen(self, step: int) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Frozen:
    """The same parameters stay frozen throughout."""

    patterns: tuple[str, ...] = ()

    def frozen(self, step: int) -> tuple[str, ...]:
        return self.patterns


@typed
@dataclass(frozen=True)
class Stages:
    """Consecutive stages (steps, frozen patterns); with `repeat` they start over, otherwise the last one goes on.

    `Stages(((400, ("*.W_K", "*.W_Q")), (600, ("*.W_V",))))` first trains the values, then keys and queries.
    """

    stages: tuple[tuple[int, tuple[str, ...]], ...]
    repeat: bool = False

    def __post_init__(self) -> None:
        stages = [items("stages", stage, "pairs (steps, patterns)") for stage in items("stages", self.stages, "stages")]
        if not stages:
            raise ArgumentError("stages=(): needs at least one stage")
        for stage in stages:
            if len(stage) != 2:
                raise ArgumentError(f"stages: {shown(stage)} is no pair (steps, patterns)")
        found = tuple((whole("stage steps", steps), names("stage patterns", kept)) for steps, kept in stages)
        object.__setattr__(self, "stages", found)

    def frozen(self, step: int) -> tuple[str, ...]:
        if self.repeat:
            step %= sum(steps for steps, _ in self.stages)
        for steps, patterns in self.stages:
            if step < steps:
                return patterns
            step -= steps
        return self.stages[-1][1]


def as_freezing(frozen: Freezing | Sequence[str] | str) -> Freezing:
    """A pattern or several stand for parameters frozen throughout."""
    if isinstance(frozen, str):
        return Frozen((frozen,))
    if isinstance(frozen, Sequence):
        return Frozen(names("frozen", frozen))
    return instance("frozen", frozen, Freezing, "glob patterns, or an object with a method frozen(step)")


_LOOKED_AHEAD = 10_000  # steps of a stranger's freezing


def ever_frozen(freezing: Freezing, steps: int) -> list[tuple[str, ...]]:
    """The different patterns that hold at some step."""
    if isinstance(freezing, Frozen):
        return [freezing.patterns]
    if isinstance(freezing, Stages):
        begins = accumulate((length for length, _ in freezing.stages), initial=0)
        return [
            patterns for begin, (_, patterns) in zip(begins, freezing.stages, strict=False) if begin < max(steps, 1)
        ]
    return list(dict.fromkeys(freezing.frozen(step) for step in range(max(1, min(steps, _LOOKED_AHEAD)))))
