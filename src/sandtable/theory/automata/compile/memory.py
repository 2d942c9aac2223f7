"""Memory in one layer: attention to the latest write (Lemma 16)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sandtable.theory.automata.compile.bounds import memory_norm
from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import lookup
from sandtable.theory.automata.compile.heads import ONE, TIME
from sandtable.theory.automata.compile.program import Head, Layer, Program, coordinate, part
from sandtable.worlds.automata import Automaton


def memory(
    automaton: Automaton, length: int, *, writes: Sequence[int | None], factor: float = 2.0, sharpness: float = 1.0
) -> Compiled:
    """Token σ writes state `writes[σ]`, or keeps where that is None.

    Score c·(j/T − 2·1[σ_j keeps]) with c = T·log(16|Q|T): the latest write wins, and where there is none the latest
    token, which shows q_0 as every keeping token does. The output is off by less than 1/8; a table rounds it. The
    formula of the lemma has 1 for the `factor` 2 of its own weights; both work. `sharpness` multiplies c.
    """
    n, tokens = automaton.n_states, automaton.n_tokens
    scale = sharpness * length * math.log(16 * n * length)
    keeps = [token for token in range(tokens) if writes[token] is None]
    # One keeping token for every start state; token σ that writes stands for itself.
    vocab = tokens + n
    value = [0.0 if state is None else float(state) for state in writes] + [float(q) for q in range(n)]
    keep = [float(state is None) for state in writes] + [1.0] * n
    head = Head(
        ({ONE: -factor}, {ONE: 1.0}),
        ({"keep": scale}, {TIME: scale}),
        (coordinate("value"),),
        ("value",),
    )
    points = torch.arange(n, dtype=torch.float64)
    program = Program(
        vocab=vocab,
        longest=length,
        layers=[Layer((head,), ((part(lookup(points, points[:, None]), ["value"], ["value"]),),))],
        outputs=(coordinate("value"),),
        tokens={"value": value, "keep": keep, ONE: [1.0] * vocab},
        positions={TIME: [(i + 1) / length for i in range(length)]},
    )
    return built(
        program,
        automaton,
        length,
        "memory",
        prefix=[[]] * n,
        tokens=[[tokens + q if token in keeps else token for token in range(tokens)] for q in range(n)],
        codes=[range(n)] * n,
        bound=dict(
            depth=1,
            width=4,
            heads=1,
            head_width=2,
            mlp_width=4 * n,
            norm=max(memory_norm(n, length), 4 * n + 2),
        ),
    )
