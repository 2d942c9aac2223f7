"""Attention with a frozen value matrix, in theory: where L(α, β) is smallest, and its landscapes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from sandtable.claims.topics import attention_loss, setting
from sandtable.claims.topics.attention_loss import GRID, LARGEST, VALUES, VARIANTS
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, exceeds
from sandtable.lab import figures as draw
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

PUBLISHED = TopicModel(topics=10, words=10, present=3)
LARGE = TopicModel(topics=10**7, words=12, present=3000)

# A control often asks for the same optimum again.
optimal_gamma = functools.cache(theory.optimal_gamma)
optimal_beta = functools.cache(theory.optimal_beta)
basin = functools.cache(theory.basin)


# -- theorem 3 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    world: TopicModel = LARGE
    interval_present: int | None = None
    attention: str = "optimal"


@claim(
    id="topics/attention-interval",
    statement=(
        "With the block value matrix, the optimal mean weight γ inside topics lies in (λ₁(τ−1), λ₂T), with λ₁ as the "
        "theorem states it and as its proof yields it, for twenty masking laws."
    ),
    source=setting.source("Theorem 3 (thesis 2.1.3)"),
    scales={"smoke": Interval(), "desk": Interval()},
    controls=(
        Control("uniform attention", {"attention": "uniform"}, ("stated interval", "proved interval")),
        Control("interval of twenty times τ", {"interval_present": 60_000}, ("stated interval", "proved interval")),
    ),
)
def attention_interval(settings: Interval, lab: Lab) -> Evidence:
    world = settings.world
    other = TopicModel(world.topics, world.words, present=settings.interval_present or world.present)
    found, places, rows = [], {"stated": [], "proved": []}, []
    for masking in GRID:
        gamma = optimal_gamma(world, masking).beta if settings.attention == "optimal" else 1.0
        found.append(gamma)
        for constant, inside in places.items():
            low, high = theory.block_interval(other, masking, constant=constant)
            inside.append(max(low / gamma, gamma / high))
        low, high = theory.block_interval(other, masking)
        rows.append((f"p_m {masking.select:g}, p_c {masking.keep:g}", gamma, low, high, None))
    crowded = TopicModel(50, 12, present=49)
    missed = sum(optimal_gamma(crowded, m).beta not in theory.block_interval(crowded, m) for m in GRID)
    return Evidence(
        [bounded(f"{constant} interval", inside, 1.0, unit="masking law") for constant, inside in places.items()],
        figures={
            "optima and intervals": lambda: draw.comparison(
                rows[::2], xlabel="γ (bar: interval of the theorem)", title="Where the best γ lies", log_x=True
            )
        },
        notes=[
            "Shown is how far γ* reaches towards the nearer end: below 1 is inside.",
            f"The theorem is about τ = o(T): at T = 50, τ = 49 the stated interval misses γ* in {missed} of 20 laws.",
        ],
    )


# -- only γ is seen --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanWeight:
    world: TopicModel = PUBLISHED
    value: str = "block"
    gammas: tuple[float, ...] = (0.1, 1.0, 7.0, 100.0)
    shares: tuple[float, ...] = (0.01, 0.2, 0.5, 0.99)


@claim(
    id="topics/attention-only-mean-matters",
    statement=(
        "With the block value matrix the loss depends on α and β only through γ = ((v−1)α + β)/v, so neither of them "
        "can be identified."
    ),
    source=setting.source("Theorem 3 (thesis 2.1.3)"),
    scales={"smoke": MeanWeight(), "desk": MeanWeight(shares=tuple(np.linspace(0.01, 0.99, 25).tolist()))},
    controls=(
        Control("diagonal value matrix", {"value": "diagonal"}, ("spread at equal γ",)),
        Control("empty value matrix", {"value": "empty"}, ("difference between γ",)),
    ),
)
def attention_only_mean_matters(settings: MeanWeight, lab: Lab) -> Evidence:
    world, v = settings.world, settings.world.words
    value = torch.zeros(world.vocab_size, world.vocab_size) if settings.value == "empty" else settings.value
    spreads, levels = [], []
    for variant in VARIANTS if isinstance(value, str) else ("exact",):
        for gamma in settings.gammas:
            weights = [((1 - share) * gamma * v / (v - 1), share * gamma * v) for share in settings.shares]
            losses = [
                theory.attention_loss_by_enumeration(world, setting.MASKING, a, b, value=value, variant=variant)
                for a, b in weights
            ]
            spreads.append(max(losses) - min(losses))
            levels.append(losses[0])
    axis = np.geomspace(1e-2, 1e3, 60)
    surface = theory.attention_loss(world, setting.MASKING, axis[:, None], axis[None, :])
    best = optimal_gamma(world, setting.MASKING).beta
    return Evidence(
        [
            bounded("spread at equal γ", spreads, 1e-12, unit="γ"),
            exceeds("difference between γ", [max(levels) - min(levels)], 1e-4, unit="γ", deterministic=True),
        ],
        figures={
            "loss": lambda: draw.landscape(
                axis,
                axis,
                surface.T,
                regions={f"γ = {g:.3g}": _level_line(world, g) for g in (1.0, best, 30.0)},
                xlabel="α, same topic",
                ylabel="β, same word",
                zlabel="loss",
                title="The loss is level along γ",
                log_x=True,
                log_y=True,
            )
        },
    )


def _level_line(world: TopicModel, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights (α, β) of mean γ, from all of it on β to all of it on α."""
    share = 1.0 / (1.0 + np.geomspace(1e-9, 1e9, 200))
    return (1.0 - share) * gamma * world.words / (world.words - 1), share * gamma * world.words


# -- sharp optima ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sharp:
    world: TopicModel = LARGEST
    predicted: tuple[str, str] = VARIANTS
    predicted_value: str = "block"


SHARP_REFERENCE = {
    TopicModel(10**5, 12, present=300): (6.379, 7.246),
    TopicModel(10**7, 12, present=3000): (6.504, 7.391),
    TopicModel(10**9, 12, present=30_000): (6.517, 7.406),
}
"""γ*/τ at masking (0.15, 0.1, 0.1) in the paper and the exact variant, to four digits."""


@claim(
    id="topics/attention-sharp-optimum",
    statement=(
        "In large worlds the optimal mean weight is γ* = τ(a + p_m p_r)/((1−p_c)p_m), and τ/((1−p_c)p_m) when [MASK] "
        "keys are counted; the loss there is p_c(1 − 1/v) + p_r."
    ),
    source=setting.source("Theorem 3 (thesis 2.1.3); limit in closed form"),
    scales={"smoke": Sharp(), "desk": Sharp()},
    controls=(
        Control(
            "variants exchanged",
            {"predicted": ("exact", "paper")},
            ("γ*/τ, paper variant", "γ*/τ, exact variant", "reference numbers"),
        ),
        Control("loss of the diagonal value matrix", {"predicted_value": "diagonal"}, ("least loss",)),
    ),
)
def attention_sharp_optimum(settings: Sharp, lab: Lab) -> Evidence:
    tau = settings.world.present or 1
    pairs = dict(zip(VARIANTS, settings.predicted, strict=True))
    deviations = {variant: [] for variant in VARIANTS}
    losses, levels = [], []
    for masking in GRID:
        level = theory.sharp_loss(settings.world, masking, value=settings.predicted_value)
        for variant, predicted in pairs.items():
            best = optimal_gamma(settings.world, masking, variant=variant)
            deviations[variant].append(abs(best.beta / tau / theory.sharp_ratio(masking, variant=predicted) - 1))
            losses.append(best.loss)
            levels.append(level)
    counts = (10, 30, 100, 300, 1000, 3000, 10_000)
    worlds = [TopicModel(10 * t * t, 12, present=t) for t in counts]
    ratios = {name: [_ratio(world, variant) for world in worlds] for variant, name in _NAMES.items()}
    limits = {name: [theory.sharp_ratio(setting.MASKING, variant=v)] * len(worlds) for v, name in _NAMES.items()}
    return Evidence(
        [
            *(bounded(f"γ*/τ, {v} variant", values, 0.01, unit="masking law") for v, values in deviations.items()),
            exact("least loss", losses, levels, rtol=1e-3, unit="masking law"),
            exact(
                "reference numbers",
                [[_ratio(world, variant) for variant in settings.predicted] for world in SHARP_REFERENCE],
                list(SHARP_REFERENCE.values()),
                atol=6e-4,
                unit="number",
            ),
        ],
        figures={
            "towards the limit": lambda: draw.curves(
                counts,
                ratios,
                predictions=limits,
                xlabel="present topics τ (T = 10τ²)",
                ylabel="γ*/τ",
                title="The optimal weight per topic",
                log_x=True,
            )
        },
        notes=["Shown for γ*/τ is the largest relative deviation from the limit."],
    )


_NAMES = {"paper": "[MASK] keys left out", "exact": "[MASK] keys counted"}


def _ratio(world: TopicModel, variant: str) -> float:
    return optimal_gamma(world, setting.MASKING, variant=variant).beta / (world.present or 1)


# -- the diagonal value matrix ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Diagonal:
    attention: str = "diagonal"
    grid: tuple[BertMasking, ...] = GRID[::2]


FINITE = (
    *(TopicModel(10, 10, present=tau) for tau in (2, 3, 4)),
    *(TopicModel(100, 300, present=tau) for tau in (20, 40, 60, 80)),
    TopicModel(10**5, 12, present=300),
    TopicModel(10**8, 12, present=10**4),
)


@claim(
    id="topics/attention-diagonal",
    statement=(
        "With the diagonal value matrix every optimum has λ₃τ < β < λ₄T and α < λ₅β; in large worlds β* = vτ(a + p_m "
        "p_r)/((1−p_c)p_m) and the loss is p_r, and with ten words a topic α* stays below 1."
    ),
    source=setting.source("Theorem 2.1.5 of the thesis; limits in closed form"),
    scales={"smoke": Diagonal(), "desk": Diagonal(grid=GRID)},
    controls=(
        Control("uniform attention", {"attention": "uniform"}, ("bounds of β",)),
        Control(
            "optimum of the block value matrix",
            {"attention": "block"},
            ("bound of α", "α* at ten words", "β*/(vτ), paper variant", "β*/(vτ), exact variant", "least loss"),
        ),
    ),
)
def attention_diagonal(settings: Diagonal, lab: Lab) -> Evidence:
    betas, alphas, small, levels, losses = [], [], [], [], []
    deviations = {variant: [] for variant in VARIANTS}
    for world, masking in [(w, setting.MASKING) for w in FINITE] + [(LARGEST, m) for m in settings.grid]:
        bounds, tau = theory.diagonal_bounds(world, masking), world.present or 1
        for variant in VARIANTS:
            best = _diagonal_optimum(world, masking, variant, settings.attention)
            betas.append(max(bounds.beta.low / best.beta, best.beta / bounds.beta.high))
            alphas.append(best.alpha / (bounds.slope * best.beta))
            if world.words == 10:
                small.append(best.alpha)
            if world is LARGEST:
                ratio = theory.sharp_ratio(masking, variant=variant)
                deviations[variant].append(abs(best.beta / (world.words * tau) / ratio - 1))
                losses.append(best.loss)
                levels.append(theory.sharp_loss(world, masking, value="diagonal"))
    return Evidence(
        [
            bounded("bounds of β", betas, 1.0, unit="setting"),
            bounded("bound of α", alphas, 1.0, unit="setting"),
            bounded("α* at ten words", small, 1.0, unit="setting"),
            *(bounded(f"β*/(vτ), {v} variant", found, 0.01, unit="masking law") for v, found in deviations.items()),
            exact("least loss", losses, levels, rtol=2e-3, unit="masking law"),
        ],
        notes=[
            "Shown for the bounds is the largest ratio to a bound, for β*/(vτ) the largest relative deviation.",
            "The loss is nearly flat in α below 1, so the value of α* itself says little.",
        ],
    )


def _diagonal_optimum(world: TopicModel, masking: BertMasking, variant: str, attention: str) -> theory.Optimum:
    if attention == "diagonal":
        return optimal_beta(world, masking, variant=variant)
    if attention == "block":
        return optimal_gamma(world, masking, variant=variant)
    return theory.Optimum(1.0, 1.0, float(theory.attention_loss(world, masking, 1.0, 1.0, value="diagonal")))


# -- figures 2.7 and 2.8 ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finite:
    present: tuple[int, ...] = (20, 40, 60, 80)
    variant: str = "paper"
    attention: str = "optimal"


BLOCK_REFERENCE = ((53.30, 0.1997035), (66.29, 0.1997516), (72.06, 0.1997843), (75.24, 0.1998090))
DIAGONAL_REFERENCE = ((1.492e4, 0.116656), (1.910e4, 0.128570), (2.097e4, 0.137500), (2.200e4, 0.144443))
"""Best γ or β and the loss there at T = 100, v = 300, τ = 20, 40, 60, 80, in the digits computed for the figures."""


@claim(
    id="topics/attention-landscape",
    statement=(
        "At T = 100, v = 300 the landscapes of both value matrices have their optima at the computed places, inside "
        "the theorems' intervals, and the lower edge of the basin rises with the number of topics present."
    ),
    source=setting.source("Figures 2.7 and 2.8 of the thesis"),
    scales={"smoke": Finite(), "desk": Finite()},
    controls=(
        Control(
            "[MASK] keys counted",
            {"variant": "exact"},
            ("best γ", "best β", "loss at the best γ", "loss at the best β"),
        ),
        Control("one τ for all", {"present": (40,) * 4}, ("lower edge of the γ basin", "lower edge of the β basin")),
        Control("uniform attention", {"attention": "uniform"}, ("inside the intervals",)),
    ),
)
def attention_landscape(settings: Finite, lab: Lab) -> Evidence:
    worlds = [TopicModel(100, 300, present=tau) for tau in settings.present]
    law, variant = setting.MASKING, settings.variant
    gammas = [optimal_gamma(world, law, variant=variant) for world in worlds]
    betas = [optimal_beta(world, law, variant=variant) for world in worlds]
    basins = {value: [basin(world, law, value=value, variant=variant) for world in worlds] for value in VALUES}
    places = []
    for world, gamma, beta in zip(worlds, gammas, betas, strict=True):
        g, b = (gamma.beta, beta.beta) if settings.attention == "optimal" else (1.0, 1.0)
        interval, bounds = theory.block_interval(world, law), theory.diagonal_bounds(world, law)
        places += [interval.low / g, g / interval.high, bounds.beta.low / b, b / bounds.beta.high]
    best, deepest = np.array(BLOCK_REFERENCE).T, np.array(DIAGONAL_REFERENCE).T
    edges = {value: np.diff([found.low for found in found_basins]).min() for value, found_basins in basins.items()}
    return Evidence(
        [
            exact("best γ", [o.beta for o in gammas], best[0], rtol=1e-3, unit="τ"),
            exact("loss at the best γ", [o.loss for o in gammas], best[1], atol=6e-8, unit="τ"),
            exact("best β", [o.beta for o in betas], deepest[0], rtol=1e-3, unit="τ"),
            exact("loss at the best β", [o.loss for o in betas], deepest[1], atol=6e-7, unit="τ"),
            exceeds("lower edge of the γ basin", [edges["block"]], 0.0, unit="step", deterministic=True),
            exceeds("lower edge of the β basin", [edges["diagonal"]], 0.0, unit="step", deterministic=True),
            bounded("inside the intervals", places, 1.0, unit="bound"),
        ],
        figures={
            f"{value} values, τ = {world.present}": functools.partial(_draw_landscape, world, value, variant)
            for value in VALUES
            for world in (worlds[0], worlds[-1])
        },
        tables={
            "optima and basins": Table(
                ["τ", "γ*", "loss at γ*", "basin of γ from", "to", "β*", "loss at β*", "basin of β from", "to"],
                [
                    [world.present, g.beta, g.loss, *basins["block"][i], b.beta, b.loss, *basins["diagonal"][i]]
                    for i, (world, g, b) in enumerate(zip(worlds, gammas, betas, strict=True))
                ],
            )
        },
        notes=["A basin is where the loss lies within a tenth of its range above the minimum."],
    )


def _draw_landscape(world: TopicModel, value: str, variant: str) -> Figure:
    surface = theory.landscape(world, setting.MASKING, value=value, variant=variant, points=67)
    axis = surface.beta
    if value == "block":
        # All weights of mean γ* are as good: the optimum is a line along the basin, not a point to mark.
        best = f"γ* = {optimal_gamma(world, setting.MASKING, variant=variant).beta:.1f}"
        optimum = None
        regions = {"γ = λ₁(τ−1)": _level_line(world, theory.block_interval(world, setting.MASKING).low)}
    else:
        bounds = theory.diagonal_bounds(world, setting.MASKING)
        found = optimal_beta(world, setting.MASKING, variant=variant)
        regions = {
            "β = λ₃τ": (axis, np.full_like(axis, bounds.beta.low)),
            "α = λ₅β": (bounds.slope * axis, axis),
        }
        best = f"β* = {found.beta:.0f}"
        optimum = {best: (max(found.alpha, axis[0]), found.beta)}
    return draw.landscape(
        axis,
        axis,
        surface.loss.T,
        optimum=optimum,
        regions=regions,
        xlabel="α, same topic",
        ylabel="β, same word",
        zlabel="loss",
        title=f"{value.title()} values, τ = {world.present}, {best}",
        log_x=True,
        log_y=True,
    )


CLAIMS = (
    attention_interval,
    attention_only_mean_matters,
    attention_sharp_optimum,
    attention_diagonal,
    attention_landscape,
    *attention_loss.CLAIMS,
)
