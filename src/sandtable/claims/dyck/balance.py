"""Balance of trained layers: what it says about long prefixes, and what asking for it in training gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandtable.claims.dyck import nets
from sandtable.claims.dyck.nets import SEEDS, Minimal, World, accurate
from sandtable.claims.dyck.setting import wen
from sandtable.lab import Control, Evidence, Lab, Table, claim, orders, statistic
from sandtable.lab.figures import scatter

WEIGHT = 0.3
"""Of the contrastive term; the published code's."""
CORRELATED = -0.3
HALF = 0.5
GAIN = {"words": 0.0, "prefixes": 0.03}
"""Least gain in long prefixes: "higher" is all that is said for words, "strongly" for prefixes."""


@dataclass(frozen=True)
class Balance:
    steps: int = 600
    width: int = 50
    contrast: float = WEIGHT
    violations: str = "own"
    arms: str = "as trained"


def _arms(settings: Balance, lab: Lab, data: str) -> dict[str, dict[str, np.ndarray]]:
    """Accuracy and balance of nets trained with the plain loss and with the contrastive term."""
    found = {}
    for name, weight in (("standard", 0.0), ("contrastive", settings.contrast)):
        net = Minimal(World(data), width=settings.width, steps=settings.steps, contrast=weight)
        found[name] = lab.measure(nets.accuracy, net) | lab.measure(nets.balance, net)
    if settings.arms == "exchanged":
        found = {"standard": found["contrastive"], "contrastive": found["standard"]}
    return found


def _correlation(pairs: np.ndarray) -> float:
    """arctanh of Pearson's r."""
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.corrcoef(pairs.T)[0, 1]
    return float(np.arctanh(np.clip(r, -0.999999, 0.999999)))


def _pooled(units: np.ndarray) -> float:
    """The same over all nets of all seeds; units are (seed, training, violation or accuracy)."""
    return _correlation(units.reshape(-1, 2))


def _points(found: dict[str, dict[str, np.ndarray]], title: str):
    return scatter(
        {name: (arm["violation"], arm["far strict"]) for name, arm in found.items()},
        xlabel="balance violation β",
        ylabel="closed rightly at 400–500 (strict)",
        title=title,
    )


def _means(found: dict[str, dict[str, np.ndarray]]) -> list[list[object]]:
    names = ("near", "far", "far strict", "violation", "release", "residual", "cosine")
    return [[name, *(float(arm[key].mean()) for key in names)] for name, arm in found.items()]


COLUMNS = ["training", "accuracy", "at 400–500", "strict", "β", "β, published code", "bilinear residual", "cosine"]


@claim(
    id="dyck/balance-predicts-length",
    statement=(
        "Over nets on minimal first layers, those trained on complete words without and those with the contrastive "
        "term taken together, the violation of balance and the share of brackets closed rightly (with more than 0.8 of "
        "the closers' probability) in long prefixes are correlated negatively (r below −0.3)."
    ),
    source=wen("Figure 2.13"),
    scales={"desk": Balance(), "paper": Balance()},
    controls=(Control("violations in the reverse order", {"violations": "reversed"}, ("correlation",)),),
    seeds=SEEDS,
)
def predicts(settings: Balance, lab: Lab) -> Evidence:
    found = _arms(settings, lab, "words")
    violation, right = (np.stack([arm[key] for arm in found.values()], axis=1) for key in ("violation", "far strict"))
    if settings.violations == "reversed":  # the most balanced net gets the largest violation, and so on
        order = np.argsort(violation, axis=None)
        violation.flat[order] = violation.flat[order[::-1]]
    return Evidence(
        [
            statistic(
                "correlation",
                _pooled,
                np.stack([violation, right], axis=2),
                below=float(np.arctanh(CORRELATED)),
            )
        ],
        figures={"violation and length": lambda: _points(found, "Balance and reach, two trainings together")},
        tables={"means over seeds": Table(COLUMNS, _means(found))},
        notes=[
            "The check shows arctanh r. "
            + " ".join(f"Within {name} nets alone r = {_r(arm):.2f}." for name, arm in found.items())
            + f" If violations are shuffled within each training, r = {_between(found):.2f} on average: the "
            "correlation is that of the two trainings. By the likeliest closer it is "
            f"{_r_of(found, 'far'):.2f} in place of {_r_of(found, 'far strict'):.2f}; that is not judged."
        ],
    )


def _r_of(found: dict[str, dict[str, np.ndarray]], measure: str) -> float:
    pairs = [np.column_stack([arm["violation"], arm[measure]]) for arm in found.values()]
    return float(np.tanh(_correlation(np.concatenate(pairs))))


def _between(found: dict[str, dict[str, np.ndarray]]) -> float:
    rng = np.random.default_rng(0)
    mixed = [
        {name: arm | {"violation": rng.permutation(arm["violation"])} for name, arm in found.items()}
        for _ in range(200)
    ]
    return float(np.mean([_r_of(arms, "far strict") for arms in mixed]))


def _r(arm: dict[str, np.ndarray]) -> float:
    return float(np.tanh(_correlation(np.column_stack([arm["violation"], arm["far strict"]]))))


_GAINED = tuple(f"{what}, {data}" for data in GAIN for what in ("violation halved", "long prefixes"))
_NEAR = tuple(f"accuracy, {name}, {data}" for data in GAIN for name in ("standard", "contrastive"))


@claim(
    id="dyck/contrastive-helps",
    statement=(
        "Asking in training that a balanced prefix in front change nothing at least halves the violation of balance. "
        "In prefixes of 400 to 500 more brackets are closed rightly (with more than 0.8 of the closers' probability) "
        "after training on complete words and, by 0.03 or more, on prefixes; at trained lengths both are accurate."
    ),
    source=wen("Figures 2.13 and 2.17, contrastive regularisation (eq. 2.58)"),
    scales={"desk": Balance(), "paper": Balance()},
    controls=(
        Control("the two trainings exchanged", {"arms": "exchanged"}, _GAINED),
        Control("untrained", {"steps": 0}, _NEAR),
    ),
    seeds=SEEDS,
)
def contrastive(settings: Balance, lab: Lab) -> Evidence:
    checks, tables, figures, gains, correlated = [], {}, {}, [], []
    for data, margin in GAIN.items():
        found = _arms(settings, lab, data)
        plain, asked = found["standard"], found["contrastive"]
        checks += [accurate(f"accuracy, {name}, {data}", arm["near"]) for name, arm in found.items()]
        checks += [
            orders(f"violation halved, {data}", HALF * plain["violation"], asked["violation"]),
            orders(f"long prefixes, {data}", asked["far strict"], plain["far strict"], margin=margin),
        ]
        tables[data] = Table(COLUMNS, _means(found))
        gap = asked["far"] - plain["far"]
        gains.append(f"{gap.mean():.3f} ± {gap.std() / max(len(gap) - 1, 1) ** 0.5:.3f} on {data}")
        within = ", ".join(f"{_r(arm):.2f} within {name} nets" for name, arm in found.items())
        correlated.append(f"on {data} {_r_of(found, 'far strict'):.2f} ({within})")
        figures[data] = lambda found=found, data=data: _points(found, f"Trained on {data}")
    return Evidence(
        checks,
        figures=figures,
        tables=tables,
        notes=[
            "Long prefixes are judged by the strict measure of the published code. By the likeliest closer alone the "
            f"gain is {'; '.join(gains)}: that is not judged.",
            "Pearson's r of violation and strict share, both trainings together: " + "; ".join(correlated) + ". Figure "
            "2.17 has no negative correlation on prefixes; that is not judged either.",
        ],
    )


CLAIMS = (predicts, contrastive)
