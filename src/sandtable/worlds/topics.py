"""Topic worlds: bag-of-words documents whose words come from a few topics (Li, Li & Risteski 2023; LDA)."""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole
from sandtable.worlds.base import Batch, Expectation, Vocab, bulk_generator

_SHARD = 1024  # documents drawn at a time: small enough to stay in cache, large enough to hide numpy's call cost
_LARGEST_SUPPORT = 50_000


@dataclass(frozen=True)
class TopicModel:
    """Documents of `topics` × `words` words; token 0 is [MASK], word i ≥ 1 belongs to topic ⌈i / words⌉.

    Exactly one of two laws for the topics of a document:

    - `present` = τ: a uniformly random set of τ distinct topics, each word's topic uniform in it (the theory's law);
    - `dirichlet` = α: topic shares θ ~ Dirichlet(α, …, α), each word's topic drawn from θ (the experiments' law).

    Given its topic a word is uniform in it. With `overlap` = ω > 0 each topic also owns the first round(ω·words) words of
    the next one. `length` is the number of words of a document, fixed or (least, most) uniformly.
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
        names = [f"t{t}w{w}" for t in range(self.topics) for w in range(self.words)]
        return Vocab(("[MASK]", *names), mask=0)

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
        return torch.cat([torch.tensor([-1]), torch.arange(self.topics).repeat_interleave(self.words)])

    @cached_property
    def emissions(self) -> Float[Tensor, "topics vocab"]:
        """P(token | topic)."""
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

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` documents; `latents` hold the `topic` of every word and the topic `shares` of every document."""
        whole("n", n, least=0)
        x = np.zeros((n, self.longest), dtype=np.int64)
        topic = np.zeros((n, self.longest), dtype=np.int8 if self.topics < 128 else np.int32)
        shares = np.zeros((n, self.topics), dtype=np.float32)
        lengths = np.full(n, self.longest, dtype=np.int64)
        # A generator of its own for every shard, so that shards can run side by side.
        starts = range(0, n, _SHARD)
        generators = [bulk_generator(generator) for _ in starts]

        def fill(start: int, rng: np.random.Generator) -> None:
            rows = slice(start, min(start + _SHARD, n))
            self._draw(rng, x[rows], topic[rows], shares[rows], lengths[rows])

        workers = min(len(starts), torch.get_num_threads(), os.cpu_count() or 1)
        if workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(fill, starts, generators))
        else:
            for start, rng in zip(starts, generators, strict=True):
                fill(start, rng)
        mask = np.arange(self.longest) < lengths[:, None]
        return Batch(
            x=torch.from_numpy(x),
            mask=torch.from_numpy(mask),
            latents={"topic": torch.from_numpy(topic), "shares": torch.from_numpy(shares)},
            vocab=self.vocab,
        )

    def _draw(
        self, rng: np.random.Generator, x: np.ndarray, topic: np.ndarray, shares: np.ndarray, lengths: np.ndarray
    ) -> None:
        n, longest = x.shape
        if isinstance(self.length, tuple):
            lengths[:] = rng.integers(self.length[0], self.length[1] + 1, size=n)
        if self.present is not None:
            chosen = np.argsort(rng.random((n, self.topics), dtype=np.float32), axis=1)[:, : self.present]
            np.put_along_axis(shares, chosen, 1.0 / self.present, axis=1)
        else:
            shares[:] = rng.standard_gamma(self.dirichlet, (n, self.topics), dtype=np.float32)
            shares /= shares.sum(axis=1, keepdims=True)
        # 64 random bits a word: the high half chooses its topic (probabilities to within 2^-32), the low half the word.
        bits = rng.bit_generator.random_raw((n, longest)).view(np.uint32).reshape(n, longest, 2)
        if self.present is not None:
            index = (bits[..., 1].astype(np.uint64) * np.uint64(self.present)) >> np.uint64(32)
            topic[:] = np.take_along_axis(chosen, index.astype(np.int64), axis=1)
        else:
            self._topics_by_share(bits[..., 1], shares, topic)
        size = self.words + self.shared_words
        np.right_shift(bits[..., 0].astype(np.uint64) * np.uint64(size), np.uint64(32), out=x.view(np.uint64))
        np.add(x, topic.astype(np.int64) * self.words, out=x)
        if self.shared_words:
            np.remainder(x, self.topics * self.words, out=x)
        x += 1
        padding = np.arange(longest) >= lengths[:, None]
        x[padding] = 0
        topic[padding] = 0

    def _topics_by_share(self, bits: np.ndarray, shares: np.ndarray, out: np.ndarray) -> None:
        edges = np.cumsum(shares, axis=1, dtype=np.float64)[:, :-1]
        edges = np.minimum(edges * 2.0**32, 2.0**32 - 1).astype(np.uint32)
        if self.topics <= 64:
            bits = np.ascontiguousarray(bits)
            out[:] = 0
            for k in range(self.topics - 1):  # over topics, not documents
                out += bits >= edges[:, k, None]
        else:
            found = torch.searchsorted(
                torch.from_numpy(edges.astype(np.int64)), torch.from_numpy(bits.astype(np.int64)), right=True
            )
            out[:] = found.numpy()

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
