"""Automata that forget: permutation-reset components, alone and in the cascades of Krohn and Rhodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from sandtable.claims.automata.checking import damaged, on_long, on_short, tabled
from sandtable.claims.automata.groups import LATE, LENGTHS
from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, bounded, claim, exact, printed
from sandtable.lab.figures import curves
from sandtable.theory.automata import Compiled, Holonomy, PermutationGroup, compile, derived_orders, holonomy
from sandtable.theory.automata.compile.bounds import reset_bound
from sandtable.theory.automata.compile.cascade import compile_cascade
from sandtable.theory.automata.compile.krohn_rhodes import holonomy_cascade, single_component
from sandtable.theory.automata.compile.simulators import cocycle
from sandtable.worlds.automata import Automaton, Map, fixture, grid

# -- one component ---------------------------------------------------------------------------------------------------

MOVES: dict[str, tuple[Map, ...]] = {
    "Z2": ((1, 0),),
    "Z3": ((1, 2, 0),),
    "V4": ((1, 0, 3, 2), (2, 3, 0, 1)),
    "S3": ((1, 0, 2), (1, 2, 0)),
    "S4": ((1, 0, 2, 3), (1, 2, 3, 0)),
}


def with_resets(name: str, resets: int) -> Automaton:
    """Points under permutations, and tokens that reset to the last `resets` of them."""
    points = len(MOVES[name][0])
    constants = tuple((point,) * points for point in range(points - resets, points))
    return Automaton(tuple(zip(*MOVES[name], *constants, strict=True)), name=f"{name} with resets")


@dataclass(frozen=True)
class Resets:
    names: tuple[tuple[str, int], ...] = (("Z2", 2), ("Z3", 1), ("V4", 2), ("S3", 2), ("S4", 1))
    limit: int = 20_000
    length: int = 100
    rows: int = 50
    pad: bool = True
    instead: str = ""
    times: int = 1
    damage: str = "none"


@claim(
    id="automata/permutation-reset",
    statement=(
        "Behind a first token that resets to q_0, one head that fetches the latest reset makes a permutation-reset "
        "automaton out of the network for its group: exactly, with one layer more, within the sizes of the lemma."
    ),
    source=liu("Lemma 20, with a pad"),
    scales={
        "smoke": Resets(names=(("Z2", 2), ("Z3", 1)), limit=800, length=30, rows=3),
        "desk": Resets(),
        "paper": Resets(limit=1_000_000, rows=500),
    },
    controls=(
        LATE,
        Control("the same by doubling", {"instead": "log"}, ("layers",)),
        Control("a network for ten times as many tokens", {"times": 10}, ("size over bound",)),
    ),
)
def resets(settings: Resets, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.instead:
            return compile(automaton, length, method=settings.instead)
        made = compile_cascade(single_component(automaton), automaton, length, "permutation-reset", pad=settings.pad)
        return damaged(made, settings.damage)

    automata = [with_resets(*which) for which in settings.names]
    short = on_short(make, automata, settings.limit, device=lab.device)
    cases = [(automaton, settings.length) for automaton in automata]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    groups = [PermutationGroup.generated(MOVES[name]) for name, _ in settings.names]
    over = []
    for (automaton, length), group in zip(cases, groups, strict=True):
        bound = reset_bound(cocycle(group, length).bound, group.order, automaton.n_states, length).record
        over.append(max(make(automaton, settings.times * length).sizes.over(bound).values()))
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="automaton"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="automaton"),
            exact("layers", long.layers, [len(derived_orders(group)) for group in groups], unit="automaton"),
            bounded("size over bound", over, 1.0, atol=1e-9, unit="automaton"),
        ],
        tables={"automata": tabled(short, long)},
    )


# -- Krohn and Rhodes ------------------------------------------------------------------------------------------------


def all_maps(points: int) -> Automaton:
    """A cycle, a transposition and a map that merges two points: their words are all nⁿ maps."""
    cycle, swap = (*range(1, points), 0), (1, 0, *range(2, points))
    merge = (0, 0, *range(2, points))
    return Automaton(tuple(zip(cycle, swap, merge, strict=True)), name=f"all maps on {points} points")


def random_automata(count: int, most: int, seed: int) -> Iterator[Automaton]:
    """Tables of 2 … `most` states and 2 or 3 tokens, every entry uniform."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        states, tokens = int(rng.integers(2, most + 1)), int(rng.integers(2, 4))
        table = rng.integers(states, size=(states, tokens)).tolist()
        yield Automaton(tuple(map(tuple, table)), name=f"random {i + 1}")


@dataclass(frozen=True)
class KrohnRhodes:
    names: tuple[str, ...] = ("FLIPFLOP", "GRID4", "ABAB")
    random: int = 300
    most_states: int = 4
    points: tuple[int, ...] = (3, 4)
    limit: int = 14_000
    limit_random: int = 1_100
    long: tuple[str, ...] = ("GRID4", "ABAB", "GRID9")
    length: int = 100
    rows: int = 50
    shifted: bool = True
    instead: str = ""
    damage: str = "none"


@claim(
    id="automata/krohn-rhodes",
    statement=(
        "The holonomy decomposition of any solvable automaton becomes a Transformer that is exact on every input from "
        "every start, in as many layers for all T: those of each level's groups, one of memory, one to look back."
    ),
    source=liu("Theorem 11 (Theorem 2 of the paper) and Lemma 21, reading states from before the token"),
    scales={
        "smoke": KrohnRhodes(random=4, points=(3,), limit=130, limit_random=130, long=("GRID4",), length=30, rows=3),
        "desk": KrohnRhodes(),
        "paper": KrohnRhodes(limit=1_000_000, limit_random=20_000, rows=500),
    },
    controls=(
        LATE,
        Control("the same by doubling", {"instead": "log", "random": 5}, ("layers", "layers that depend on T")),
    ),
)
def krohn_rhodes(settings: KrohnRhodes, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.instead:
            return compile(automaton, length, method=settings.instead)
        cascade = holonomy_cascade(automaton)
        return damaged(
            compile_cascade(cascade, automaton, length, "krohn-rhodes", shifted=settings.shifted), settings.damage
        )

    given = [*map(fixture, settings.names), *map(all_maps, settings.points)]
    drawn = list(random_automata(settings.random, settings.most_states, lab.seeds[0]))
    short = on_short(make, given, settings.limit, device=lab.device)
    random = on_short(make, drawn, settings.limit_random, device=lab.device)
    cases = [(fixture(name), settings.length) for name in settings.long]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    told = [_layers(holonomy(automaton)) for automaton in (*given, *drawn, *(a for a, _ in cases))]
    grows = [make(a, length).sizes.depth - make(a, LENGTHS[0]).sizes.depth for a in given for length in LENGTHS]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong + random.wrong, 0.0, unit="automaton"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="automaton"),
            exact("layers", short.layers + random.layers + long.layers, told, unit="automaton"),
            bounded("layers that depend on T", grows, 0.0, unit="pair (automaton, T)"),
        ],
        figures={"layers": _figure},
        tables={"automata": tabled(short, long)},
        notes=[f"Random automata: {len(drawn)}, with {min(told)} to {max(told)} layers."],
    )


def _figure() -> Figure:
    """Layers against the length, by doubling and by cascades."""
    lengths = (4, 8, 16, 32, 64, 128)
    shown = {
        "any automaton, by doubling": (fixture("FLIPFLOP"), "log"),
        "corridor of 4": (fixture("GRID4"), "krohn-rhodes"),
        "(abab)*": (fixture("ABAB"), "krohn-rhodes"),
        "corridor of 3": (grid(3), "krohn-rhodes"),
        "C_2": (fixture("C2"), "krohn-rhodes"),
    }
    return curves(
        lengths,
        {name: [compile(a, t, method=how).sizes.depth for t in lengths] for name, (a, how) in shown.items()},
        log_x=True,
        xlabel="length T",
        ylabel="layers",
        title="Cascades do not grow with the length",
    )


def _layers(found: Holonomy) -> int:
    """Per level the longest derived series of its groups and a memory; between levels a look back."""
    deepest = [max(len(derived_orders(component.group)) for component in level) for level in found.levels]
    return sum(deepest) + len(deepest) - 1


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED: tuple[Claim, ...] = (
    printed(
        "reset-without-pad",
        resets,
        {"pad": False},
        statement="As long as there was no reset, the head for the latest reset may look at any token.",
        where="Lemma 20, memory of the reset",
        erratum=(
            "It looks at t itself then and copies g_{≤t}, so that all of the input is undone and q_0 remains. A first "
            "token that resets to q_0 is needed."
        ),
    ),
    printed(
        "cascade-after-token",
        krohn_rhodes,
        {"shifted": False, "random": 20},
        statement="Components of a cascade can read the states of those above from their own position.",
        where="Lemma 21, wiring by identity attention",
        erratum=(
            "There stands the state after the token, the cascade asks for the one before, and a reset leaves no trace "
            "of it. A head that looks one place back repairs it."
        ),
    ),
)

CLAIMS = (resets, krohn_rhodes, *PRINTED)
