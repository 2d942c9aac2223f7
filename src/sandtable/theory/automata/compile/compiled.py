"""A compiled automaton: an ordinary Transformer, with how inputs are written for it and how its answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.models import Transformer
from sandtable.theory.automata.compile.assemble import assemble
from sandtable.theory.automata.compile.program import Program
from sandtable.theory.automata.compile.sizes import Sizes, sizes
from sandtable.worlds.automata import Automaton

FEW = 1_000_000
"""Numbers that the largest activation of one batch may have: it should stay in cache."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """One network for every start state q_0: the encoder pads and writes the tokens, the decoder reads an integer.

    `prefix[q_0]` are the model's tokens before the inputs, `tokens[q_0][σ]` stands for input σ. Outputs number
    `columns[q_0]`, rounded, are digits, entry i below `digits[i]`, of the number that `codes[q_0]` turns into a state.
    """

    model: Transformer
    automaton: Automaton
    length: int
    method: str
    prefix: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    digits: tuple[int, ...]
    codes: tuple[tuple[int, ...], ...]
    hard: tuple[tuple[bool, ...], ...] = ()
    """By layer and head: whether it is meant to look at one position alone."""
    bound: Mapping[str, float] = field(default_factory=dict)
    """The theorem's sizes, by the names of `Sizes`."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the construction found on its way: levels, groups, …"""

    @property
    def sizes(self) -> Sizes:
        return sizes(self.model, length=self.length, positions=self.length + self.pads)

    @property
    def pads(self) -> int:
        return len(self.prefix[0])

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it to a file, from which `load` brings it back to the last bit."""
        from sandtable.theory.automata.compile.files import save  # which knows this class

        return save(self, path, overwrite=overwrite)

    @staticmethod
    def load(path: str | Path) -> Compiled:
        """What `save` wrote."""
        from sandtable.theory.automata.compile.files import load

        return load(path)

    def encode(self, inputs: Int[Tensor, "row position"], start: int | str | None = None) -> Int[Tensor, "row padded"]:
        """The model's tokens for inputs of at most `length` tokens."""
        self.automaton.require_tokens(inputs)
        if inputs.ndim != 2:
            raise ArgumentError(
                f"inputs of shape {tuple(inputs.shape)}: must be rows of token numbers, (row, position)"
            )
        if inputs.shape[1] > self.length:
            raise ArgumentError(f"inputs of {inputs.shape[1]} tokens: compiled for at most length={self.length}")
        q = self._start(start)
        written = torch.tensor(self.tokens[q], device=inputs.device)[inputs.long()]
        pads = torch.tensor(self.prefix[q], dtype=written.dtype, device=inputs.device)
        return torch.cat([pads.expand(len(inputs), -1), written], 1)

    def read(
        self, outputs: Float[Tensor, "row padded out"], start: int | str | None = None
    ) -> Float[Tensor, "row position digit"]:
        """The numbers from which the state is read, before rounding."""
        return outputs[:, self.pads :, list(self.columns[self._start(start)])]

    def decode(
        self, outputs: Float[Tensor, "row padded out"], start: int | str | None = None
    ) -> Int[Tensor, "row position"]:
        """The states that the outputs tell."""
        q = self._start(start)
        return self._codes[q].to(outputs.device)[self._number(self.read(outputs, q))]

    def simulate(
        self, inputs: Int[Tensor, "*batch position"], start: int | str | None = None
    ) -> Int[Tensor, "*batch position"]:
        """The states q_1 … q_T that the model computes, batch by batch."""
        return self.simulate_closely(inputs, start)[0]

    def simulate_closely(
        self, inputs: Int[Tensor, "*batch position"], start: int | str | None = None
    ) -> tuple[Int[Tensor, "*batch position"], float]:
        """The states, and the largest distance of a number that they are read from to the nearest integer."""
        self.automaton.require_tokens(inputs)
        first = self._start(start)
        if inputs.numel() == 0:
            return inputs.long(), 0.0
        rows = inputs.reshape(-1, inputs.shape[-1])
        parts = [
            (states, residual)
            for part in rows.split(self.batch(rows.shape[1]))
            for _, states, residual in self.simulate_from(part, [first])
        ]
        states, residuals = zip(*parts, strict=True)
        return torch.cat(states).reshape(inputs.shape), max(residuals)

    @torch.no_grad()
    def simulate_from(
        self, inputs: Int[Tensor, "row position"], starts: Iterable[int]
    ) -> Iterator[tuple[int, Int[Tensor, "row position"], float]]:
        """(start, states, residual as in `simulate_closely`) for every start state.

        The model runs once for all start states for which it reads the same tokens: where only decoding knows q_0, as
        it does for groups, once for all of them.
        """
        for kin in self.kin(starts):
            outputs = self.model(self.encode(inputs, kin[0]))
            columns, number, residual = None, torch.zeros(0), 0.0
            for q in kin:
                if self.columns[q] != columns:
                    columns, shown = self.columns[q], self.read(outputs, q)
                    number = self._number(shown)
                    residual = (
                        float((shown - shown.round()).abs().nan_to_num(torch.inf).max()) if shown.numel() else 0.0
                    )
                yield q, self._codes[q].to(outputs.device)[number], residual

    def kin(self, starts: Iterable[int]) -> list[list[int]]:
        """Start states in groups for which the model reads the same tokens, whatever the input."""
        found: dict[Any, list[int]] = {}
        for q in starts:
            found.setdefault((self.prefix[q], self.tokens[q]), []).append(q)
        return list(found.values())

    def _start(self, start: int | str | None) -> int:
        return self.automaton.start if start is None else self.automaton.state(start)

    @cached_property
    def _codes(self) -> Int[Tensor, "start code"]:
        return torch.tensor(self.codes)

    def _number(self, shown: Float[Tensor, "row position digit"]) -> Int[Tensor, "row position"]:
        """The digits, rounded, as one number."""
        found = shown.round().long()
        number = torch.zeros_like(found[..., 0])
        for i, size in enumerate(self.digits):
            number = size * number + found[..., i].clamp(0, size - 1)
        return number

    def batch(self, length: int) -> int:
        """How many rows of so many inputs go through the model at once."""
        size, positions = self.sizes, length + self.pads
        return max(1, FEW // (positions * max(size.attention_width, size.mlp_width, size.heads * positions)))


def built(
    program: Program,
    automaton: Automaton,
    length: int,
    method: str,
    *,
    prefix: Sequence[Sequence[int]],
    codes: Sequence[Sequence[int]],
    tokens: Sequence[Sequence[int]] | None = None,
    columns: Sequence[Sequence[int]] | None = None,
    digits: Sequence[int] | None = None,
    bound: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Compiled:
    """The program as a model, with its encoder and decoder; inputs are the first tokens of the model unless given."""
    states = range(automaton.n_states)
    plain = tuple(range(automaton.n_tokens))
    return Compiled(
        assemble(program),
        automaton,
        length,
        method,
        prefix=tuple(tuple(row) for row in prefix),
        tokens=tuple(plain for _ in states) if tokens is None else tuple(tuple(row) for row in tokens),
        columns=((0,),) * automaton.n_states if columns is None else tuple(tuple(row) for row in columns),
        digits=(len(codes[0]),) if digits is None else tuple(digits),
        codes=tuple(tuple(row) for row in codes),
        hard=tuple(tuple(head.hard for head in layer.heads) for layer in program.layers),
        bound=dict(bound or {}),
        facts=dict(facts or {}),
    )
