"""What n sequences with m masks each guarantee: the bound on total variation, held against repeated fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from sandtable.claims.gmlm.instances import adaptive_masks
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, proportion
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.estimation import draw_masks, draw_sequences, estimate, every_mask
from sandtable.theory.gmlm.finite_sample import bound, empirical_bound, ising_cells, ising_margin, pointwise_bound
from sandtable.theory.gmlm.tensorisation import conditional_kl, tensorisation
from sandtable.worlds import Ising, UniformSize
from sandtable.worlds import Table as Law
from sandtable.worlds.finite import conditional_log_probs

LENGTH, PARAMETERS, RADIUS = 2, 3, 0.25
TRUTH = (0.2, -0.1, 0.1)
"""(h₁, h₂, J), all within [−¼, ¼]."""
FAR = (-1.5, -1.5, 0.5)
MASKS = UniformSize(LENGTH, 1)
RESOLUTION = 0.05
FAMILY = fisher.exponential(fisher.ising_statistics(LENGTH))
REFERENCE: dict[str, Any] = dict(
    length=2, symbols=2, cells=10, masks=10**6, samples=10**6, delta=0.1, resolution=0.01, tensorisation=4.0
)
NUMBERS = (0.161828, 0.0089443, 1.33757, 0.883728)
"""B, C and the bound at losses ½ and 0, for N = |Ω| = 2, C_ε = 10, m = n = 10⁶, δ = β = 0.1, ε = 0.01, C_AT = 4."""


@dataclass(frozen=True)
class Coverage:
    repetitions: int = 80
    samples: int = 20_000
    masks: int = 4 * 10**14
    delta: float = 0.1
    margin: float = 0.1
    truth: Literal["sampled", "far"] = "sampled"
    least: Literal["conditional", "its root"] = "conditional"
    falls: bool = True
    ascent_steps: int = 60


@claim(
    id="gmlm/finite-sample-bound",
    statement=(
        "With probability 1 − δ the total variation between the fitted law and the truth is below "
        "√(½ C_AT (excess loss + B ln(1/β) + ε)) + C; the parts hold as often: the loss at a fixed parameter against "
        "its mean over masks, and the empirical law against the truth. No conditional divergence from a law whose "
        "conditional probabilities are β at least exceeds ln(1/β). The bound rises with C_AT and falls with m and n."
    ),
    source=li2024("the finite-sample bound, its point-wise part and the bound on the empirical law"),
    scales={"desk": Coverage()},
    controls=(
        Control(
            "another law than the one sampled",
            {"truth": "far"},
            ("TV of the fit within its bound", "loss within its bound", "empirical law within its bound"),
        ),
        Control("a margin of 0.2", {"margin": 0.2}, ("numbers",)),
        Control("√β in the place of β", {"least": "its root"}, ("conditional divergence over ln(1/β)",)),
        Control("arguments exchanged", {"falls": False}, ("change of the bound",)),
    ),
    seeds=2,
)
def finite_sample_bound(settings: Coverage, lab: Lab) -> Evidence:
    found = lab.measure(fitted, settings.repetitions, settings.samples, settings.masks, settings.ascent_steps)
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in found.items()}
    truth = torch.tensor(TRUTH if settings.truth == "sampled" else FAR).double()
    law = Ising.of(truth[:2], truth[2:])
    size: dict[str, Any] = dict(
        length=LENGTH, symbols=2, masks=settings.masks, samples=settings.samples, delta=settings.delta
    )
    margin = ising_margin(LENGTH, PARAMETERS, RADIUS)
    cells = ising_cells(PARAMETERS, RADIUS, RESOLUTION)
    apart = _apart(torch.from_numpy(flat["theta"]), law)
    entropies = np.array([_entropy(row) for row in flat["frequencies"]])
    bounds = {
        name: np.array(
            [
                bound(max(0.0, value), cells=cells, margin=margin, resolution=RESOLUTION, tensorisation=c, **size).total
                for value, c in zip(loss.tolist(), flat["constant"].tolist(), strict=True)
            ]
        )
        for name, loss in (("excess loss", flat["loss"] - entropies), ("loss", flat["loss"]))
    }
    fixed, mean = flat["loss at truth"], flat["loss over masks"]
    if settings.truth == "far":
        mean = float(fisher.population_loss(FAMILY, Ising.of(TRUTH[:2], TRUTH[2:]), MASKS)(truth))
    pointwise = pointwise_bound(margin=margin, **size)
    empirical = empirical_bound(length=LENGTH, symbols=2, samples=settings.samples, delta=settings.delta)
    off = np.abs(flat["frequencies"] - law.probs.numpy()).sum(1) / 2
    inside = {
        "TV of the fit within its bound": apart < bounds["excess loss"],
        "loss within its bound": np.abs(fixed - mean) < pointwise,
        "empirical law within its bound": off < empirical,
    }
    n = len(apart)
    return Evidence(
        [
            *(
                proportion(name, int(np.sum(ok)), n, at_least=1 - settings.delta, unit="repetition")
                for name, ok in inside.items()
            ),
            exact("numbers", _numbers(settings.margin), NUMBERS, rtol=5e-6, unit="number"),
            bounded("conditional divergence over ln(1/β)", _shares(lab, settings.least), 1.0, atol=1e-9, unit="law"),
            bounded("change of the bound", _changes(falls=settings.falls), 0.0, unit="argument"),
        ],
        tables={
            "quantities": Table(
                ["", "largest found", "bound"],
                [
                    ["TV of the fit, excess loss", float(apart.max()), float(bounds["excess loss"].min())],
                    ["TV of the fit, loss in its place", float(apart.max()), float(bounds["loss"].min())],
                    ["loss at a fixed parameter", float(np.abs(fixed - mean).max()), pointwise],
                    ["TV of the empirical law", float(off.max()), empirical],
                ],
            )
        },
        notes=[
            f"Two spins, single masks, m = {settings.masks:.0e} masks for each of {settings.samples} sequences: with "
            "fewer the bound exceeds 1, as it nearly does with the loss in place of the excess over the entropy."
        ],
    )


def fitted(lab: Lab, repetitions: int, samples: int, masks: int, ascent_steps: int) -> dict[str, np.ndarray]:
    """Fits, their losses and tensorisation constants, the frequencies of sequences and losses at the truth."""
    law, truth = Ising.of(TRUTH[:2], TRUTH[2:]), torch.tensor(TRUTH).double()
    losses = vmap(fisher.masked_loss(FAMILY, MASKS))
    out: dict[str, list[Tensor]] = {}
    for seed in lab.seeds:
        counts = draw_sequences(law, samples, lab.generator(seed, "sequences"), repetitions=repetitions)
        pairs = draw_masks(law, MASKS, counts, lab.generator(seed, "masks"), each=masks)
        theta = estimate(FAMILY, pairs, MASKS, torch.zeros(PARAMETERS)).theta
        at = truth.expand(repetitions, -1)
        generator = lab.generator(seed, "ascent")
        constants = [
            tensorisation(Ising.of(row[:2], row[2:]), MASKS, generator, starts=12, steps=ascent_steps).at_least
            for row in theta
        ]
        for name, values in {
            "theta": theta,
            "loss": losses(theta, pairs),
            "constant": torch.tensor(constants).double(),
            "frequencies": counts.double() / samples,
            "loss at truth": losses(at, pairs),
            "loss over masks": losses(at, every_mask(law, MASKS, counts)),
        }.items():
            out.setdefault(name, []).append(values)
    return {name: torch.stack(values).numpy() for name, values in out.items()}


def _apart(theta: Tensor, law: Ising) -> np.ndarray:
    """TV between every fitted law and the one given."""
    probs = torch.stack([FAMILY(row).softmax(0) for row in theta])
    return ((probs - law.probs).abs().sum(1) / 2).numpy()


def _entropy(frequencies: np.ndarray) -> float:
    """E H(x_K | x_−K) of the empirical law: what no model can lose less than."""
    values = torch.from_numpy(frequencies)
    return float(
        sum(
            (torch.special.entr(values).sum() - torch.special.entr(values.view(2, 2).sum(i)).sum()) / LENGTH
            for i in range(LENGTH)
        )
    )


def _numbers(margin: float) -> list[float]:
    half, none = (bound(loss, margin=margin, **REFERENCE) for loss in (0.5, 0.0))
    return [half.deviation, half.sampling, half.total, none.total]


def _shares(lab: Lab, least: str) -> list[float]:
    """The largest E KL(r(x_K | x_−K, K) ‖ q(x_K | x_−K, K))/ln(1/β) over point masses and random laws r."""
    generator, out = lab.generator(lab.seeds[0], "margins"), []
    for length in (1, 2, 3):
        law = Law.random(length, generator)
        others = torch.stack([Law.random(length, generator).probs for _ in range(20)])
        r = torch.cat([torch.eye(2**length, dtype=torch.float64), others])
        for masks in (*(UniformSize(length, k) for k in range(1, length + 1)), adaptive_masks(length, generator)):
            chosen = masks.probs(law.states).log()
            conditionals = [
                conditional_log_probs(law.log_probs, hidden, 2, chosen[:, block])
                for block, hidden in enumerate(masks.family)
            ]
            most = -float(torch.stack(conditionals).min()) / (2 if least == "its root" else 1)
            out.append(float(conditional_kl(r, law, masks).max()) / most)
    return out


def _changes(*, falls: bool) -> list[float]:
    """What should be negative: the bound less what it is with a larger constant, fewer masks, fewer sequences."""
    before = bound(0.5, margin=0.1, **REFERENCE).total
    worse = [{"tensorisation": 8.0}, {"masks": 10**5}, {"samples": 10**5}]
    changes = [before - bound(0.5, margin=0.1, **{**REFERENCE, **change}).total for change in worse]
    return changes if falls else [-change for change in changes]


CLAIMS = (finite_sample_bound,)
