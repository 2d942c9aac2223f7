"""Any automaton in ⌈log₂T⌉ layers: prefix composition by doubling (Theorem 10).

Layer l holds, at every position, the map of the last 2^{l−1} tokens as a vector of values 1 … |Q|; one head fetches the
map from 2^{l−1} places before, the MLP composes the two. T pads hold the constant map q_0, so that coordinate q_0 of
the result is the state.
"""

from __future__ import annotations

import math

from sandtable.theory.automata.compile.compiled import Compiled, built
from sandtable.theory.automata.compile.gadgets import composition
from sandtable.theory.automata.compile.heads import earlier, half_circle
from sandtable.theory.automata.compile.program import Layer, Program, coordinate, part
from sandtable.worlds.automata import Automaton


def log_depth(
    automaton: Automaton,
    length: int,
    *,
    turn: int = 1,
    values: str = "later",
    read: str = "start",
    product: str = "f(q') where g(q) = q'",
) -> Compiled:
    """Depth ⌈log₂T⌉, width 2|Q| + 2, two heads.

    Printed otherwise, and wrong: `turn=-1` (keys turned the other way), `values="earlier"` (W_V from the coordinates
    of the earlier map), `read="any"` (another coordinate than q_0), `product="f(q)"` (the display in Lemma 14).
    """
    n, tokens = automaton.n_states, automaton.n_tokens
    depth = max(1, math.ceil(math.log2(length)))
    earlier_map, later_map = [f"earlier {q}" for q in range(n)], [f"later {q}" for q in range(n)]
    scale = max(100.0, 100.0 * length**2 * (math.log(n) + math.log(length)))
    source = tuple(map(coordinate, later_map if values == "later" else earlier_map))
    compose = part(composition(n, product=product), [*earlier_map, *later_map], later_map)
    layers = [
        Layer(
            (
                earlier(2**step, length, scale, source, earlier_map, turn=turn),
                earlier(0, length, scale, source, later_map),
            ),
            ((compose,),),
        )
        for step in range(depth)
    ]
    maps = {
        name: [automaton.table[q][token] + 1.0 for token in range(tokens)] + [start + 1.0 for start in range(n)]
        for q, name in enumerate(later_map)
    }
    program = Program(
        vocab=tokens + n,
        longest=2 * length,
        layers=layers,
        outputs=tuple(map(coordinate, later_map)),
        tokens={**{name: [0.0] * (tokens + n) for name in earlier_map}, **maps},
        positions=half_circle(2 * length, length),
    )
    return built(
        program,
        automaton,
        length,
        "log",
        prefix=[[tokens + start] * length for start in range(n)],
        columns=[[q if read == "start" else (q + 1) % n] for q in range(n)],
        codes=[[0, *range(n)]] * n,
        bound=bound(n, length),
    )


def bound(states: int, length: int) -> dict[str, float]:
    """The theorem's sizes, with the first hidden layer as it must be, 4|Q|² + |Q|."""
    root = 10 * length * math.sqrt(math.log(states) + math.log(length))
    return dict(
        depth=max(1, math.ceil(math.log2(length))),
        width=2 * states + 2,
        heads=2,
        head_width=max(states, 2),
        mlp_width=4 * states**2 + states,
        norm=max(4 * states + 2, root, 10.0),
    )
