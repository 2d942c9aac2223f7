"""The walk behind VGB in the long run: its stationary law, how much of it is on leaves, and how fast it gets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import rohatgi
from sandtable.claims.vgb.instances import SHAPES, Instance, Shape, instances
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact
from sandtable.lab.figures import curves
from sandtable.theory import generation as theory
from sandtable.worlds import Zeros

# -- the stationary law ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stationary:
    shapes: tuple[Shape, ...] = SHAPES
    trees: int = 10
    formula: str = "all edges"
    leaves: str = "exact"


@claim(
    id="vgb/stationary",
    statement=(
        "VGB is a reversible walk with edge weights π_ref·V̂; if V̂ is the reward at the leaves, its stationary law "
        "given a leaf is exactly π* ∝ π_ref·τ, whatever positive values the inner nodes have."
    ),
    source=rohatgi("the stationary law of VGB, after Sinclair & Jerrum"),
    scales={"smoke": Stationary(trees=3), "desk": Stationary(shapes=(*SHAPES, (2, 10), (6, 4)))},
    controls=(
        Control("only the edge to the parent counted", {"formula": "own edge"}, ("invariant", "detailed balance")),
        Control("leaves off by up to two", {"leaves": "off"}, ("leaves follow π*",)),
    ),
)
def stationary(settings: Stationary, lab: Lab) -> Evidence:
    moved, unbalanced, distances = [], [], []
    generator = lab.generator(lab.seeds[0], "values")
    for item in instances(lab, settings.shapes, settings.trees):
        values = item.off(20.0, generator)
        if settings.leaves == "off":
            values = values * np.where(item.tree.leaf, 1 + np.arange(len(values)) % 2, 1.0)
        chain = theory.Chain.of(item.tree, values)
        law = chain.stationary if settings.formula == "all edges" else chain.weight / chain.weight.sum()
        flow = chain.transition().multiply(law[:, None]).tocsr()
        moved.append(np.abs(flow.sum(0) - law).max())
        unbalanced.append(abs(flow - flow.T).max())
        distances.append(theory.tv(chain.leaf_law, item.target))
    return Evidence(
        [
            bounded("invariant", moved, 1e-12, unit="tree"),
            bounded("detailed balance", unbalanced, 1e-12, unit="tree"),
            bounded("leaves follow π*", distances, 1e-10, unit="tree"),
        ],
        notes=["Inner values are off by factors between 1/21 and 21."],
    )


# -- mass on leaves --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeafMass:
    shapes: tuple[Shape, ...] = SHAPES
    trees: int = 10
    errors: tuple[float, ...] = (0.1, 0.5, 2.0)
    ends: bool = False
    true_error: float = 0.0
    claimed: float = 1.0


@claim(
    id="vgb/leaf-mass",
    statement=(
        "The stationary law puts W_H/(2ΣW_h) on the leaves, W_h the weight of level h: exactly 1/(2H) for true values, "
        "as at the root, and at least 1/(2(1 + (H−1)(1+ε))) for values within a factor 1+ε; the root has at least "
        "1/(2H(1+ε)²)."
    ),
    source=rohatgi("Ω(1/H) mass on leaves, with constants"),
    scales={"smoke": LeafMass(trees=3), "desk": LeafMass(shapes=(*SHAPES, (2, 10), (6, 4)))},
    controls=(
        Control("strings that end early", {"ends": True}, ("by levels",)),
        Control("values off by up to 1.5", {"true_error": 0.5}, ("leaves, true values", "root, true values")),
        Control("half the error claimed", {"claimed": 0.5}, ("leaf bound over mass", "root bound over mass")),
    ),
)
def leaf_mass(settings: LeafMass, lab: Lab) -> Evidence:
    by_level, masses, leaves, roots, predicted, leaf_bounds, root_bounds = ([] for _ in range(7))
    generator = lab.generator(lab.seeds[0], "values")
    for item in instances(lab, settings.shapes, settings.trees, ends=settings.ends):
        chain = theory.Chain.of(item.tree, item.off(settings.true_error, generator))
        leaves.append(chain.leaf_mass)
        roots.append(chain.root_mass)
        predicted.append(1 / (2 * item.horizon))
        for error in settings.errors:
            for values in [*_worst(item, error), item.off(error, generator)]:
                chain = theory.Chain.of(item.tree, values)
                masses.append(chain.leaf_mass)
                by_level.append(chain.level_weights[-1] / (2 * chain.level_weights.sum()))
                claimed = settings.claimed * error
                leaf_bounds.append(theory.leaf_mass_bound(item.horizon, claimed) / chain.leaf_mass)
                root_bounds.append(theory.root_mass_bound(item.horizon, claimed) / chain.root_mass)
    precise: Any = dict(rtol=1e-10, unit="tree")
    return Evidence(
        [
            exact("by levels", masses, by_level, rtol=1e-10, unit="value function"),
            exact("leaves, true values", leaves, predicted, **precise),
            exact("root, true values", roots, predicted, **precise),
            bounded("leaf bound over mass", leaf_bounds, 1.0, atol=1e-12, unit="value function"),
            bounded("root bound over mass", root_bounds, 1.0, atol=1e-12, unit="value function"),
        ]
    )


def _worst(item: Instance, error: float) -> list[np.ndarray]:
    """Values that are all too large inside, and that are too small next to the root and too large further down."""
    high, low = item.values * (1 + error), item.values / (1 + error)
    large = np.where(item.tree.leaf, item.values, high)
    return [large, np.where(item.tree.depth == 1, low, large)]


# -- the gap ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    shapes: tuple[Shape, ...] = SHAPES
    trees: int = 10
    horizons: tuple[int, ...] = (2, 3, 5, 7)
    mixed: tuple[Shape, ...] = ((2, 8), (3, 6), (4, 5))
    errors: tuple[float, ...] = (0.1, 0.5, 2.0)
    true_error: float = 0.0
    claimed: str = "with error"
    steps: float = 1.0


DISTANCES = {0.25: 0.39, 0.01: 1.67}
"""Steps from the root, in units of H², until the lazy walk with true values is so close to its stationary law."""


@claim(
    id="vgb/gap",
    statement=(
        "With true values the lazy walk has spectral gap (1 − cos(π/2H))/2 ≈ π²/(16H²) — if strings first branch at "
        "depth k, the smaller of (1 − cos(π/H))/2 and (1 − cos(π/2(H−k)))/2 — and at least that over (1+ε)² for values "
        "within a factor 1+ε. So O(H²) steps mix, whatever the alphabet."
    ),
    source=rohatgi("rapid mixing of VGB, with constants"),
    scales={
        "smoke": Gap(trees=3, horizons=(2, 3, 5)),
        "desk": Gap(
            shapes=(*SHAPES, (2, 9), (6, 4)), horizons=(2, 3, 5, 7, 9), mixed=((2, 8), (3, 7), (4, 6), (2, 12))
        ),
    },
    controls=(
        Control(
            "values off by up to 1.5",
            {"true_error": 0.5},
            ("gap, true values", "gap, branching at depth k"),
        ),
        Control("bound without the error", {"claimed": "without error"}, ("bound over gap",)),
        Control(
            "a tenth of the steps",
            {"steps": 0.1},
            ("distance after the bound", "mixing time over H²"),
        ),
    ),
)
def gap(settings: Gap, lab: Lab) -> Evidence:
    gaps, predicted, bounds, distances, times = [], [], [], [], []
    generator = lab.generator(lab.seeds[0], "values")
    for item in instances(lab, settings.shapes, settings.trees):
        chain = theory.Chain.of(item.tree, item.off(settings.true_error, generator))
        gaps.append(chain.gap())
        predicted.append(theory.exact_gap(item.horizon))
        for error in settings.errors:
            noisy = theory.Chain.of(item.tree, item.off(error, generator))
            claimed = error if settings.claimed == "with error" else 0.0
            bounds.append(theory.gap_bound(item.horizon, claimed) / noisy.gap())
            for distance in DISTANCES:
                steps = math.ceil(settings.steps * noisy.mixing_bound(distance))
                distances.append(theory.tv(noisy.after(steps), noisy.stationary) / distance)
    for vocab, horizon in settings.mixed:
        tree = _uniform(vocab, horizon)
        chain = theory.Chain.of(tree, np.ones(len(tree)))
        times += [_mixing_time(chain, settings.steps, d) / horizon**2 - t for d, t in DISTANCES.items()]
    deeper = [(h, k) for h in settings.horizons for k in range(h)]
    found = [_branching_gap(h, k, settings.true_error) for h, k in deeper]
    closed = [theory.exact_gap(h, k) for h, k in deeper]
    return Evidence(
        [
            exact("gap, true values", gaps, predicted, rtol=1e-8, unit="tree"),
            exact("gap, branching at depth k", found, closed, rtol=1e-8, unit="(H, k)"),
            bounded("bound over gap", bounds, 1.0, unit="value function"),
            bounded("distance after the bound", distances, 1.0, unit="value function"),
            bounded("mixing time over H²", np.abs(times), 0.02, unit="tree"),
        ],
        tables={"branching at depth k": Table(["H", "k", "gap", "predicted"], _rows(deeper, found, closed))},
        figures={"gap": lambda: _gap_figure(settings.horizons)},
        notes=[
            "The fourth check shows TV to π̃ after the bound over the TV it promises; the fifth how far the least such "
            "time is from 0.39 H² (TV 0.25) and 1.67 H² (TV 0.01) on uniform trees of several alphabets."
        ],
    )


def _rows(deeper: list[tuple[int, int]], found: list[float], closed: list[float]) -> list[list[Any]]:
    return [[h, k, g, p] for (h, k), g, p in zip(deeper, found, closed, strict=True)]


def _uniform(vocab: int, horizon: int) -> theory.Tree:
    return theory.Tree.of(lambda x: torch.full((len(x), vocab), 1 / vocab, dtype=torch.float64), horizon, vocab)


def _mixing_time(chain: theory.Chain, pace: float, distance: float) -> float:
    """Least t at which the walk from the root is within `distance`; `pace` < 1 counts each step as less."""
    backwards = chain.transition().T.tocsr()
    law = np.eye(1, len(chain.tree))[0]
    steps = 0
    while theory.tv(law, chain.stationary) > distance:
        law, steps = backwards @ law, steps + 1
    return pace * steps


def _branching_gap(horizon: int, first: int, error: float) -> float:
    """The gap for fair bits of which the first k are 0, with rewards that differ; values off at every other node."""
    tree = theory.Tree.of(Zeros(horizon))
    kept = tree.evaluate(lambda rows: (rows[:, :first] == 0).all(1))[tree.leaves]
    values = tree.expect(kept * (1 + np.arange(len(kept)) % 3))
    wrong = np.where(tree.leaf, 1.0, 1 + error * (np.arange(len(tree)) % 2))
    return theory.Chain.of(tree, values * wrong).gap()


def _gap_figure(horizons: tuple[int, ...]):
    measured = [theory.Chain.of(t, np.ones(len(t))).gap() for t in (_uniform(2, h) for h in horizons)]
    return curves(
        horizons,
        {"spectral gap": measured},
        predictions={"spectral gap": [theory.exact_gap(h) for h in horizons]},
        xlabel="horizon H",
        ylabel="spectral gap",
        title="The walk mixes in O(H²) steps",
        log_x=True,
        log_y=True,
    )


# -- laziness --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Laziness:
    shapes: tuple[Shape, ...] = SHAPES
    trees: int = 5
    lazy: bool = True
    restless: bool = False


@claim(
    id="vgb/needs-laziness",
    statement=(
        "Without staying put half of the time the walk alternates between even and odd levels and its law never "
        "converges: it keeps at least distance ½ from π̃, which the lazy walk approaches."
    ),
    source=rohatgi("laziness of VGB"),
    scales={"smoke": Laziness(trees=2), "desk": Laziness()},
    controls=(
        Control("no laziness", {"lazy": False}, ("lazy walk", "lazy walk, one step later")),
        Control(
            "laziness",
            {"restless": True},
            ("distance without laziness", "mass on the wrong levels"),
        ),
    ),
)
def needs_laziness(settings: Laziness, lab: Lab) -> Evidence:
    settled, later, apart, wrong = [], [], [], []
    generator = lab.generator(lab.seeds[0], "values")
    for item in instances(lab, settings.shapes, settings.trees):
        chain = theory.Chain.of(item.tree, item.off(1.0, generator))
        steps = math.ceil(chain.mixing_bound(1e-6))
        for extra, into in enumerate((settled, later)):
            into.append(theory.tv(chain.after(steps + extra, lazy=settings.lazy), chain.stationary))
            law = chain.after(steps + extra, lazy=settings.restless)
            apart.append(0.5 - theory.tv(law, chain.stationary))
            wrong.append(law[item.tree.depth % 2 != (steps + extra) % 2].sum())
    return Evidence(
        [
            bounded("lazy walk", settled, 1e-6, unit="tree"),
            bounded("lazy walk, one step later", later, 1e-6, unit="tree"),
            bounded("distance without laziness", apart, 0.0, atol=1e-9, unit="walk"),
            bounded("mass on the wrong levels", wrong, 1e-12, unit="walk"),
        ],
        notes=["The third check shows ½ minus the distance from π̃ after as many steps as the lazy walk needs."],
    )


CLAIMS = (stationary, leaf_mass, gap, needs_laziness)
