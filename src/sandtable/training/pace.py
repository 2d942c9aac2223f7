"""How long the rest will take, and the words that say so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import timedelta


class Pace:
    """Time left, from how fast things went since the first look; begins anew when the count falls back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = (0.0, 0.0)
        self._last = (math.inf, math.nan)

    def left(self, done: float, total: float) -> float | None:
        """Seconds that the rest will take; None at the first look, when nothing can be told."""
        now = self._clock()
        if done < self._last[0] or total != self._last[1]:
            self._first = (now, done)
        self._last = (done, total)
        began, start = self._first
        return (total - done) * (now - began) / (done - start) if done > start else None

    def words(self, done: float, total: float) -> str:
        """ " · 1:05 left", or nothing where nothing can be told or nothing is left."""
        seconds = self.left(done, total)
        return "" if seconds is None or done >= total else f" · {timedelta(seconds=math.ceil(seconds))} left"

    def training(self, step: int, steps: int, speed: float, loss: float) -> str:
        """A report of training (see `Report`) in words."""
        left = self.words(step, steps)
        return f"step {step}/{steps} · {speed:,.3g} model-steps/s{left} · loss {loss:.4g}"
