"""Compiled networks against their automata: on every short input, and on long ones, drawn and nasty; and ways to
damage them, for controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from sandtable.arguments import one_of
from sandtable.lab import Table
from sandtable.theory.automata import Compiled, nasty
from sandtable.worlds.automata import Automaton
from sandtable.worlds.finite import all_states

LONGEST = 8
"""Inputs up to this length are all tried, as far as the limit allows."""
ROUNDS = 0.25
"""Tables are exact for inputs within this distance of an integer."""
COLUMNS = ["automaton", "|Q|", "|Σ|", "T", "inputs", "wrong", "layers"]
Make = Callable[[Automaton, int], Compiled]


# -- asking ----------------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """Inputs, how many of them have a wrong state, and the largest distance of an output to an integer."""

    inputs: int = 0
    wrong: int = 0
    residual: float = 0.0

    def add(self, compiled: Compiled, inputs: Int[Tensor, "row position"], start: int) -> None:
        if len(inputs):
            found, residual = compiled.simulate_closely(inputs, start)
            self.inputs += len(inputs)
            self.wrong += int((found != compiled.automaton.simulate(inputs, start)).any(1).sum())
            self.residual = max(self.residual, residual)


def every_input(compiled: Compiled) -> Asked:
    """All inputs of the compiled length, from every start state."""
    automaton, asked = compiled.automaton, Asked()
    rows = all_states(automaton.n_tokens, compiled.length).to(_device(compiled))
    for start in range(automaton.n_states):
        asked.add(compiled, rows, start)
    return asked


def long_inputs(compiled: Compiled, rows: int, seed: int) -> Asked:
    """`rows` uniform inputs and as many nasty ones of the compiled length, each from a start state of its own."""
    automaton, asked = compiled.automaton, Asked()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(automaton.n_tokens, (rows, compiled.length), generator=generator)
    worst = nasty(automaton, compiled.length)
    worst = worst[torch.randperm(len(worst), generator=generator)[:rows]]
    inputs = torch.cat([drawn, worst])
    starts = torch.randint(automaton.n_states, (len(inputs),), generator=generator)
    inputs = inputs.to(_device(compiled))
    for start in starts.unique().tolist():
        asked.add(compiled, inputs[starts == start], start)
    return asked


def exhaustible(automaton: Automaton, limit: int, longest: int = LONGEST) -> int:
    """The longest T ≤ `longest` for which all inputs from all starts are at most `limit`."""
    fits = [t for t in range(1, longest + 1) if automaton.n_tokens**t * automaton.n_states <= limit]
    return max(fits, default=1)


@dataclass
class Compared:
    """One entry per network."""

    wrong: list[int] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    over: list[float] = field(default_factory=list)
    """The largest size over its bound."""
    layers: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)

    def add(self, compiled: Compiled, asked: Asked) -> None:
        automaton, depth = compiled.automaton, compiled.sizes.depth
        self.wrong.append(asked.wrong)
        self.residual.append(asked.residual)
        self.over.append(over_bound(compiled))
        self.layers.append(depth)
        self.lengths.append(compiled.length)
        name = automaton.name or f"{automaton.n_states} states"
        facts = [automaton.n_states, automaton.n_tokens, compiled.length, asked.inputs, asked.wrong, depth]
        self.rows.append([name, *facts])


def on_short(
    make: Make, automata: Iterable[Automaton], limit: int, *, longest: int = LONGEST, device: str = "cpu"
) -> Compared:
    """Every automaton compiled for as long as all inputs can be tried."""
    found = Compared()
    for automaton in automata:
        compiled = make(automaton, exhaustible(automaton, limit, longest))
        compiled.model.to(device)
        found.add(compiled, every_input(compiled))
    return found


def on_long(
    make: Make, cases: Iterable[tuple[Automaton, int]], rows: int, *, seed: int, device: str = "cpu"
) -> Compared:
    """Pairs of an automaton and a length."""
    found = Compared()
    for automaton, length in cases:
        compiled = make(automaton, length)
        compiled.model.to(device)
        found.add(compiled, long_inputs(compiled, rows, seed))
    return found


def tabled(*compared: Compared) -> Table:
    return Table(COLUMNS, [row for part in compared for row in part.rows])


def over_bound(compiled: Compiled) -> float:
    """The largest size over what the theorem allows for it."""
    return max(compiled.sizes.over(compiled.bound).values(), default=0.0)


def _device(compiled: Compiled) -> torch.device:
    return next(compiled.model.parameters()).device


# -- damage ----------------------------------------------------------------------------------------------------------

DAMAGES = ("none", "positions one late", "last layer left out")


def damaged(compiled: Compiled, how: str) -> Compiled:
    """The network as it is, or with something broken in it."""
    one_of("damage", how, DAMAGES)
    if how == "none":
        return compiled
    model = deepcopy(compiled.model)
    if how == "positions one late":
        positions = model.get_parameter("pos_embed.W_pos")
        positions.copy_(positions.roll(1, 0))
        return replace(compiled, model=model)
    left = max(1, len(model.blocks) - 1)
    model.blocks = nn.ModuleList(list(model.blocks)[:left])
    return replace(compiled, model=model, hard=compiled.hard[:left])
