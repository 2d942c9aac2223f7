"""Laws over Ω^N that are small enough to write down: every probability, every conditional, by enumeration.

A state x ∈ Ω^N has the code Σ_i x_i |Ω|^{N−1−i}: the first position counts most, so a table of shape (|Ω|, …, |Ω|)
lists its entries in the order of their codes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import LARGEST, ArgumentError, capped_power, items, numbers, typed, whole, with_generator
from sandtable.worlds.base import Batch, Expectation, Vocab
from sandtable.worlds.bits import bulk_generator

if TYPE_CHECKING:
    from sandtable.worlds.masks import MaskLaw

MOST_STATES = 2**20
"""The largest table that is written down."""
MOST_ENTRIES = 2**22
"""Entries of a table of completions that is held at once."""


def state_count(symbols: int, length: int) -> int:
    """|Ω|^N, or an `ArgumentError` where the table would have more than 2^20 entries."""
    return _listed(f"length={whole('length', length)}", whole("symbols", symbols, least=2), length, "states")


def completion_count(symbols: int, hidden: int) -> int:
    """|Ω|^|K|, or an `ArgumentError` where there are more than 2^20 completions of one block."""
    return _listed(f"block of {hidden} positions", symbols, hidden, "completions")


def _listed(what: str, symbols: int, length: int, things: str) -> int:
    count = capped_power(symbols, length)
    if count > MOST_STATES:
        number = f"{symbols}^{length}" + (f" = {count:,}" if count < LARGEST else "")
        raise ArgumentError(f"{what}: {number} {things} are too many to enumerate, at most {MOST_STATES:,}")
    return count


def all_states(symbols: int, length: int) -> Int[Tensor, "states position"]:
    """Every x ∈ Ω^N in the order of the codes."""
    codes = torch.arange(state_count(symbols, length))
    return codes[:, None] // places(symbols, length) % symbols


def places(symbols: int, length: int) -> Int[Tensor, " position"]:
    """What a symbol at each position adds to the code of its state."""
    if capped_power(symbols, length) == LARGEST:
        raise ArgumentError(f"length={length}: {symbols}^{length} states are too many for codes of 64 bits")
    return torch.tensor([symbols ** (length - 1 - i) for i in range(length)], dtype=torch.long)


def invert(ladder: Float[Tensor, "*rows step"], u: Float[Tensor, "*rows draw"]) -> Int[Tensor, "*rows draw"]:
    """Inversion: the step of a ladder of cumulated weights on which u ∈ [0, 1) falls, never one of weight 0."""
    last = (ladder < ladder[..., -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(ladder, u * ladder[..., -1:], right=True), last)


def uniform(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Float[Tensor, ...]:
    """Numbers in [0, 1) with 53 bits, so that two of them are never the same, drawn where the generator lives.

    On the CPU numpy draws them, from a seed that is one draw of the generator.
    """
    if generator.device.type == "cpu":
        return torch.from_numpy(bulk_generator(generator).random(shape)).to(device)
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device).to(device)


def over_hidden(
    values: Float[Tensor, "states ..."], hidden: Bool[Tensor, " position"], symbols: int
) -> Float[Tensor, "visible ..."]:
    """Sums over what stands at the hidden positions: one row for every x_−K, in the order of its code."""
    length, rest = len(hidden), values.shape[1:]
    axes = hidden.nonzero()[:, 0].tolist()
    table = values.reshape(*(symbols,) * length, *rest)
    return (table.sum(axes) if axes else table).reshape(-1, *rest)


def marginals(
    values: Float[Tensor, "states column"], family: Bool[Tensor, "block position"], symbols: int
) -> Iterator[tuple[int, Float[Tensor, "visible column"]]]:
    """`over_hidden` for every block of a family, as (block, sums), in whatever order.

    Blocks that begin alike share the sums over what they begin with: all subsets together take at most (|Ω|+1)^{N+1}
    terms, where one by one they take (2|Ω|)^N.
    """
    length = family.shape[1]

    def below(table: Tensor, place: int, blocks: list[int]) -> Iterator[tuple[int, Tensor]]:
        if place == length:
            yield from ((block, table[:, 0]) for block in blocks)
            return
        hides = [block for block in blocks if hidden[block][place]]
        shows = [block for block in blocks if not hidden[block][place]]
        table = table.reshape(len(table), symbols, symbols ** (length - 1 - place), -1)
        if shows:
            yield from below(table.flatten(0, 1), place + 1, shows)
        if hides:
            yield from below(table.sum(1), place + 1, hides)

    hidden = family.tolist()
    return below(values[None], 0, list(range(len(hidden))))


def conditional_log_probs(
    log_weights: Float[Tensor, " states"],
    hidden: Bool[Tensor, " position"],
    symbols: int,
    chosen: Float[Tensor, " states"] | None = None,
) -> Float[Tensor, " states"]:
    """log p(x_K | x_−K) of every state x; with `chosen` = log p(K | x), log p(x_K | x_−K, K).

    Differentiable in the weights; 0 for an empty block.
    """
    axes = hidden.nonzero()[:, 0].tolist()
    if not axes:
        return torch.zeros_like(log_weights)
    if chosen is not None:  # finite, so that a block that is never chosen has a conditional and a gradient all the same
        log_weights = log_weights + chosen.clamp(min=-1e30)
    table = log_weights.reshape((symbols,) * len(hidden))
    return (table - torch.logsumexp(table, axes, keepdim=True)).reshape(-1)


class FiniteLaw(ABC):
    """A law over Ω^N. A subclass is a frozen dataclass that says `length`, `symbols` and `log_weights`."""

    @property
    @abstractmethod
    def length(self) -> int: ...

    @property
    def symbols(self) -> int:
        return 2

    @abstractmethod
    def log_weight(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """log p(x) up to a constant (−∞ where p(x) = 0)."""

    @property
    def vocab(self) -> Vocab:
        return Vocab(tuple(str(symbol) for symbol in range(self.symbols)))

    @cached_property
    def states(self) -> Int[Tensor, "states position"]:
        """Every x, in the order of the codes."""
        return all_states(self.symbols, self.length)

    @cached_property
    def log_probs(self) -> Float[Tensor, " states"]:
        """log p of every state."""
        return self.log_weight(self.states).double().log_softmax(0)

    @cached_property
    def probs(self) -> Float[Tensor, " states"]:
        """p of every state."""
        return self.log_probs.exp()

    def codes(self, x: Int[Tensor, "*batch position"]) -> Int[Tensor, " *batch"]:
        """The code of every row; a row that is not in Ω^N is refused."""
        self.check(x)
        return (x * places(self.symbols, self.length).to(x.device)).sum(-1)

    def check(self, x: Int[Tensor, "*batch position"]) -> None:
        """An `ArgumentError` unless every row of `x` is a state."""
        if not isinstance(x, Tensor) or x.is_floating_point() or x.ndim < 1 or x.shape[-1] != self.length:
            shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ArgumentError(f"x of shape {shape}: must be whole numbers, {self.length} to a state")
        _inside(x, self.symbols)

    def _rows(self, x: Int[Tensor, "batch position"]) -> None:
        self.check(x)
        if x.ndim != 2:
            raise ArgumentError(f"x of shape {tuple(x.shape)}: must be rows of {self.length} symbols")

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` independent states, by inversion of the table."""
        u = torch.rand(whole("n", n, least=0), generator=generator, dtype=torch.float64)
        x = self.states[invert(self.probs.cumsum(0), u)]
        return Batch(x=x, mask=torch.ones_like(x, dtype=torch.bool), vocab=self.vocab)

    def log_prob(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """log p of every row."""
        return self.log_probs[self.codes(batch.x if isinstance(batch, Batch) else batch)]

    @property
    def listed(self) -> bool:
        """Whether Ω^N is small enough to be written down."""
        return capped_power(self.symbols, self.length) <= MOST_STATES

    def completed(
        self, x: Int[Tensor, "batch position"], block: Int[Tensor, "batch hidden"]
    ) -> Int[Tensor, "batch completion"]:
        """The codes of every row with every completion of x_K, K its row of `block`; completions in their own order."""
        place = places(self.symbols, self.length).to(x.device)
        inside = place[block]
        visible = (x * place).sum(1) - (x.gather(1, block) * inside).sum(1)
        return visible[:, None] + inside @ all_states(self.symbols, block.shape[1]).to(x.device).T

    def log_completions(
        self, x: Int[Tensor, "batch position"], block: Int[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch completion"]:
        """log p of every row with every completion of x_K, up to a constant; K is its row of `block`.

        The cost grows like |Ω|^|K|, at any N: where Ω^N is too large for a table, weights are computed.
        """
        completion_count(self.symbols, block.shape[1])
        if self.listed:
            return self.log_probs.to(x.device)[self.completed(x, block)]
        out = []
        step = max(1, MOST_ENTRIES // max(1, len(x) * self.length))
        for fill in all_states(self.symbols, block.shape[1]).split(step):
            here = block[:, None].expand(-1, len(fill), -1)
            filled = x[:, None].repeat(1, len(fill), 1).scatter_(2, here, fill.to(x).expand(len(x), -1, -1))
            out.append(self.log_weight(filled.flatten(0, 1)).view(len(x), len(fill)))
        return torch.cat(out, 1)

    def block_conditional(
        self, x: Int[Tensor, "batch position"], block: Sequence[int], masks: MaskLaw | None = None
    ) -> Float[Tensor, "batch completion"]:
        """p(x_K = · | x_−K) for one block K, completions in the order of their codes; any N, the cost is |Ω|^|K|.

        With an adaptive mask law, p(· | x_−K, K) ∝ p(x) p(K | x): what a position shows when K was chosen for it.
        """
        self._rows(x)
        block = [whole("block", place, least=0, most=self.length - 1) for place in block]
        if len(set(block)) < len(block) or not block:
            raise ArgumentError(f"block={block!r}: must name at least one position, each once")
        rows = torch.tensor(block).expand(len(x), -1)
        logits = self.log_completions(x, rows)
        if masks is not None:
            if masks.length != self.length:
                raise ArgumentError(f"masks over {masks.length} positions: the law has {self.length}")
            hidden = torch.zeros(self.length, dtype=torch.bool)
            hidden[block] = True
            logits = logits + masks.log_prob(self.states[self.completed(x, rows).flatten()], hidden).view(logits.shape)
        if bool((logits.amax(1) == -math.inf).any()):
            raise ArgumentError("x: a row has probability 0 whatever stands at the hidden positions")
        return logits.softmax(1)

    def conditional(
        self, x: Int[Tensor, "batch position"], mask: Bool[Tensor, "batch position"]
    ) -> Float[Tensor, "batch position vocab"]:
        """p(x_i | x_−K) for every position of a row, K its hidden positions; a point mass where it is visible."""
        self._rows(x)
        if mask.shape != x.shape or mask.dtype != torch.bool:
            raise ArgumentError(f"mask of shape {tuple(mask.shape)}, {mask.dtype}: must be true or false for each of x")
        out = torch.nn.functional.one_hot(x, self.symbols).double()
        for pattern in mask.unique(dim=0):
            block = pattern.nonzero()[:, 0]
            if not len(block):
                continue
            rows = (mask == pattern).all(1).nonzero()[:, 0]
            joint = self.block_conditional(x[rows], block.tolist())
            filled = torch.nn.functional.one_hot(all_states(self.symbols, len(block)), self.symbols).double()
            out[rows[:, None], block] = torch.einsum("rc,cis->ris", joint, filled)
        return out

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        """p(x_{i+1} | x_1 … x_i)."""
        width = prefix.shape[1]
        if width >= self.length:
            raise ArgumentError(f"prefix of {width} symbols: must have at most {self.length - 1}")
        _inside(prefix, self.symbols)
        ahead = self.probs.view(self.symbols**width, self.symbols, -1).sum(2)
        rows = ahead[(prefix * places(self.symbols, width)).sum(1)]
        if bool((rows.sum(1) == 0).any()):
            raise ArgumentError("prefix: a row begins no state of positive probability")
        return rows / rows.sum(1, keepdim=True)

    @property
    def expectation(self) -> Expectation:
        """The law as an exact expectation, for `fit`."""
        real = torch.ones_like(self.states, dtype=torch.bool)
        return Expectation(Batch(x=self.states, mask=real, vocab=self.vocab), self.probs)


@dataclass(frozen=True)
class Table(FiniteLaw):
    """Any law over Ω^N: nested sequences of depth N, `table[x_1][x_2]…[x_N]` = p(x)."""

    table: Any

    def __post_init__(self) -> None:
        try:
            values = torch.as_tensor(self.table, dtype=torch.float64)
        except (TypeError, ValueError) as error:
            raise ArgumentError("table: must be nested sequences of numbers, equally long at every depth") from error
        if values.ndim < 1 or len(set(values.shape)) > 1 or values.shape[0] < 2:
            raise ArgumentError(f"table of shape {tuple(values.shape)}: must have the same size ≥ 2 in every direction")
        state_count(values.shape[0], values.ndim)
        total = float(values.sum())
        if not bool((values >= 0).all()) or not abs(total - 1) <= 1e-9:
            raise ArgumentError(f"table with sum {total:.9g}: probabilities must be non-negative and sum to 1")
        object.__setattr__(self, "table", _frozen(values.tolist()))

    @classmethod
    def random(cls, length: int, generator: torch.Generator, *, symbols: int = 2) -> Table:
        """A law drawn uniformly from all laws over Ω^N."""
        count = state_count(symbols, length)
        weights = -torch.rand(count, generator=generator, dtype=torch.float64).clamp(min=1e-300).log()
        return cls((weights / weights.sum()).reshape((symbols,) * length))

    @cached_property
    def _values(self) -> Float[Tensor, " states"]:
        return torch.tensor(self.table, dtype=torch.float64)

    @property
    def length(self) -> int:
        return self._values.ndim

    @property
    def symbols(self) -> int:
        return self._values.shape[0]

    def log_weight(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        return self._values.flatten()[self.codes(x)].log()


@typed
@dataclass(frozen=True)
class Mixture(FiniteLaw):
    """Σ_j weights_j p_j, of laws over one Ω^N."""

    laws: tuple[FiniteLaw, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        laws = tuple(items("laws", self.laws, "laws"))
        if not laws or not all(isinstance(law, FiniteLaw) for law in laws):
            raise ArgumentError(f"laws of {[type(law).__name__ for law in laws]}: must be laws over Ω^N, at least one")
        if len({(law.length, law.symbols) for law in laws}) > 1:
            sizes = ", ".join(f"{law.symbols}^{law.length}" for law in laws)
            raise ArgumentError(f"laws over {sizes} states: must all be over the same Ω^N")
        weights = numbers("weights", self.weights, least=0.0)
        if len(weights) != len(laws) or not abs(sum(weights) - 1) <= 1e-9:
            raise ArgumentError(
                f"weights={weights!r} of sum {sum(weights):.9g}: must be one for each of {len(laws)} laws, with sum 1"
            )
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "weights", weights)

    @property
    def length(self) -> int:
        return self.laws[0].length

    @property
    def symbols(self) -> int:
        return self.laws[0].symbols

    def log_weight(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        codes, weights = self.codes(x), torch.tensor(self.weights, dtype=torch.float64)
        return (weights[:, None] * torch.stack([law.probs[codes] for law in self.laws])).sum(0).log()


def _inside(x: Int[Tensor, "*batch position"], symbols: int) -> None:
    """An `ArgumentError` where a row holds anything but symbols."""
    wrong = (x < 0) | (x >= symbols)
    if bool(wrong.any()):
        raise ArgumentError(f"x holds {int(x[wrong][0])}: a state has symbols from 0 to {symbols - 1}")


def _frozen(values: Any) -> Any:
    return tuple(map(_frozen, values)) if isinstance(values, list) else values
