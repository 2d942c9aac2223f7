"""A finite semiautomaton with a start state, as a world: it draws inputs and knows every state behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, names, nearest, typed, whole, wholes, with_generator
from sandtable.worlds.automata.laws import InputLaw, StateLaw, Uniform
from sandtable.worlds.automata.running import run
from sandtable.worlds.base import Batch, Vocab

UNIFORM = Uniform()
Map = tuple[int, ...]
"""A map of states: q ↦ map[q]."""


@typed
@dataclass(frozen=True)
class Automaton:
    """(Q, Σ, δ) with a start state: q_t = δ(q_{t−1}, σ_t), `table[q][σ]` = δ(q, σ).

    `sample` draws rows of T = `length` inputs from `law` (of random length from `shortest` up, if it is given), with
    the states q_1 … q_T and their labels φ(q_t) as latents, φ = `observe` as a table over states (None: the state).
    """

    table: tuple[tuple[int, ...], ...]
    start: int = 0
    length: int = 100
    states: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    name: str = ""
    law: InputLaw = UNIFORM
    observe: tuple[int, ...] | None = None
    shortest: int | None = None

    def __post_init__(self) -> None:
        _require_table(self.table)
        object.__setattr__(self, "start", _place("start", self.start, self.states, len(self.table)))
        whole("length", self.length)
        if self.shortest is not None:
            whole("shortest", self.shortest, most=self.length)
        for name, count in (("states", self.n_states), ("tokens", self.n_tokens)):
            given = names(name, getattr(self, name))
            if given and (len(given) != count or len(set(given)) != count):
                raise ArgumentError(f"{name}={given!r}: must be {count} different names")
            object.__setattr__(self, name, given)
        if not isinstance(self.law, InputLaw):
            raise ArgumentError(f"law={self.law!r}: must draw inputs, as Uniform() does")
        if self.observe is not None:
            object.__setattr__(self, "observe", wholes("observe", self.observe, least=0))
            if len(self.observe) != self.n_states:
                raise ArgumentError(f"observe={self.observe!r}: must give a label to each of {self.n_states} states")

    # -- parts -------------------------------------------------------------------------------------------------------

    @property
    def n_states(self) -> int:
        return len(self.table)

    @property
    def n_tokens(self) -> int:
        return len(self.table[0])

    @property
    def n_labels(self) -> int:
        """Labels are the numbers below this one."""
        return self.n_states if self.observe is None else max(self.observe) + 1

    @cached_property
    def vocab(self) -> Vocab:
        return Vocab(self.tokens or tuple(str(token) for token in range(self.n_tokens)))

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """The map of states of every token: q ↦ δ(q, σ)."""
        return tuple(zip(*self.table, strict=True))

    @cached_property
    def arrows(self) -> dict[tuple[int, int], tuple[str, ...]]:
        """(q, p) → the names of the tokens that lead from q to p, where any does: what a state diagram shows."""
        found: dict[tuple[int, int], tuple[str, ...]] = {}
        for q, row in enumerate(self.table):
            for token, p in zip(self.vocab.tokens, row, strict=True):
                found[q, p] = (*found.get((q, p), ()), token)
        return found

    def state_name(self, state: int) -> str:
        return self.states[state] if self.states else str(state)

    def state_text(self, states: Sequence[int] | Tensor) -> str:
        """Names of states with blanks between them."""
        return " ".join(map(self.state_name, states.tolist() if isinstance(states, Tensor) else states))

    def state(self, which: int | str) -> int:
        """A state by its number or its name."""
        return _place("state", which, self.states, self.n_states)

    def token(self, which: int | str) -> int:
        """A token by its number or its name."""
        return _place("token", which, self.vocab.tokens, self.n_tokens)

    def word(self, text: str) -> Int[Tensor, " position"]:
        """The tokens of `text`, with blanks between them, or without where every token is one sign."""
        single = all(len(token) == 1 for token in self.vocab.tokens)
        pieces = text.replace(" ", "") if single else text.split()
        return torch.tensor([self.token(piece) for piece in pieces], dtype=torch.long)

    def tensor(self, device: str | torch.device = "cpu") -> Int[Tensor, "state token"]:
        """δ as a tensor."""
        return torch.tensor(self.table, device=device)

    # -- running -----------------------------------------------------------------------------------------------------

    def simulate(
        self, inputs: Int[Tensor, "*batch position"], start: int | str | Tensor | None = None
    ) -> Int[Tensor, "*batch position"]:
        """q_1 … q_T of every row, from one start state or from one for every row."""
        self.require_tokens(inputs)
        if isinstance(start, Tensor):
            first = self._starts(start, inputs.shape[:-1]).to(inputs.device)
        else:
            state = self.start if start is None else self.state(start)
            first = torch.full(inputs.shape[:-1], state, device=inputs.device)
        return run(self.tensor(inputs.device), inputs, first)

    def labels(self, states: Int[Tensor, "*batch position"]) -> Int[Tensor, "*batch position"]:
        """φ of every state."""
        return states if self.observe is None else torch.tensor(self.observe, device=states.device)[states]

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` rows of inputs; `latents`: the `state` after every token, its `label`."""
        whole("n", n)
        x = self.law.draw(self, n, self.length, generator)
        mask = torch.ones_like(x, dtype=torch.bool)
        if self.shortest is not None:
            lengths = torch.randint(self.shortest, self.length + 1, (n, 1), generator=generator)
            mask = torch.arange(self.length) < lengths
        states = self.simulate(x)
        return Batch(x=x, mask=mask, latents={"state": states, "label": self.labels(states)}, vocab=self.vocab)

    # -- the law of inputs, where it looks at the state only ---------------------------------------------------------

    def token_law(self) -> Float[Tensor, "state token"]:
        """P(next token | state); only for laws that look at nothing else."""
        if not isinstance(self.law, StateLaw):
            raise ArgumentError(f"law={self.law!r}: its next token depends on more than the state")
        return self.law.rows(self)

    def next_token_probs(self, prefix: Int[Tensor, "batch position"]) -> Float[Tensor, "batch vocab"]:
        """P(next token | prefix)."""
        law = self.token_law()
        if prefix.shape[1] == 0:
            return law[self.start].expand(len(prefix), -1)
        return law.to(prefix.device)[self.simulate(prefix)[:, -1]]

    def log_prob(self, batch: Batch) -> Float[Tensor, " batch"]:
        """log P of every row's real tokens, its length given."""
        before = self.simulate(batch.x).roll(1, dims=-1)
        before[:, 0] = self.start
        logs = self.token_law().to(before.device).log()[before, batch.x]
        return logs.sum(1) if batch.mask is None else torch.where(batch.mask, logs, 0.0).sum(1)

    def _starts(self, start: Tensor, rows: torch.Size) -> Int[Tensor, " row"]:
        sizes = zip(reversed(start.shape), reversed(rows), strict=False)
        if start.is_floating_point() or start.ndim > len(rows) or any(given not in (1, n) for given, n in sizes):
            raise ArgumentError(
                f"start of shape {tuple(start.shape)}, {start.dtype}: must be one state for every row {tuple(rows)}"
            )
        if start.numel() and not 0 <= int(start.min()) <= int(start.max()) < self.n_states:
            raise ArgumentError(f"start: must be states from 0 to {self.n_states - 1}")
        return start.long().expand(rows)

    def require_tokens(self, inputs: Tensor) -> None:
        """An `ArgumentError` unless these are rows of this automaton's token numbers."""
        if not isinstance(inputs, Tensor):
            raise ArgumentError(f"inputs of type {type(inputs).__name__}: must be a tensor of token numbers")
        if inputs.is_floating_point() or inputs.dtype == torch.bool or inputs.ndim == 0:
            raise ArgumentError(f"inputs of shape {tuple(inputs.shape)}, {inputs.dtype}: must be rows of token numbers")
        if inputs.numel():
            low, high = (int(end) for end in inputs.aminmax())
            if low < 0 or high >= self.n_tokens:
                wrong = low if low < 0 else high
                raise ArgumentError(f"token {wrong}: this automaton has the tokens 0 to {self.n_tokens - 1}")


MOST_ENTRIES = 2**22
"""The largest table of states × tokens that is written down."""


def require_few(what: str, states: int, tokens: int) -> None:
    """An `ArgumentError` where the table of an automaton would be too large to write down."""
    if states * tokens > MOST_ENTRIES:
        raise ArgumentError(f"{what}: more than {MOST_ENTRIES:,} states × tokens are too many for a table")


def _require_table(table: tuple[tuple[int, ...], ...]) -> None:
    if not isinstance(table, tuple) or not table or not all(isinstance(row, tuple) and row for row in table):
        raise ArgumentError("table: must be a tuple of rows, one tuple of next states for every state")
    for state, row in enumerate(table):
        if len(row) != len(table[0]):
            raise ArgumentError(
                f"table: state {state} has {len(row)} next states, state 0 has {len(table[0])}; it must be total"
            )
        for token, after in enumerate(row):
            if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < len(table):
                raise ArgumentError(f"table[{state}][{token}]={after!r}: must be a state from 0 to {len(table) - 1}")


def _place(name: str, which: int | str, names: tuple[str, ...], count: int) -> int:
    """The number of a state or token that is given by number or by name."""
    if isinstance(which, str):
        if which in names:
            return names.index(which)
        known = (
            f"the {'states' if name == 'start' else name + 's'} are {', '.join(names[:12])}{' …' * (len(names) > 12)}"
            if names
            else f"0 to {count - 1}"
        )
        raise ArgumentError(f"{name}={which!r}: there is no such name; {known}{nearest(which, names)}")
    return whole(name, which, least=0, most=count - 1)
