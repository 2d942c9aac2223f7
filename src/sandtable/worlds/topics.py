"""Topic worlds: bag-of-words documents whose words come from a few topics (Li, Li & Risteski 2023; LDA)."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, fits_in_memory, number, typed, whole, with_generator
from sandtable.worlds.base import Batch, Expectation, Vocab
from sandtable.worlds.bits import bulk_generator, bulk_seed, random_bits, row_seeds, write_bits

_SHARD = 2048  # documents with a random generator of their own, large enough to hide numpy's call cost
_CACHED = 2048  # documents written at a time: fewer wait more often for Python's lock, more leave the cache
_COMPARED = 64  # up to so many topics, comparing with every edge is faster than searching among them
_LARGEST_SUPPORT = 50_000


@typed
@dataclass(frozen=True)
class TopicModel:
    """Documents of `topics` × `words` words; token 0 is [MASK], word i ≥ 1 belongs to topic ⌈i / words⌉.

    Exactly one of two laws for the topics of a document:

    - `present` = τ: a uniformly random set of τ distinct topics, each word's topic uniform in it (the theory's law);
    - `dirichlet` = α: topic shares θ ~ Dirichlet(α, …, α), each word's topic drawn from θ (the experiments' law).

    Given its topic a word is uniform in it. With `overlap` = ω > 0 each topic also owns the first round(ω·words) words
    of the next one. `length` is the number of words of a document, fixed or (least, most) uniformly.
    """

    topics: int
    words: int
    length: int | tuple[int, int] = (100, 150)
    present: int | None = None
    dirichlet: float | None = None
    overlap: float = 0.0

    def __post_init__(self) -> None:
        whole("topics", self.topics)
        whole("words", self.words)
        if isinstance(self.length, tuple | list):
            if len(self.length) != 2:
                raise ArgumentError(f"length={self.length!r}: must be a whole number or a pair (least, most)")
            least = whole("length[0]", self.length[0])
            whole("length[1]", self.length[1], least=least)
            object.__setattr__(self, "length", (int(self.length[0]), int(self.length[1])))
        else:
            whole("length", self.length)
        if (self.present is None) == (self.dirichlet is None):
            raise ArgumentError(
                f"present={self.present!r}, dirichlet={self.dirichlet!r}: exactly one of the two must be given"
            )
        if self.present is not None:
            whole("present", self.present, least=1, most=self.topics)
        else:
            number("dirichlet", self.dirichlet, above=0.0)
        number("overlap", self.overlap, least=0.0, most=1.0)
        if self.shared_words and self.topics == 1:
            raise ArgumentError(f"overlap={self.overlap:g}: needs at least two topics")

    @property
    def vocab_size(self) -> int:
        return self.topics * self.words + 1

    @cached_property
    def vocab(self) -> Vocab:
        self._fits(64)  # bytes of a name
        names = [f"t{t}w{w}" for t in range(self.topics) for w in range(self.words)]
        return Vocab(("[MASK]", *names), mask=0)

    def _fits(self, size: int) -> None:
        """Closed forms take any number of topics; what has an entry for every word must fit into memory."""
        fits_in_memory("topics × words", (self.topics, self.words), self.vocab_size, size=size)

    @property
    def longest(self) -> int:
        return self.length[1] if isinstance(self.length, tuple) else self.length

    @property
    def mean_length(self) -> float:
        return sum(self.length) / 2 if isinstance(self.length, tuple) else float(self.length)

    @property
    def shared_words(self) -> int:
        """How many words each topic borrows from the next one."""
        return round(self.overlap * self.words)

    @cached_property
    def topic_of(self) -> Int[Tensor, " vocab"]:
        """Home topic of every token; −1 for [MASK]."""
        self._fits(8)
        return torch.cat([torch.tensor([-1]), torch.arange(self.topics).repeat_interleave(self.words)])

    @cached_property
    def emissions(self) -> Float[Tensor, "topics vocab"]:
        """P(token | topic)."""
        self._fits(8 * self.topics)
        offsets = torch.arange(self.words + self.shared_words)
        starts = torch.arange(self.topics)[:, None] * self.words
        members = 1 + (starts + offsets) % (self.topics * self.words)
        table = torch.zeros(self.topics, self.vocab_size, dtype=torch.float64)
        return table.scatter_(1, members, 1.0 / len(offsets))

    @cached_property
    def same_topic(self) -> Tensor:
        """Boolean vocab × vocab: two words share at least one topic ([MASK] shares none)."""
        member = (self.emissions > 0).double()
        return (member.T @ member) > 0

    @with_generator
    def sample(self, n: int, generator: torch.Generator, device: str | torch.device = "cpu") -> Batch:
        """`n` documents; `latents` hold the `topic` of every word and the topic `shares` of every document."""
        return self.sample_each(n, [generator], device)

    def sample_each(self, n: int, generators: Sequence[torch.Generator], device: str | torch.device = "cpu") -> Batch:
        """`n` documents from every generator, one generator after another: the same on every device.

        Shares, lengths and a seed of random bits come from the generators, on the CPU. The words are whole-number
        arithmetic on these: by numpy in shards side by side on the CPU, by tensors in one piece elsewhere.
        """
        whole("n", n, least=0)
        total, longest = n * len(generators), self.longest
        pairs = (longest + 1) // 2  # of words, which share 64 random bits
        small = np.int8 if self.topics <= _COMPARED else np.int32
        plan = _Plan(
            seeds=np.empty(total, dtype=np.int64),
            lengths=np.empty(total, dtype=np.int32),
            shares=np.empty((total, self.topics), dtype=np.float32),
            edges=np.empty((total, self.topics - 1), dtype=np.int32),
        )
        on_cpu = torch.device(device).type == "cpu"
        here = total if on_cpu else 0
        arrays = [np.empty((here, longest), dtype=kind) for kind in (np.int64, small, np.bool_)]

        # A generator of its own for every shard, so that shards can run side by side.
        shards = [
            (slice(i * n + start, i * n + min(start + _SHARD, n)), bulk_seed(generator))
            for i, generator in enumerate(generators)
            for start in range(0, n, _SHARD)
        ]

        def draw(shards: Sequence[tuple[slice, list[int]]]) -> None:
            for rows, seed in shards:
                self._draw_plan(_Plan(*(array[rows] for array in plan)), bulk_generator(seed))

        def write(blocks: Sequence[slice]) -> None:
            writer = _Writer(self)
            for rows in blocks:
                writer(_Plan(*(array[rows] for array in plan)), *(array[rows] for array in arrays))

        workers = max(1, min(len(shards), torch.get_num_threads(), os.cpu_count() or 1))
        blocks = [slice(start, start + _CACHED) for start in range(0, here, _CACHED)]
        if workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(draw, (shards[worker::workers] for worker in range(workers))))
                list(pool.map(write, (blocks[worker::workers] for worker in range(workers))))
        else:
            draw(shards)
            write(blocks)
        there = _Plan(*(torch.from_numpy(array).to(device) for array in plan))
        if on_cpu:
            x, topic, real = (torch.from_numpy(array) for array in arrays)
        else:
            x = torch.empty(total, longest, dtype=torch.int64, device=device)
            topic = torch.empty_like(x, dtype=torch.int8 if small is np.int8 else torch.int32)
            real = torch.arange(longest, device=device) < there.lengths[:, None]
            self._write(x, topic, there.edges, real, random_bits(there.seeds, pairs))
        return Batch(x=x, mask=real, latents={"topic": topic, "shares": there.shares}, vocab=self.vocab)

    def _draw_plan(self, plan: _Plan, rng: np.random.Generator) -> None:
        n = len(plan.seeds)
        plan.seeds[:] = row_seeds(n, rng)
        least, most = self.length if isinstance(self.length, tuple) else (self.length, self.length)
        plan.lengths[:] = rng.integers(least, most + 1, size=n)
        if self.present is not None:
            chosen = np.argsort(rng.random((n, self.topics), dtype=np.float32), axis=1)[:, : self.present]
            plan.shares[:] = 0.0
            np.put_along_axis(plan.shares, chosen, 1.0 / self.present, axis=1)
        else:
            plan.shares[:] = _dirichlet(rng, self.dirichlet or 0.0, (n, self.topics))
        sums = plan.shares.T.astype(np.float64, order="C")  # sideways: long rows are what numpy is fast at
        for k in range(1, self.topics):
            sums[k] += sums[k - 1]
        edges = sums[:-1]
        edges *= 2.0**31 / sums[-1]
        np.rint(edges, out=edges)
        edges -= 2.0**30
        plan.edges[:] = edges.T

    def _write(self, x: Tensor, topic: Tensor, edges: Tensor, real: Tensor, bits: Tensor) -> None:
        """Fill in `x` and `topic` from random `bits`."""
        # 32 bits a word: their multiple of the topic's size is the word above 2^32, and what is left below chooses the
        # topic by 31 bits from −2^30 up (probabilities to within size · 2^-32).
        size = self.words + self.shared_words
        bits = bits.view(edges.dtype)[:, : x.shape[1]]
        x.copy_(bits).mul_(size).add_(size << 31).bitwise_right_shift_(32)
        rest = (bits * size).bitwise_right_shift_(1)
        if self.topics <= _COMPARED:
            topic.zero_()
            for k in range(self.topics - 1):  # over topics, not documents
                topic += rest >= edges[:, k : k + 1]
        else:
            topic.copy_(torch.searchsorted(edges, rest, right=True))
        x.add_(topic, alpha=self.words)
        if self.shared_words:
            x %= self.topics * self.words
        x += 1
        x *= real
        topic *= real

    def infinite(self) -> Expectation:
        """The limit of infinitely long documents, exactly: every document *is* its word distribution.

        The support is the C(T, τ) sets of present topics, `batch.x[s]` the distribution over the vocabulary. Needs the
        law with `present` topics.
        """
        if self.present is None:
            raise ArgumentError("present=None: the infinite-document limit enumerates topic sets and needs present=τ")
        size = math.comb(self.topics, self.present)
        if size > _LARGEST_SUPPORT:
            raise ArgumentError(
                f"C({self.topics}, {self.present}) = {size} topic sets: at most {_LARGEST_SUPPORT} are enumerated"
            )
        sets = torch.tensor(list(itertools.combinations(range(self.topics), self.present)))
        shares = torch.zeros(size, self.topics, dtype=torch.float64).scatter_(1, sets, 1.0 / self.present)
        weights = torch.full((size,), 1.0 / size, dtype=torch.float64)
        return Expectation(Batch(x=shares @ self.emissions, latents={"shares": shares}, vocab=self.vocab), weights)


class _Plan(NamedTuple):
    """What is drawn once a document: numpy arrays, or the same as tensors."""

    seeds: Any
    lengths: Any
    shares: Any
    edges: Any  # between topics, on the scale of the high bits


class _Writer:
    """`TopicModel._write` in numpy, to the same bits.

    Numbers of 32 bits in place of 64, no mixed types, and arrays that are made once and stay in the cache: fresh ones
    would cost as much as the arithmetic.
    """

    def __init__(self, world: TopicModel) -> None:
        self.world = world
        longest, pairs = world.longest, (world.longest + 1) // 2
        self.reals = np.tri(longest + 1, longest, -1, dtype=np.bool_)  # by length
        self.bits = np.empty((_CACHED, pairs), dtype=np.int64)
        self.shifted = np.empty((_CACHED, pairs), dtype=np.uint64)
        self.whole, self.part = (np.empty((_CACHED, longest), dtype=np.uint32) for _ in range(2))
        self.flags = np.empty((_CACHED, longest), dtype=np.bool_)

    def __call__(self, plan: _Plan, x: np.ndarray, topic: np.ndarray, real: np.ndarray) -> None:
        np.take(self.reals, plan.lengths, axis=0, out=real, mode="clip")
        write_bits(plan.seeds, self.bits[: len(x)], self.shifted)
        self._write(x, topic, plan.edges, real)

    def _write(self, x: np.ndarray, topic: np.ndarray, edges: np.ndarray, real: np.ndarray) -> None:
        world, n = self.world, len(x)
        size = world.words + world.shared_words
        bits = self.bits[:n].view(np.uint32)[:, : x.shape[1]]
        whole, part, flags = self.whole[:n], self.part[:n], self.flags[:n]
        rest = np.multiply(bits, np.uint32(size), out=part).view(np.int32)
        rest >>= 1
        if world.topics <= _COMPARED:
            topic[:] = 0
            for k in range(world.topics - 1):  # over topics, not documents
                np.greater_equal(rest, edges[:, k : k + 1], out=flags)
                topic += flags.view(topic.dtype)
        else:
            topic[:] = torch.searchsorted(torch.from_numpy(edges), torch.from_numpy(rest), right=True)
        bits ^= np.uint32(1 << 31)  # from signed to counted from 0
        if size < 2**16:  # the upper 32 bits of size · bits, by long multiplication
            np.bitwise_and(bits, 0xFFFF, out=whole)
            whole *= size
            whole >>= 16
            np.right_shift(bits, 16, out=part)
            part *= size
            whole += part
            whole >>= 16
        else:
            whole[:] = bits.astype(np.uint64) * np.uint64(size) >> np.uint64(32)
        part[:] = topic.view(f"u{topic.dtype.itemsize}")
        part *= world.words
        whole += part
        if world.shared_words:
            whole %= world.topics * world.words
        whole += 1
        part[:] = real
        whole *= part
        x[:] = whole
        topic *= real.view(topic.dtype) if topic.dtype == np.int8 else part.view(topic.dtype)


def _dirichlet(rng: np.random.Generator, concentration: float, shape: tuple[int, int]) -> np.ndarray:
    """Rows θ ~ Dirichlet(α, …, α), by logarithms: γ(α) = γ(α + 1) · e^(−E/α), E ~ Exp(1), underflows if α is small."""
    sideways = shape[::-1]  # sums over the first dimension are faster
    drawn = np.log(rng.standard_gamma(concentration + 1, sideways, dtype=np.float32))
    drawn -= rng.standard_exponential(sideways, dtype=np.float32) / np.float32(concentration)
    drawn -= drawn.max(axis=0)
    np.exp(drawn, out=drawn)
    drawn /= drawn.sum(axis=0)
    return drawn.T
