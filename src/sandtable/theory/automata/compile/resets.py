"""Permutation-reset automata: count up the group as if there were no resets, then undo what came before the last one.

At resets the group receives the identity, so that every position holds g_{≤t}; the state is g_{≤t}·g_{≤r}⁻¹(v), where v
is what the last reset r wrote (Lemma 20). Here position r itself works out u = g_{≤r}⁻¹(v), a head fetches the one
number u and a table gives g_{≤t}(u): |G|·|Q| rows twice, where the lemma fetches g_{≤r} and v and needs |G|²·|Q|. The
first token must be a reset to q_0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sandtable.theory.automata.compile.gadgets import lookup, tables_over
from sandtable.theory.automata.compile.heads import latest, latest_scale
from sandtable.theory.automata.compile.program import Layer, coordinate, part
from sandtable.theory.automata.compile.simulators import Simulator
from sandtable.theory.automata.permutations import inverse
from sandtable.worlds.automata import Map


@dataclass(frozen=True)
class Slots:
    """Where the inputs of a permutation-reset automaton stand: the permutation's code, whether and what is written."""

    code: list[str]
    write: str
    value: str

    @classmethod
    def named(cls, name: str, dimensions: int) -> Slots:
        return cls([f"{name} g{i}" for i in range(dimensions)], f"{name} write", f"{name} value")

    @property
    def names(self) -> list[str]:
        return [*self.code, self.write, self.value]


def slot_values(simulator: Simulator, permutation: Map | None, reset: int | None) -> tuple[int, ...]:
    """What stands in the slots for one input: the identity and no reset are zeros."""
    code = simulator.codes[simulator.group.identity if permutation is None or reset is not None else permutation]
    return (*code, int(reset is not None), reset or 0)


def permutation_reset(
    simulator: Simulator, slots: Slots, inputs: Sequence[Map], positions: int
) -> tuple[list[Layer], str]:
    """Layers from the slots to the state, and the coordinate that holds it: the group's, and one of memory."""
    size = simulator.group.degree
    layers, results = simulator.build(slots.code, inputs)
    head = latest(slots.write, latest_scale(positions, size - 1), (coordinate(slots.value),), (slots.value,))
    if not results:
        points = torch.arange(size, dtype=torch.float64)
        return [Layer((head,), ((part(lookup(points, points[:, None]), [slots.value], [slots.value]),),))], slots.value
    codes = simulator.codes.items()
    before = [((*code, v), (inverse(g)[v],)) for g, code in codes for v in range(size)]
    since = [((*code, u), (g[u],)) for g, code in codes for u in range(size)]
    undo, redo = (part(tables_over(rows), [*results, slots.value], [slots.value]) for rows in (before, since))
    return [*layers[:-1], layers[-1].followed_by(undo), Layer((head,), ((redo,),))], slots.value
