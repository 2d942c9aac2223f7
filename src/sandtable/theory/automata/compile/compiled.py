"""A compiled automaton: an ordinary Transformer, with how inputs are written for it and how its answers are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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

    def encode(self, inputs: Int[Tensor, "row position"], start: int | None = None) -> Int[Tensor, "row padded"]:
        """The model's tokens for inputs of at most `length` tokens."""
        if inputs.shape[-1] > self.length:
            raise ArgumentError(f"inputs of {inputs.shape[-1]} tokens: compiled for at most length={self.length}")
        q = self.automaton.start if start is None else self.automaton.state(start)
        written = torch.tensor(self.tokens[q], device=inputs.device)[inputs]
        pads = torch.tensor(self.prefix[q], dtype=written.dtype, device=inputs.device)
        return torch.cat([pads.expand(*inputs.shape[:-1], -1), written], -1)

    def read(
        self, outputs: Float[Tensor, "row padded out"], start: int | None = None
    ) -> Float[Tensor, "row position digit"]:
        """The numbers from which the state is read, before rounding."""
        q = self.automaton.start if start is None else self.automaton.state(start)
        return outputs[:, self.pads :, list(self.columns[q])]

    def decode(self, outputs: Float[Tensor, "row padded out"], start: int | None = None) -> Int[Tensor, "row position"]:
        """The states that the outputs tell."""
        q = self.automaton.start if start is None else self.automaton.state(start)
        found = self.read(outputs, q).round().long()
        number = torch.zeros_like(found[..., 0])
        for i, size in enumerate(self.digits):
            number = size * number + found[..., i].clamp(0, size - 1)
        return torch.tensor(self.codes[q], device=outputs.device)[number]

    def simulate(self, inputs: Int[Tensor, "row position"], start: int | None = None) -> Int[Tensor, "row position"]:
        """The states q_1 … q_T that the model computes, batch by batch."""
        return self.simulate_closely(inputs, start)[0]

    @torch.no_grad()
    def simulate_closely(
        self, inputs: Int[Tensor, "row position"], start: int | None = None
    ) -> tuple[Int[Tensor, "row position"], float]:
        """The states, and the largest distance of a number that they are read from to the nearest integer."""
        states, residual = [], 0.0
        for part in inputs.split(self.batch(inputs.shape[-1])):
            outputs = self.model(self.encode(part, start))
            shown = self.read(outputs, start)
            states.append(self.decode(outputs, start))
            residual = max(residual, float((shown - shown.round()).abs().max())) if shown.numel() else residual
        return torch.cat(states), residual

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
