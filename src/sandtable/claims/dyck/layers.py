"""Attention varies more from layer to layer: the nets of Table 2.6."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sandtable.claims.dyck import nets
from sandtable.claims.dyck.nets import SEEDS, Deep, World, accurate
from sandtable.claims.dyck.setting import variation, wen
from sandtable.claims.dyck.variation import log_variation, variation_bars
from sandtable.lab import Check, Control, Evidence, Lab, Table, claim, statistic
from sandtable.probes.dyck import from_uniform
from sandtable.theory.dyck.baselines import random_variation

TABLE = {
    (2, 4, 2): (0.047, 7.721), (2, 4, 3): (0.070, 5.072, 24.063),
    (2, 8, 2): (0.087, 7.583), (2, 8, 3): (0.059, 5.560, 23.590),
    (3, 4, 2): (0.182, 9.313), (3, 4, 3): (0.225, 8.426, 25.749),
    (3, 8, 2): (0.178, 7.000), (3, 8, 3): (0.154, 6.280, 25.451),
}  # fmt: skip
"""Published variation per layer for (types k, depth D, layers)."""


@dataclass(frozen=True)
class Layers:
    case: tuple[int, int, int] = (2, 4, 2)
    beside: tuple[tuple[int, int, int], ...] = ()
    """Other cases of as many layers, in each of which the same must hold."""
    steps: int = 2500
    width: int = 50
    order: tuple[int, ...] = (0, 1)
    last: int = -1


def _most(patterns: np.ndarray) -> float:
    """log of the largest variation over cases; `patterns` are (model, case, entry)."""
    return max(log_variation(patterns[:, i]) for i in range(patterns.shape[1]))


def _least(patterns: np.ndarray) -> float:
    return min(log_variation(patterns[:, i]) for i in range(patterns.shape[1]))


def _growth(pairs: np.ndarray) -> float:
    """log of the variation of a layer over that of another, least over cases; (model, which, case, entry)."""
    cases = range(pairs.shape[2])
    return min(log_variation(pairs[:, 1, i]) - log_variation(pairs[:, 0, i]) for i in cases)


def grows(name: str, lower: np.ndarray, upper: np.ndarray) -> Check:
    """Models differ more in the one than in the other, in every case."""
    return statistic(name, _growth, np.stack([lower, upper], axis=1), above=0.0, unit="model")


def _case(case: tuple[int, int, int]) -> str:
    return "k={}, D={}, {} layers".format(*case)


def _by_layer(
    settings: Layers, lab: Lab, case: tuple[int, int, int]
) -> tuple[np.ndarray, list[np.ndarray], list[float]]:
    """Accuracy, the patterns of every layer on the same sentences, and how far these are from uniform ones."""
    types, depth, count = case
    world = World(types=types, depth=depth)
    net = Deep(world, layers=count, width=settings.width, norm="inner", steps=settings.steps)
    found = lab.measure(nets.patterns, net, "sentences")
    layers = [found[str(i)] for i in range(count)]
    away = [float(from_uniform(torch.from_numpy(layer)[:, :, None]).mean()) for layer in layers]
    return lab.measure(nets.accuracy, net)["near"], [nets.flat(layer) for layer in layers], away


def _table_rows(
    case: tuple[int, int, int], near: np.ndarray, seen: list[np.ndarray], away: list[float]
) -> list[list[object]]:
    rows = zip(TABLE[case], seen, away, strict=True)
    return [[*case, i + 1, known, variation(at), far, float(near.mean())] for i, (known, at, far) in enumerate(rows)]


_COLUMNS = ["types k", "depth D", "layers", "layer", "published", "measured", "from uniform attention", "accuracy"]


def _layer_evidence(settings: Layers, lab: Lab) -> Evidence:
    """Checks on the worst of all cases, and the published numbers beside all of them."""
    random = random_variation(nets.SENTENCE + 1)
    rows, bars, near, found, far = [], {}, [], [], []
    for case in (settings.case, *settings.beside):
        right, patterns, away = _by_layer(settings, lab, case)
        rows += _table_rows(case, right, patterns, away)
        bars |= {f"{_case(case)}, layer {i + 1}": at for i, at in enumerate(patterns)}
        near.append(right)
        found.append(patterns)
        far.append(away[0])
    layers = [np.stack(of_cases, axis=1) for of_cases in zip(*found, strict=True)]  # model, case, entry
    seen = [layers[i] for i in settings.order]
    checks = [
        accurate("accuracy", np.min(near, axis=0)),
        statistic("first layer", _most, seen[0], below=float(np.log(0.5)), unit="model"),
        grows("second over first", seen[0], seen[1]),
        statistic("last layer", _least, layers[settings.last], above=float(np.log(random / 2)), unit="model"),
    ]
    checks += [grows("third over second", seen[1], seen[2])] if len(seen) > 2 else []
    return Evidence(
        checks,
        figures={"variation": lambda: variation_bars(bars, {}, title="Variation of attention by layer")},
        tables={"Table 2.6": Table(_COLUMNS, rows)},
        notes=[
            f"Random patterns of {nets.SENTENCE + 1} positions differ by {random:.3f} (published 3.33). Checks show "
            "logarithms. The published nets have one more residual, h ← LN(h) + h, in layers not described further. "
            f"Attention of first layers is at most {max(far):.3f} from uniform (‖A − U‖², the mean over sentences and "
            "nets), shown beside Figure 2.18, which calls it close to uniform; that is not judged."
        ],
    )


UNTRAINED = Control("untrained", {"steps": 0}, ("accuracy",))
FOR_LAST = Control("the first layer for the last", {"last": 0}, ("last layer",))


@claim(
    id="dyck/layers",
    statement=(
        "In Transformers of two layers x + LN(f(x)), trained on two types and depth four (at paper scale also on three "
        "types, and on depth eight), attention of first layers "
        "hardly differs between seeds (below 0.5), that of second layers differs more, and by at least half of what "
        "random patterns do; most nets close 97 % of brackets rightly."
    ),
    source=wen("Table 2.6"),
    scales={
        "desk": Layers(),
        "paper": Layers(beside=tuple(case for case in TABLE if case[2] == 2 and case != (2, 4, 2)), steps=3000),
    },
    controls=(
        UNTRAINED,
        Control("first and second layers exchanged", {"order": (1, 0)}, ("first layer", "second over first")),
        FOR_LAST,
    ),
    seeds=SEEDS,
)
def layers(settings: Layers, lab: Lab) -> Evidence:
    return _layer_evidence(settings, lab)


@dataclass(frozen=True)
class Three(Layers):
    case: tuple[int, int, int] = (2, 4, 3)
    order: tuple[int, ...] = (0, 1, 2)


@claim(
    id="dyck/third-layers",
    statement=(
        "With three such layers, attention of first layers hardly differs between seeds (below 0.5), that of second "
        "layers differs more and that of third layers more still; most nets close 97 % of brackets rightly."
    ),
    source=wen("Table 2.6 and Figure 2.18"),
    scales={
        "desk": Three(),
        "paper": Three(beside=tuple(case for case in TABLE if case[2] == 3 and case != (2, 4, 3)), steps=3000),
    },
    controls=(
        UNTRAINED,
        Control("first and second layers exchanged", {"order": (1, 0, 2)}, ("first layer", "second over first")),
        Control("second and third layers exchanged", {"order": (0, 2, 1)}, ("third over second",)),
        FOR_LAST,
    ),
    seeds=SEEDS,
)
def third(settings: Three, lab: Lab) -> Evidence:
    return _layer_evidence(settings, lab)


CLAIMS = (layers, third)
