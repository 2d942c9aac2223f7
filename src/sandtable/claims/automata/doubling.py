"""Any automaton in ⌈log₂T⌉ layers, by composing the maps of twice as many tokens in every layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from sandtable.claims.automata.checking import ROUNDS, damaged, on_long, on_short, tabled
from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, bounded, claim, exact, printed
from sandtable.lab.figures import heatmaps
from sandtable.theory.automata import Compiled, compile, softness
from sandtable.theory.automata.compile.log_depth import log_depth
from sandtable.worlds.automata import Automaton, fixture

SMALL = ("PARITY", "FLIPFLOP", "C3", "MEMORY4", "GRID4", "ABAB", "S5-POINTS")
EVERY = (
    *("C2", "C3", "C4", "C5", "C6", "C7", "C8", "C2x2", "C2x2x2", "D6", "D8", "Q8", "A4", "A5", "S4", "S5", "GRID4"),
    *("GRID9", "PARITY", "FLIPFLOP", "MEMORY4", "GRID9-STAY", "GRID3x3", "ABAB", "A5-POINTS", "S5-POINTS"),
)
"""All fixtures but the largest: stacks of 31 and 4681 states, and the cube with its 54 stickers."""
LARGE, LARGE_ROWS = ("DYCK", "RUBIK"), 5
"""Asked on long inputs alone, and on so few of them: every start state is a pass of its own."""
FEW = {"names": SMALL[:4], "large": ()}
MOST_STATES = 9
"""Up to here maps are composed on the states themselves, as in the theorem; groups beyond, on fewer points."""


@dataclass(frozen=True)
class LogDepth:
    names: tuple[str, ...] = EVERY
    large: tuple[str, ...] = ()
    limit: int = 20_000
    length: int = 100
    rows: int = 50
    lengths: tuple[int, ...] = (1, 2, 3, 5, 7, 8, 9, 16, 33, 64)
    turn: int = 1
    values: str = "later"
    read: str = "start"
    sharpness: float = 1.0
    mlp_bound: str = "4|Q|² + |Q|"
    damage: str = "none"


@claim(
    id="automata/log-depth",
    statement=(
        "⌈log₂T⌉ layers of two heads give all states of any automaton, from any start, on every input of T tokens, "
        "within the sizes of the theorem."
    ),
    source=liu("Theorem 10 (Theorem 1 of the paper), weights corrected"),
    scales={
        "smoke": LogDepth(names=SMALL[:5], limit=300, length=13, rows=2, lengths=(1, 2, 3, 8)),
        "desk": LogDepth(large=LARGE),
        "paper": LogDepth(
            names=(*EVERY, "DYCK"),
            large=("RUBIK",),
            limit=1_000_000,
            rows=500,
            lengths=(*range(1, 34), 64, 100, 128),
        ),
    },
    controls=(
        Control(
            "one layer left out",
            {"damage": "last layer left out"} | FEW,
            ("wrong, all inputs", "wrong, long inputs", "layers"),
        ),
        Control(
            "softmax scale a thousandth",
            {"sharpness": 1e-3} | FEW,
            ("distance to integers", "attention off one position"),
        ),
        Control("softmax scale a hundred times larger", {"sharpness": 100.0} | FEW, ("size over bound",)),
    ),
)
def doubling(settings: LogDepth, lab: Lab) -> Evidence:
    automata = [fixture(name) for name in settings.names]

    def make(automaton: Automaton, length: int) -> Compiled:
        return damaged(_compiled(automaton, length, settings), settings.damage)

    short = on_short(make, automata, settings.limit, device=lab.device)
    cases = [(automaton, settings.length) for automaton in automata]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    large = [(fixture(name), settings.length) for name in settings.large]
    largest = on_long(make, large, LARGE_ROWS, seed=lab.seeds[0], device=lab.device)
    layers = [make(automata[0], length).sizes.depth for length in settings.lengths]
    wanted = [_layers(length) for length in settings.lengths]
    soft = [_softest(make(automaton, LENGTH), lab) for automaton in automata if automaton.n_states <= MOST_STATES]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="automaton"),
            bounded("wrong, long inputs", long.wrong + largest.wrong, 0.0, unit="automaton"),
            bounded("distance to integers", short.residual + long.residual + largest.residual, ROUNDS, unit="network"),
            bounded("attention off one position", soft, 1e-6, unit="automaton"),
            exact(
                "layers",
                [*layers, *short.layers, *long.layers, *largest.layers],
                [*wanted, *map(_layers, [*short.lengths, *long.lengths, *largest.lengths])],
                unit="network",
            ),
            bounded("size over bound", short.over + long.over + largest.over, 1.0, atol=1e-9, unit="network"),
        ],
        figures={"attention": lambda: _seen(fixture("PARITY"))},
        tables={"automata": tabled(short, long, largest)},
        notes=["Up to 9 states the theorem's own network; groups with more are composed on as few points as they act."],
    )


LENGTH = 8


def _layers(length: int) -> int:
    """⌈log₂T⌉, and one at least."""
    return max(1, math.ceil(math.log2(length)))


def _compiled(automaton: Automaton, length: int, settings: LogDepth) -> Compiled:
    if automaton.n_states > MOST_STATES:
        return compile(automaton, length, method="log")
    made = log_depth(
        automaton,
        length,
        turn=settings.turn,
        values=settings.values,
        read=settings.read,
        sharpness=settings.sharpness,
    )
    if settings.mlp_bound == "|Q|² + |Q|":
        n = automaton.n_states
        made.bound["mlp_width"] = n * n + n  # pyright: ignore[reportIndexIssue]
    return made


def _softest(compiled: Compiled, lab: Lab) -> float:
    rows = torch.randint(
        compiled.automaton.n_tokens, (20, compiled.length), generator=torch.Generator().manual_seed(lab.seeds[0])
    )
    return max(softness(compiled, rows).values(), default=0.0)


def _seen(automaton: Automaton) -> Figure:
    """The head that looks back, in every layer, on one input of eight tokens."""
    compiled = log_depth(automaton, LENGTH)
    word = torch.tensor([[1, 0, 1, 1, 0, 0, 1, 1]])
    names = [f"blocks.{i}.attn.hook_pattern" for i in range(compiled.sizes.depth)]
    _, seen = compiled.model(compiled.encode(word, 0), want=names)
    shown: dict[str, np.ndarray] = {}
    for layer, name in enumerate(names):
        shown[f"{2**layer} back"] = seen[name][0, 0].numpy()
    tokens = ["⊥"] * compiled.pads + [str(int(token)) for token in word[0]]
    return heatmaps(
        shown,
        limit=1.0,
        rows=tokens,
        columns=tokens,
        xlabel="key",
        ylabel="query",
        title="Parity of eight tokens by doubling: layers 1, 2 and 3",
    )


# -- as printed ------------------------------------------------------------------------------------------------------

FEWER = FEW | {"names": SMALL[:5], "rows": 3}
PRINTED: tuple[Claim, ...] = (
    printed(
        "rotation-sign",
        doubling,
        FEWER | {"turn": -1},
        statement="Keys turned by θ = −π2^{l−1}/T attend to the position 2^{l−1} before.",
        where="Theorem 10, W_K of the left head",
        erratum="They attend to the position as far ahead, which the causal mask hides. The angle must be +π2^{l−1}/T.",
    ),
    printed(
        "value-source",
        doubling,
        FEWER | {"values": "earlier"},
        statement="The heads of the doubling network read their values from the coordinates of the left map.",
        where="Theorem 10, W_V",
        erratum="Embeddings and results of a layer stand in the coordinates of the right map; the left ones are empty.",
    ),
    printed(
        "read-out",
        doubling,
        FEWER | {"read": "any"},
        statement="The state q_t can be read from any coordinate of the last composition.",
        where="Theorem 10, the read-out",
        erratum=(
            "Where T is a power of two, the window of position T holds no padding, so that only coordinate q_0 is "
            "right there."
        ),
    ),
    printed(
        "doubling-width",
        doubling,
        FEWER | {"mlp_bound": "|Q|² + |Q|"},
        statement="MLPs of width |Q|² + |Q| compose two maps.",
        where="Theorem 10, MLP width",
        erratum="Every indicator 1[g(q) = q'] takes four units, so that the first hidden layer has 4|Q|² + |Q|.",
    ),
)

CLAIMS = (doubling, *PRINTED)
