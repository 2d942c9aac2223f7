"""What a linear probe of the last hidden state knows about errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.setting import PUBLISHED, Trained
from sandtable.claims.verifier.sources import botta
from sandtable.decoding import Hidden, hidden_states
from sandtable.lab import Control, Evidence, Lab, Table, claim, proportion
from sandtable.lab.figures import PALETTE, WIDTH, house_style

VALIDATION_PUBLISHED = (0.93, 0.039)
SHOWN = 300
"""Prefixes of each kind in the figure."""


@dataclass(frozen=True)
class Probed:
    trained: Trained = field(default_factory=Trained)
    labels: str = "true"
    layer: int | None = None
    splits: int = 10


def states(lab: Lab, trained: Trained) -> dict[str, np.ndarray]:
    """Last hidden states of some wrong and some right prefixes of the test split, wrong ones first; NaN: none."""
    pairs = lab.measure(setting.error_prefixes, trained, "test")
    out = []
    for place, (_, lm) in enumerate(setting.generators(lab, trained)):
        found = np.full((2, SHOWN, lm.network.width), np.nan, dtype=np.float32)
        for side, name in enumerate(("wrong", "right")):
            rows = setting.rows_of(pairs, place, name)[:SHOWN]
            if rows:
                found[side, : len(rows)] = hidden_states(lm, rows, Hidden(lm.layers, normed=True))
        out.append(found)
    return {"states": np.stack(out)}


@claim(
    id="verifier/dyck-probe",
    statement=(
        "A linear probe of the generator's last hidden state tells prefixes that end with its first error from right "
        "ones of equal length: at least 85 % of fresh ones."
    ),
    source=botta("Dyck, verifier (thesis, Section 3.2.1 and Figure 3.1)"),
    scales={"desk": Probed(), "paper": Probed(trained=PUBLISHED)},
    controls=(
        Control("shuffled labels", {"labels": "shuffled"}, ("fresh prefixes told apart",)),
        Control("states before the first layer", {"layer": 0}, ("fresh prefixes told apart",)),
    ),
    seeds=setting.MODELS,
)
def dyck_probe(settings: Probed, lab: Lab) -> Evidence:
    found = lab.measure(setting.probes, settings.trained, settings.labels, settings.layer, settings.splits)
    fresh, validation = found["fresh"], found["validation"]
    told, asked = int((fresh == 1).sum()), int((fresh >= 0).sum())
    cloud = lab.measure(states, settings.trained)["states"]
    rows = [
        [
            seed,
            int((row >= 0).sum()),
            float((row == 1).sum() / max(1, (row >= 0).sum())),
            splits.mean(),
            splits.std(ddof=1),
        ]
        for seed, row, splits in zip(lab.seeds, fresh, validation, strict=True)
    ]
    return Evidence(
        [proportion("fresh prefixes told apart", told, asked, at_least=0.85, unit="prefix")],
        figures={"states": lambda: _map(cloud)},
        tables={
            "accuracy": Table(
                [
                    "seed",
                    "fresh prefixes",
                    "told apart",
                    f"best validation, mean of {settings.splits} splits",
                    "spread",
                ],
                rows,
            ),
            "published": Table(["validation, mean of 10", "± as printed"], [list(VALIDATION_PUBLISHED)]),
        },
        notes=[
            "The published validation accuracy also chose the epoch and is a little optimistic; that of fresh prefixes "
            "is not."
        ],
    )


def _map(cloud: np.ndarray) -> Figure:
    """Hidden states of the model with most prefixes: t-SNE, or principal components where sklearn is missing."""
    place = int(np.isfinite(cloud[..., 0]).sum((1, 2)).argmax())
    sides = [side[np.isfinite(side[:, 0])] for side in cloud[place]]
    flatten, name = _flattening()
    flat = flatten(np.concatenate(sides))
    with house_style():
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        figure.suptitle(f"Last hidden states of prefixes, {name}", x=0.02, ha="left")
        axes = figure.subplots()
        start = 0
        for label, side, colour in zip(("ends with an error", "right"), sides, PALETTE[1::-1], strict=True):
            points = flat[start : start + len(side)]
            start += len(side)
            axes.scatter(*points.T, s=9, color=colour, alpha=0.7, linewidths=0, label=label)
        axes.legend(frameon=False)
        axes.set(xticks=[], yticks=[])
    return figure


def _flattening() -> tuple[Callable[[np.ndarray], np.ndarray], str]:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return _principal, "first two principal components"

    def tsne(points: np.ndarray) -> np.ndarray:
        perplexity = min(30.0, (len(points) - 1) / 3)
        return TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(points)

    return tsne, "t-SNE (perplexity 30)"


def _principal(points: np.ndarray) -> np.ndarray:
    centred = points - points.mean(0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


CLAIMS = (dyck_probe,)
