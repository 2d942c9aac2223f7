"""What a verifier cannot do more: the parser as ceiling, names that mislead, and how erased tokens are redone."""

from __future__ import annotations

from dataclasses import dataclass

from sandtable.claims.verifier.code import published, setting
from sandtable.claims.verifier.code.setting import Code
from sandtable.claims.verifier.sources import botta
from sandtable.lab import Control, Evidence, Lab, agrees, below, claim, orders
from sandtable.lab.figures import strips

SMALL = 0.03
"""A difference in Acc_distinct that the published tables, with errors of 0.01 to 0.04, do not resolve."""


# -- table 3.12 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ceiling(Code):
    verifier: str = "trained"
    quota: int = 4


_MORE = ("larger quota, trained", "larger quota, parser")


@claim(
    id="verifier/code-ceiling",
    statement=(
        "A trained verifier comes close to the parser itself, and neither a larger quota nor a longer stride does "
        "better: the generator is what limits."
    ),
    source=botta("Table 3.12"),
    scales={"desk": Ceiling(), "paper": Ceiling(**setting.LARGE)},
    controls=(
        Control("verifier of shuffled labels", {"verifier": "shuffled"}, ("parser over trained", "longer stride")),
        Control("a quota of none to start from", {"quota": 0}, _MORE),
    ),
    seeds=setting.SEEDS,
)
def code_ceiling(settings: Ceiling, lab: Lab) -> Evidence:
    usual = setting.accuracy(settings, lab, quota=settings.quota, verifier=setting.verifier_of(settings.verifier))
    truth = setting.accuracy(settings, lab, quota=settings.quota, threshold=0.5, verifier="truth")
    patient = setting.accuracy(settings, lab, quota=10)
    patient_truth = setting.accuracy(settings, lab, quota=10, threshold=0.5, verifier="truth")
    long = setting.accuracy(settings, lab, quota=4, stride=10)
    blind = setting.accuracy(settings, lab, quota=4, verifier="random")
    checks = [
        below("parser over trained", truth - usual, SMALL),
        below(_MORE[0], patient - usual, SMALL),
        below(_MORE[1], patient_truth - truth, SMALL),
        below("longer stride", long - usual, SMALL),
    ]
    arms = {
        ("truth", 4, 4): truth,
        ("truth", 10, 4): patient_truth,
        ("trained", 4, 4): usual,
        ("trained", 10, 4): patient,
        ("trained", 4, 10): long,
        ("random", 4, 4): blind,
    }
    rows = {f"{who}, quota {q}, stride {b}": (published.CEILING[who, q, b], v) for (who, q, b), v in arms.items()}
    rows["sampling"] = published.SAMPLING[0.95, 1.0], setting.accuracy(settings, lab)
    return Evidence(
        checks,
        figures={
            "ceiling": lambda: strips(
                {name: values for name, (_, values) in rows.items()},
                xlabel="Acc_distinct",
                title="The parser as verifier",
            )
        },
        tables={"Acc_distinct": published.beside(rows)},
        notes=["The published row with stride 10 was sampled with top_p 1, all others with 0.95; here all with 0.95."],
    )


# -- table 3.15 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names(Code):
    verifier: str = "trained"
    others: str = "ood"


@claim(
    id="verifier/code-ood",
    statement="Names that contradict the function cost sampling more distinct correct cases than backtracking.",
    source=botta("Table 3.15"),
    scales={"desk": Names(), "paper": Names(**setting.LARGE)},
    controls=(
        Control("random verifier", {"verifier": "random"}, ("cost to sampling over cost to backtracking",)),
        Control("new names in place of words", {"others": "test"}, ("cost to sampling",)),
    ),
    seeds=setting.SEEDS,
)
def code_ood(settings: Names, lab: Lab) -> Evidence:
    judge = setting.verifier_of(settings.verifier)
    arms = {
        "sampling": {},
        "backtracking, θ = 0.1": dict(quota=4, verifier=judge),
        "backtracking, θ = 0.5": dict(quota=4, verifier=judge, threshold=0.5),
    }
    usual = {name: setting.accuracy(settings, lab, **how) for name, how in arms.items()}
    other = {name: setting.accuracy(settings, lab, names=settings.others, **how) for name, how in arms.items()}
    cost = {name: usual[name] - other[name] for name in arms}
    checks = [
        orders("cost to sampling", usual["sampling"], other["sampling"], margin=SMALL),
        orders(
            "cost to sampling over cost to backtracking", cost["sampling"], cost["backtracking, θ = 0.1"], margin=SMALL
        ),
    ]
    rows = {}
    for name in arms:
        rows[f"{name}: new names"] = published.NAMES[name][0], usual[name]
        rows[f"{name}: words that contradict"] = published.NAMES[name][1], other[name]
    return Evidence(
        checks,
        figures={
            "names": lambda: strips(
                {name: values for name, (_, values) in rows.items()}, xlabel="Acc_distinct", title="Names that mislead"
            )
        },
        tables={"Acc_distinct": published.beside(rows)},
    )


# -- table 3.17 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Redo(Code):
    other: str = "sample"
    quota: int = 4


@claim(
    id="verifier/code-redo",
    statement="On long outputs it matters little whether erased tokens are redone greedily or sampled again.",
    source=botta("Table 3.17"),
    scales={"desk": Redo(), "paper": Redo(**setting.LARGE)},
    controls=(Control("no backtracking in place of sampling again", {"quota": 0}, ("θ = 0.1", "θ = 0.5")),),
    seeds=setting.SEEDS,
)
def code_redo(settings: Redo, lab: Lab) -> Evidence:
    checks, rows = [], {}
    for threshold, printed in published.REDO.items():
        greedy = setting.accuracy(settings, lab, quota=4, threshold=threshold)
        again = setting.accuracy(settings, lab, quota=settings.quota, threshold=threshold, redo=settings.other)
        checks.append(agrees(f"θ = {threshold:g}", greedy - again, 0.0, within=SMALL, shift_absolute=3 * SMALL))
        rows[f"θ = {threshold:g}, greedily"] = printed[0], greedy
        rows[f"θ = {threshold:g}, sampled again"] = printed[1], again
    return Evidence(
        checks,
        figures={
            "redo": lambda: strips(
                {name: values for name, (_, values) in rows.items()}, xlabel="Acc_distinct", title="Greedy or not"
            )
        },
        tables={"Acc_distinct": published.beside(rows)},
    )


CLAIMS = (code_ceiling, code_ood, code_redo)
