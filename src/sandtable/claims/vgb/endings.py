"""Strings that may end early: what the first leaf of VGB then favours, although every value is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import rohatgi
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, exceeds
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory

EOS = 2


@dataclass(frozen=True)
class Endings:
    horizons: tuple[int, ...] = (2, 4, 6, 8)
    end: float = 0.1
    padded: bool = True
    early: bool = True


@claim(
    id="vgb/early-ends",
    statement=(
        "With the true values, the first leaf of VGB follows the target law and takes H² moves only if all leaves are "
        "at one depth: where a string may end early it favours short strings, the more the longer the horizon. "
        "Ended strings that are padded to the horizon restore both, and the stationary law on leaves is exact anyway."
    ),
    source=rohatgi("the walk on the tree of prefixes; strings of variable length"),
    scales={"smoke": Endings(), "desk": Endings(horizons=(2, 4, 6, 8, 10))},
    controls=(
        Control(
            "not padded after all",
            {"padded": False},
            ("padded: first leaf", "padded: moves", "padded: leaf mass"),
        ),
        Control("no early end", {"early": False}, ("early ends: distance", "early ends: growing")),
        Control("values of another law", {"end": -0.1}, ("stationary leaves",)),
    ),
)
def early_ends(settings: Endings, lab: Lab) -> Evidence:
    plain = [_walk(h, settings, pad=not settings.early) for h in settings.horizons]
    padded = [_walk(h, settings, pad=settings.padded) for h in settings.horizons]
    distance = np.array([found[0] for found in plain])
    growth = np.diff(distance)
    tight: Any = dict(atol=1e-9, unit="horizon")
    return Evidence(
        [
            exceeds("early ends: distance", distance[1:], 0.2, unit="horizon", deterministic=True),
            bounded("early ends: growing", -growth, -0.01, unit="horizon"),
            exact("padded: first leaf", [found[0] for found in padded], np.zeros(len(padded)), **tight),
            exact("padded: moves", [found[1] for found in padded], np.array(settings.horizons) ** 2.0, **tight),
            exact("padded: leaf mass", [found[2] for found in padded], 0.5 / np.array(settings.horizons), **tight),
            exact("stationary leaves", [found[3] for found in plain], np.zeros(len(plain)), **tight),
        ],
        figures={
            "distance": lambda: curves(
                np.array(settings.horizons),
                {"may end early": distance, "padded": [found[0] for found in padded]},
                xlabel="horizon H",
                ylabel="total variation to the target",
                title="The first leaf, with the true values",
            )
        },
        tables={
            "with true values": Table(
                ["horizon", "TV, early ends", "moves, early ends", "TV, padded", "moves, padded"],
                [[h, a[0], a[1], b[0], b[1]] for h, a, b in zip(settings.horizons, plain, padded, strict=True)],
            )
        },
    )


def _walk(horizon: int, settings: Endings, *, pad: bool) -> tuple[float, float, float, float]:
    """(TV of the first leaf to the target, moves to it, leaf mass, TV of the stationary leaves) with V̂ = V*.

    Fair bits that end with probability `end` after each; a negative `end` gives every leaf a value of its own instead
    of the reward, which the walk then follows.
    """
    end = abs(settings.end)
    law = torch.tensor([(1 - end) / 2, (1 - end) / 2, end], dtype=torch.float64)
    tree = theory.Tree.of(lambda prefix: law.expand(len(prefix), 3), horizon, 3, eos=EOS, pad=pad)
    reward = np.ones(len(tree.leaves))
    values = tree.expect(reward)
    target = theory.restricted_law(tree, reward)
    if settings.end < 0:
        values = theory.with_leaves(values, tree, 1 + np.arange(len(reward)) / len(reward))
    chain = theory.Chain.of(tree, values)
    return (
        theory.tv(target, chain.first_leaf_law),
        chain.steps_to_leaf(lazy=False),
        chain.leaf_mass,
        theory.tv(target, chain.leaf_law),
    )


CLAIMS = (early_ends,)
