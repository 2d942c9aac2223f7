"""The law of fixed-length Dyck strings: the product as it is printed, and as the process has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from sandtable.claims.verifier.sources import botta
from sandtable.lab import Claim, Control, Evidence, Lab, Table, claim, exact
from sandtable.lab.figures import curves
from sandtable.worlds import FixedLengthDyck


@dataclass(frozen=True)
class Law:
    lengths: tuple[int, ...] = (2, 4, 6, 8)
    p: float = 0.2
    q: float = 0.5
    charged: str = "d < D − i"


@claim(
    id="verifier/dyck-law",
    statement=(
        "The probability of a string, or of the beginning of one, is the product of type probabilities over openers, "
        "of q over openers above depth 1, and of 1 − q over closers with d(w_1…w_i) < D − i."
    ),
    source=botta("definition of the Dyck distribution, corrected"),
    scales={"smoke": Law(), "desk": Law(lengths=(2, 4, 6, 8, 10, 12))},
    controls=(
        Control(
            "forced closers charged too",
            {"charged": "d ≤ D − i"},
            ("strings", "sum over strings", "beginnings"),
        ),
    ),
)
def dyck_law(settings: Law, lab: Lab) -> Evidence:
    printed = settings.charged != "d < D − i"
    strings, processes, sums, beginnings, products = [], [], [], [], []
    for length in settings.lengths:
        world = FixedLengthDyck(length, settings.p, settings.q)
        support = world.support()  # strings grown token by token, weighed by the process
        weights = world.closed_form(support.batch, printed=printed).exp()
        strings.append(weights)
        processes.append(support.weights)
        sums.append(float(weights.sum()))
        for end in range(1, length + 2):
            rows, of = support.batch.x[:, :end].unique(dim=0, return_inverse=True)
            beginnings.append(world.closed_form(rows, printed=printed).exp())
            products.append(torch.zeros(len(rows), dtype=torch.float64).index_add_(0, of, support.weights))
    distances = [float((w / w.sum() - process).abs().sum() / 2) for w, process in zip(strings, processes, strict=True)]
    return Evidence(
        [
            exact("strings", torch.cat(strings).numpy(), torch.cat(processes).numpy(), rtol=1e-9, unit="string"),
            exact("sum over strings", sums, 1.0, rtol=1e-9, unit="length"),
            exact("beginnings", torch.cat(beginnings).numpy(), torch.cat(products).numpy(), rtol=1e-9, unit="prefix"),
        ],
        figures={
            "sum": lambda: curves(
                settings.lengths,
                {f"closers with {settings.charged}": sums},
                predictions={f"closers with {settings.charged}": [1.0] * len(sums)},
                xlabel="length D",
                ylabel="sum of all weights",
                title="Do the weights of all strings sum to one?",
            )
        },
        tables={
            "sums": Table(
                ["length D", "strings", "sum of weights", "total variation, normalised, to the process"],
                [
                    [length, len(process), total, distance]
                    for length, process, total, distance in zip(
                        settings.lengths, processes, sums, distances, strict=True
                    )
                ],
            )
        },
    )


dyck_law_printed = Claim(
    id="verifier/printed-dyck-law",
    statement=(
        "The probability of a string is the product of type probabilities over openers, of q over openers above depth "
        "1, and of 1 − q over closers with d(w_1…w_i) ≤ D − i."
    ),
    source=botta("definition of the Dyck distribution"),
    scales={scale: replace(settings, charged="d ≤ D − i") for scale, settings in dyck_law.scales.items()},
    measure=dyck_law.measure,
    expected="refuted",
    erratum=(
        "Every closer of a balanced string has d(w_1…w_i) ≤ D − i, so the product charges 1 − q for closers that are "
        "forced. Its weights sum to 0.375, 0.3125 and 0.273 at D = 4, 6 and 8; with < they are the process."
    ),
    corrected=dyck_law.id,
)

CLAIMS = (dyck_law, dyck_law_printed)
