"""What makes a good verifier of test cases: its layer, its threshold, its depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandtable.claims.verifier.code import published, setting
from sandtable.claims.verifier.code.setting import Code, Probe
from sandtable.claims.verifier.sources import botta
from sandtable.lab import Control, Evidence, Lab, Table, agrees, below, claim, exceeds, orders
from sandtable.lab.figures import strips

BACKTRACK = dict(quota=4, stride=4)


# -- table 3.9 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers(Code):
    intermediate: int | None = None
    labels: str = "true"
    blind: str = "random"


MEDIAN_GAIN = 0.02


@claim(
    id="verifier/code-layers",
    statement=(
        "A linear verifier on an intermediate layer is no worse than one on the last; over layers it mostly beats a "
        "random verifier, and that is as good as none."
    ),
    source=botta("Table 3.9"),
    scales={"desk": Layers(), "paper": Layers(**setting.LARGE)},
    controls=(
        Control("the embedding in place of an intermediate layer", {"intermediate": 0}, ("intermediate over last",)),
        Control("shuffled labels", {"labels": "shuffled"}, ("median layer over random",)),
        Control("the parser in place of the random verifier", {"blind": "truth"}, ("random as none",)),
    ),
    seeds=setting.SEEDS,
)
def code_layers(settings: Layers, lab: Lab) -> Evidence:
    last = settings.layers
    middle = settings.layer if settings.intermediate is None else settings.intermediate
    found = {
        layer: setting.accuracy(settings, lab, verifier=Probe(layer=layer, labels=settings.labels), **BACKTRACK)
        for layer in range(last + 1)
    }
    plain = setting.accuracy(settings, lab)
    blind = setting.accuracy(settings, lab, verifier=setting.verifier_of(settings.blind), **BACKTRACK)
    median = np.median(list(found.values()), axis=0)
    spread = published.SAMPLING[0.95, 1.0][1]
    checks = [
        orders("intermediate over last", found[middle], found[last], margin=-0.01),
        orders("median layer over random", median, blind, margin=MEDIAN_GAIN),
        agrees("random as none", blind - plain, 0.0, within=spread, shift_absolute=3 * spread),
    ]
    rows = {f"layer {layer} of {last}": (None, values) for layer, values in found.items()}
    rows |= {f"CodeLlama, layer {layer} of 32": (printed, None) for layer, printed in published.LAYERS.items()}
    rows |= {"random verifier": (published.RANDOM, blind), "sampling": (published.SAMPLING[0.95, 1.0], plain)}
    return Evidence(
        checks,
        figures={
            "layers": lambda: strips(
                {f"layer {layer}": values for layer, values in found.items()} | {"random": blind, "sampling": plain},
                xlabel="Acc_distinct",
                title="Which layer knows",
            )
        },
        tables={"Acc_distinct": published.beside(rows)},
        notes=[
            "The published layer 11 (0.650) is below sampling (0.660), and layer 31 was run with another threshold.",
            f"“As none”: within one published standard error of sampling ({spread}).",
        ],
    )


# -- table 3.10 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Threshold(Code):
    careful: float = 0.1


CASES = {
    "top_p 0.95": (0.95, 1.0, 4),
    "top_p 1": (1.0, 1.0, 4),
    "temperature 1.2": (1.0, 1.2, 4),
    "stride 10": (1.0, 1.0, 10),
}
"""(top_p, temperature, stride) of the published comparisons, all with quota 4."""


@claim(
    id="verifier/code-threshold",
    statement="With a small quota and a long text, a verifier that rejects below 0.1 beats one that rejects below 0.5.",
    source=botta("Table 3.10"),
    scales={"desk": Threshold(), "paper": Threshold(**setting.LARGE)},
    controls=(Control("a threshold of 0.9 in place of 0.1", {"careful": 0.9}, tuple(CASES)),),
    seeds=setting.SEEDS,
)
def code_threshold(settings: Threshold, lab: Lab) -> Evidence:
    checks, rows = [], {}
    for name, (top_p, temperature, stride) in CASES.items():
        how = dict(top_p=top_p, temperature=temperature, quota=4, stride=stride)
        pair = {t: setting.accuracy(settings, lab, threshold=t, **how) for t in (settings.careful, 0.5)}
        checks.append(orders(name, pair[settings.careful], pair[0.5]))
        for t, values in pair.items():
            rows[f"{name}, θ = {t:g}"] = published.BACKTRACKING.get((top_p, temperature, stride, t)), values
    return Evidence(
        checks,
        figures={
            "thresholds": lambda: strips(
                {name: values for name, (_, values) in rows.items()}, xlabel="Acc_distinct", title="When to reject"
            )
        },
        tables={"Acc_distinct": published.beside(rows)},
    )


# -- table 3.11 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Depth(Code):
    labels: str = "true"


DEEPER = (2, 4, 8)


@claim(
    id="verifier/code-depth",
    statement="A linear verifier is enough: with two, four or eight layers backtracking decodes no better.",
    source=botta("Table 3.11"),
    scales={"desk": Depth(), "paper": Depth(**setting.LARGE)},
    controls=(
        Control(
            "linear verifier of shuffled labels",
            {"labels": "shuffled"},
            ("validation of the linear one", *(f"{depth} layers over one" for depth in DEEPER)),
        ),
    ),
    seeds=setting.SEEDS,
)
def code_depth(settings: Depth, lab: Lab) -> Evidence:
    judges = {depth: Probe(depth=depth) for depth in DEEPER}
    linear = Probe(labels=settings.labels)
    first = setting.accuracy(settings, lab, verifier=linear, **BACKTRACK)
    deeper = {depth: setting.accuracy(settings, lab, verifier=judge, **BACKTRACK) for depth, judge in judges.items()}
    told = {
        depth: lab.measure(setting.probes, setting.code_of(settings), judge)["validation"]
        for depth, judge in {1: linear, **judges}.items()
    }
    spread = published.DEPTHS[4][1][1]
    checks = [
        exceeds("validation of the linear one", told[1], 0.8),
        *(below(f"{depth} layers over one", values - first, spread) for depth, values in deeper.items()),
    ]
    rows = {f"{depth} layers": (published.DEPTHS[depth][1], values) for depth, values in {1: first, **deeper}.items()}
    validation = [[d, published.DEPTHS[d][0], float(values.mean())] for d, values in told.items()]
    return Evidence(
        checks,
        figures={
            "depth": lambda: strips(
                {name: values for name, (_, values) in rows.items()}, xlabel="Acc_distinct", title="Deeper verifiers"
            )
        },
        tables={
            "Acc_distinct": published.beside(rows),
            "validation accuracy": Table(["layers", "published", "stand-in"], validation),
        },
        notes=[f"“No better”: by less than the published standard error at four layers ({spread})."],
    )


CLAIMS = (code_layers, code_threshold, code_depth)
