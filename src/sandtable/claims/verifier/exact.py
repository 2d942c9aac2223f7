"""What a process verifier buys on uniform bits: exponentially fewer queries, at the price of a skewed law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import botta
from sandtable.decoding import ExactModel, exhaustive_tokenwise, rejection, tokenwise_rejection
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, exceeds, law
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory
from sandtable.worlds import Knapsack, OneZero, Trap, Zeros

WORLDS = {"zeros": Zeros, "one zero": OneZero, "trap": Trap}

# -- all zeros -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllZeros:
    lengths: tuple[int, ...] = (2, 4, 6, 8, 10)
    world: str = "zeros"
    decoded: int = 4
    rows: int = 10_000


@claim(
    id="verifier/zeros",
    statement=(
        "To draw 0^D from fair bits, rejection of whole strings takes D·2^D queries (2^(D+1) − 2 if strings are given "
        "up early), rejection of tokens 2D, and verifying every continuation 2D verifier calls without a rejection."
    ),
    source=botta("exponential gap (thesis, Proposition 3.1.1)"),
    scales={"smoke": AllZeros(lengths=(2, 4, 7), decoded=3, rows=5000), "desk": AllZeros(decoded=6, rows=20_000)},
    controls=(
        Control(
            "at least one zero in place of all",
            {"world": "one zero"},
            (
                "whole strings",
                "given up early",
                "token by token",
                "decoded whole strings",
                "decoded token by token",
            ),
        ),
        Control("strings longer by one", {"world": "longer"}, ("exhaustive calls", "decoded exhaustive calls")),
    ),
)
def zeros(settings: AllZeros, lab: Lab) -> Evidence:
    found: dict[str, list[float]] = {name: [] for name in ("whole", "early", "tokens", "calls")}
    for length in settings.lengths:
        world = _zeros(settings.world, length)
        tree = theory.Tree.of(world)
        values = tree.evaluate(world.accepts)
        found["whole"].append(theory.rejection(tree, values).queries)
        found["early"].append(theory.rejection(tree, values, abort=True).queries)
        found["tokens"].append(theory.tokenwise(tree, values).queries)
        found["calls"].append(theory.exhaustive_tokenwise(tree, values).verifier_calls)
    short = settings.decoded
    runs = lab.measure(_zeros_decoded, settings.world, short, settings.rows)
    close: Any = dict(rtol=1e-10, unit="length")
    wholes = [theory.zeros_rejection(d) for d in settings.lengths]
    tokens = [theory.zeros_tokenwise(d) for d in settings.lengths]
    return Evidence(
        [
            exact("whole strings", found["whole"], wholes, **close),
            exact(
                "given up early",
                found["early"],
                [theory.zeros_rejection(d, abort=True) for d in settings.lengths],
                **close,
            ),
            exact("token by token", found["tokens"], tokens, **close),
            exact("exhaustive calls", found["calls"], [2.0 * d for d in settings.lengths], **close),
            agrees(
                "decoded whole strings",
                runs["whole"].ravel(),
                theory.zeros_rejection(short),
                relative=0.1,
                unit="generation",
            ),
            agrees(
                "decoded token by token",
                runs["tokens"].ravel(),
                theory.zeros_tokenwise(short),
                relative=0.05,
                unit="generation",
            ),
            exact("decoded exhaustive calls", runs["calls"].ravel(), 2.0 * short, unit="generation"),
        ],
        figures={
            "queries against length": lambda: curves(
                settings.lengths,
                {"whole strings": found["whole"], "token by token": found["tokens"]},
                predictions={"whole strings": wholes, "token by token": tokens},
                xlabel="length D",
                ylabel="queries",
                title="What a process verifier saves",
                log_y=True,
            )
        },
    )


def _zeros(name: str, length: int) -> Zeros | OneZero | Trap:
    return Zeros(length + 1) if name == "longer" else WORLDS[name](length)


def _zeros_decoded(lab: Lab, name: str, length: int, rows: int) -> dict[str, np.ndarray]:
    """Queries of the decoders themselves: rejection of strings and of tokens, and calls of the exhaustive one."""
    world = _zeros(name, length)
    decoders: dict[str, Callable[..., Any]] = {
        "whole": rejection,
        "tokens": tokenwise_rejection,
        "calls": exhaustive_tokenwise,
    }
    found: dict[str, list[np.ndarray]] = {name: [] for name in decoders}
    for seed in lab.seeds:
        for name, decode in decoders.items():
            made = decode(world, _empty(rows), world, max_tokens=world.length, generator=lab.generator(seed, name))
            found[name].append((made.verifier_calls if name == "calls" else made.queries).numpy())
    return {name: np.stack(values) for name, values in found.items()}


def _empty(rows: int) -> torch.Tensor:
    """Prompts without a token."""
    return torch.zeros(rows, 0, dtype=torch.long)


# -- calibration -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    lengths: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    decoded: int = 4
    rows: int = 40_000
    values: str = "verifier"
    predicted: str = "tokenwise"


@claim(
    id="verifier/miscalibration",
    statement=(
        "Rejection of tokens with a perfect verifier does not draw from the restricted law: on strings with at least "
        "one 0 it gives 1^(D−1)0 twice its share, TV (2^D−2)/(2^D(2^D−1)); on the trap world it puts half its mass on "
        "1^D, TV ½ − 1/(2^(D−1)+1), which does not vanish."
    ),
    source=botta("miscalibration (thesis, Proposition 3.1.2), with a second world"),
    scales={"smoke": Calibration(lengths=(2, 3, 6, 8), rows=10_000), "desk": Calibration()},
    controls=(
        Control(
            "true values in place of the verifier",
            {"values": "true"},
            ("mass of 1^(D−1)0", "mass of other strings", "mass of 1^D in the trap", "TV, one zero", "TV, trap"),
        ),
        Control("restricted law predicted", {"predicted": "restricted"}, ("decoded strings, trap",)),
    ),
)
def miscalibration(settings: Calibration, lab: Lab) -> Evidence:
    special, others, ones, tvs = [], [], [], {"one zero": [], "trap": []}
    for length in settings.lengths:
        for name in tvs:
            tree, found, target = _tokenwise_law(name, length, settings.values)
            tvs[name].append(theory.tv(found, target))
            rows = torch.ones(2, length, dtype=torch.long)
            rows[0, -1] = 0
            almost, all_ones = tree.locate(rows) - len(tree) + len(tree.leaves)
            if name == "trap":
                ones.append(found[all_ones])
                continue
            special.append(found[almost] * 2.0 ** (length - 1))
            rest = np.delete(found, [almost, all_ones]) * 2.0**length
            others.append(np.abs(rest - 1).max(initial=0) + found[all_ones])
    short = settings.decoded
    counts = lab.measure(_tokenwise_decoded, short, settings.rows)
    _, skewed, restricted = _tokenwise_law("trap", short, "verifier")
    predicted = skewed if settings.predicted == "tokenwise" else restricted
    precise: Any = dict(atol=1e-12, unit="length")
    return Evidence(
        [
            exact("mass of 1^(D−1)0", special, 1.0, **precise),
            bounded("mass of other strings", others, 1e-12, unit="length"),
            exact("mass of 1^D in the trap", ones, 0.5, **precise),
            exact("TV, one zero", tvs["one zero"], [theory.one_zero_tv(d) for d in settings.lengths], **precise),
            exact("TV, trap", tvs["trap"], [theory.trap_tv(d) for d in settings.lengths], **precise),
            law("decoded strings, trap", counts["trap"].sum(0), predicted, within=0.04, unit="generation"),
        ],
        figures={
            "total variation": lambda: curves(
                settings.lengths,
                tvs,
                predictions={
                    "one zero": [theory.one_zero_tv(d) for d in settings.lengths],
                    "trap": [theory.trap_tv(d) for d in settings.lengths],
                },
                xlabel="length D",
                ylabel="TV to the restricted law",
                title="Rejection of tokens is miscalibrated",
            )
        },
        notes=["Masses of the first two checks are in units of 2^−(D−1) and 2^−D."],
    )


def _tokenwise_law(name: str, length: int, values: str) -> tuple[theory.Tree, np.ndarray, np.ndarray]:
    """The tree, the law of rejection of tokens (or of action-level rejection by true values), the restricted law."""
    world = WORLDS[name](length)
    tree = theory.Tree.of(world)
    accepted = tree.evaluate(world.accepts)
    target = theory.restricted_law(tree, accepted[tree.leaves])
    if values == "true":
        return tree, theory.action_level(tree, tree.expect(accepted[tree.leaves])).law, target
    return tree, theory.tokenwise(tree, accepted).law, target


def _tokenwise_decoded(lab: Lab, length: int, rows: int) -> dict[str, np.ndarray]:
    """How often the decoder writes each string of the trap world."""
    world = Trap(length)
    tree = theory.Tree.of(world)
    counts = []
    for seed in lab.seeds:
        made = tokenwise_rejection(
            world, _empty(rows), world, max_tokens=length, generator=lab.generator(seed, "strings")
        )
        counts.append(tree.counts(made.tokens))
    return {"trap": np.stack(counts)}


# -- subset sums -----------------------------------------------------------------------------------------------------


LARGER = 8
"""How many times as large the weights are whose table is compared."""


@dataclass(frozen=True)
class SubsetSums:
    length: int = 12
    instances: int = 20
    most: int = 60
    ones: float = 0.5
    verifier: str = "sums"
    early: bool = False
    tabled: int = 18
    tables: int = 80
    """Instances whose tables are measured: how much a table grows varies a lot between them."""
    merged: bool = True
    larger: int = LARGER
    family: str = "superincreasing"
    target: str = "reachable"
    rows: int = 400


@claim(
    id="verifier/knapsack",
    statement=(
        "Where A is the solutions of a subset sum, rejection of strings takes D·2^D/|A| queries; with a verifier that "
        "tables the sums still reachable, rejection of tokens always solves it in at most 2D on average. The table "
        "holds at most D²·max weight sums and grows with the weights; superincreasing weights need none, and greedy "
        "choice solves them."
    ),
    source=botta("computational hardness (thesis, Theorem 3.1.2)"),
    scales={"smoke": SubsetSums(length=10, instances=8, rows=200), "desk": SubsetSums()},
    controls=(
        Control(
            "a verifier that accepts everything", {"verifier": "none"}, ("solves the instance", "decoded: solutions")
        ),
        Control(
            "bits that are 1 with probability 0.1",
            {"ones": 0.1},
            ("whole strings", "token by token", "queries over 2D", "decoded: queries over the recursion's"),
        ),
        Control("strings given up early", {"early": True}, ("whole strings", "saving over 2^D/(2|A|)")),
        Control("subsets tabled in place of sums", {"merged": False}, ("table over D²·max weight",)),
        Control("weights twice as large", {"larger": 2}, ("table of larger weights over table",)),
        Control("weights that are not superincreasing", {"family": "arbitrary"}, ("tables kept for superincreasing",)),
        Control("targets that few subsets have", {"target": "any"}, ("unsolved by greedy choice",)),
    ),
)
def knapsack(settings: SubsetSums, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "instances")
    missed, wholes, tokens, predicted, recursion, over, saving, rows = ([] for _ in range(8))
    worlds = [Knapsack.arbitrary(settings.length, generator, most=settings.most) for _ in range(settings.instances)]
    for world in worlds:
        tree = theory.Tree.of(_biased(settings.ones), settings.length, 2)
        accepted = tree.evaluate(world.accepts)
        judged = accepted if settings.verifier == "sums" else np.ones(len(tree))
        found = theory.tokenwise(tree, judged)
        strings = theory.rejection(tree, accepted, abort=settings.early).queries
        closed = theory.knapsack_rejection(world)
        missed.append(1 - found.law @ accepted[tree.leaves])
        wholes.append(strings)
        predicted.append(closed)
        tokens.append(theory.tokenwise(tree, accepted).queries)
        recursion.append(theory.knapsack_tokenwise(world))
        over.append(tokens[-1] / (2 * world.length))
        saving.append(2.0**world.length / (2 * world.solutions) / (strings / tokens[-1]))
        rows.append([world.target, world.solutions, strings, tokens[-1]])
    runs = lab.measure(_sums_decoded, worlds, settings.rows, settings.ones, settings.verifier)
    decoded = (runs["queries"] / np.array(recursion)[:, None]).ravel()
    tables, growth = _tables(settings, generator)
    greedy = [_greedy(settings, generator) for _ in range(settings.instances)]
    alike: Any = dict(rtol=1e-9, unit="instance")
    return Evidence(
        [
            bounded("solves the instance", missed, 1e-9),
            exact("whole strings", wholes, predicted, **alike),
            exact("token by token", tokens, recursion, **alike),
            bounded("queries over 2D", over, 1.0, atol=1e-12),
            bounded("saving over 2^D/(2|A|)", saving, 1.0, atol=1e-12),
            bounded("decoded: solutions", 1 - runs["right"].mean((0, 2)), 0.0),
            agrees("decoded: queries over the recursion's", decoded, 1.0, within=0.05, unit="generation"),
            bounded("table over D²·max weight", tables, 1.0),
            exceeds("table of larger weights over table", growth, LARGER / 2, unit="instance"),
            bounded("unsolved by greedy choice", [not solved for solved, _ in greedy], 0.0),
            bounded("tables kept for superincreasing", [tabled for _, tabled in greedy], 0.0),
        ],
        tables={"instances": Table(["target", "solutions", "whole strings", "token by token"], rows)},
        notes=[
            "The third check compares the tree of all strings with a recursion over (position, sum so far). Savings "
            "are shown as the promised one over the one found, solutions as the share of strings that are none.",
            f"Weights {LARGER} times as large make the table as much larger until it holds all 2^i subsets: half of "
            "that growth is asked.",
        ],
    )


def _biased(ones: float) -> Callable[[torch.Tensor], torch.Tensor]:
    law = torch.tensor([1 - ones, ones], dtype=torch.float64)
    return lambda prefix: law.repeat(len(prefix), 1)


def _sums_decoded(lab: Lab, worlds: list[Knapsack], rows: int, ones: float, verifier: str) -> dict[str, np.ndarray]:
    """What rejection of tokens writes on every instance: whether it solves it, and queries."""
    out: dict[str, list[Any]] = {"right": [], "queries": []}
    for seed in lab.seeds:
        right, queries = [], []
        for number, world in enumerate(worlds):
            made = tokenwise_rejection(
                ExactModel(_biased(ones), vocab=2),
                _empty(rows),
                world if verifier == "sums" else (lambda view: torch.ones(len(view))),
                max_tokens=world.length,
                generator=lab.generator(seed, f"strings of instance {number}"),
            )
            right.append((world.completions(made.tokens) > 0).numpy() & made.accepted.numpy())
            queries.append(made.queries.numpy())
        out["right"].append(right)
        out["queries"].append(queries)
    return {name: np.array(values) for name, values in out.items()}


def _tables(settings: SubsetSums, generator: torch.Generator) -> tuple[list[float], list[float]]:
    """Of every instance: entries of the table over D²·max weight, and entries with larger weights over entries."""
    shares, growth = [], []
    for _ in range(settings.tables):
        chosen = torch.randint(2, (settings.tabled,), generator=generator)
        weights = torch.randint(1, settings.most + 1, chosen.shape, generator=generator)
        larger = settings.larger * weights - torch.randint(settings.larger, chosen.shape, generator=generator)
        size, grown = (
            _entries(Knapsack(tuple(w.tolist()), int(w @ chosen)), settings.merged) for w in (weights, larger)
        )
        shares.append(size / (settings.tabled**2 * int(weights.max())))
        growth.append(grown / size)
    return shares, growth


def _entries(world: Knapsack, merged: bool) -> int:
    """Entries of the verifier's table: sums, or the subsets that they are sums of."""
    return sum(len(tail.sums) if merged else int(tail.ways.sum()) for tail in world.tails)


def _greedy(settings: SubsetSums, generator: torch.Generator) -> tuple[bool, bool]:
    """Whether greedy choice solves a superincreasing instance, and whether its verifier kept a table of sums."""
    world = Knapsack.superincreasing(settings.tabled, generator)
    if settings.target == "any":
        world = replace(world, target=int(torch.randint(sum(world.weights), (), generator=generator)))
    chosen = world.greedy()
    solved = chosen is not None and int(np.dot(chosen, world.weights)) == world.target
    judge = world
    if settings.family == "arbitrary":
        judge = Knapsack.arbitrary(settings.tabled, generator, most=settings.most)
    judge.accepts(torch.zeros(1, 1, dtype=torch.long))
    return solved, "tails" in vars(judge)


CLAIMS = (zeros, miscalibration, knapsack)
