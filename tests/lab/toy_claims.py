"""Small claims, one for each way that a claim can end."""

from dataclasses import dataclass

import numpy as np
import torch

from sandtable.lab import Claim, Control, Evidence, Lab, Source, Table, agrees, claim, exceeds

SOURCE = Source("Toy & Toy", 2024, "theorem 1")


@dataclass(frozen=True)
class Settings:
    mean: float = 1.0
    draws: int = 1000


def averages(lab: Lab, mean: float, draws: int) -> dict[str, np.ndarray]:
    """The average of normal draws around `mean`, one per seed."""
    rows = [torch.randn(draws, generator=lab.generator(seed, "draws")).mean().item() for seed in lab.seeds]
    return {"average": mean + np.array(rows)}


def draw():
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1])
    return figure


SCALES = {"smoke": Settings(draws=500), "desk": Settings()}


@claim(
    id="toy/average",
    statement="The average of draws around one is one.",
    source=SOURCE,
    scales=SCALES,
    controls=(Control("draws around zero", {"mean": 0.0}, ("average", "positive")),),
    tour=True,
    seeds={"smoke": 20, "desk": 30},
)
def average(settings: Settings, lab: Lab) -> Evidence:
    found = lab.measure(averages, settings.mean, settings.draws)["average"]
    checks = [agrees("average", found, 1.0, within=0.1), exceeds("positive", found, 0.5)]
    table = Table(["seed", "average"], [[s, v] for s, v in zip(lab.seeds, found, strict=True)])
    return Evidence(checks, figures={"A line": draw}, tables={"averages": table}, notes=["a toy"])


def off_by_one(settings: Settings, lab: Lab) -> Evidence:
    found = lab.measure(averages, settings.mean, settings.draws)["average"]
    return Evidence([agrees("average", found, 2.0, within=0.1)])


printed = Claim(
    id="toy/printed-average",
    statement="The average of draws around one is two.",
    source=SOURCE,
    scales=SCALES,
    measure=off_by_one,
    expected="refuted",
    erratum="The printed value is one too large.",
    corrected="toy/average",
    seeds=20,
)


@claim(
    id="toy/few",
    statement="Three draws decide it.",
    source=SOURCE,
    scales={"desk": Settings()},
    controls=(Control("draws around zero", {"mean": 0.0}, ("average",)),),
    seeds=3,
)
def few(settings: Settings, lab: Lab) -> Evidence:
    return Evidence([exceeds("average", lab.measure(averages, settings.mean, settings.draws)["average"], 0.5)])


@claim(
    id="toy/deaf",
    statement="A control that changes nothing, not even [mask].",
    source=SOURCE,
    scales=SCALES,
    controls=(Control("more draws", {"draws": 2000}, ("average",)),),
    seeds=20,
)
def deaf(settings: Settings, lab: Lab) -> Evidence:
    return Evidence([exceeds("average", lab.measure(averages, settings.mean, settings.draws)["average"], 0.5)])


@claim(id="toy/raises", statement="This claim is broken.", source=SOURCE, scales=SCALES)
def raises(settings: Settings, lab: Lab) -> Evidence:
    raise ZeroDivisionError("by design")
