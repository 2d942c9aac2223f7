"""Corridors in two layers, whatever their length and that of the input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, wholes
from sandtable.claims.automata.checking import ROUNDS, damaged, on_long, on_short, tabled
from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.lab.figures import PALETTE, heatmaps
from sandtable.theory.automata import Compiled, compile
from sandtable.theory.automata.compile import recognise
from sandtable.theory.automata.compile.grid import cost_of_age, grid
from sandtable.theory.automata.corridors import clamped, last_states
from sandtable.worlds.automata import Automaton, fixture
from sandtable.worlds.automata import grid as corridor
from sandtable.worlds.finite import all_states

PATTERN = "blocks.1.attn.hook_pattern"

# -- two layers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corridors:
    states: tuple[int, ...] = (2, 3, 4, 5, 6)
    limit: int = 13_200
    long: tuple[str, ...] = ("GRID9", "GRID9-STAY", "GRID4")
    length: int = 100
    rows: int = 50
    padding: str = "S + 1"
    sentinel: bool = True
    final: str = "S − s"
    turn: int = 1
    sharpness: float = 1.0
    instead: str = ""
    times: int = 1
    damage: str = "none"

    def __post_init__(self) -> None:
        wholes("states", self.states, least=2)
        one_of("padding", self.padding, ("S + 1", "S"))
        for name in self.long:
            if recognise.corridor(fixture(name)) is None:
                raise ArgumentError(f"long={self.long!r}: {name} is no corridor")


@claim(
    id="automata/grid-two-layers",
    statement=(
        "Two layers with 2S + 1 heads follow a walk in a corridor 0 … S exactly, from every start and for every T: the "
        "first counts moves, and in the second some head sits on the latest visit to a wall."
    ),
    source=liu("Theorem 12 (Theorem 3 of the paper), with a score for heads that find nothing"),
    scales={
        "smoke": Corridors(states=(2, 3), limit=300, long=("GRID4",), length=20, rows=3),
        "desk": Corridors(),
        "paper": Corridors(limit=1_000_000, rows=500),
    },
    controls=(
        Control("positions one late", {"damage": "positions one late"}, ("wrong, all inputs", "wrong, long inputs")),
        Control(
            "softmax scale a thousandth",
            {"sharpness": 1e-3, "states": (3,), "long": ("GRID4",)},
            ("distance to integers", "attention off the latest wall"),
        ),
        Control("the same by doubling", {"instead": "log", "states": (3,), "long": ("GRID4",)}, ("layers",)),
        Control(
            "a network for three times as many tokens",
            {"times": 3, "states": (3,), "long": ("GRID4",)},
            ("size over bound",),
        ),
    ),
    tour=True,
)
def two_layers(settings: Corridors, lab: Lab) -> Evidence:
    def make(automaton: Automaton, length: int) -> Compiled:
        if settings.instead:
            return compile(automaton, length, method=settings.instead)
        return damaged(_compiled(automaton, length, settings), settings.damage)

    automata = [corridor(n, stay=True, name=f"grid {n}, may stay") for n in settings.states]
    cases = [(fixture(name), settings.length) for name in settings.long]
    short = on_short(make, automata, settings.limit, device=lab.device)
    long = on_long(make, cases, settings.rows, seed=lab.seeds[0], device=lab.device)
    off = [_off_wall(make(a, length), lab) if not settings.instead else math.nan for a, length in cases]
    over = [
        max(make(a, settings.times * length).sizes.over(_compiled(a, length, settings).bound).values())
        for a, length in cases
    ]
    return Evidence(
        [
            bounded("wrong, all inputs", short.wrong, 0.0, unit="corridor"),
            bounded("wrong, long inputs", long.wrong, 0.0, unit="corridor"),
            bounded("distance to integers", short.residual + long.residual, ROUNDS, unit="network"),
            bounded("attention off the latest wall", off, 0.01, unit="corridor"),
            exact("layers", short.layers + long.layers, 2, unit="network"),
            bounded("size over bound", over, 1.0, atol=1e-9, unit="corridor"),
        ],
        figures={"attention": _figure},
        tables={"corridors": tabled(short, long)},
    )


def _compiled(automaton: Automaton, length: int, settings: Corridors) -> Compiled:
    found = recognise.corridor(automaton)
    assert found is not None
    return grid(
        automaton,
        length,
        order=found.order,
        moves=found.moves,
        padding=None if settings.padding == "S + 1" else automaton.n_states - 1,
        sentinel=settings.sentinel,
        final=settings.final,
        turn=settings.turn,
        sharpness=settings.sharpness,
    )


def _walls(compiled: Compiled, rows: Int[Tensor, "row position"], start: int) -> Int[Tensor, "row position"]:
    """Where the latest visit to a wall stands among the model's positions, for every token of the input."""
    automaton, found = compiled.automaton, recognise.corridor(compiled.automaton)
    assert found is not None
    last = automaton.n_states - 1
    prefix = [-1] * (last + 1) + [1] * found.order.index(start) + [0] * (last - found.order.index(start))
    moves = torch.cat([torch.tensor(prefix).expand(len(rows), -1), torch.tensor(found.moves)[rows]], 1)
    places = clamped(moves, last)
    at_wall = (places == 0) | (places == last)
    latest = torch.where(at_wall, torch.arange(1, moves.shape[1] + 1), 0).cummax(1).values  # ⊥ stands first
    return latest[:, len(prefix) :]


def _seen(compiled: Compiled, rows: Tensor, start: int) -> Float[Tensor, "row head query key"]:
    """Second layer's attention of the tokens of the input."""
    device = next(compiled.model.parameters()).device
    seen = compiled.model(compiled.encode(rows.to(device), start), want=(PATTERN,))[1][PATTERN]
    return seen[:, :, compiled.pads :].cpu()


def _off_wall(compiled: Compiled, lab: Lab) -> float:
    """1 − the attention of the best head to the latest visit to a wall, at worst."""
    automaton = compiled.automaton
    rows = torch.randint(automaton.n_tokens, (4, compiled.length), generator=lab.generator(lab.seeds[0], "walks"))
    start = automaton.n_states // 2
    wall = _walls(compiled, rows, start)[:, None, :, None]
    seen = _seen(compiled, rows, start)
    best = seen.gather(3, wall.expand(-1, seen.shape[1], -1, -1))[..., 0].amax(1)
    return float(1 - best.min())


def _figure() -> Figure:
    """The head that tells the state, for every token of one walk."""
    automaton = corridor(5)
    word = automaton.word("R R L R R R R L L R L L L L L R R L R L R R R R R L")
    compiled = compile(automaton, len(word), method="grid")
    wall, seen = _walls(compiled, word[None], 0)[0], _seen(compiled, word[None], 0)[0]
    head = seen.gather(2, wall[None, :, None].expand(len(seen), -1, -1))[..., 0].argmax(0)
    shown = seen[head, torch.arange(len(word))]
    states = automaton.simulate(word, 0).tolist()
    pads = ["⊥", *["←"] * 5, *["·"] * 4]
    figure = heatmaps(
        {"": shown.numpy()},
        limit=1.0,
        rows=[f"{token} {state}" for token, state in zip(automaton.vocab.decode(word), states, strict=True)],
        columns=[*pads, *map(str, states)],
        xlabel="key: pads, then the state after every token",
        ylabel="query: token and the state after it",
        title="A corridor of five: the head that tells the state, and the latest visit to a wall (boxes)",
    )
    for query, key in enumerate(wall.tolist()):
        figure.axes[0].add_patch(Rectangle((key - 0.5, query - 0.5), 1, 1, fill=False, ec=PALETTE[2], lw=1.3))
    return figure


# -- the algorithm by hand -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByHand:
    last: tuple[int, ...] = (1, 2, 3, 4)
    longest: int = 8
    padding: str = "S + 1"
    span: str = "S"
    window: str = "latest"


@claim(
    id="automata/grid-algorithm",
    statement=(
        "Behind S + 1 moves to the left, a walk's end is z_T − z_b + (0 or S), z being prefix sums and b the latest "
        "visit to an end of the latest window with S + 1 values; both walls give the same answer, as z_max − z_min = S."
    ),
    source=liu("Algorithm 1 and proof of Theorem 12, corrected"),
    scales={"smoke": ByHand(longest=5), "desk": ByHand(), "paper": ByHand(last=(1, 2, 3, 4, 5), longest=11)},
    controls=(
        Control("no moves to the left", {"padding": "none"}, ("walks without a window",)),
        Control(
            "the whole walk for a window",
            {"window": "all"},
            ("wrong ends", "walls that disagree", "span of the window"),
        ),
    ),
)
def by_hand(settings: ByHand, lab: Lab) -> Evidence:
    wrong, undefined, apart, spans, wanted, rows = [], [], [], [], [], []
    for last in settings.last:
        automaton = corridor(last + 1, stay=True)
        padding = {"S + 1": last + 1, "S": last, "none": 0}[settings.padding]
        span = last if settings.span == "S" else last + 1
        counts = [0, 0, 0]
        for length in range(1, settings.longest + 1):
            tokens = all_states(3, length)
            for start in range(last + 1):
                found = last_states(tokens - 1, last, start=start, padding=padding, window=settings.window)
                ends = automaton.simulate(tokens, start)[:, -1]
                counts[0] += len(tokens)
                counts[1] += int((~found.defined).sum())
                counts[2] += int((found.states != ends)[found.defined].sum())
                apart.append(int((found.branches[:, 0] != found.branches[:, 1])[found.defined].sum()))
                seen = found.span[found.defined]
                if len(seen):
                    spans += [int(seen.min()), int(seen.max())]
                    wanted += [span, span]
        undefined.append(counts[1])
        wrong.append(counts[2])
        rows.append([last, *counts])
    return Evidence(
        [
            bounded("walks without a window", undefined, 0.0, unit="corridor"),
            bounded("wrong ends", wrong, 0.0, unit="corridor"),
            bounded("walls that disagree", apart, 0.0, unit="start and length"),
            exact("span of the window", spans, wanted, unit="start and length"),
        ],
        tables={"walks": Table(["S", "walks × starts", "without a window", "wrong"], rows)},
    )


# -- gaps between scores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaps:
    positions: tuple[int, ...] = (1, 2, 3, 5, 10, 30, 109, 1000)
    constant: str = "1"
    cost: float = 1.0
    arc: float = 1.0


@claim(
    id="automata/grid-gaps",
    statement=(
        "With c = π²/(16·ln 2·N²) a matching position beats all others, cos(π/2N) ≤ 1 − 1/N² and c·ln 2 together "
        "leaving a gap of 0.38/N², and of two matches the later one wins by c/2N at least."
    ),
    source=liu("proof of Theorem 12, inequality corrected"),
    scales={"smoke": Gaps(), "desk": Gaps()},
    controls=(
        Control("c doubled", {"cost": 2.0}, ("0.38 − gap·N²",)),
        Control("half as far apart on the circle", {"arc": 0.5}, ("cos(π/2N) above 1 − a/N²",)),
        Control("c a tenth", {"cost": 0.1}, ("least step between matches",)),
    ),
)
def gaps(settings: Gaps, lab: Lab) -> Evidence:
    a = 1.0 if settings.constant == "1" else math.pi**2 / 8
    above, missing, steps = [], [], []
    for n in settings.positions:
        fall = 2 * math.sin(settings.arc * math.pi / (4 * n)) ** 2  # 1 − cos(π/2N)
        cost = settings.cost * cost_of_age(n)
        above.append(a - fall * n * n)
        missing.append(0.38 - (fall - cost * math.log(2)) * n * n)
        age = [math.log(2 * n - t) for t in range(n + 1)]
        least = min(cost * (one - other) for one, other in pairwise(age))
        steps.append(cost_of_age(n) / (2 * n) / least)
    return Evidence(
        [
            bounded("cos(π/2N) above 1 − a/N²", above, 1e-12, unit="N"),
            bounded("0.38 − gap·N²", missing, 0.0, unit="N"),
            bounded("least step between matches", steps, 1.0, atol=1e-9, unit="N"),
        ]
    )


# -- as printed ------------------------------------------------------------------------------------------------------

FEW = {"states": (2, 3, 4), "long": ("GRID9",), "rows": 5}
PRINTED: tuple[Claim, ...] = (
    printed(
        "grid-unmatched-heads",
        two_layers,
        FEW | {"sentinel": False},
        statement="A head that finds no position with its value looks at t itself.",
        where="Theorem 12, proof, heads without a match",
        erratum=(
            "From S = 2 on it looks at the position with the nearest value. A first token with a score between those "
            "of matches and of all others catches such heads, its age telling that they found nothing."
        ),
    ),
    printed(
        "grid-final-formula",
        two_layers,
        FEW | {"final": "printed"},
        statement="The state is S − s where the wall reached last is 0, and 2S + 1 − s where it is S.",
        where="Theorem 12, final formula",
        erratum="It is S − s in both cases.",
    ),
    printed(
        "grid-rotation",
        two_layers,
        FEW | {"turn": -1},
        statement="The matrix W_Q of head s turns queries so that they meet the value z_t + s − S.",
        where="Theorem 12, W_Q of the second layer",
        erratum="As printed it is the transpose of what its formula needs and turns the other way.",
    ),
    printed(
        "grid-padding",
        by_hand,
        {"padding": "S"},
        statement="Behind S moves to the left every walk has a window with S + 1 values.",
        where="Algorithm 1, step 1",
        erratum=(
            "Walks that stay near the left wall have S values only: 510 of 9840 from state 0, for S = 2 and up to "
            "eight tokens. S + 1 moves are needed, in the network too, where the text forgets them."
        ),
    ),
    printed(
        "grid-span",
        by_hand,
        {"span": "S + 1"},
        statement="Over the window with S + 1 values, z_max − z_min = S + 1.",
        where="Algorithm 1, proof",
        erratum="S + 1 neighbouring values span S.",
    ),
    printed(
        "grid-cosine",
        gaps,
        {"constant": "π²/8"},
        statement="cos(π/2N) ≤ 1 − π²/8N².",
        where="proof of Theorem 12, gap between matching and other positions",
        erratum="cos x ≥ 1 − x²/2, so that the inequality goes the other way; 1 − 1/N² is above it, and suffices.",
    ),
)

CLAIMS = (two_layers, by_hand, gaps, *PRINTED)
