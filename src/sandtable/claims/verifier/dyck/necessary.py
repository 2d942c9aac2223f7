"""Were the backtracks that the verifier asked for necessary?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.hard_prefixes import (
    CELLS,
    ERASED,
    QUOTA_PUBLISHED,
    QUOTAS,
    backtracked,
    cell_name,
    numbers,
    units,
)
from sandtable.claims.verifier.dyck.setting import GREEDY, PLAIN, PUBLISHED, Method, Trained
from sandtable.claims.verifier.sources import botta
from sandtable.decoding import Hidden, TransformerModel, Verifier, View
from sandtable.lab import Check, Control, Evidence, Lab, Table, claim, orders
from sandtable.lab.figures import curves

FLAGGED_PUBLISHED = {
    1: ((163, 0.313, 0.344), (163, 0.337, 0.319), (163, 0.331, 0.288)),
    2: ((311, 0.347, 0.328), (297, 0.357, 0.349), (286, 0.374, 0.373)),
    4: ((600, 0.371, 0.353), (532, 0.419, 0.404), (489, 0.509, 0.523)),
}
FLAGGED_PROMPTS = 164
RELEASED = "released-counter"


@dataclass(frozen=True)
class Necessary:
    trained: Trained = field(default_factory=Trained)
    side: str = "wrong"
    verifier: str = "probe"
    repeats: int = 4
    exchanged: bool = False


@dataclass
class _Recorder:
    """A verifier that remembers what it was shown and what it said."""

    base: Verifier
    seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)

    @property
    def needs(self) -> Hidden | None:
        return self.base.needs

    @property
    def is_value(self) -> bool:
        return False

    def score(self, view: View) -> Tensor:
        scores = torch.as_tensor(self.base.score(view))
        self.seen.append((view.tokens.cpu(), view.lengths.cpu(), view.rows.cpu(), scores.cpu() < 0.5))
        return scores

    def prefixes(self, *, flagged: bool) -> tuple[list[Tensor], Tensor]:
        """The prefixes that were rejected, or those that passed, and the row that each belongs to."""
        rows, owners = [], []
        for tokens, lengths, owner, rejected in self.seen:
            chosen = (rejected == flagged).nonzero()[:, 0].tolist()
            rows += [tokens[i, : lengths[i]] for i in chosen]
            owners.append(owner[chosen])
        return rows, torch.cat(owners)


def flagged(lab: Lab, trained: Trained, side: str, verifier: str) -> dict[str, np.ndarray]:
    """How often prefixes that the verifier rejected, or passed, are completed rightly without backtracking.

    Averages over what happened to each hard prefix at every quota and stride; NaN where nothing did.
    """
    found = lab.measure(setting.error_prefixes, trained, "test")
    shape = (len(lab.seeds), len(QUOTAS), len(ERASED), trained.kept)
    out = {name: np.full(shape, np.nan) for name in ("with", "count", "nucleus", "argmax", "passed")}
    for place, (seed, lm, judge) in enumerate(setting.judges(lab, trained, verifier)):
        rows = setting.rows_of(found, place, side, cut=1)
        for i, j in np.ndindex(len(QUOTAS) if rows else 0, len(ERASED)):
            recorder = _Recorder(judge)
            method = Method(QUOTAS[i], ERASED[j], redo=RELEASED, protect_prompt=False)
            made = setting.decode(lm, rows, method, recorder, numbers(lab, seed, 0))
            here = (place, i, j, slice(len(rows)))
            out["with"][here], out["count"][here] = setting.right(made), made.backtracks.numpy()
            generator = numbers(lab, seed, 1)
            for name, kind, how in (("nucleus", True, PLAIN), ("argmax", True, GREEDY), ("passed", False, PLAIN)):
                prefixes, owners = recorder.prefixes(flagged=kind)
                out[name][here] = _averages(_completed(lm, prefixes, how, generator), owners.numpy(), len(rows))
    return out


def _completed(lm: TransformerModel, rows: Sequence[Tensor], method: Method, generator: torch.Generator) -> np.ndarray:
    """Which rows are right once completed; rows that are complete stay as they are."""
    full = np.array([len(row) == setting.READ for row in rows], dtype=bool)
    good = np.zeros(len(rows), dtype=bool)
    if full.any():
        good[full] = setting.WORLD.valid(torch.stack([row for row in rows if len(row) == setting.READ])).numpy()
    if not full.all():
        rest = [row for row in rows if len(row) < setting.READ]
        good[~full] = setting.right(setting.decode(lm, rest, method, None, generator))
    return good


def _averages(values: np.ndarray, owners: np.ndarray, size: int) -> np.ndarray:
    """Mean value of each owner 0 … size − 1; NaN for those without any."""
    count = np.bincount(owners, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.bincount(owners, weights=values, minlength=size) / count


NECESSARY_CHECKS = tuple(f"{cell}: over {how} without" for cell in CELLS for how in ("nucleus", "argmax"))
HARDER_CHECK = "passed prefixes over rejected ones"
SPARED = {
    f"backtracks, {cell_name(QUOTAS[i], ERASED[j])} over B={ERASED[j + 1]}": (i, j)
    for i in range(1, len(QUOTAS))
    for j in range(len(ERASED) - 1)
}
"""Where the published number of backtracks falls with the stride: at every quota but one."""


@claim(
    id="verifier/dyck-necessary",
    statement=(
        "Where the verifier asks for a backtrack it is needed: completed without one, rejected prefixes end right less "
        "often than completions with backtracking, at every quota and stride, and less often than prefixes that pass. "
        "At quotas of 2 and 4 it asks the less often, the longer the stride."
    ),
    source=botta("Dyck, necessity of backtracks (thesis, Table 3.4)"),
    scales={"desk": Necessary(), "paper": Necessary(trained=PUBLISHED, repeats=5)},
    controls=(
        Control("prefixes of right strings that are less unusual", {"side": "milder"}, NECESSARY_CHECKS),
        Control("random verifier", {"verifier": "random"}, (HARDER_CHECK,)),
        Control("shorter and longer strides exchanged", {"exchanged": True}, tuple(SPARED)),
    ),
    seeds=setting.MODELS,
)
def dyck_necessary(settings: Necessary, lab: Lab) -> Evidence:
    found = lab.measure(flagged, settings.trained, settings.side, settings.verifier)
    pooled = {name: np.moveaxis(values, 0, 2).reshape(3, 3, -1) for name, values in found.items()}
    checks: list[Check] = []
    rows: list[list[Any]] = []
    for i, j in np.ndindex(3, 3):
        cell = {name: values[i, j] for name, values in pooled.items()}
        count, *printed = FLAGGED_PUBLISHED[QUOTAS[i]][j]
        checks += [
            orders(
                f"{cell_name(QUOTAS[i], ERASED[j])}: over {how} without",
                _finite(cell["with"]),
                _finite(cell[how]),
                paired=False,  # all prefixes against those that were rejected, as published
                margin=(QUOTA_PUBLISHED[QUOTAS[i]][j] - without) / 2,  # half of the published difference
                unit="prefix",
            )
            for how, without in zip(("nucleus", "argmax"), printed, strict=True)
        ]
        means = {name: float(np.nanmean(values)) for name, values in cell.items()}
        rows.append(
            [QUOTAS[i], ERASED[j], means["count"], count / FLAGGED_PROMPTS, means["with"], means["nucleus"], printed[0],
             means["argmax"], printed[1]]
        )  # fmt: skip
    passed, rejected = (_finite(pooled[name][0, 0]) for name in ("passed", "nucleus"))
    checks.append(orders(HARDER_CHECK, passed, rejected, paired=False, margin=0.1, unit="prefix"))
    s = settings
    asked = units(lab.measure(backtracked, s.trained, s.side, s.verifier, RELEASED, s.repeats)["backtracks"])
    for name, (i, j) in SPARED.items():
        shorter, longer = (j + 1, j) if s.exchanged else (j, j + 1)
        checks.append(orders(name, asked[i, shorter], asked[i, longer], unit="prefix"))
    mean = {name: np.nanmean(values, axis=-1) for name, values in pooled.items()}
    return Evidence(
        checks,
        figures={
            "without": lambda: curves(
                ERASED,
                {"with, Q=4": mean["with"][2]} | {f"without, Q={q}": mean["nucleus"][i] for i, q in enumerate(QUOTAS)},
                predictions={"with, Q=4": QUOTA_PUBLISHED[4]}
                | {f"without, Q={q}": [row[1] for row in FLAGGED_PUBLISHED[q]] for q in QUOTAS},
                xlabel="stride B (dashed: published)",
                ylabel="share of right completions",
                title="Rejected prefixes, with and without backtracking",
            )
        },
        tables={
            "flagged": Table(
                ["quota Q", "stride B", "backtracks per prefix", "published", "with", "nucleus without", "published",
                 "argmax without", "published"],
                rows,
            )
        },
        notes=[
            f"Of prefixes that pass at Q=1, B=2, {passed.mean():.3f} are completed rightly, of rejected ones "
            f"{rejected.mean():.3f}.",
            f"Numbers of backtracks are judged over {s.repeats} runs of every prefix; those shown are of one.",
        ],
    )  # fmt: skip


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


CLAIMS = (dyck_necessary,)
