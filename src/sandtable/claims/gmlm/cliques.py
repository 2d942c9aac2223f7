"""The clique model: its two modes, and how its pairs are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, exceeds, printed
from sandtable.theory.gmlm import clique
from sandtable.worlds import CliqueIsing

ROUNDING = 1e-9

# -- modes -----------------------------------------------------------------------------------------------------------

BOUNDARY = (0.7, 0.3)
"""c = 2, h = (a, 0) and J = J₀ + a: the one place where the bound on the rest is met."""


@dataclass(frozen=True)
class Modes:
    instances: int = 200
    largest: int = 10
    outside: float = 0.0
    coupling: float = 1.0
    flip: float = 2.0
    pairs: Literal["once", "twice"] = "once"
    bound: Literal["≥", ">"] = "≥"


def _strong(instances: int, largest: int, generator: torch.Generator) -> list[CliqueIsing]:
    """Random strongly ferromagnetic cliques of three to `largest` spins, and the one on the boundary."""
    sizes = torch.randint(3, largest + 1, (instances,), generator=generator).tolist()
    cliques = [int(torch.randint(2, size + 1, (1,), generator=generator)) for size in sizes]
    a, j0 = BOUNDARY
    worlds = [clique.random_strong(size, c, generator) for size, c in zip(sizes, cliques, strict=True)]
    return [*worlds, CliqueIsing(2, 2, j0 + a, (a, 0.0))]


@claim(
    id="gmlm/modes",
    statement=(
        "In a strongly ferromagnetic clique every state with the clique up is likelier than every state with it down, "
        "which is at least e^{2J₀} times as likely as any other; turning the whole clique over costs e^{2h_G} exactly."
    ),
    source=li2024("Proposition on modes of the clique model (T11), with ≥ where > is printed"),
    scales={"smoke": Modes(instances=50, largest=8), "desk": Modes()},
    controls=(
        Control("fields outside outweigh the clique's", {"outside": 2.0}, ("R₁ over R₋₁",)),
        Control("J = J₀, without ‖h‖₁", {"coupling": 0.0}, ("R₋₁ over the rest",)),
        Control("the clique turned over at e^{h_G}", {"flip": 1.0}, ("turning the clique over",)),
        Control("pairs counted twice", {"pairs": "twice"}, ("sharper bound on the rest",)),
    ),
)
def modes(settings: Modes, lab: Lab) -> Evidence:
    worlds = _strong(settings.instances, settings.largest, lab.generator(lab.seeds[0], "cliques"))
    flips, over, down, sharp, rows = [], [], [], [], []
    for world in worlds:
        j0, c = world.slack, world.clique
        h = world.h.clone()
        if settings.outside and c < world.size:
            h[c:] = settings.outside * world.clique_field / (world.size - c)
        weak = settings.coupling * float(world.h.abs().sum())
        changed = CliqueIsing(world.size, c, j0 + weak, tuple(h.tolist()))
        found = clique.mode_ratios(changed)
        flips.append(np.abs(found.flip - settings.flip * changed.clique_field).max())
        over.append(found.up_over_down)
        down.append(found.down_over_rest - 2 * j0)
        pairs = 2 * (c - 1) * changed.coupling * (2 if settings.pairs == "twice" else 1)
        sharp.append(pairs - 2 * float(changed.h.abs().sum()) - found.down_over_rest)
        rows.append([world.size, c, j0, over[-1], found.down_over_rest, 2 * j0])
    rest = (
        bounded("R₋₁ over the rest", -np.array(down), 0.0, atol=ROUNDING)
        if settings.bound == "≥"
        else exceeds("R₋₁ over the rest", [min(down)], ROUNDING, unit="set of instances", deterministic=True)
    )
    return Evidence(
        [
            exact("turning the clique over", flips, 0.0, atol=ROUNDING),
            exceeds("R₁ over R₋₁", [min(over)], 0.0, unit="set of instances", deterministic=True),
            rest,
            bounded("sharper bound on the rest", sharp, 0.0, atol=ROUNDING),
        ],
        tables={
            "instances": Table(
                ["N", "c", "J₀", "least log p(R₁)/p(R₋₁)", "least log p(R₋₁)/p(rest)", "2J₀"], rows[:12] + rows[-1:]
            )
        },
        notes=["All states of all instances; the last instance meets the bound on the rest exactly."],
    )


# -- pairs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    instances: int = 30
    pairs: Literal["once", "twice"] = "once"


@claim(
    id="gmlm/pairs-count-once",
    statement=(
        "The proofs speak of the clique model with every unordered pair once: turning one spin of a mode costs "
        "2(c − 1)J and its field, and the log-odds of a spin are 2h_j + 2J Σ x_i over the rest of the clique."
    ),
    source=li2024("Proofs for the clique model (T11, T13); the definition prints Σ over i ≠ j"),
    scales={"smoke": Pairs(instances=8), "desk": Pairs()},
    controls=(Control("i ≠ j taken literally", {"pairs": "twice"}, ("cost of one turn", "log-odds of a spin")),),
)
def pairs_count_once(settings: Pairs, lab: Lab) -> Evidence:
    turns, odds = [], []
    for world in _strong(settings.instances, 7, lab.generator(lab.seeds[0], "pairs")):
        c, h, j = world.clique, world.h, world.coupling
        summed = 2.0 if settings.pairs == "twice" else 1.0
        law = CliqueIsing(world.size, c, summed * j, tuple(h.tolist()))
        up = torch.ones(world.size, dtype=torch.long)
        turned = up.repeat(c, 1)
        turned[torch.arange(c), torch.arange(c)] = 0
        cost = law.log_prob(up[None]) - law.log_prob(turned)
        turns.append((cost - (2 * (c - 1) * j + 2 * h[:c])).abs().max())
        table = law.log_probs.view((2,) * world.size)
        spins = 2 * law.states[:, :c].double() - 1
        pull = 2 * h[:c] + 2 * j * (spins.sum(1, keepdim=True) - spins)
        found = [table.diff(dim=i).expand_as(table).flatten() for i in range(c)]
        odds.append((torch.stack(found, 1) - pull).abs().max())
    return Evidence(
        [
            exact("cost of one turn", turns, 0.0, atol=ROUNDING),
            exact("log-odds of a spin", odds, 0.0, atol=ROUNDING),
        ]
    )


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED = (
    printed(
        "modes-strict",
        modes,
        {"bound": ">"},
        statement="States with the clique down are more than e^{2J₀} times as likely as any in neither mode.",
        where="Proposition on modes (T11)",
        erratum=(
            "The inequality is printed strict. With two spins in the clique, one of them without a field, and J = J₀ + "
            "‖h‖₁ the ratio is e^{2J₀} exactly; ≥ is right."
        ),
    ),
    printed(
        "ordered-pairs",
        pairs_count_once,
        {"pairs": "twice"},
        statement="The clique model sums J x_i x_j over all i ≠ j in the clique.",
        where="Definition of the clique model",
        erratum="Over ordered pairs every J counts twice; all proofs and constants are those of unordered pairs.",
    ),
)

CLAIMS = (modes, pairs_count_once, *PRINTED)
