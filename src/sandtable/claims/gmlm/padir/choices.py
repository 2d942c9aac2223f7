"""Choices in training and model that are said to matter: stages, the masking ratio, positional attention.

Published without numbers. All nets write the drop task with several right translations, where there is room for better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sandtable.claims.gmlm.padir import measures
from sandtable.claims.gmlm.padir.nets import DESK, FEW, PAPER, SEEDS, Net, Size
from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Claim, Control, Evidence, Lab, Table, orders
from sandtable.lab.figures import curves

WHERE = "section 4.5, design choices"


@dataclass(frozen=True)
class Choice:
    """A setting of the nets, its better value and its worse one, judged after each of `passes`."""

    setting: Literal["stages", "unmask", "positional"]
    values: tuple[Any, Any]
    passes: tuple[int, ...] = (2, 4)
    size: Size = DESK


def _check(passes: int) -> str:
    return f"right after {passes} pass{'es' * (passes > 1)}"


def compared(settings: Choice, lab: Lab) -> Evidence:
    """Shares of right translations of nets that differ in one setting; nets of a seed see the same data."""
    net = Net("drop", size=settings.size)
    found = {value: lab.measure(measures.refined, net.at(**{settings.setting: value})) for value in settings.values}
    better, worse = (found[value]["valid"] for value in settings.values)
    names = {value: f"{settings.setting} {value}" for value in found}
    rows = [
        [names[value], t, *(float(one[score][:, t - 1].mean()) for score in ("valid", "overlap", "stutter"))]
        for value, one in found.items()
        for t in (1, 2, 4, 10)
    ]
    gains = ", ".join(f"{gain:+.3f}" for gain in better[:, 3] - worse[:, 3])
    return Evidence(
        [orders(_check(t), better[:, t - 1], worse[:, t - 1]) for t in settings.passes],
        figures={
            "passes": lambda: curves(
                range(1, measures.PASSES + 1),
                {names[value]: one["valid"] for value, one in found.items()},
                xlabel="decoder passes",
                ylabel="share of right translations",
                title="Drop task, several right translations",
            )
        },
        tables={"means over nets": Table(["training", "passes", "right", "overlap", "stutter"], rows)},
        notes=[f"Gain after 4 passes, net by net: {gains}."],
    )


def _claim(
    name: str,
    statement: str,
    setting: Literal["stages", "unmask", "positional"],
    values: tuple[Any, Any],
    passes: tuple[int, ...],
    seeds: Any = FEW,
) -> Claim:
    desk = Choice(setting, values, passes)
    return Claim(
        id=f"gmlm/{name}",
        statement=statement,
        source=li2024(WHERE),
        scales={"desk": desk, "paper": Choice(setting, values, passes, size=PAPER)},
        measure=compared,
        controls=(Control("the two exchanged", {"values": values[::-1]}, tuple(_check(t) for t in passes)),),
        seeds=seeds,
    )


two_stages = _claim(
    "two-stages",
    "Training also on one's own first answer (two stages) gives more right translations after two and four passes.",
    "stages",
    (2, 1),
    (2, 4),
)
mask_ratio = _claim(
    "mask-ratio",
    "Refiners that were shown 15 % of the target in training write more right translations from pure noise, in one "
    "pass and in four, than refiners that were shown 70 %.",
    "unmask",
    (0.15, 0.7),
    (1, 4),
)
positional_attention = _claim(
    "positional-attention",
    "With positional attention in the decoder refiners write more right translations, in one pass and in four.",
    "positional",
    (True, False),
    (1, 4),
    SEEDS,
)

CLAIMS = (two_stages, mask_ratio, positional_attention)
