"""What no constant depth is known for: automata with a group inside that is not solvable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sandtable.claims.automata.cascades import all_maps
from sandtable.claims.automata.checking import damaged, on_long, on_short, tabled
from sandtable.claims.automata.sources import liu
from sandtable.lab import Control, Evidence, Lab, Source, Table, bounded, claim, exact, printed
from sandtable.theory.automata import Compiled, NotThisWay, compile, is_solvable, obstacle
from sandtable.theory.automata import barrington as words
from sandtable.worlds.automata import Automaton, Map, fixture

# -- refused ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    names: tuple[str, ...] = ("A5", "S5", "A5-POINTS", "S5-POINTS", "all maps")
    limit: int = 8_000
    length: int = 100
    rows: int = 5
    damage: str = "none"


@claim(
    id="automata/non-solvable-refused",
    statement=(
        "A_5 and S_5, as groups and on five points, and all maps on five points get no network of constant depth: the "
        "refusal names A_5, of order 60. By doubling all of them are exact."
    ),
    source=liu("Theorem 13 and Theorem 10"),
    scales={
        "smoke": Refused(names=("A5-POINTS", "S5-POINTS", "all maps"), limit=1300, length=20, rows=2),
        "desk": Refused(),
        "paper": Refused(limit=1_000_000, rows=500),
    },
    controls=(
        Control(
            "solvable neighbours",
            {"names": ("A4", "GRID4", "ABAB")},
            ("networks of constant depth", "order of the perfect group", "refusals that name A_5"),
        ),
        Control(
            "one layer left out",
            {"damage": "last layer left out", "names": ("A5-POINTS", "all maps")},
            ("wrong, all inputs", "wrong, long inputs"),
        ),
    ),
)
def refused(settings: Refused, lab: Lab) -> Evidence:
    automata = [all_maps(5) if name == "all maps" else fixture(name) for name in settings.names]
    refusals = [_refusal(automaton) for automaton in automata]
    obstacles = [obstacle(automaton) for automaton in automata]

    def make(automaton: Automaton, length: int) -> Compiled:
        return damaged(compile(automaton, length, method="log"), settings.damage)

    short = on_short(make, automata, settings.limit, device=lab.device)
    cases = [(automaton, settings.length) for automaton in automata]
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    return Evidence(
        [
            bounded("networks of constant depth", [not text for text in refusals], 0.0, unit="automaton"),
            exact("order of the perfect group", [o.perfect.order if o else 1 for o in obstacles], 60, unit="automaton"),
            exact("refusals that name A_5", ["A_5, of order 60" in text for text in refusals], 1, unit="automaton"),
            bounded("wrong, all inputs", short.wrong, 0.0, unit="automaton"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="automaton"),
        ],
        tables={
            "refusals": Table(
                ["automaton", "refusal"], [list(row) for row in zip(settings.names, refusals, strict=True)]
            ),
            "by doubling": tabled(short, long),
        },
    )


def _refusal(automaton: Automaton) -> str:
    """What `compile` says when asked for constant depth; nothing where it has it."""
    try:
        compile(automaton, 10, method="constant")
    except NotThisWay as error:
        return error.reason
    return ""


@dataclass(frozen=True)
class Smallest:
    points: tuple[int, ...] = (2, 3, 4, 5)
    candidates: tuple[str, ...] = ("S4", "A5", "S5", "A5-POINTS", "S5-POINTS")
    states: int = 5


@claim(
    id="automata/smallest-non-solvable",
    statement=(
        "All automata of up to four states are solvable, as all maps on four points are; A_5 on five points is not, so "
        "that the smallest automaton that is not solvable has five states."
    ),
    source=liu("footnote on the smallest non-solvable semiautomaton, corrected"),
    scales={"smoke": Smallest(), "desk": Smallest()},
    controls=(
        Control(
            "groups with their elements as states", {"candidates": ("S4", "A5", "S5")}, ("states of the smallest",)
        ),
        Control("all maps on five points too", {"states": 6}, ("all maps on fewer points, not solvable",)),
    ),
)
def smallest(settings: Smallest, lab: Lab) -> Evidence:
    hard = [a for a in map(fixture, settings.candidates) if not is_solvable(a)]
    full = [all_maps(points) for points in settings.points if points < settings.states]
    return Evidence(
        [
            exact("states of the smallest", min(a.n_states for a in hard), settings.states, unit="search"),
            bounded(
                "all maps on fewer points, not solvable",
                [not is_solvable(a) for a in full],
                0.0,
                unit="number of points",
            ),
        ],
        tables={"candidates": Table(["automaton", "states"], [[a.name, a.n_states] for a in hard])},
    )


# -- formulas as words -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Barrington:
    depths: tuple[int, ...] = (0, 1, 2, 3)
    formulas: int = 10
    variables: int = 4
    points: int = 5
    idle: bool = True
    split: str = "commutator"


@claim(
    id="automata/barrington",
    statement=(
        "Formulas of depth d are words of 4^d permutations of five points: a compiled network for S_5 decides them on "
        "all assignments. 240 ordered pairs of the 24 five-cycles have a five-cycle for a commutator."
    ),
    source=Source("Barrington", 1989, "Theorem 1, as used in Liu et al. 2023, Theorem 13"),
    scales={
        "smoke": Barrington(depths=(0, 1, 2), formulas=2),
        "desk": Barrington(),
        "paper": Barrington(depths=(0, 1, 2, 3, 4), formulas=30, variables=6),
    },
    controls=(
        Control("five-cycles that commute", {"split": "commuting"}, ("wrong by the network", "wrong by the word")),
        Control("idle instructions left out", {"idle": False}, ("length of the word",)),
        Control("four points", {"points": 4}, ("cycles of all points", "pairs with such a commutator")),
    ),
)
def barrington(settings: Barrington, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "formulas")
    rows_of = torch.cartesian_prod(*[torch.tensor([False, True])] * settings.variables)
    split = words.split_cycle if settings.split == "commutator" else _commuting
    by_network, by_word, lengths, wanted, rows = [], [], [], [], []
    for depth in settings.depths:
        network = compile(words.word_problem(), 4**depth, method="log")
        network.model.to(lab.device)
        for i in range(settings.formulas):
            formula = words.random_formula(depth, settings.variables, generator, early=float(i % 2))
            program = words.program(formula, split=split)
            truth = words.truth(formula, rows_of)
            end = network.simulate(program.word(rows_of).to(lab.device))[:, -1].cpu()
            by_network.append(int(((end != words.word_problem().start) != truth).sum()))
            by_word.append(int((_carried(program, rows_of) != truth).sum()))
            kept = [step for step in program.instructions if settings.idle or step != words.IDLE]
            lengths.append(len(kept))
            wanted.append(4 ** words.depth(formula))
        text = words.text(formula)
        rows.append([depth, 4**depth, network.sizes.depth, text if len(text) < 60 else text[:57] + " …"])
    cycles, pairs = words.full_cycles(settings.points), words.cycle_commutators(settings.points)
    return Evidence(
        [
            bounded("wrong by the network", by_network, 0.0, unit="formula"),
            bounded("wrong by the word", by_word, 0.0, unit="formula"),
            exact("length of the word", lengths, wanted, unit="formula"),
            exact("cycles of all points", len(cycles), 24, unit="set"),
            exact("pairs with such a commutator", len(pairs), 240, unit="set"),
        ],
        tables={"formulas": Table(["depth", "word", "layers", "one of them"], rows)},
    )


def _commuting(cycle: Map) -> tuple[Map, Map]:
    return cycle, cycle


def _carried(program: words.Program, assignments: Tensor) -> Tensor:
    """Whether point 0 is moved, one instruction after the other."""
    found = []
    for row in assignments.tolist():
        place = 0
        for variable, zero, one in program.instructions:
            place = (one if row[variable] else zero)[place]
        found.append(place != 0)
    return torch.tensor(found)


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED = (
    printed(
        "smallest-non-solvable",
        smallest,
        {"states": 60, "points": (2, 3, 4)},
        statement="The smallest semiautomaton that is not solvable has 60 states.",
        where="footnote to the definition of solvable semiautomata",
        erratum="60 is the order of A_5, its states where every element is one. On five points A_5 needs five states.",
    ),
)

CLAIMS = (refused, smallest, barrington, *PRINTED)
