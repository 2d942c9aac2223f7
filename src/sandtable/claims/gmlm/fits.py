"""Fitted models: their errors are those that the asymptotic theory predicts, smaller with larger masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.claims.gmlm.instances import Instance, adaptive_masks, clique, mixed
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, agrees, claim, orders, printed, proportion, statistic
from sandtable.lab.figures import curves
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.estimation import draw_masks, draw_sequences, estimate, every_mask
from sandtable.worlds import Blocks, MaskLaw, UniformSize

SPINS = 4
SIZES = tuple(range(1, SPINS + 1))
FLAT, PEAKY = 0.05, 0.3
EARLIER = {
    (FLAT, 200): (0.155, 0.082, 0.061, 0.051),
    (FLAT, 1000): (0.0293, 0.0163, 0.0134, 0.0099),
    (FLAT, 5000): (0.0060, 0.0033, 0.0022, 0.0020),
    (PEAKY, 1000): (0.0464, 0.0201, 0.0180, 0.0161),
    (PEAKY, 5000): (0.0085, 0.0048, 0.0038, 0.0035),
}
"""Mean ‖θ̂ − θ‖² for k = 1 … 4 in an earlier run of 40 repetitions; the figures themselves print no numbers."""

# -- the measurement -------------------------------------------------------------------------------------------------


def errors(lab: Lab, coupling: float, n: int, repetitions: int, shown: str, steps: int = 200) -> dict[str, np.ndarray]:
    """‖θ̂ − θ‖² of k-pseudolikelihood for every k, on the same sequences: seed × repetition × k.

    `shown`: "one mask" for each sequence, drawn on its own, or "all masks" of every sequence at once.
    """
    instance, rows, fine = clique(SPINS, coupling), [], []
    for seed in lab.seeds:
        counts = draw_sequences(instance.law, n, lab.generator(seed, f"sequences {n}"), repetitions=repetitions)
        columns, converged = [], []
        for k in SIZES:
            masks = UniformSize(SPINS, k)
            if shown == "one mask":
                pairs = draw_masks(instance.law, masks, counts, lab.generator(seed, f"masks {k} {n}"))
            else:
                pairs = every_mask(instance.law, masks, counts)
            found = estimate(instance.family, pairs, masks, torch.zeros(len(instance.theta)), steps=steps)
            columns.append((found.theta - instance.theta).square().sum(1))
            converged.append(found.converged)
        rows.append(torch.stack(columns, 1))
        fine.append(torch.stack(converged, 1))
    return {"error": torch.stack(rows).numpy(), "converged": torch.stack(fine).numpy()}


def _traces(coupling: float) -> list[float]:
    """Tr Γ^k."""
    instance = clique(SPINS, coupling)
    h = [fisher.information(instance.scores, instance.law, UniformSize(SPINS, k)) for k in SIZES]
    return [float(fisher.asymptotic_covariance(one).trace()) for one in h]


# -- figures 4.1 and 4.2 ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fits:
    repetitions: int = 500
    samples: tuple[int, ...] = (200, 1000, 5000)
    shown: Literal["one mask", "all masks"] = "one mask"
    size_of: Literal["k", "N + 1 − k"] = "k"
    swapped: bool = False
    steps: int = 200


def _arm(coupling: float, n: int) -> str:
    return f"J = {coupling:g}, n = {n}"


ARMS = [_arm(j, n) for j in (FLAT, PEAKY) for n in (1000, 5000)]


@claim(
    id="gmlm/masking-more-fits",
    statement=(
        "Fitted by k-pseudolikelihood with one mask per sequence, four coupled spins have mean squared parameter "
        "errors Tr Γ^k/n: smaller for every larger k, 2.3 to 3.4 times smaller for k = 4 than for k = 1, and larger "
        "throughout where the law has two peaks (J = 0.3) than where it is flat (J = 0.05)."
    ),
    source=li2024("Figures 4.1 and 4.2 of the thesis chapter: k-MPLE on a clique of four spins"),
    scales={"desk": Fits()},
    controls=(
        Control(
            "all masks of every sequence at once",
            {"shown": "all masks"},
            (
                *(f"{arm}: k = {k}" for arm in ARMS for k in (1, 2)),
                *(f"{arm}: k = 1 over k = 4" for arm in ARMS),
                *(f"{arm}: k = {k} above k = {k + 1}" for arm in ARMS for k in (1, 2, 3)),
            ),
        ),
        Control(
            "predictions of the opposite size",
            {"size_of": "N + 1 − k"},
            tuple(f"{arm}: k = {k}" for arm in ARMS for k in SIZES),
        ),
        Control(
            "flat and peaky exchanged",
            {"swapped": True},
            tuple(f"n = {n}, k = {k}: peaky above flat" for n in (1000, 5000) for k in SIZES),
        ),
    ),
    seeds=8,
)
def masking_more_fits(settings: Fits, lab: Lab) -> Evidence:
    checks, rows, found = [], [], {}
    for j in (FLAT, PEAKY):
        traces = _traces(j)
        predicted = traces if settings.size_of == "k" else traces[::-1]
        for n in settings.samples:
            error = lab.measure(errors, j, n, settings.repetitions, settings.shown, settings.steps)["error"].reshape(
                -1, SPINS
            )
            found[j, n] = error
            arm = _arm(j, n)
            for k in SIZES:
                mean = float(error[:, k - 1].mean())
                earlier = EARLIER.get((j, n), ("",) * SPINS)[k - 1]
                rows.append([j, n, k, mean, mean * n / traces[k - 1], traces[k - 1] / n, earlier])
                if n not in (1000, 5000):
                    continue
                # The published criterion is 15 %; within 10 % a shift of a fifth is refuted too.
                value = predicted[k - 1] / n
                checks.append(agrees(f"{arm}: k = {k}", error[:, k - 1], value, relative=0.1, unit="repetition"))
            if n in (1000, 5000):
                checks += _order(arm, error, traces, n)
    for n in (1000, 5000):
        high, low = (found[j, n] for j in ((PEAKY, FLAT) if not settings.swapped else (FLAT, PEAKY)))
        for k in SIZES:
            name = f"n = {n}, k = {k}: peaky above flat"
            checks.append(orders(name, high[:, k - 1], low[:, k - 1], paired=False, unit="repetition"))
    return Evidence(
        checks,
        figures={f"J = {j:g}": (lambda j=j: _figure(j, settings, found)) for j in (FLAT, PEAKY)},
        tables={
            "errors": Table(
                ["J", "n", "k", "mean ‖θ̂ − θ‖²", "over Tr Γ/n", "Tr Γ/n", "earlier run, 40 repetitions"], rows
            )
        },
        notes=[
            f"{len(next(iter(found.values())))} repetitions of every size, all k on the same sequences; the figures "
            "print no numbers to compare with."
        ],
    )


def _order(arm: str, error: Float[np.ndarray, "repetition k"], traces: list[float], n: int) -> list:
    """Every k above the next by at least half of what theory says, and k = 1 over k = 4 in the published range."""
    checks = [
        orders(
            f"{arm}: k = {k} above k = {k + 1}",
            error[:, k - 1],
            error[:, k],
            margin=(traces[k - 1] - traces[k]) / n / 2,
            unit="repetition",
        )
        for k in SIZES[:-1]
    ]
    ratio = statistic(
        f"{arm}: k = 1 over k = 4",
        lambda units: units[..., 0].mean(-1) / units[..., -1].mean(-1),
        error,
        above=2.3,
        below=3.4,
        unit="repetition",
        vectorised=True,
    )
    return [*checks, ratio]


def _figure(coupling: float, settings: Fits, found: dict[tuple[float, int], np.ndarray]):
    samples = sorted(n for j, n in found if j == coupling)
    traces = _traces(coupling)
    return curves(
        samples,
        {f"k = {k}": [float(found[coupling, n][:, k - 1].mean()) for n in samples] for k in SIZES},
        predictions={f"k = {k}": [traces[k - 1] / n for n in samples] for k in SIZES},
        xlabel="sequences n",
        ylabel="mean ‖θ̂ − θ‖²",
        title=f"Errors of k-pseudolikelihood and Tr Γ/n (J = {coupling:g})",
        log_x=True,
        log_y=True,
    )


# -- asymptotic normality --------------------------------------------------------------------------------------------

WEIGHTED = Blocks(SPINS, ((0, 1), (1, 2), (2, 3), (0, 3), (0, 1, 2, 3)), (0.3, 0.2, 0.2, 0.2, 0.1))
ESTIMATORS = ("2 of 4", "weighted", "adaptive", "mixture, 3 of 4", "three masks each", "all masks at once")


DIRECTIONS = ("all directions", "widest direction", "narrowest direction")


@dataclass(frozen=True)
class Normal:
    repetitions: int = 2000
    samples: int = 20_000
    conditioned: bool = True
    covariance: Literal["its own", "maximum likelihood", "one mask", "half"] = "its own"
    steps: int = 200


@claim(
    id="gmlm/asymptotic-normality",
    statement=(
        "√n(θ̂ − θ) has covariance Γ: H^{−1} with one mask per sequence, whether masks look at X or not and the family "
        "is exponential or not, and H^{−1}(H/m + (1 − 1/m)V)H^{−1} with m masks per sequence, V = Cov E(score | X)."
    ),
    source=li2024("asymptotic normality of masked estimators; several masks per sequence of our own"),
    scales={"desk": Normal()},
    controls=(
        Control(
            "the covariance of maximum likelihood",
            {"covariance": "maximum likelihood"},
            tuple(f"{name}: all directions" for name in ESTIMATORS[:3]),
        ),
        Control(
            "H⁻¹ for several masks too",
            {"covariance": "one mask"},
            tuple(f"{name}: {what}" for name in ESTIMATORS[4:] for what in ("all directions", "widest direction")),
        ),
        Control("K left out of the condition", {"conditioned": False}, ("adaptive: all directions",)),
        Control(
            "half of it",
            {"covariance": "half"},
            tuple(f"{name}: {what}" for name in ESTIMATORS for what in DIRECTIONS),
        ),
    ),
    seeds=8,
)
def asymptotic_normality(settings: Normal, lab: Lab) -> Evidence:
    checks, rows = [], []
    for name in ESTIMATORS:
        off = lab.measure(
            deviations, name, settings.samples, settings.repetitions, settings.conditioned, settings.steps
        )
        off = torch.from_numpy(off["off"]).flatten(0, 1)
        gamma = _covariance(name, settings.covariance)
        values, vectors = torch.linalg.eigh(gamma)
        along = settings.samples * (off @ vectors).square() / values
        parts = dict(zip(DIRECTIONS, (along.mean(1), along[:, -1], along[:, 0]), strict=True))
        for what, square in parts.items():
            # The criterion is 10 % of the covariance.
            checks.append(agrees(f"{name}: {what}", square.numpy(), 1.0, within=0.1, unit="repetition"))
        rows.append([name, float(gamma.trace()), *(float(square.mean()) for square in parts.values())])
    return Evidence(
        checks,
        tables={"n · squared deviation over Γ": Table(["estimator", "Tr Γ", *DIRECTIONS], rows)},
        notes=[
            "Directions are eigenvectors of Γ; all directions together are n (θ̂ − θ)ᵀ Γ⁻¹ (θ̂ − θ) over their number."
        ],
    )


def _estimator(name: str) -> tuple[Instance, MaskLaw, int | None]:
    """The family, the mask law, and how many masks each sequence has (None: all of them)."""
    peaky, generator = clique(SPINS, PEAKY), torch.Generator().manual_seed(0)
    return {
        "2 of 4": (peaky, UniformSize(SPINS, 2), 1),
        "weighted": (peaky, WEIGHTED, 1),
        "adaptive": (peaky, adaptive_masks(SPINS, generator), 1),
        "mixture, 3 of 4": (mixed(SPINS, generator), UniformSize(SPINS, 3), 1),
        "three masks each": (peaky, UniformSize(SPINS, 1), 3),
        "all masks at once": (peaky, UniformSize(SPINS, 1), None),
    }[name]


def deviations(
    lab: Lab, name: str, n: int, repetitions: int, conditioned: bool, steps: int
) -> dict[str, Float[np.ndarray, "seed repetition parameter"]]:
    """θ̂ − θ, one for every seed and repetition."""
    instance, masks, each = _estimator(name)
    rows = []
    for seed in lab.seeds:
        counts = draw_sequences(instance.law, n, lab.generator(seed, f"{name}: sequences"), repetitions=repetitions)
        if each is None:
            pairs = every_mask(instance.law, masks, counts)
        else:
            pairs = draw_masks(instance.law, masks, counts, lab.generator(seed, f"{name}: masks"), each=each)
        # From the truth: which minimum of a family that is not convex is not the question here.
        found = estimate(instance.family, pairs, masks, instance.theta, conditioned=conditioned, steps=steps)
        rows.append(found.theta - instance.theta)
    return {"off": torch.stack(rows).numpy()}


def _covariance(name: str, which: str) -> Float[Tensor, "p p"]:
    instance, masks, each = _estimator(name)
    if which == "maximum likelihood":
        masks, each = UniformSize(SPINS, SPINS), 1
    if which == "one mask":
        each = 1
    gamma = fisher.covariance_of_many(instance.scores, instance.law, masks, each=each or float("inf"))
    return gamma / 2 if which == "half" else gamma


# -- how often the error exceeds what one expects --------------------------------------------------------------------


@dataclass(frozen=True)
class Tail:
    repetitions: int = 500
    samples: int = 5000
    factor: float = 100.0


@claim(
    id="gmlm/error-probability",
    statement="With probability at least 0.99 the squared error ‖θ̂ − θ‖² is at most 100 Tr Γ/n (Markov's inequality).",
    source=li2024("the discussion after asymptotic normality, factor corrected"),
    scales={"smoke": Tail(repetitions=100), "desk": Tail()},
    controls=(Control("without the factor", {"factor": 1.0}, tuple(f"k = {k}" for k in SIZES)),),
    seeds=8,
)
def error_probability(settings: Tail, lab: Lab) -> Evidence:
    error = lab.measure(errors, FLAT, settings.samples, settings.repetitions, "one mask")["error"].reshape(-1, SPINS)
    checks, rows = [], []
    for k, trace in zip(SIZES, _traces(FLAT), strict=True):
        bound = settings.factor * trace / settings.samples
        inside = int((error[:, k - 1] <= bound).sum())
        checks.append(proportion(f"k = {k}", inside, len(error), at_least=0.99, unit="repetition"))
        rows.append(
            [k, bound, inside / len(error), float(np.quantile(error[:, k - 1], 0.99) * settings.samples / trace)]
        )
    return Evidence(
        checks,
        tables={"errors": Table(["k", "bound", "share within", "99 % quantile over Tr Γ/n"], rows)},
        notes=["The error of ten independent standard normal parameters is at most its mean with probability 0.56."],
    )


PRINTED = (
    printed(
        "error-probability",
        error_probability,
        {"factor": 1.0},
        statement="With probability at least 0.99 the squared error ‖θ̂ − θ‖² is at most Tr Γ/n.",
        where="the discussion after asymptotic normality",
        erratum="Tr Γ/n is the mean of the squared error; Markov's inequality gives 100 Tr Γ/n at 0.99.",
    ),
)

CLAIMS = (masking_more_fits, asymptotic_normality, error_probability, *PRINTED)
