"""A clique with two modes: joint resampling finds the likelier one, parallel resampling is held by the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch

from sandtable.claims.gmlm.sources import li2024
from sandtable.decoding import CliqueGibbs, Parallel, run_chains
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, printed, proportion
from sandtable.theory.gmlm import chains, clique, magnetisation
from sandtable.worlds import CliqueIsing, UniformSize

ROUNDING = 1e-9

# -- k-Gibbs reaches R₁ ----------------------------------------------------------------------------------------------

QUOTED = (((6, 3, 0.2, 0.1, 5), (0.1798, 0.3321)), ((8, 2, 0.3, 0.2, 7), (0.4399, 0.4925)))
"""((N, c, h, J₀, k), (bound, chance of the joint route))."""
WEAK = ((6, 3, 0.005, 0.01, 6), (8, 4, 0.01, 0.02, 8), (5, 3, 0.05, 0.05, 5), (9, 5, 0.02, 0.05, 9))
"""Hardly coupled cliques: there the states in neither mode decide, and how they are counted."""
SHARES = tuple(0.05 * i for i in range(1, 19))


@dataclass(frozen=True)
class Reach:
    instances: int = 60
    enumerated: int = 6
    simulated: int = 20_000
    denominator: Literal["counted", "twice", "fused"] = "counted"
    k_off: int = 0


def _reach_instances(count: int, generator: torch.Generator) -> list[tuple[CliqueIsing, int]]:
    """(clique with one field, k ≥ c): those quoted, hardly coupled ones, random ones of up to sixty spins."""
    named = [(clique.with_slack(n, c, field=h, j0=j0), k) for n, c, h, j0, k in [q for q, _ in QUOTED] + list(WEAK)]
    for _ in range(count):
        n = int(torch.randint(3, 61, (1,), generator=generator))
        c = int(torch.randint(2, min(n, 12) + 1, (1,), generator=generator))
        k = int(torch.randint(c, n + 1, (1,), generator=generator))
        field, j0 = (-torch.rand(2, generator=generator, dtype=torch.float64).log() * 0.3 + 1e-3).tolist()
        named.append((clique.with_slack(n, c, field=field, j0=j0), k))
    return named


@claim(
    id="gmlm/k-gibbs-reaches-mode",
    statement=(
        "With blocks of k ≥ c positions, one k-Gibbs step from any state enters R₁ with probability at least "
        "C(N−c, k−c)/C(N, k) · e^{2(J₀+h_G)}/(e^{2(J₀+h_G)} + e^{2J₀} + 2^c − 2), so that ⌈ln δ/ln c_{R₁}⌉ steps reach "
        "it with probability 1 − δ."
    ),
    source=li2024("Proposition on k-Gibbs sampling (T12), constant as its proof has it"),
    scales={"smoke": Reach(instances=20, simulated=8000), "desk": Reach(instances=200, simulated=40_000)},
    controls=(
        Control(
            "2c − 2 states in neither mode",
            {"denominator": "twice"},
            ("sum of the proof", "one step", "one step, enumerated", "within T steps"),
        ),
        Control("everything in one exponent", {"denominator": "fused"}, ("sum of the proof", "quoted numbers")),
        Control("sampler with blocks one smaller", {"k_off": -1}, ("one step, simulated",)),
    ),
)
def k_gibbs_reaches_mode(settings: Reach, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "reach")
    instances = _reach_instances(settings.instances, generator)
    style = settings.denominator
    bounds = [clique.reach_bound(world, k=k, denominator=style) for world, k in instances]
    sums = [clique.reach_enumerated(world, k=k) for world, k in instances]
    lumped = [magnetisation.k_gibbs_chain(world, k=k) for world, k in instances]
    missing = []
    for (world, k), chain in zip(instances, lumped, strict=True):
        for delta in SHARES:
            steps = clique.reach_steps(world, k=k, delta=delta, denominator=style)
            worst = min(chain.hit_probability(steps, start=u) for u in range(world.clique + 1))
            missing.append(1 - delta - worst)
    uneven = []
    for _ in range(settings.enumerated):
        world = clique.random_strong(6, int(torch.randint(2, 7, (1,), generator=generator)), generator)
        uneven += _enumerated_gaps(world, style)
    uneven += _enumerated_gaps(clique.with_slack(6, 3, field=(0.004, 0.006, 0.002), j0=0.01), style)
    numbers = [
        found
        for (n, c, h, j0, k), _ in QUOTED
        for world in [clique.with_slack(n, c, field=h, j0=j0)]
        for found in (clique.reach_bound(world, k=k, denominator=style), clique.joint_reach(world, k=k))
    ]
    (n, c, h, j0, k), _ = QUOTED[0]
    world = clique.with_slack(n, c, field=h, j0=j0)
    down = torch.zeros(settings.simulated, n, dtype=torch.long)
    x = CliqueGibbs(world, k=k + settings.k_off)(down, generator)
    exactly = float(magnetisation.k_gibbs_chain(world, k=k).reach[0])
    return Evidence(
        [
            exact("sum of the proof", bounds, sums, rtol=ROUNDING),
            bounded("one step", np.array(bounds) - [chain.reach.min() for chain in lumped], 0.0, atol=ROUNDING),
            bounded("one step, enumerated", uneven, 0.0, atol=ROUNDING),
            bounded("within T steps", missing, 0.0, atol=ROUNDING),
            exact("quoted numbers", numbers, [v for _, pair in QUOTED for v in pair], atol=5e-5, unit="number"),
            agrees("one step, simulated", (world.mode(x) == 1).double(), exactly, relative=0.08, unit="chain"),
        ],
        tables={
            "named cliques": Table(
                ["N", "c", "J₀", "k", "bound", "joint route", "any route, worst start"],
                [
                    [world.size, world.clique, world.slack, k, b, clique.joint_reach(world, k=k), chain.reach.min()]
                    for (world, k), b, chain in list(zip(instances, bounds, lumped, strict=True))[: 2 + len(WEAK)]
                ],
            )
        },
        notes=["“One step” is the bound less the exact chance, from the worst state: below 0 it holds."],
    )


def _enumerated_gaps(world: CliqueIsing, style: str) -> list[float]:
    """The bound less the chance of the worst of all states, for every k ≥ c, from whole transition matrices."""
    up = world.mode(world.states) == 1
    return [
        clique.reach_bound(world, k=k, denominator=style) - float(_transition(world, k)[:, up].sum(1).min())
        for k in range(world.clique, world.size + 1)
    ]


@cache
def _transition(world: CliqueIsing, k: int) -> torch.Tensor:
    return chains.transition(world, UniformSize(world.size, k))


# -- the parallel sampler is stuck -----------------------------------------------------------------------------------

HELD = ((30, 0.02, 1.5, 10.546, 9504), (12, 0.05, 0.8, 1.484, 1))
"""(c = N, h, J₀, c_stuck, T at δ = ½)."""
BELOW = ((2, 1e-4, 1e-3, 0.74),)
"""(c, h, J₀, δ) with tanh(J₀)·c ≤ 2, where the formula still gives a step."""


@dataclass(frozen=True)
class Stuck:
    instances: int = 100
    simulated: int = 4000
    steps: int = 100
    coupling: float = 1.0
    j0_off: float = 0.0
    precondition: bool = True


@claim(
    id="gmlm/parallel-is-stuck",
    statement=(
        "Where tanh(J₀)·c > 2, the independent parallel sampler leaves {Σ_clique x ≤ −2} in one step with probability "
        "at most e^{−c_stuck}, c_stuck = (2/c)(tanh(J₀)·c/2 − 1)², and stays there for ⌊(δ/2)e^{c_stuck}⌋ steps with "
        "probability at least 1 − δ."
    ),
    source=li2024("Proposition on independent parallel sampling (T13), with the precondition that its proof uses"),
    scales={"smoke": Stuck(instances=25, steps=40), "desk": Stuck()},
    controls=(
        Control(
            "a hundredth of the coupling",
            {"coupling": 0.01},
            ("one spin turns up", "one step", "T steps", "simulated chains stay"),
        ),
        Control("J₀ larger by 0.1", {"j0_off": 0.1}, ("quoted numbers",)),
    ),
)
def parallel_is_stuck(settings: Stuck, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "stuck")
    turns, leaves, over, rows = [], [], [], []
    for c, field, j0, delta in _stuck_instances(settings, generator):
        world = _weakened(clique.with_slack(c, c, field=field, j0=j0), settings.coupling)
        chain = magnetisation.parallel_chain(world)
        starts = range((c - 2) // 2 + 1)
        exponent = clique.stuck_exponent(c, j0, precondition=settings.precondition)
        steps = clique.stuck_steps(c, j0, delta=delta, precondition=settings.precondition)
        low = torch.stack([(torch.arange(c) < u).long() for u in starts])
        up = torch.sigmoid(Parallel(world).logits(low).diff(dim=-1)).max()
        turns.append(float(up) - clique.turn_up_bound(j0))
        leave = max(chain.escape_probability(1, start=u) for u in starts)
        leaves.append(leave - math.exp(-exponent))
        escape = max(chain.escape_probability(steps, start=u) for u in starts)
        over.append(escape - delta)
        rows.append([c, field, j0, delta, exponent, math.exp(-exponent), leave, steps, escape])
    numbers = [
        value
        for c, _, j0, *_ in HELD
        for value in (clique.stuck_exponent(c, j0 + settings.j0_off), _half_steps(c, j0 + settings.j0_off))
    ]
    c, field, j0, exponent, _ = HELD[0]
    sampler = Parallel(_weakened(clique.with_slack(c, c, field=field, j0=j0), settings.coupling))
    start = (torch.arange(c) < (c - 2) // 2).long().expand(settings.simulated, -1)
    found = run_chains(sampler, start, steps=settings.steps, generator=generator, until=lambda x: 2 * x.sum(1) > c - 2)
    return Evidence(
        [
            bounded("one spin turns up", turns, 0.0, atol=ROUNDING),
            bounded("one step", leaves, 0.0, atol=ROUNDING),
            bounded("T steps", over, 0.0, atol=ROUNDING),
            exact("quoted numbers", numbers, [v for row in HELD for v in row[3:]], atol=5e-4, unit="number"),
            proportion(
                "simulated chains stay",
                int((found.hits < 0).sum()),
                settings.simulated,
                at_least=1 - 2 * settings.steps * math.exp(-exponent),
                unit="chain",
            ),
        ],
        tables={
            "instances": Table(
                ["c", "h", "J₀", "δ", "c_stuck", "e^{−c_stuck}", "leaves in a step", "T", "leaves in T"], rows[:15]
            )
        },
        notes=[
            "Chances are those of the worst allowed start, exact by the lumped chain; how far below its bound each is "
            "shows in the table. A clique of two spins never meets the precondition.",
            f"Simulated: c = 30, with the δ at which the theorem allows {settings.steps} steps.",
        ],
    )


def _stuck_instances(settings: Stuck, generator: torch.Generator) -> list[tuple[int, float, float, float]]:
    """(c, h, J₀, δ): those quoted, random ones that meet the precondition, and without it the ones that do not."""
    named = [(c, h, j0, 0.5) for c, h, j0, *_ in HELD] + ([] if settings.precondition else list(BELOW))
    while len(named) < settings.instances:
        c = int(torch.randint(3, 61, (1,), generator=generator))
        a, b, delta = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        j0 = 3 * a + 0.01
        if math.tanh(j0) * c > 2:
            named.append((c, 0.5 * b / c + 1e-3, j0, 0.05 + 0.9 * delta))
    return named


def _weakened(world: CliqueIsing, factor: float) -> CliqueIsing:
    return CliqueIsing(world.size, world.clique, factor * world.coupling, world.field)


def _half_steps(c: int, j0: float) -> float:
    return float(clique.stuck_steps(c, j0, delta=0.5))


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED = (
    printed(
        "reach-constant",
        k_gibbs_reaches_mode,
        {"denominator": "fused"},
        statement="c_{R₁} has e^{2J₀ + 2|C| − 2} beside e^{2(J₀+h_G)} in its denominator.",
        where="Proposition on k-Gibbs sampling (T12), main text",
        erratum=(
            "The denominator's second and third terms are set in one exponent. The proof's sum has e^{2J₀} + 2^c − 2; "
            "the printed constant is a valid but far weaker bound (0.0287 instead of 0.1798 at N = 6, c = 3, k = 5)."
        ),
    ),
    printed(
        "reach-constant-of-the-proof",
        k_gibbs_reaches_mode,
        {"denominator": "twice"},
        statement="c_{R₁} has e^{2J₀} + 2|C| − 2 beside e^{2(J₀+h_G)} in its denominator.",
        where="Proof of the corollary on separation (T12)",
        erratum=(
            "2^c − 2 states of the clique are in neither mode, not 2c − 2. For hardly coupled cliques of three or more "
            "the printed number is more than one step's chance of reaching R₁."
        ),
    ),
    printed(
        "stuck-without-precondition",
        parallel_is_stuck,
        {"precondition": False},
        statement="Under strong ferromagnetism alone the parallel sampler stays for ⌊(δ/2)e^{c_stuck}⌋ steps.",
        where="Proposition on independent parallel sampling (T13)",
        erratum=(
            "Hoeffding's inequality needs tanh(J₀)·c > 2. Below, the square in c_stuck grows again: for two spins with "
            "J₀ = 0.001 and δ = 0.74 it promises a step that three chains in four do not stay for."
        ),
    ),
)

CLAIMS = (k_gibbs_reaches_mode, parallel_is_stuck, *PRINTED)
