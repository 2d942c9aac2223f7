"""The three independent random streams of a model — initialisation, data, noise — and the data they give."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from sandtable.arguments import ArgumentError
from sandtable.objectives import Example, Objective
from sandtable.worlds import Batch, Expectation, World

Source = World | Batch | Expectation
STREAMS = ("init", "data", "noise")


def stream(purpose: str, seed: int) -> torch.Generator:
    """The generator of one purpose and seed; different purposes or seeds give independent streams."""
    digest = hashlib.sha256(f"{purpose}:{int(seed)}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


@dataclass(frozen=True)
class Supply:
    """What decides the data that one model sees."""

    source: Source
    objective: Objective
    batch_size: int | None

    @property
    def constant(self) -> bool:
        """Whether every step sees the same Example: an exact expectation, or whole fixed data without noise."""
        fixed = isinstance(self.source, Batch) and self.batch_size is None
        return isinstance(self.source, Expectation) or (fixed and not getattr(self.objective, "noisy", True))

    def example(self) -> Example:
        """The Example of a constant supply."""
        if isinstance(self.source, Expectation):
            expect = getattr(self.objective, "expect", None)
            if expect is None:
                raise ArgumentError(f"{type(self.objective).__name__}: does not say how to take an exact expectation")
            return expect(self.source)
        assert isinstance(self.source, Batch)
        return self.objective.draw(self.source, stream("noise", 0), 0)

    def draw(self, first: int, steps: int, data: torch.Generator, noise: torch.Generator) -> Example:
        """The Examples of steps first … first + steps − 1, stacked in front."""
        if isinstance(self.source, Batch):
            batch = self._from_fixed(steps, data)
        else:
            assert self.batch_size is not None and not isinstance(self.source, Expectation)
            batch = self.source.sample(steps * self.batch_size, data).fold(steps)
        block = getattr(self.objective, "draw_block", None)
        if block is not None:
            return block(batch, noise, range(first, first + steps))
        each = [
            self.objective.draw(batch.map(lambda t, s=s: t[s]), noise, first + s)  # pyright: ignore[reportCallIssue]
            for s in range(steps)
        ]
        return tree_map(lambda *tensors: torch.stack(tensors), *each)

    def _from_fixed(self, steps: int, data: torch.Generator) -> Batch:
        """Full batches, or shuffled epochs: each block starts a new permutation, so it resumes anywhere."""
        assert isinstance(self.source, Batch)
        size = len(self.source)
        if self.batch_size is None or self.batch_size == size:
            return self.source.map(lambda t: t.expand(steps, *t.shape))
        epochs = -(-steps * self.batch_size // size)
        order = torch.cat([torch.randperm(size, generator=data) for _ in range(epochs)])
        return self.source[order[: steps * self.batch_size]].fold(steps)


class Feed:
    """Blocks of Examples for a stack of models, drawn ahead in the background.

    Models that share all their streams share one draw; `index` maps models to draws.
    """

    def __init__(
        self,
        supply: Supply,
        seeds: Sequence[tuple[int, int]],
        *,
        block: int,
        place: Callable[[Tensor], Tensor],
        workers: int = 1,
    ) -> None:
        self.supply, self.block, self.place = supply, block, place
        self.unique = list(dict.fromkeys(seeds))
        self.index = [self.unique.index(pair) for pair in seeds]
        self.generators = [(stream("data", data), stream("noise", noise)) for data, noise in self.unique]
        self._start, self._before, self._after = 0, self._states(), self._states()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="sandtable-data")
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="sandtable-draw") if workers > 1 else None

    def _states(self) -> Tensor:
        return torch.stack([g.get_state() for pair in self.generators for g in pair])

    def state(self, step: int) -> Tensor:
        """The generators as they stood before the block that holds `step`."""
        return self._before if step < self._start + self.block else self._after

    def restore(self, states: Tensor) -> None:
        for g, state in zip([g for pair in self.generators for g in pair], states, strict=True):
            g.set_state(state.cpu())
        self._before = self._after = self._states()

    def _draw(self, first: int) -> tuple[Tensor, Tensor, Any]:
        before = self._states()
        each = self._pool.map if self._pool is not None else map
        drawn = list(each(lambda pair: self.supply.draw(first, self.block, *pair), self.generators))
        stacked = tree_map(lambda *tensors: self.place(torch.stack(tensors, dim=1)), *drawn)
        return before, self._states(), stacked

    def blocks(self, first: int, total: int):
        """Yield (step, Example with leading (step, draw) dimensions), from `first`, a multiple of the block length."""
        starts = range(first, total, self.block)
        ahead = self._ahead.submit(self._draw, starts[0]) if starts else None
        for start in starts:
            assert ahead is not None
            before, after, example = ahead.result()
            self._start, self._before, self._after = start, before, after
            more = start + self.block < total
            ahead = self._ahead.submit(self._draw, start + self.block) if more else None
            yield start, example

    def close(self) -> None:
        self._ahead.shutdown(wait=True, cancel_futures=True)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
