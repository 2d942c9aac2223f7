"""Backtracking against sampling and block best-of-n: distinct correct test cases, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sandtable.claims.verifier.code import published, setting
from sandtable.claims.verifier.code.setting import Code, Probe
from sandtable.claims.verifier.sources import botta
from sandtable.lab import Control, Evidence, Lab, below, bounded, claim, exceeds, orders, printed
from sandtable.lab.figures import comparison, curves, frontier, strips

GROUPS = {"top_p 0.95": (0.95, 1.0), "top_p 1": (1.0, 1.0), "temperature 1.2": (1.0, 1.2)}
"""Ever noisier ways to sample."""
CANDIDATES = (2, 4, 8)
BACKTRACK = dict(quota=4, stride=4, threshold=0.1)


def line_judge(kind: str) -> Probe | str:
    """What scores whole lines for block best-of-n."""
    return Probe(lines=True) if kind == "trained" else kind


# -- table 3.6 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Main(Code):
    verifier: str = "trained"
    line_verifier: str = "trained"
    candidates: tuple[int, ...] = CANDIDATES
    greedy_top_p: float = 0.0


_GAINS = tuple(f"gain: {name}" for name in GROUPS)
_OVER = tuple(f"over best of {n}" for n in CANDIDATES)


@claim(
    id="verifier/code-main",
    statement=(
        "With a linear verifier, backtracking lists more distinct correct test cases than sampling, however noisy, and "
        "by at least a quarter of what is published, and than block best-of-n, which loses as n grows; greedy repeats "
        "itself."
    ),
    source=botta("Table 3.6"),
    scales={"desk": Main(), "paper": Main(**setting.LARGE)},
    controls=(
        Control("random verifier", {"verifier": "random"}, _GAINS),
        Control("lines judged by the parser", {"line_verifier": "truth"}, (*_OVER, "best of 2 over 4")),
        Control("candidates in reverse", {"candidates": (8, 4, 2)}, ("best of 2 over 4", "best of 4 over 8")),
        Control("sampling in place of greedy", {"greedy_top_p": 0.95}, ("greedy",)),
    ),
    seeds=setting.SEEDS,
)
def code_main(settings: Main, lab: Lab) -> Evidence:
    plain, redone = pairs_of(settings, lab, settings.verifier)
    lines = line_judge(settings.line_verifier)
    best = {n: setting.accuracy(settings, lab, candidates=n, verifier=lines) for n in CANDIDATES}
    few, some, many = (best[n] for n in settings.candidates)
    greedy = setting.accuracy(settings, lab, top_p=settings.greedy_top_p)
    checks = [
        *(
            orders(name, *pair, margin=published.gain(*group)[0] / 4)
            for name, group, *pair in zip(_GAINS, GROUPS.values(), redone, plain, strict=True)
        ),
        *(orders(name, redone[0], best[n]) for name, n in zip(_OVER, CANDIDATES, strict=True)),
        orders("best of 2 over 4", few, some),
        orders("best of 4 over 8", some, many),
        bounded("greedy", greedy, 0.1, unit="run"),
    ]
    rows = {"greedy": (published.SAMPLING[0.0, 1.0], greedy)}
    for (name, group), before, after in zip(GROUPS.items(), plain, redone, strict=True):
        rows[f"sampling, {name}"] = published.SAMPLING[group], before
        rows[f"backtracking, {name}"] = published.BACKTRACKING[(*group, 4, 0.1)], after
    rows |= {f"block best of {n}, top_p 0.95": (published.BEST_OF[n], best[n]) for n in CANDIDATES}
    return Evidence(
        checks,
        figures={"accuracy": lambda: _bars(rows)},
        tables={"Acc_distinct": published.beside(rows)},
        notes=[
            "Published numbers are of CodeLlama 7B; the stand-in is a small Transformer trained on documents with "
            "planted flaws. Directions are compared, not numbers.",
            "Ten greedy repeats coincide, so greedy cannot exceed 0.1.",
        ],
    )


@dataclass(frozen=True)
class Noisier(Code):
    quota: int = 10
    noisier: bool = True


@claim(
    id="verifier/code-noisier",
    statement=(
        "The gain of backtracking over sampling is larger at temperature 1.2 than at top_p 0.95, if the quota is large "
        "enough for the errors there."
    ),
    source=botta("Table 3.6"),
    scales={"desk": Noisier(), "paper": Noisier(**setting.LARGE)},
    controls=(Control("sampling made calmer instead of noisier", {"noisier": False}, ("gain grows",)),),
    seeds=setting.SEEDS,
)
def code_noisier(settings: Noisier, lab: Lab) -> Evidence:
    rows, gains = {}, {}
    for quota in (4, settings.quota):
        plain, redone = pairs_of(settings, lab, "trained", quota=quota)
        gains[quota] = [after - before for before, after in zip(plain, redone, strict=True)]
        for (name, group), gain in zip(GROUPS.items(), gains[quota], strict=True):
            rows[f"quota {quota}, {name}"] = published.gain(*group) if quota == 4 else None, gain
    first, last = gains[settings.quota][0], gains[settings.quota][-1]
    return Evidence(
        [orders("gain grows", last, first) if settings.noisier else orders("gain grows", first, last)],
        figures={
            "gains": lambda: strips(
                {name: values for name, (_, values) in rows.items()},
                xlabel="gain in Acc_distinct",
                title="Noisier sampling leaves more to mend",
            )
        },
        tables={"gain": published.beside(rows, what="gain")},
        notes=[
            "The published gains are with quota 4, which the stand-in uses up at temperature 1.2: shown, not judged."
        ],
    )


def pairs_of(settings: Code, lab: Lab, verifier: str, **how: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Acc_distinct of sampling and of backtracking in every group."""
    judge, plain, redone = setting.verifier_of(verifier), [], []
    for top_p, temperature in GROUPS.values():
        group = dict(top_p=top_p, temperature=temperature)
        plain.append(setting.accuracy(settings, lab, **group))
        redone.append(setting.accuracy(settings, lab, verifier=judge, **{**BACKTRACK, **how}, **group))
    return plain, redone


def _bars(rows: dict[str, tuple[published.Number, np.ndarray]]) -> Figure:
    lines = []
    for name, (number, values) in rows.items():
        mean, error = published.mean_and_error(values)
        lines.append((name, mean, mean - error, mean + error, number[0]))
    return comparison(lines, xlabel="Acc_distinct (dashed: published)", title="Distinct correct test cases")


# -- table 3.13, figures 3.3 and 3.4 ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frontier(Code):
    verifier: str = "trained"
    quota: int = 4
    threshold: float = 0.1
    temperatures: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.2)
    sampled: float = 0.95
    printed: str = "nothing"


GRID = tuple((top_p, temperature) for temperature in (0.8, 1.0, 1.2) for top_p in (0.7, 0.8, 0.9, 0.95, 1.0))
"""(top_p, temperature) of plain sampling around its best, of the published grid; 0.95 is also cooled further."""
MOST_EXCESS = 0.05
"""By how much the queries of backtracking exceeded those of sampling in print."""
WORSE = 0.042
"""The published standard error of sampling at top_p 0.95."""
_PER_QUERY = tuple(f"per query: over best of {n}" for n in CANDIDATES)
_NOISY = tuple(name for name in GROUPS if name != "top_p 0.95")
_SLOPES = tuple(f"slope: {name}" for name in _NOISY)
_GRID = tuple(f"sampling with top_p {top_p:g}, temperature {t:g}" for top_p, t in GRID)
_OVER_GRID = tuple(f"no worse than {name}" for name in _GRID)
_COOLER = ("temperature 0.8 over 1", *(f"temperature {a} over {b}" for a, b in ((0.8, 0.6), (0.6, 0.4), (0.4, 0.2))))


@claim(
    id="verifier/code-frontier",
    statement=(
        "Per query backtracking finds more distinct correct cases than block best-of-n and, at top_p 1 and at "
        "temperature 1.2, than sampling; at top_p 0.95 it finds no fewer (up to 0.042, the published standard error) "
        "than sampling with any top_p from 0.7 and temperature from 0.8. It asks over 5 % more queries than sampling, "
        "but fewer than block best-of-2. Cooling to 0.8 gains sampling distinct cases, and every step below costs some."
    ),
    source=botta("Table 3.13, Figures 3.3 and 3.4"),
    scales={"desk": Frontier(), "paper": Frontier(**setting.LARGE)},
    controls=(
        Control("random verifier", {"verifier": "random"}, _SLOPES),
        Control(
            "random verifier that rejects nine of ten, five hundred times",
            {"verifier": "random", "threshold": 0.9, "quota": 500},
            (*_PER_QUERY, "fewer queries than best of 2"),
        ),
        Control("a quota of one", {"quota": 1}, ("queries over sampling",)),
        Control("backtracking from greedy completion", {"sampled": 0.0}, _OVER_GRID),
        Control("temperatures in another order", {"temperatures": (0.8, 0.2, 0.4, 0.6, 0.8)}, _COOLER),
    ),
    seeds=setting.SEEDS,
)
def code_frontier(settings: Frontier, lab: Lab) -> Evidence:
    judge = setting.verifier_of(settings.verifier)
    redo = BACKTRACK | dict(quota=settings.quota, threshold=settings.threshold, verifier=judge)
    pairs = {
        name: [setting.run(settings, lab, top_p=p, temperature=t, **how) for how in ({}, redo)]
        for name, (p, t) in GROUPS.items()
    }
    best = {n: setting.run(settings, lab, candidates=n, verifier=Probe(lines=True)) for n in CANDIDATES}
    cool = [setting.accuracy(settings, lab, temperature=t) for t in settings.temperatures]
    grid = {(p, t): setting.accuracy(settings, lab, top_p=p, temperature=t) for p, t in GRID}
    plain, redone = pairs["top_p 0.95"]
    completions = settings.functions * settings.repeats
    excess = redone["queries"] / plain["queries"] - 1
    ahead = setting.accuracy(settings, lab, top_p=settings.sampled, **redo)
    if settings.printed == "cooling":
        steps = zip(settings.temperatures, settings.temperatures[1:], cool, cool[1:], strict=False)
        checks = [orders(f"temperature {a:g} over {b:g}", *pair) for a, b, *pair in steps]
    elif settings.printed == "queries":
        checks = [below("queries over sampling", excess, MOST_EXCESS)]
    elif settings.printed == "frontier":
        reached = published.BACKTRACKING[0.95, 1.0, 4, 0.1][0]
        margins = [(reached - published.SAMPLING[place][0]) / 4 for place in GRID]
        checks = [
            orders(f"over {name}", ahead, arm, margin=margin)
            for name, arm, margin in zip(_GRID, grid.values(), margins, strict=True)
        ]
    else:
        checks = [
            *(orders(name, _rate(redone), _rate(best[n])) for name, n in zip(_PER_QUERY, CANDIDATES, strict=True)),
            *(
                orders(name, *(_slope(arm) for arm in pairs[group][::-1]))
                for name, group in zip(_SLOPES, _NOISY, strict=True)
            ),
            *(orders(name, ahead, arm, margin=-WORSE) for name, arm in zip(_OVER_GRID, grid.values(), strict=True)),
            exceeds("queries over sampling", excess, MOST_EXCESS),
            orders("fewer queries than best of 2", best[2]["queries"], redone["queries"]),
            orders(_COOLER[0], cool[1], cool[0]),
            *(orders(name, *pair) for name, *pair in zip(_COOLER[1:], cool[1:], cool[2:], strict=False)),
        ]
    arms = {"backtracking": redone, "sampling": plain} | {f"best of {n}": best[n] for n in CANDIDATES}
    cost = {name: (published.QUERIES[name], arm["queries"] * 100 / completions) for name, arm in arms.items()}
    sampled = {f"top_p {p:g}, temperature {t:g}": (published.SAMPLING[p, t], arm) for (p, t), arm in grid.items()}
    for t, values in zip(settings.temperatures, cool, strict=True):
        sampled[f"top_p 0.95, temperature {t:g}"] = published.SAMPLING[0.95, t], values
    return Evidence(
        checks,
        figures={
            "running count": lambda: _running(pairs),
            "frontier": lambda: _frontier(pairs, best),
        },
        tables={
            "queries for 100 completions": published.beside(cost, what="queries"),
            "sampling": published.beside(sampled),
        },
        notes=[
            "Block best-of-n stops after eight lines, the others at the end token: that favours best-of-n in queries.",
            "Algorithm 1 never asks more than quota × stride = 16 queries above the length. Published outputs ran to "
            "384 tokens, of which that is 4 %; ours are a third as long.",
        ],
    )


code_frontier_printed = printed(
    "code-frontier",
    code_frontier,
    {"printed": "frontier"},
    statement=(
        "At top_p 0.95 backtracking lists more distinct correct cases than sampling with any top_p from 0.7 and "
        "temperature from 0.8, by a quarter of the published difference at least."
    ),
    where="Figure 3.4, Table 3.13",
    erratum=(
        "Sampling at temperature 0.8, with which the stand-in makes far fewer mistakes, is as good as backtracking at "
        "temperature 1. CodeLlama loses by cooling (0.66 to 0.52)."
    ),
)

code_cooling_printed = printed(
    "code-cooling",
    code_frontier,
    {"printed": "cooling"},
    statement="The lower the temperature, the fewer distinct correct cases does sampling at top_p 0.95 list.",
    where="Table 3.13",
    erratum=(
        "The stand-in makes so many mistakes at temperature 1 that cooling to 0.8 gains more right cases than it loses "
        "different ones (0.65 to 0.73). CodeLlama at top_p 0.95 was past its best there (0.66 to 0.52)."
    ),
)

code_queries_printed = printed(
    "code-queries",
    code_frontier,
    {"printed": "queries"},
    statement="At top_p 0.95 backtracking asks less than 5 % more queries than sampling.",
    where="Table 3.13: 39443 against 38231 queries",
    erratum=(
        "An erasure costs its stride whatever the length. Published outputs were cut at 384 tokens; ours are a third "
        "as long, and the same quota and stride add about a tenth."
    ),
)


def _rate(arm: dict[str, np.ndarray]) -> np.ndarray:
    """Distinct correct cases per thousand queries."""
    return 1000 * arm["gained"][:, -1] / arm["queries"]


def _slope(arm: dict[str, np.ndarray]) -> np.ndarray:
    """Least-squares slope of the running count against the queries, in cases per thousand."""
    pairs = zip(arm["spent"].astype(float), arm["gained"].astype(float), strict=True)
    return np.array([1000 * np.polyfit(spent, gained, 1)[0] for spent, gained in pairs])


def _running(pairs: dict[str, list[dict[str, np.ndarray]]]) -> Figure:
    """Distinct correct cases against queries, completion after completion."""
    reach = min(arm["spent"][:, -1].min() for arms in pairs.values() for arm in arms)
    at = np.linspace(0, reach, 40)
    series = {}
    for name, arms in pairs.items():
        for label, arm in zip(("sampling", "backtracking"), arms, strict=True):
            runs = zip(arm["spent"], arm["gained"], strict=True)
            series[f"{label}, {name}"] = np.stack([np.interp(at, [0, *x], [0, *y]) for x, y in runs])
    return curves(at, series, xlabel="queries", ylabel="distinct correct cases", title="What a query is worth")


def _frontier(pairs: dict[str, list[dict[str, np.ndarray]]], best: dict[int, dict[str, np.ndarray]]) -> Figure:
    def point(label: str, arm: dict[str, np.ndarray]) -> tuple[str, float, float, float]:
        return label, float(arm["queries"].mean()), *published.mean_and_error(arm["gained"][:, -1])

    groups = {f"{name}: sampling, then backtracking": [point("", arm) for arm in arms] for name, arms in pairs.items()}
    groups["block best of n"] = [point(str(n), arm) for n, arm in best.items()]
    return frontier(
        groups, xlabel="queries", ylabel="distinct correct cases", title="Cases and their price", log_x=True
    )


CLAIMS = (code_main, code_noisier, code_frontier, code_frontier_printed, code_cooling_printed, code_queries_printed)
