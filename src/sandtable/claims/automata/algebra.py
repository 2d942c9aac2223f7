"""Numbers of automata: orders of semigroups and groups, levels of cascades, what position alone tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from sandtable.claims.automata.cascades import all_maps
from sandtable.claims.automata.sources import liu
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.lab.figures import Row, comparison
from sandtable.theory.automata import (
    Holonomy,
    PermutationGroup,
    composition_factors,
    derived_orders,
    holonomy,
    semigroup,
)
from sandtable.theory.automata.closed_forms import (
    chance,
    dyck_order,
    grid_order,
    label_laws,
    rubik_bound,
    rubik_order,
)
from sandtable.worlds.automata import TASKS, Automaton, Map, Uniform, abab, dyck, fixture, grid, rubik
from sandtable.worlds.finite import all_states

# -- orders ----------------------------------------------------------------------------------------------------------

GROUPS: dict[str, tuple[int, ...]] = {
    **{f"C{n}": (n, 1) for n in range(2, 9)},
    "C2x2": (4, 1),
    "C2x2x2": (8, 1),
    "D6": (6, 3, 1),
    "D8": (8, 2, 1),
    "Q8": (8, 2, 1),
    "A4": (12, 4, 1),
    "A5": (60,),
    "S4": (24, 12, 4, 1),
    "S5": (120, 60),
}
"""Orders of the derived series of the group tasks."""
FACTORS: dict[str, tuple[int, ...]] = {
    **{f"C{p}": (p,) for p in (2, 3, 5, 7)},
    **{"C4": (2, 2), "C6": (2, 3), "C8": (2, 2, 2), "C2x2": (2, 2), "C2x2x2": (2, 2, 2)},
    **{"D6": (2, 3), "D8": (2, 2, 2), "Q8": (2, 2, 2), "A4": (2, 2, 3), "S4": (2, 2, 2, 3)},
    **{"A5": (60,), "S5": (2, 60)},
}
"""Orders of their composition factors, each as often as it occurs, the smallest first."""
FACES = ("U", "D", "F", "B", "L", "R")


@dataclass(frozen=True)
class Orders:
    grids: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    stay: bool = False
    stacks: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (3, 2), (4, 2), (2, 3))
    trap: bool = True
    repeats: bool = True
    """Count composition factors as often as they occur."""
    tokens: str = "all"
    faces: tuple[str, ...] = FACES


@claim(
    id="automata/closed-forms",
    statement=(
        "Corridors of n states have n(n−1)(2n−1)/6 + n − 1 maps, stacks of depth n with a trap Σ s_j², the sixteen "
        "group tasks the derived series and composition factors of the table, and Rubik's cube 1/12 of (C_3≀S_8) × "
        "(C_2≀S_12)."
    ),
    source=liu("Examples 3 and 7, Figures 3.15 and 3.16, with closed forms of our own"),
    scales={
        "smoke": Orders(grids=(2, 3, 4, 5, 6), stacks=((1, 2), (2, 2), (3, 2))),
        "desk": Orders(),
        "paper": Orders(grids=tuple(range(2, 16)), stacks=((1, 2), (2, 2), (3, 2), (4, 2), (3, 3), (2, 4), (2, 5))),
    },
    controls=(
        Control("corridors in which one may stay", {"stay": True}, ("maps of corridors",)),
        Control("stacks without a trap", {"trap": False, "stacks": ((1, 2), (2, 2))}, ("maps of stacks",)),
        Control("the last token left out", {"tokens": "all but one"}, ("derived series", "composition factors")),
        Control("composition factors counted once", {"repeats": False}, ("composition factors",)),
        Control("one face of the cube alone", {"faces": ("U",)}, ("turns of Rubik's cube",)),
    ),
)
def orders(settings: Orders, lab: Lab) -> Evidence:
    corridors = [semigroup(grid(n, stay=settings.stay)).order for n in settings.grids]
    stacks = [semigroup(_stack(n, k, settings.trap)).order for n, k in settings.stacks]
    groups = {name: _group(name, settings.tokens) for name in GROUPS}
    series = {name: tuple(derived_orders(group)) for name, group in groups.items()}
    factors = {name: tuple(sorted(composition_factors(group))) for name, group in groups.items()}
    if not settings.repeats:
        factors = {name: tuple(sorted(set(found))) for name, found in factors.items()}
    cube = PermutationGroup.of(rubik(tokens=settings.faces)).order
    shown = [[name, " ▷ ".join(map(str, found)), ", ".join(map(str, factors[name]))] for name, found in series.items()]
    return Evidence(
        [
            exact("maps of corridors", corridors, [grid_order(n) for n in settings.grids], unit="corridor"),
            exact("maps of stacks", stacks, [dyck_order(n, k) for n, k in settings.stacks], unit="stack"),
            exact("derived series", [series[name] == known for name, known in GROUPS.items()], 1, unit="group"),
            exact("composition factors", [factors[name] == known for name, known in FACTORS.items()], 1, unit="group"),
            # whole numbers beyond 2⁵³ are compared before they become floats
            exact("turns of Rubik's cube", [cube == rubik_order(), rubik_bound() == 12 * cube], 1, unit="equation"),
        ],
        tables={
            "groups": Table(["group", "derived series", "composition factors"], shown),
            "corridors": Table(["states", "maps"], [list(row) for row in zip(settings.grids, corridors, strict=True)]),
            "stacks": Table(
                ["depth", "types", "maps"],
                [[*pair, found] for pair, found in zip(settings.stacks, stacks, strict=True)],
            ),
            "Rubik's cube": Table(
                ["group", "order"], [["turns of faces", f"{cube:,}"], ["(C_3≀S_8) × (C_2≀S_12)", f"{rubik_bound():,}"]]
            ),
        },
    )


def _stack(n: int, k: int, trap: bool) -> Automaton:
    """Stacks; or without the trap, illegal brackets keeping the stack as it is."""
    automaton = dyck(n, k)
    if trap:
        return automaton
    last = automaton.n_states - 1
    return Automaton(tuple(tuple(q if to == last else to for to in row) for q, row in enumerate(automaton.table[:-1])))


def _group(name: str, tokens: str) -> PermutationGroup:
    maps = fixture(name).maps
    return PermutationGroup.generated(maps if tokens == "all" else maps[:-1])


# -- levels ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    grids: tuple[int, ...] = (2, 3, 4, 5, 9)
    stacks: tuple[int, ...] = (1, 2, 3, 4)
    groups: tuple[str, ...] = ("C6", "D8", "Q8", "A4", "S4", "A5")
    points: int = 4
    random: int = 200
    walls: bool = True
    extra: str = "none"
    asked: str = "solvable"


@claim(
    id="automata/holonomy-levels",
    statement=(
        "A corridor of n states decomposes into n − 1 levels of one flip-flop, a stack of depth n into n + 1 levels of "
        "at most three states, a group into one, (abab)* into two with one C_2, all maps on four points into groups of "
        "order 24, 6 and 2; cascades and semigroups agree on what is solvable."
    ),
    source=liu("Theorem 15 (Krohn and Rhodes), by holonomy"),
    scales={
        "smoke": Levels(grids=(2, 3, 4), stacks=(1, 2), groups=("C6", "D8"), random=10),
        "desk": Levels(),
        "paper": Levels(grids=tuple(range(2, 13)), random=2000),
    },
    controls=(
        Control("rings, without walls", {"walls": False}, ("levels of corridors", "components of corridors")),
        Control(
            "a further token that turns",
            {"extra": "turn", "grids": (3, 4), "stacks": (1, 2)},
            ("components of corridors", "levels of stacks", "states of stacks' components"),
        ),
        Control(
            "a further token that merges two states",
            {"extra": "merge", "grids": (3, 4), "stacks": (1, 2), "groups": ("C6", "D8")},
            ("levels of groups", "levels of (abab)*"),
        ),
        Control("all maps on three points", {"points": 3}, ("groups of all maps on four points",)),
        Control("semigroups asked for periods", {"asked": "aperiodic"}, ("cascades and semigroups disagree",)),
    ),
)
def levels(settings: Levels, lab: Lab) -> Evidence:
    def decomposed(automaton: Automaton) -> Holonomy:
        return holonomy(_with_token(automaton, settings.extra))

    corridors = [decomposed(grid(n) if settings.walls else _ring(n)) for n in settings.grids]
    stacks = [decomposed(dyck(n, 2)) for n in settings.stacks]
    groups = [decomposed(fixture(name)) for name in settings.groups]
    words = decomposed(abab())
    full = {c.group.order for c in holonomy(all_maps(settings.points)).components} - {1}
    disagree, hard = 0, 0
    for automaton in _half_bijections(settings.random, lab.seeds[0]):
        known = semigroup(automaton)
        solvable = holonomy(automaton).is_solvable
        disagree += solvable != (known.is_solvable if settings.asked == "solvable" else known.is_aperiodic)
        hard += not solvable
    simple = [_flip_flops(found) for found in corridors]
    of_words = [len(words.levels), sorted(component.group.order for component in words.components) == [1, 2]]
    rows = [
        *([f"corridor of {n}", *_shown(found)] for n, found in zip(settings.grids, corridors, strict=True)),
        *([f"stack of depth {n}", *_shown(found)] for n, found in zip(settings.stacks, stacks, strict=True)),
        *([name, *_shown(found)] for name, found in zip(settings.groups, groups, strict=True)),
        ["(abab)*", *_shown(words)],
    ]
    return Evidence(
        [
            exact("levels of corridors", _levels(corridors), [n - 1 for n in settings.grids], unit="corridor"),
            exact("components of corridors", simple, 1, unit="corridor"),
            exact("levels of stacks", _levels(stacks), [n + 1 for n in settings.stacks], unit="stack"),
            bounded("states of stacks' components", [max(f.sizes) for f in stacks], 3.0, unit="stack"),
            exact("levels of groups", _levels(groups), 1, unit="group"),
            exact("levels of (abab)*", of_words, [2, 1], unit="fact"),
            exact("groups of all maps on four points", full == {24, 6, 2}, 1, unit="automaton"),
            bounded("cascades and semigroups disagree", disagree, 0.0, unit="set of automata"),
        ],
        tables={"cascades": Table(["automaton", "levels", "states of components", "orders of groups"], rows)},
        notes=[f"Of {settings.random} random automata of five states, {hard} were not solvable."],
    )  # fmt: skip


def _ring(n: int) -> Automaton:
    return Automaton(tuple(((q - 1) % n, (q + 1) % n) for q in range(n)))


def _levels(found: Sequence[Holonomy]) -> list[int]:
    return [len(cascade.levels) for cascade in found]


def _shown(found: Holonomy) -> list[object]:
    sizes, groups = (
        ", ".join(map(str, numbers)) for numbers in (found.sizes, [c.group.order for c in found.components])
    )
    return [len(found.levels), sizes, groups]


def _flip_flops(found: Holonomy) -> bool:
    return all(c.size == 2 and c.group.order == 1 for c in found.components)


def _with_token(automaton: Automaton, extra: str) -> Automaton:
    """One more token: every state to the next, or the first two states to the first and the others kept."""
    n = automaton.n_states
    token: dict[str, Map] = {"turn": (*range(1, n), 0), "merge": (0, 0, *range(2, n))}
    maps = automaton.maps if extra == "none" else (*automaton.maps, token[extra])
    return Automaton(tuple(zip(*maps, strict=True)), start=automaton.start)


def _half_bijections(count: int, seed: int) -> list[Automaton]:
    """Five states and three tokens, each of them a bijection or any map with equal chances."""
    rng = np.random.default_rng(seed)
    maps = [
        [rng.permutation(5) if rng.random() < 0.5 else rng.integers(5, size=5) for _ in range(3)] for _ in range(count)
    ]
    return [Automaton(tuple(map(tuple, np.array(tokens).T.tolist()))) for tokens in maps]


# -- how large cascades get ------------------------------------------------------------------------------------------


def chain_of_pairs(points: int, *, closed: bool = False) -> Automaton:
    """Tokens that lead from one pair of neighbours, or next but one, to the following and merge all else; `closed`:
    and from the last to the first."""
    pairs = [(i, j) for i in range(points - 1) for j in (i + 1, i + 2) if j < points]
    maps = []
    for before, after in [*pairwise(pairs), *([(pairs[-1], pairs[0])] if closed else [])]:
        image = [after[0]] * points
        image[before[0]] = after[1]
        maps.append(tuple(image))
    return Automaton(tuple(zip(*maps, strict=True)))


def maps_of_rank(points: int, rank: int) -> Automaton:
    """All permutations, and a map onto `rank` of the points."""
    maps = ((*range(1, points), 0), (1, 0, *range(2, points)), tuple(min(x, rank - 1) for x in range(points)))
    return Automaton(tuple(zip(*maps, strict=True)))


@dataclass(frozen=True)
class Sizes:
    chains: tuple[int, ...] = (4, 5, 6, 7, 8)
    points: tuple[int, ...] = (4, 5, 6)
    levels: str = "2n − 3"
    states: str = "n(n − 1)/2"
    closed: bool = False
    rank: int = 2


@claim(
    id="automata/cascade-sizes",
    statement=(
        "Holonomy can need more levels than there are states, and components with more states: 2n − 3 levels for a "
        "chain of pairs of n points, n(n − 1)/2 states for all maps of rank two and all permutations."
    ),
    source=liu("Theorem 15, sizes corrected"),
    scales={"smoke": Sizes(chains=(4, 5, 6), points=(4, 5)), "desk": Sizes()},
    controls=(
        Control("a chain that closes", {"closed": True}, ("levels",)),
        Control("maps of rank three", {"rank": 3}, ("states of the largest component",)),
    ),
)
def sizes(settings: Sizes, lab: Lab) -> Evidence:
    chains = [holonomy(chain_of_pairs(n, closed=settings.closed)) for n in settings.chains]
    merged = [holonomy(maps_of_rank(n, settings.rank)) for n in settings.points]
    deep, wide = [len(found.levels) for found in chains], [max(found.sizes) for found in merged]
    if settings.levels == "at most n":
        depth = bounded("levels", [d - n for d, n in zip(deep, settings.chains, strict=True)], 0.0, unit="chain")
    else:
        depth = exact("levels", deep, [2 * n - 3 for n in settings.chains], unit="chain")
    if settings.states == "at most n":
        width = [w - n for w, n in zip(wide, settings.points, strict=True)]
        largest = bounded("states of the largest component", width, 0.0, unit="automaton")
    else:
        pairs = [n * (n - 1) // 2 for n in settings.points]
        largest = exact("states of the largest component", wide, pairs, unit="automaton")
    rows = [[f"chain of pairs of {n}", d, max(f.sizes)] for n, d, f in zip(settings.chains, deep, chains, strict=True)]
    rows += [[f"rank two on {n}", len(f.levels), w] for n, w, f in zip(settings.points, wide, merged, strict=True)]
    return Evidence([depth, largest], tables={"cascades": Table(["automaton", "levels", "largest component"], rows)})


# -- what position tells ---------------------------------------------------------------------------------------------

CHANCE = {
    **{f"C{n}": 100 / n for n in range(2, 9)},
    **{"D6": 17.2, "D8": 25.3, "Q8": 12.8, "A4": 9.4, "A5": 2.3, "S4": 4.4, "S5": 1.3},
    **{"C2x2": 25.0, "C2x2x2": 12.5, "GRID4": 26.0, "GRID9": 15.3, "DYCK": 11.1},
}
"""Percent right among the first 100 states, for the best answer that looks at the position alone."""
BY_CHANCE = 0.001


@dataclass(frozen=True)
class Positions:
    rows: int = 400
    length: int = 100
    answer: str = "likeliest"
    identity: bool = False
    uniform: str = ""
    """A task whose tokens are drawn uniformly, whatever its law."""
    unseen: str = ""
    """A task whose samples have none of its labels."""


@claim(
    id="automata/position-alone",
    statement=(
        "Chance on the nineteen tasks, the best answer that looks at the position alone: 1/n for C_n, 1.3 % for S_5, "
        "25.3 % for D_8, where time tells one half of the group, 15.3 % for nine places."
    ),
    source=liu("tasks of Figures 3.15 and 3.16; their chance levels are computed here"),
    scales={"smoke": Positions(rows=60), "desk": Positions(), "paper": Positions(rows=5000)},
    controls=(
        Control("answers one position late", {"answer": "late"}, ("accuracy of that answer",)),
        Control("brackets drawn uniformly", {"uniform": "DYCK"}, ("accuracy of that answer",)),
        Control("other labels on one task", {"unseen": "S5"}, ("accuracy of that answer",)),
        Control("a token that keeps added", {"identity": True}, ("percent right, in closed form",)),
    ),
)
def positions(settings: Positions, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "rows")
    found, right, off, rows = [], [], [], []
    for name in TASKS:
        automaton = replace(_idle(fixture(name)) if settings.identity else fixture(name), length=settings.length)
        law = label_laws(automaton)
        best = law.argmax(1) if settings.answer == "likeliest" else law.argmax(1).roll(1)
        drawn = replace(automaton, law=Uniform()) if name == settings.uniform else automaton
        labels = drawn.sample(settings.rows, generator).latents["label"]
        known = (labels == best) & (name != settings.unseen)
        right.append(known.double().mean(1).numpy())
        found.append(100 * chance(automaton))
        off.append(abs(right[-1].mean() - found[-1] / 100) / _tolerance(right[-1], law.amax(1)))
        rows.append([name, found[-1], CHANCE[name], 100 * float(right[-1].mean())])
    wanted = [CHANCE[name] for name in TASKS]
    return Evidence(
        [
            exact("percent right, in closed form", found, wanted, atol=0.051, unit="task"),
            bounded("accuracy of that answer", off, 1.0, unit="task"),
        ],
        figures={"tasks": lambda: _chances(rows, right)},
        tables={"tasks": Table(["task", "percent", "known", "on samples"], rows)},
        notes=[
            "The check on samples shows the largest distance to the closed form, over what chance alone exceeds on one "
            f"of the {len(TASKS)} tasks in a run of {1 / BY_CHANCE:,.0f}."
        ],
    )


def _tolerance(right: np.ndarray, law: Float[Tensor, " position"]) -> float:
    """How far the mean over rows may be off by chance: t at `BY_CHANCE`, Bonferroni over tasks, standard errors.

    A row's spread is that of the sample, and at least the binomial one, of independent positions.
    """
    binomial = float((law * (1 - law)).sum().sqrt()) / len(law)
    spread = max(float(right.std(ddof=1)), binomial)
    return float(stats.t.isf(BY_CHANCE / (2 * len(TASKS)), len(right) - 1)) * spread / math.sqrt(len(right))


def _chances(rows: Sequence[Sequence[Any]], right: Sequence[np.ndarray]) -> Figure:
    bars: list[Row] = []
    for (name, predicted, _, mean), values in zip(rows, right, strict=True):
        half = 260 * values.std(ddof=1) / len(values) ** 0.5
        bars.append((name, mean, mean - half, mean + half, predicted))
    return comparison(
        sorted(bars, key=lambda bar: bar[1]),
        xlabel="% right among the first 100 states",
        title="What position alone tells",
    )


def _idle(automaton: Automaton) -> Automaton:
    """The same with one more token, which keeps."""
    table = tuple((*row, q) for q, row in enumerate(automaton.table))
    return Automaton(table, start=automaton.start)


# -- (abab)* ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    length: int = 9
    output: str = "000100010"
    accepting: tuple[int, ...] = (3,)


@claim(
    id="automata/abab-outputs",
    statement=(
        "From state 3, abababab visits 0, 1, 2, 3, 0, 1, 2, 3: with a ninth letter it outputs 000100010, as no other "
        "words do, and no word of nine letters outputs 1 twice in a row."
    ),
    source=liu("example (abab)*, outputs corrected"),
    scales={"smoke": Words(), "desk": Words()},
    controls=(Control("states 3 and 0 accept", {"accepting": (3, 0)}, ("words with this output", "ones in a row")),),
)
def outputs(settings: Words, lab: Lab) -> Evidence:
    rows = all_states(2, settings.length)
    accepts = torch.isin(abab().simulate(rows), torch.tensor(settings.accepting))
    wanted = torch.tensor([sign == "1" for sign in settings.output])
    same = (accepts == wanted).all(1)
    walks = (rows[:, :-1] == torch.arange(settings.length - 1) % 2).all(1)
    return Evidence(
        [
            exact("words with this output", [int(same.sum()), int((same & walks).sum())], 2, unit="count"),
            bounded("ones in a row", (accepts[:, 1:] & accepts[:, :-1]).sum(1).numpy(), 0.0, unit="word"),
        ]
    )


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED = (
    printed(
        "cascade-levels",
        sizes,
        {"levels": "at most n"},
        statement="The cascade of an automaton with n states has at most n levels.",
        where="Theorem 15",
        erratum="Not by holonomy: a chain of pairs of n points has 2n − 3. At most 2ⁿ components is safe.",
    ),
    printed(
        "component-states",
        sizes,
        {"states": "at most n"},
        statement="Every component of the cascade of an automaton with n states has at most n states.",
        where="Theorem 15",
        erratum="Not by holonomy: states are tiles, and with all pairs for image sets there are n(n − 1)/2 of them.",
    ),
    printed(
        "abab-output",
        outputs,
        {"output": "000111111"},
        statement="Some word of nine letters makes (abab)* output 000111111.",
        where="example (abab)*, second word",
        erratum=(
            "Output 1 means state 3, which no letter keeps, and the trap outputs 0. The word printed is the first one "
            "once more."
        ),
    ),
)

CLAIMS = (orders, levels, sizes, positions, outputs, *PRINTED)
