"""Prefixes after which the generator went wrong: what erasing some of them gains, and whether it was needed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.setting import GREEDY, PLAIN, PUBLISHED, Method, Trained
from sandtable.claims.verifier.sources import botta
from sandtable.lab import Check, Control, Evidence, Lab, Table, below, claim, exceeds, orders, printed
from sandtable.lab.figures import curves

STRIDES = (0, 1, 2, 4, 8)
QUOTAS, ERASED = (1, 2, 4), (2, 4, 6)
PLAIN_PUBLISHED, GREEDY_PUBLISHED = 0.331, 0.334
RIGHT = "prefixes of right strings at the same places"
STRIDE_PUBLISHED = (0.331, 0.366, 0.438, 0.591, 0.790)
QUOTA_PUBLISHED = {1: (0.421, 0.500, 0.604), 2: (0.457, 0.634, 0.762), 4: (0.518, 0.762, 0.921)}


def units(values: np.ndarray) -> np.ndarray:
    """(seed, …, prefix) → (…, prefix) over all models, without the places that hold no prefix."""
    flat = np.moveaxis(values, 0, -2).reshape(*values.shape[1:-1], -1)
    return flat[..., np.isfinite(flat).all(axis=tuple(range(flat.ndim - 1)))]


# -- table 3.1: one erasure of a given length ------------------------------------------------------------------------


@dataclass(frozen=True)
class Stride:
    trained: Trained = field(default_factory=Trained)
    side: str = "wrong"
    repeats: int = 2


def erased_once(lab: Lab, trained: Trained, side: str, repeats: int) -> dict[str, np.ndarray]:
    """Accuracy of completions (nucleus 0.9) after some tokens of a prefix were erased, and of greedy ones after none.

    The prefix ends before the first wrong token or, on another side, at the same place of a right string.
    """
    found = lab.measure(setting.error_prefixes, trained, "test")
    accuracy = np.full((len(lab.seeds), len(STRIDES) + 1, trained.kept), np.nan)
    for place, (seed, lm) in enumerate(setting.generators(lab, trained)):
        for arm, stride in enumerate((*STRIDES, 0)):
            rows = setting.rows_of(found, place, side, cut=1 + stride)
            if rows:
                method = GREEDY if arm == len(STRIDES) else PLAIN
                made = [setting.decode(lm, rows, method, None, numbers(lab, seed, again)) for again in range(repeats)]
                accuracy[place, arm, : len(rows)] = np.mean([setting.right(one) for one in made], axis=0)
    return {"accuracy": accuracy}


def numbers(lab: Lab, seed: int, again: int) -> torch.Generator:
    return lab.generator(seed, f"completions of hard prefixes, {again}")


@claim(
    id="verifier/dyck-stride",
    statement=(
        "Erasing tokens of a prefix that led to an error makes its completion more often right, the more of them the "
        "more often: by over 0.10 for eight tokens, which is the best stride."
    ),
    source=botta("Dyck, forced backtracking (thesis, Table 3.1)"),
    scales={"desk": Stride(), "paper": Stride(trained=PUBLISHED, repeats=5)},
    controls=(Control(RIGHT, {"side": "right"}, ("stride 8 over none", "stride 8 over 4", "gain per erased token")),),
    seeds=setting.MODELS,
)
def dyck_stride(settings: Stride, lab: Lab) -> Evidence:
    found = lab.measure(erased_once, settings.trained, settings.side, settings.repeats)["accuracy"]
    accuracy = units(found)
    centred = np.array(STRIDES) - np.mean(STRIDES)
    slopes = centred @ accuracy[:-1] / (centred @ centred)
    means, by_model = accuracy.mean(-1), np.nanmean(found, axis=-1)
    return Evidence(
        [
            orders("stride 8 over none", accuracy[4], accuracy[0], margin=0.10, unit="prefix"),
            orders("stride 8 over 4", accuracy[4], accuracy[3], margin=0.05, unit="prefix"),
            exceeds("gain per erased token", slopes, 0.01, unit="prefix"),
        ],
        figures={
            "strides": lambda: curves(
                STRIDES,
                {"measured": by_model[:, :-1]},
                predictions={"measured": STRIDE_PUBLISHED},
                xlabel="erased tokens (dashed: published)",
                ylabel="share of right completions",
                title="Erasing part of a prefix that led to an error",
            )
        },
        tables={
            "accuracy": Table(
                ["completion", "measured", "standard error", "published"],
                [
                    [name, value, error, published]
                    for name, value, error, published in zip(
                        ("nothing erased", *(f"{stride} erased" for stride in STRIDES[1:]), "nothing erased, greedy"),
                        means,
                        accuracy.std(-1, ddof=1) / np.sqrt(accuracy.shape[-1]),
                        (*STRIDE_PUBLISHED, GREEDY_PUBLISHED),
                        strict=True,
                    )
                ],
            )
        },
        notes=[_population(lab, settings.trained, accuracy.shape[-1])],
    )


def _population(lab: Lab, trained: Trained, prefixes: int) -> str:
    kinds = lab.measure(setting.error_prefixes, trained, "test")["kinds"]
    rates = ", ".join(f"{1 - row[0] / row.sum():.2%}" for row in kinds)
    return f"{prefixes} prefixes of {len(kinds)} models, which err on {rates} of prompts with 25 to 31 brackets."


# -- table 3.2: the quota and the stride of backtracking -------------------------------------------------------------


@dataclass(frozen=True)
class Quota:
    trained: Trained = field(default_factory=Trained)
    side: str = "wrong"
    verifier: str = "probe"
    redo: str = "released-counter"
    beside: str = "random"
    repeats: int = 4


def backtracked(lab: Lab, trained: Trained, side: str, verifier: str, redo: str, repeats: int) -> dict[str, np.ndarray]:
    """Accuracy and number of backtracks on hard prefixes, which may be erased, for every quota and stride."""
    found = lab.measure(setting.error_prefixes, trained, "test")
    shape = (len(lab.seeds), len(QUOTAS), len(ERASED), trained.kept)
    accuracy, backtracks = np.full(shape, np.nan), np.full(shape, np.nan)
    for place, (seed, lm, judge) in enumerate(setting.judges(lab, trained, verifier)):
        rows = setting.rows_of(found, place, side, cut=1)
        for i, j in np.ndindex(len(QUOTAS), len(ERASED)):
            method = Method(QUOTAS[i], ERASED[j], redo=redo, protect_prompt=False)
            made = [
                setting.decode(lm, rows, method, judge, numbers(lab, seed, again))
                for again in range(bool(rows) * repeats)
            ]
            if made:
                accuracy[place, i, j, : len(rows)] = np.mean([setting.right(one) for one in made], axis=0)
                backtracks[place, i, j, : len(rows)] = np.mean([one.backtracks.numpy() for one in made], axis=0)
    return {"accuracy": accuracy, "backtracks": backtracks}


def cell_name(quota: int, stride: int) -> str:
    return f"Q={quota}, B={stride}"


CELLS = tuple(cell_name(quota, stride) for quota in QUOTAS for stride in ERASED)
PRINTED = np.array([QUOTA_PUBLISHED[quota] for quota in QUOTAS])
STEPS = tuple(((i, j), (i, j - 1)) for i in range(len(QUOTAS)) for j in range(1, len(ERASED)))
"""Each cell after the one with the next smaller stride."""
BEST = tuple(((2, 2), (k, 2)) for k in range(2))


def _over(cell: tuple[int, int], other: tuple[int, int]) -> str:
    """The name of a comparison between cells, given by their places."""
    return " over ".join(cell_name(QUOTAS[i], ERASED[j]) for i, j in (cell, other))


QUOTA_CHECKS = (*(f"{cell} over no backtracking" for cell in CELLS), *(_over(*pair) for pair in (*STEPS, *BEST)))
MOST_OVER_TWO = _over(*BEST[1])
OVER_RANDOM = "B=2 over a random verifier, mean over Q"
AS_RANDOM = f"{CELLS[-1]} over a random verifier"


def _quota_checks(accuracy: np.ndarray, plain: np.ndarray) -> list[Check]:
    """Every cell gains over no backtracking, larger strides over smaller ones, Q=4, B=6 over smaller quotas: each by a
    quarter of what is published at least.
    """
    checks = [
        orders(
            f"{cell} over no backtracking",
            accuracy[i, j],
            plain,
            margin=float(PRINTED[i, j] - PLAIN_PUBLISHED) / 4,
            unit="prefix",
        )
        for cell, (i, j) in zip(CELLS, np.ndindex(len(QUOTAS), len(ERASED)), strict=True)
    ]
    return checks + [
        orders(
            _over(cell, other),
            accuracy[cell],
            accuracy[other],
            margin=float(PRINTED[cell] - PRINTED[other]) / 4,
            unit="prefix",
        )
        for cell, other in (*STEPS, *BEST)
    ]


def _random_checks(accuracy: np.ndarray, beside: np.ndarray) -> list[Check]:
    """At B=2 the verifier is worth a quarter of the published gain over no backtracking, at Q=4, B=6 it is not."""
    published = (PRINTED - PLAIN_PUBLISHED) / 4
    short = accuracy[:, 0].mean(0), beside[:, 0].mean(0)
    return [
        orders(OVER_RANDOM, *short, margin=float(published[:, 0].mean()), unit="prefix"),
        below(AS_RANDOM, accuracy[-1, -1] - beside[-1, -1], float(published[-1, -1]), unit="prefix"),
    ]


@claim(
    id="verifier/dyck-quota",
    statement=(
        "On prefixes that led to errors, and that may be erased, backtracking with a linear verifier, which is asked "
        "about redone tokens too, raises accuracy at every quota and stride, at each quota more with larger strides, "
        "and most at Q=4, B=6. A verifier that answers at random does so too: the trained one is more accurate at B=2, "
        "but at Q=4, B=6 what it knows is worth less than a quarter of the gain."
    ),
    source=botta("Dyck, backtracking on error-inducing prefixes (thesis, Table 3.2)"),
    scales={"desk": Quota(), "paper": Quota(trained=PUBLISHED, repeats=5)},
    controls=(
        Control(RIGHT, {"side": "right"}, QUOTA_CHECKS),
        Control("redone tokens not verified, as printed", {"redo": "argmax"}, (MOST_OVER_TWO,)),
        Control("random verifier", {"verifier": "another random"}, (OVER_RANDOM,)),
        Control("no backtracking in place of the random verifier", {"beside": "none"}, (AS_RANDOM,)),
    ),
    seeds=setting.MODELS,
)
def dyck_quota(settings: Quota, lab: Lab) -> Evidence:
    s = settings
    found = lab.measure(backtracked, s.trained, s.side, s.verifier, s.redo, s.repeats)["accuracy"]
    accuracy = units(found)
    plain, *_, greedy = units(lab.measure(erased_once, s.trained, s.side, s.repeats)["accuracy"])
    others = {
        "random verifier": ("random", s.redo),
        "perfect verifier": ("truth", s.redo),
        "as printed, redone tokens not verified": (s.verifier, "argmax"),
    }
    beside = {
        name: units(lab.measure(backtracked, s.trained, s.side, verifier, redo, s.repeats)["accuracy"])
        for name, (verifier, redo) in others.items()
    }
    rival = beside["random verifier"] if s.beside == "random" else np.broadcast_to(plain, accuracy.shape)
    means, by_model = accuracy.mean(-1), np.nanmean(found, axis=-1)
    rows = [
        [quota, stride, means[i, j], QUOTA_PUBLISHED[quota][j], *(values[i, j].mean() for values in beside.values())]
        for i, quota in enumerate(QUOTAS)
        for j, stride in enumerate(ERASED)
    ]
    return Evidence(
        _quota_checks(accuracy, plain) + _random_checks(accuracy, rival),
        figures={
            "cells": lambda: curves(
                ERASED,
                {f"Q={quota}": by_model[:, i] for i, quota in enumerate(QUOTAS)},
                predictions={f"Q={quota}": QUOTA_PUBLISHED[quota] for quota in QUOTAS},
                xlabel="stride B (dashed: published)",
                ylabel="share of right completions",
                title="Backtracking from prefixes that led to errors",
            )
        },
        tables={
            "accuracy": Table(["quota Q", "stride B", "measured", "published", *beside], rows),
            "no backtracking": Table(
                ["completion", "measured", "published"],
                [["nucleus 0.9", plain.mean(), PLAIN_PUBLISHED], ["greedy", greedy.mean(), GREEDY_PUBLISHED]],
            ),
        },
        notes=[
            _population(lab, s.trained, accuracy.shape[-1]),
            "A verifier that answers at random gains nearly as much where strides are long, and at Q=4 more than a "
            "perfect one: what helps is that up to Q·B tokens of a hard prompt are rewritten.",
        ],
    )


dyck_quota_printed = printed(
    "dyck-quota",
    dyck_quota,
    {"redo": "argmax"},
    statement=(
        "On prefixes that led to errors, and that may be erased, backtracking as printed, which does not verify redone "
        "tokens, is most accurate at Q=4, B=6."
    ),
    where="Dyck, Algorithm 1 and backtracking on error-inducing prefixes (thesis, Table 3.2)",
    erratum=(
        "After a redo by argmax the next erasure meets the same tokens again, so while redone tokens are not verified "
        "accuracy does not grow with the quota. The published table appears once they are, as in the published code."
    ),
)


CLAIMS = (dyck_stride, dyck_quota, dyck_quota_printed)
