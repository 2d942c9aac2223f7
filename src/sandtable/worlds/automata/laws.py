"""Laws of the inputs an automaton reads: what `Automaton.law` may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, probability, typed, whole, wholes

if TYPE_CHECKING:
    from sandtable.worlds.automata.automaton import Automaton


@runtime_checkable
class InputLaw(Protocol):
    """How inputs are drawn."""

    def draw(self, automaton: Automaton, n: int, length: int, generator: torch.Generator) -> Int[Tensor, "n position"]:
        """`n` rows of `length` tokens for an automaton that begins in its start state."""
        ...


@runtime_checkable
class StateLaw(InputLaw, Protocol):
    """An input law that looks at nothing but the current state: states are then a Markov chain."""

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        """P(next token | state)."""
        ...


class _Independent:
    """Tokens drawn independently, whatever the state: all rows of `rows` are alike."""

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        raise NotImplementedError

    def draw(self, automaton: Automaton, n: int, length: int, generator: torch.Generator) -> Int[Tensor, "n position"]:
        weights = self.rows(automaton)[0]
        if bool((weights == weights[0]).all()):
            return torch.randint(automaton.n_tokens, (n, length), generator=generator)
        edges = weights.cumsum(0)[:-1]
        uniform = torch.rand(n, length, generator=generator, dtype=torch.float64)
        return torch.bucketize(uniform, edges, right=True)


@dataclass(frozen=True)
class Uniform(_Independent):
    """Independent tokens, all equally likely."""

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        shape = automaton.n_states, automaton.n_tokens
        return torch.full(shape, 1 / automaton.n_tokens, dtype=torch.float64)


@dataclass(frozen=True)
class Bernoulli(_Independent):
    """Independent bits: token 1 with probability `p`, token 0 otherwise."""

    p: float = 0.5

    def __post_init__(self) -> None:
        probability("p", self.p)

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        _require_tokens("Bernoulli", automaton, 2)
        return torch.tensor([1 - self.p, self.p], dtype=torch.float64).expand(automaton.n_states, 2)


@dataclass(frozen=True)
class Writes(_Independent):
    """Independent tokens: token 0, which keeps, with probability 1 − `p`; the others, which write, share `p` alike."""

    p: float = 0.5

    def __post_init__(self) -> None:
        probability("p", self.p)

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        row = torch.full((automaton.n_tokens,), self.p / max(automaton.n_tokens - 1, 1), dtype=torch.float64)
        row[0] = 1 - self.p if automaton.n_tokens > 1 else 1.0
        return row.expand(automaton.n_states, -1)


@dataclass(frozen=True)
class Legal:
    """Uniform over the tokens that do not lead into the state `trap` (−1: the last one), as bracket words are drawn."""

    trap: int = -1

    def rows(self, automaton: Automaton) -> Float[Tensor, "state token"]:
        n = automaton.n_states
        trap = range(n)[whole("trap", self.trap, least=-n, most=n - 1)]
        allowed = (automaton.tensor() != trap).double()
        allowed[allowed.sum(1) == 0] = 1.0  # only the trap itself
        return allowed / allowed.sum(1, keepdim=True)

    def draw(self, automaton: Automaton, n: int, length: int, generator: torch.Generator) -> Int[Tensor, "n position"]:
        edges, table = self.rows(automaton).cumsum(1)[:, :-1], automaton.tensor()
        state = torch.full((n,), automaton.start)
        drawn = torch.empty(length, n, dtype=torch.long)
        for uniform, out in zip(torch.rand(length, n, generator=generator, dtype=torch.float64), drawn, strict=True):
            # One ulp of rounding in the last edge must not open the door to a token of probability zero.
            torch.searchsorted(edges[state], uniform[:, None].clamp(max=1 - 1e-12), right=True, out=out[:, None])
            state = table[state, out]
        return drawn.T.contiguous()


@dataclass(frozen=True)
class Counted:
    """Bits with exactly `ones` tokens 1, at places drawn uniformly."""

    ones: int

    def __post_init__(self) -> None:
        whole("ones", self.ones, least=0)

    def draw(self, automaton: Automaton, n: int, length: int, generator: torch.Generator) -> Int[Tensor, "n position"]:
        _require_tokens("Counted", automaton, 2)
        if self.ones > length:
            raise ArgumentError(f"ones={self.ones}: must be a whole number from 0 to {length}, the length of a row")
        places = torch.rand(n, length, generator=generator, dtype=torch.float64).argsort(1)
        return (places < self.ones).long()


@typed
@dataclass(frozen=True)
class Repeating:
    """With probability `p` the tokens of `word` over and over, otherwise independent uniform tokens."""

    word: tuple[int, ...] = (0, 1)
    p: float = 1.0

    def __post_init__(self) -> None:
        probability("p", self.p)
        object.__setattr__(self, "word", wholes("word", self.word, least=0))
        if not self.word:
            raise ArgumentError("word=(): must have at least one token")

    def draw(self, automaton: Automaton, n: int, length: int, generator: torch.Generator) -> Int[Tensor, "n position"]:
        if not all(0 <= token < automaton.n_tokens for token in self.word):
            raise ArgumentError(f"word={self.word}: its tokens must be from 0 to {automaton.n_tokens - 1}")
        always = torch.tensor(self.word).repeat(-(-length // len(self.word)))[:length]
        drawn = torch.randint(automaton.n_tokens, (n, length), generator=generator)
        chosen = torch.rand(n, generator=generator, dtype=torch.float64) < self.p
        return always.where(chosen[:, None], drawn)


def _require_tokens(law: str, automaton: Automaton, count: int) -> None:
    if automaton.n_tokens != count:
        raise ArgumentError(f"law={law}: needs an automaton of {count} tokens, this one has {automaton.n_tokens}")
