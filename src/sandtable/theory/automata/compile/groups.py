"""Automata whose tokens are bijections of a solvable group, in as many layers as their series has steps."""

from __future__ import annotations

from itertools import product

from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.heads import LOG, PAD, counting_log
from sandtable.theory.automata.compile.program import Program, coordinate
from sandtable.theory.automata.compile.simulators import Simulator
from sandtable.worlds.automata import Automaton


def from_simulator(automaton: Automaton, length: int, simulator: Simulator, method: str) -> Compiled:
    """Tokens are embedded as codes of their permutations; the answer is the code of g_t ⋯ g_1, which acts on q_0."""
    tokens, names = automaton.n_tokens, [f"g{i}" for i in range(simulator.dimensions)]
    codes = [simulator.codes[image] for image in automaton.maps]
    layers, results = simulator.build(names, list(dict.fromkeys(automaton.maps)))
    key = simulator.key
    elements = {tuple(code[i] for i in key): g for g, code in simulator.codes.items()}
    digits = [simulator.sizes[i] for i in key]
    listed = [elements[code] for code in product(*map(range, digits))]
    program = Program(
        vocab=tokens + 1,
        longest=length + 1,
        layers=layers,
        outputs=tuple(coordinate(results[i]) for i in key),
        tokens={
            **{name: [*(float(code[i]) for code in codes), 0.0] for i, name in enumerate(names)},
            PAD: [0.0] * tokens + [1.0],
        },
        positions={LOG: counting_log(length)},
    )
    return built(
        program,
        automaton,
        length,
        method,
        prefix=[[tokens]] * automaton.n_states,
        columns=[range(len(key))] * automaton.n_states,
        digits=digits,
        codes=[[g[q] for g in listed] for q in range(automaton.n_states)],
        bound=simulator.bound.record,
        facts=dict(order=simulator.group.order),
    )
