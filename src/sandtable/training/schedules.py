"""How the learning rate moves with the step, and which parameters are trained when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandtable.arguments import ArgumentError, number, whole


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


@dataclass(frozen=True)
class Drops:
    """Multiply the learning rate by `by` once each of the fractions `at` of the run has passed."""

    at: tuple[float, ...]
    by: float = 0.1

    def __post_init__(self) -> None:
        for fraction in self.at:
            number("at", fraction, least=0.0, most=1.0)
        number("by", self.by, above=0.0)

    def factor(self, step: int, steps: int) -> float:
        return self.by ** sum(step >= fraction * steps for fraction in self.at)


class Freezing(Protocol):
    """`frozen(step)` gives the glob patterns of parameters that stay as they are at that step."""

    def frozen(self, step: int) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Frozen:
    """The same parameters stay frozen throughout."""

    patterns: tuple[str, ...] = ()

    def frozen(self, step: int) -> tuple[str, ...]:
        return self.patterns


@dataclass(frozen=True)
class Stages:
    """Consecutive stages (steps, frozen patterns); with `repeat` they start over, otherwise the last one goes on.

    `Stages(((400, ("*.W_K", "*.W_Q")), (600, ("*.W_V",))))` first trains the values, then keys and queries.
    """

    stages: tuple[tuple[int, tuple[str, ...]], ...]
    repeat: bool = False

    def __post_init__(self) -> None:
        if not self.stages:
            raise ArgumentError("stages=(): needs at least one stage")
        for steps, _ in self.stages:
            whole("stage steps", steps)

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
    return Frozen(tuple(frozen)) if isinstance(frozen, Sequence) else frozen
