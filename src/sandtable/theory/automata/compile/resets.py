"""Permutation-reset automata: count up the group as if there were no resets, then undo what came before the last one.

Lemma 20: at resets the group receives the identity, so that every position holds g_{≤t}. A head fetches, from the last
reset r, the state v it wrote and g_{≤r}; a table gives g_{≤t}·g_{≤r}⁻¹(v). The first token must be a reset to q_0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sandtable.theory.automata.compile.gadgets import lookup, tables_over
from sandtable.theory.automata.compile.heads import latest, latest_scale
from sandtable.theory.automata.compile.program import Layer, coordinate, part
from sandtable.theory.automata.compile.simulators import Simulator
from sandtable.theory.automata.permutations import inverse, times
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
    fetched = [f"{name} fetched" for name in results]
    scale = latest_scale(positions, max([size - 1, *(n - 1 for n in simulator.sizes)]))
    head = latest(slots.write, scale, tuple(map(coordinate, [slots.value, *results])), [slots.value, *fetched])
    if not results:
        points = torch.arange(size, dtype=torch.float64)
        return [Layer((head,), ((part(lookup(points, points[:, None]), [slots.value], [slots.value]),),))], slots.value
    rows = []
    for now, here in simulator.codes.items():
        for then, there in simulator.codes.items():
            since = times(now, inverse(then))
            rows += [((*here, *there, v), (since[v],)) for v in range(size)]
    undo = part(tables_over(rows), [*results, *fetched, slots.value], [slots.value])
    return [*layers, Layer((head,), ((undo,),))], slots.value
