"""The three independent random streams of a model — initialisation, data, noise — and the data they give."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from sandtable.arguments import ArgumentError, typed
from sandtable.objectives import Example, Objective
from sandtable.worlds import Batch, Expectation, World
from sandtable.worlds.base import SamplesEach

Source = World | Batch | Expectation
STREAMS = ("init", "data", "noise")
_TOGETHER = 2**15  # samples drawn at once on a device: enough to keep it busy, few enough for its memory


@typed
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
            batch = self._from_fixed(first, steps, data)
        else:
            assert self.batch_size is not None
            assert not isinstance(self.source, Expectation)
            batch = self.source.sample(steps * self.batch_size, data).fold(steps)
        block = getattr(self.objective, "draw_block", None)
        if block is not None:
            return block(batch, noise, range(first, first + steps))
        each = [
            self.objective.draw(batch.map(lambda t, s=s: t[s]), noise, first + s)  # pyright: ignore[reportCallIssue]
            for s in range(steps)
        ]
        return tree_map(lambda *tensors: torch.stack(tensors), *each)

    def draw_each(
        self, first: int, steps: int, generators: Sequence[tuple[torch.Generator, torch.Generator]], device: str
    ) -> Example | None:
        """What `draw` gives for every (data, noise), leading dimensions (step, draw), drawn together on `device`.

        None where the source or the objective cannot do so.
        """
        draw_each = getattr(self.objective, "draw_each", None)
        if draw_each is None or not isinstance(self.source, SamplesEach):
            return None
        assert self.batch_size is not None
        size = steps * self.batch_size
        group = max(1, _TOGETHER // size)
        drawn = []
        for start in range(0, len(generators), group):
            data, noise = zip(*generators[start : start + group], strict=True)
            shape = (len(data), steps, self.batch_size)
            batch = self.source.sample_each(size, data, device).map(lambda t, shape=shape: t.unflatten(0, shape))
            drawn.append(draw_each(batch, noise, range(first, first + steps)))
        return tree_map(lambda *tensors: torch.cat(tensors).transpose(0, 1), *drawn)

    def _from_fixed(self, first: int, steps: int, data: torch.Generator) -> Batch:
        """Full batches, or shuffled epochs: an epoch's order depends on the stream's seed and its number alone."""
        assert isinstance(self.source, Batch)
        size = len(self.source)
        if self.batch_size is None or self.batch_size == size:
            return self.source.map(lambda t: t.expand(steps, *t.shape))
        start, stop = first * self.batch_size, (first + steps) * self.batch_size
        epochs = range(start // size, -(-stop // size))
        seed = data.initial_seed()
        order = torch.cat([torch.randperm(size, generator=stream(f"epoch {e}", seed)) for e in epochs])
        start -= epochs[0] * size
        return self.source[order[start : start + steps * self.batch_size]].fold(steps)


class Feed:
    """Blocks of Examples for a stack of models, drawn ahead in the background.

    Models that share all their streams share one draw; `index` maps models to draws. On a CUDA device the background
    works in a stream of its own.
    """

    def __init__(
        self,
        supply: Supply,
        seeds: Sequence[tuple[int, int]],
        *,
        block: int,
        place: Callable[[Tensor], Tensor],
        device: str = "cpu",
        workers: int = 1,
    ) -> None:
        self.supply, self.block, self.place, self.device = supply, block, place, device
        self.unique = list(dict.fromkeys(seeds))
        self.index = [self.unique.index(pair) for pair in seeds]
        self.generators = [(stream("data", data), stream("noise", noise)) for data, noise in self.unique]
        self._start, self._before, self._after = 0, self._states(), self._states()
        self._side = torch.cuda.Stream(device) if torch.device(device).type == "cuda" else None
        self._ahead = _background(serial=self._side is None)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="sandtable-draw") if workers > 1 else None

    def _states(self) -> Tensor:
        return torch.stack([g.get_state() for pair in self.generators for g in pair])

    def state(self, step: int) -> Tensor:
        """The generators as they stood before the block that holds `step`."""
        return self._before if step < self._start + self.block else self._after

    def restore(self, states: Tensor) -> None:
        for g, state in zip([g for pair in self.generators for g in pair], states, strict=True):
            g.set_state(state.cpu().clone())  # a row read from a file may lie where torch reads it only by crashing
        self._before = self._after = self._states()

    def _draw(self, first: int) -> tuple[Tensor, Tensor, Any]:
        before = self._states()
        if self._side is None:
            example = tree_map(self.place, self._draw_singly(first))
            return before, self._states(), example
        with torch.cuda.stream(self._side):
            example = self.supply.draw_each(first, self.block, self.generators, self.device)
            example = tree_map(self.place, self._draw_singly(first) if example is None else example)
        self._side.synchronize()  # handed over complete: waiting for an event of another thread has failed at times
        return before, self._states(), example

    def _draw_singly(self, first: int) -> Example:
        each = self._pool.map if self._pool is not None else map
        drawn = list(each(lambda pair: self.supply.draw(first, self.block, *pair), self.generators))
        return tree_map(lambda *tensors: torch.stack(tensors, dim=1), *drawn)

    def blocks(self, first: int, total: int) -> Iterator[tuple[int, Example]]:
        """Yield (step, Example with leading (step, draw) dimensions), from `first`, a multiple of the block length."""
        starts = range(first, total, self.block)
        ahead = self._ahead.submit(self._draw, starts[0]) if starts else None
        for start in starts:
            assert ahead is not None
            before, after, example = ahead.result()
            if self._side is not None:
                current = torch.cuda.current_stream(self.device)
                for tensor in tree_leaves(example):
                    tensor.record_stream(current)  # so that its memory is not drawn into before it has been read
            self._start, self._before, self._after = start, before, after
            more = start + self.block < total
            ahead = self._ahead.submit(self._draw, start + self.block) if more else None
            yield start, example

    def close(self) -> None:
        self._ahead.shutdown(wait=True, cancel_futures=True)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _background(*, serial: bool) -> ThreadPoolExecutor:
    """A thread beside the training; `serial`: its tensor operations use no further threads, which training needs."""
    if not serial:
        return ThreadPoolExecutor(1, thread_name_prefix="sandtable-data")
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(1, thread_name_prefix="sandtable-data", initializer=torch.set_num_threads, initargs=(1,))
    pool.submit(torch.get_num_threads).result()
    torch.set_num_threads(threads)  # the number is each thread's own, but new threads inherit the last one set
    return pool
