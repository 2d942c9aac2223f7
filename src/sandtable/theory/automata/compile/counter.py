"""Counters in one layer: attention that counts, and a table modulo n (Lemma 15)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import lookup
from sandtable.theory.automata.compile.heads import LOG, PAD, counting, counting_log
from sandtable.theory.automata.compile.networks import Net
from sandtable.theory.automata.compile.program import Layer, Part, Program, coordinate
from sandtable.worlds.automata import Automaton


def counter(
    automaton: Automaton,
    length: int,
    *,
    order: int,
    powers: Sequence[int],
    states: Sequence[Sequence[int]],
    factor: float = 2.0,
    with_start: bool = True,
) -> Compiled:
    """Token σ adds `powers[σ]` modulo `order`; `states[q_0][c]` is the state after a total of c.

    Attention gives s_t = (1/2T) Σ_{τ≤t} powers[σ_τ], and the table (2T·s) mod n. Lemma 15 prints T·s (`factor=1`) and
    forgets q_0 (`with_start=False`).
    """
    tokens = automaton.n_tokens
    layer = Layer((counting((coordinate("add"),), ("add",)),), ((modulo(order, length, "add", "add", factor),),))
    program = Program(
        vocab=tokens + 1,
        longest=length + 1,
        layers=[layer],
        outputs=(coordinate("add"),),
        tokens={"add": [*map(float, powers), 0.0], PAD: [0.0] * tokens + [1.0]},
        positions={LOG: counting_log(length)},
    )
    return built(
        program,
        automaton,
        length,
        "counter",
        prefix=[[tokens]] * automaton.n_states,
        codes=states if with_start else [states[0]] * len(states),
        bound=dict(depth=1, width=3, heads=1, head_width=1, mlp_width=4 * order * length, norm=4 * order * length + 2),
        facts=dict(order=order),
    )


def modulo(order: int, length: int, reads: str, writes: str, factor: float = 2.0) -> Part:
    """s ↦ (factor·T·s) mod n for the sums s = m/2T that can occur, 0 ≤ m ≤ T(n − 1)."""
    return Part(modulo_net(order, length, factor), (coordinate(reads),), (writes,))


def modulo_net(order: int, length: int, factor: float = 2.0) -> Net:
    totals = torch.arange(length * (order - 1) + 1, dtype=torch.float64)
    counts = (totals * factor / 2).floor() % order
    return lookup(totals / (2 * length), counts[:, None])
