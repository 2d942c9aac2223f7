"""Mask laws: which positions a masked model must predict, and what it sees there."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import LARGEST, ArgumentError, capped_power, items, number, probability, shown, typed, whole
from sandtable.worlds.finite import all_states, invert, places, state_count, uniform

MOST_BLOCKS = 2**20
"""The largest family of blocks that is written down."""


@dataclass(frozen=True)
class BertMasking:
    """The (p_m, p_c, p_r) scheme of BERT.

    Each position is selected with probability `select` = p_m. A selected position shows its true token with
    probability `keep` = p_c, a uniformly random word with probability `random` = p_r (which may be the true one), and
    the mask token otherwise.
    """

    select: float = 0.15
    keep: float = 0.1
    random: float = 0.1

    def __post_init__(self) -> None:
        probability("select", self.select)
        probability("keep", self.keep)
        probability("random", self.random)
        if self.select == 0:
            raise ArgumentError("select=0: must be > 0, or no position is ever predicted")
        if self.keep + self.random > 1:
            raise ArgumentError(f"keep + random = {self.keep + self.random:g}: must be ≤ 1")

    @property
    def hide(self) -> float:
        """Probability that a selected position shows the mask token: 1 − p_c − p_r."""
        return max(0.0, 1.0 - self.keep - self.random)


# -- laws of which block is hidden -----------------------------------------------------------------------------------


class MaskLaw(ABC):
    """p(K | x) over a finite family of blocks K ⊆ [N] that together cover [N].

    One object for both sides of masked modelling: in training it says what is to be predicted, in generation what is
    drawn anew. A subclass is a frozen dataclass.
    """

    @property
    @abstractmethod
    def length(self) -> int:
        """N."""

    @property
    @abstractmethod
    def family(self) -> Bool[Tensor, "block position"]:
        """The blocks: true at the positions that a block hides."""

    @abstractmethod
    def probs(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, "batch block"]:
        """p(K | x) for every row and block."""

    @property
    def adaptive(self) -> bool:
        """Whether p(K | x) depends on x."""
        return False

    @property
    def most_hidden(self) -> int:
        """How many positions the largest block hides."""
        return int(self.family.sum(1).max())

    def draw(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Int[Tensor, " batch"]:
        """The index of one block for every row."""
        u = torch.rand(len(x), 1, generator=generator, dtype=torch.float64)
        return invert(self.probs(x).cumsum(1), u)[:, 0]

    def hide(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Bool[Tensor, "batch position"]:
        """One block for every row: true at the positions that it hides. Training and samplers draw blocks here.

        Laws whose blocks are too many to be listed are drawn without a list.
        """
        return self.family[self.draw(x.cpu(), generator)].to(x.device)

    def index(self, hidden: Bool[Tensor, " position"]) -> int:
        """Which block of the family hides exactly these positions."""
        found = (self.family == hidden).all(1).nonzero()
        if not len(found):
            raise ArgumentError(f"hidden={hidden.nonzero()[:, 0].tolist()}: not a block of this mask law")
        return int(found[0, 0])

    def log_prob(self, x: Int[Tensor, "batch position"], hidden: Bool[Tensor, " position"]) -> Float[Tensor, " batch"]:
        """log p(K | x) of one block for every row."""
        return self.probs(x)[:, self.index(hidden)].log()


class _Independent(MaskLaw):
    """A mask law that does not look at x."""

    @property
    @abstractmethod
    def weights(self) -> Float[Tensor, " block"]:
        """p(K)."""

    @property
    def length(self) -> int:
        return self.family.shape[1]

    def probs(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, "batch block"]:
        return self.weights.expand(self._rows(x), -1)

    def draw(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Int[Tensor, " batch"]:
        u = torch.rand(self._rows(x), generator=generator, dtype=torch.float64)
        return invert(self.weights.cumsum(0), u)

    def hide(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Bool[Tensor, "batch position"]:
        return self.family[self.draw(x, generator)].to(x.device)

    def _keys(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Float[Tensor, "batch position"]:
        """A uniform number for every position."""
        return uniform((self._rows(x), self.length), generator, x.device)

    def _rows(self, x: Int[Tensor, "batch position"]) -> int:
        if x.ndim != 2 or x.shape[1] != self.length:
            raise ArgumentError(f"x of shape {tuple(x.shape)}: must be rows of {self.length} positions")
        return len(x)


@dataclass(frozen=True)
class UniformSize(_Independent):
    """All blocks of `k` out of `positions` places, equally likely: k-pseudolikelihood, and the k-Gibbs sampler."""

    positions: int
    k: int

    def __post_init__(self) -> None:
        whole("positions", self.positions)
        whole("k", self.k, most=self.positions)

    @property
    def length(self) -> int:
        return self.positions

    @property
    def most_hidden(self) -> int:
        return self.k

    def hide(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Bool[Tensor, "batch position"]:
        keys = self._keys(x, generator)  # the places of the k largest are any k places
        return keys >= keys.topk(self.k, dim=1, sorted=False).values.amin(1, keepdim=True)

    @cached_property
    def family(self) -> Bool[Tensor, "block position"]:
        fewest = min(self.k, self.positions - self.k)  # C(N, k) ≥ 2^k, and takes long where both are large
        count = math.comb(self.positions, fewest) if fewest < 64 else LARGEST
        _few(count, f"positions={self.positions}, k={self.k}")
        # torch.combinations would write down all N^k tuples first.
        chosen = torch.tensor(list(combinations(range(self.positions), self.k)))
        return torch.zeros(len(chosen), self.positions, dtype=torch.bool).scatter(1, chosen, True)

    @cached_property
    def weights(self) -> Float[Tensor, " block"]:
        return torch.full((len(self.family),), 1 / len(self.family), dtype=torch.float64)


@dataclass(frozen=True)
class UniformSubset(_Independent):
    """Every position hidden with probability `rate`, alone for itself; ½ makes all subsets equally likely.

    The empty block is among them: then nothing is predicted, or drawn.
    """

    positions: int
    rate: float = 0.5

    def __post_init__(self) -> None:
        whole("positions", self.positions)
        number("rate", self.rate, above=0.0, most=1.0)

    @property
    def length(self) -> int:
        return self.positions

    @property
    def most_hidden(self) -> int:
        return self.positions

    def hide(self, x: Int[Tensor, "batch position"], generator: torch.Generator) -> Bool[Tensor, "batch position"]:
        return self._keys(x, generator) < self.rate

    @cached_property
    def family(self) -> Bool[Tensor, "block position"]:
        _few(capped_power(2, self.positions), f"positions={self.positions}")
        codes = torch.arange(2**self.positions)
        return (codes[:, None] >> torch.arange(self.positions - 1, -1, -1) & 1).bool()

    @cached_property
    def weights(self) -> Float[Tensor, " block"]:
        hidden = self.family.sum(1).double()
        return self.rate**hidden * (1.0 - self.rate) ** (self.positions - hidden)


@typed
@dataclass(frozen=True)
class Blocks(_Independent):
    """Any family of blocks, each a tuple of positions, with its probabilities (None: equally likely)."""

    positions: int
    blocks: tuple[tuple[int, ...], ...]
    probabilities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        whole("positions", self.positions)
        object.__setattr__(self, "blocks", _blocks(self.blocks, self.positions))
        if self.probabilities is not None:
            object.__setattr__(self, "probabilities", _law(self.probabilities, len(self.blocks)))
            used = [block for block, p in zip(self.blocks, self.probabilities, strict=True) if p > 0]
            _covers(used, self.positions)

    @cached_property
    def family(self) -> Bool[Tensor, "block position"]:
        return _family(self.blocks, self.positions)

    @cached_property
    def weights(self) -> Float[Tensor, " block"]:
        count = len(self.blocks)
        return torch.tensor(self.probabilities or (1 / count,) * count, dtype=torch.float64)


@typed
@dataclass(frozen=True)
class AdaptiveBlocks(MaskLaw):
    """p(K | x) as a table: for every state of Ω^N, in the order of the codes, a law over `blocks`."""

    positions: int
    blocks: tuple[tuple[int, ...], ...]
    table: tuple[tuple[float, ...], ...]
    symbols: int = 2

    def __post_init__(self) -> None:
        count = state_count(self.symbols, whole("positions", self.positions))
        object.__setattr__(self, "blocks", _blocks(self.blocks, self.positions))
        rows = items("table", self.table, "rows")
        if len(rows) != count:
            raise ArgumentError(f"table of {len(rows)} rows: must be one for each of {count} states")
        object.__setattr__(self, "table", tuple(_law(row, len(self.blocks)) for row in rows))
        used = [block for block, column in zip(self.blocks, zip(*self.table, strict=True), strict=True) if any(column)]
        _covers(used, self.positions)

    @classmethod
    def of(
        cls,
        positions: int,
        blocks: Sequence[Sequence[int]],
        rule: Callable[[Int[Tensor, "states position"]], Float[Tensor, "states block"]],
        *,
        symbols: int = 2,
    ) -> AdaptiveBlocks:
        """From a rule that gives every state its law over the blocks; single precision is enough."""
        states, found = all_states(symbols, whole("positions", positions)), items("blocks", blocks, "blocks")
        if not callable(rule):
            raise ArgumentError(f"rule={shown(rule)}: must be a function of states, state × position")
        table = rule(states)
        if not isinstance(table, Tensor) or table.shape != (len(states), len(found)):
            what = f"a tensor {tuple(table.shape)}" if isinstance(table, Tensor) else f"a {type(table).__name__}"
            raise ArgumentError(f"rule: gives {what}; must be a tensor ({len(states)}, {len(found)}), state × block")
        table = table.double()
        total = table.sum(1, keepdim=True)
        table = torch.where((total - 1).abs() < 1e-6, table / total, table)
        return cls(positions, tuple(found), tuple(map(tuple, table.tolist())), symbols)

    @property
    def length(self) -> int:
        return self.positions

    @property
    def adaptive(self) -> bool:
        return True

    @cached_property
    def family(self) -> Bool[Tensor, "block position"]:
        return _family(self.blocks, self.positions)

    @cached_property
    def _table(self) -> Float[Tensor, "states block"]:
        return torch.tensor(self.table, dtype=torch.float64)

    def probs(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, "batch block"]:
        if x.ndim != 2 or x.shape[1] != self.length or bool(((x < 0) | (x >= self.symbols)).any()):
            raise ArgumentError(
                f"x of shape {tuple(x.shape)}: must be rows of {self.length} symbols from 0 to {self.symbols - 1}"
            )
        return self._table[(x * places(self.symbols, self.length)).sum(1)]


def _few(count: int, what: str) -> None:
    if count > MOST_BLOCKS:
        much = f"{count:,} blocks are" if count < LARGEST else "the blocks are"
        raise ArgumentError(f"{what}: {much} too many to enumerate, at most {MOST_BLOCKS:,}")


def _blocks(blocks: Any, positions: int) -> tuple[tuple[int, ...], ...]:
    found = []
    for block in items("blocks", blocks, "blocks"):
        row = tuple(whole("position", place, least=0, most=positions - 1) for place in items("block", block))
        if len(set(row)) < len(row):
            raise ArgumentError(f"block={row!r}: must name each position once")
        found.append(tuple(sorted(row)))
    if len(set(found)) < len(found):
        raise ArgumentError(f"blocks={found!r}: must differ from one another")
    _covers(found, positions)
    return tuple(found)


def _covers(blocks: Sequence[tuple[int, ...]], positions: int) -> None:
    covered = set().union(*blocks)
    if len(covered) < positions:
        missing = next(place for place in range(positions) if place not in covered)
        raise ArgumentError(f"blocks: no block hides position {missing}; together they must cover 0 to {positions - 1}")


def _law(values: Any, count: int) -> tuple[float, ...]:
    law = tuple(number("probability", p, least=0.0) for p in items("probabilities", values))
    if len(law) != count or not abs(sum(law) - 1) <= 1e-9:
        raise ArgumentError(f"probabilities of sum {sum(law):.9g}: must be {count} numbers, one per block, with sum 1")
    return law


def _family(blocks: Sequence[tuple[int, ...]], positions: int) -> Bool[Tensor, "block position"]:
    family = torch.zeros(len(blocks), positions, dtype=torch.bool)
    for row, block in enumerate(blocks):
        family[row, list(block)] = True
    return family
