"""VGB beside the other decoders on brackets unlike those of training: accuracy, diversity, queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sandtable import decoding
from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.setting import PUBLISHED, READ, WORLD, Trained
from sandtable.claims.verifier.sources import rohatgi
from sandtable.decoding import Generation, Predicate, View
from sandtable.lab import Control, Evidence, Lab, Table, claim, exceeds, orders
from sandtable.lab.figures import frontier

BRACKETS = 25
OTHERS = ("ancestral", "tokenwise", "backtracking", "block best of 2", "action level")
GREEDY = "greedy"
WALK = "VGB"
LOST = 0.7
"""Different completions of ten that a method may lose against sampling: the tolerance of the diversity table."""


@dataclass(frozen=True)
class Frontier:
    trained: Trained = field(default_factory=Trained)
    prompts: int = 60
    completions: int = 10
    walk_steps: int = 2000
    walk_top_p: float = 1.0


@claim(
    id="vgb/frontier",
    statement=(
        "On brackets unlike those of training, VGB with a probe's values inside and the true reward at the leaves "
        "writes more balanced strings than sampling, tokenwise rejection, backtracking, block best-of-n and "
        "action-level sampling with the same values, and hardly fewer different ones than sampling does."
    ),
    source=rohatgi("constrained generation of Dyck words"),
    scales={"desk": Frontier(), "paper": Frontier(trained=PUBLISHED, prompts=200)},
    controls=(
        Control("a walk of eight steps", {"walk_steps": 8}, tuple(f"more valid than {name}" for name in OTHERS)),
        Control("a walk on likeliest tokens only", {"walk_top_p": 0.0}, ("diversity kept",)),
    ),
    seeds=setting.MODELS,
)
def vgb_frontier(settings: Frontier, lab: Lab) -> Evidence:
    found = {
        name: lab.measure(
            completed, settings.trained, name, settings.prompts, settings.completions,
            *((settings.walk_steps, settings.walk_top_p) if name == WALK else ()),
        )
        for name in (*OTHERS, GREEDY, WALK)
    }  # fmt: skip
    valid = {name: values["valid"].ravel() for name, values in found.items()}
    kept = (found[WALK]["distinct"] - found["ancestral"]["distinct"]).ravel()
    checks = [orders(f"more valid than {name}", valid[WALK], valid[name], unit="prompt") for name in OTHERS]
    checks.append(exceeds("diversity kept", kept, -LOST, unit="prompt"))
    columns = ["method", "valid", "distinct of ten", "queries a string", "verifier calls a string"]
    names = ("valid", "distinct", "queries", "calls")
    rows = [[name, *(float(values[key].mean()) for key in names)] for name, values in found.items()]
    return Evidence(
        checks,
        figures={
            "frontier": lambda: frontier(
                {
                    name: [("", float(v["queries"].mean()), float(v["valid"].mean()), _error(v["valid"]))]
                    for name, v in found.items()
                },
                xlabel="queries a string",
                ylabel="share of valid strings",
                title="What a walk buys, and what it costs",
                log_x=True,
            )
        },
        tables={"mean over prompts and models": Table(columns, rows)},
        notes=[
            f"Greedy completion, which has no diversity, is valid less often by "
            f"{valid[WALK].mean() - valid[GREEDY].mean():.3f}; that is not judged."
        ],
    )


def completed(
    lab: Lab, trained: Trained, method: str, prompts: int, completions: int, steps: int = 0, top_p: float = 1.0
) -> dict[str, np.ndarray]:
    """Per prompt: share of valid completions, how many differ, and what one costs."""
    out: dict[str, list[Any]] = {name: [] for name in ("valid", "distinct", "queries", "calls")}
    for seed, lm, probe in setting.judges(lab, trained, "probe"):
        once = WORLD.prompts(
            prompts, lab.generator(seed, "frontier prompts"), lengths=(BRACKETS, BRACKETS), p=setting.SHIFTED
        )
        rows = [row for row in once for _ in range(completions)]
        options: dict[str, Any] = dict(max_tokens=READ, generator=lab.generator(seed, "frontier completions"))
        made = _decode(method, lm, rows, probe, steps, top_p, options)
        good = (WORLD.valid(made.tokens, made.lengths) & made.accepted).double().view(prompts, completions)
        texts = [tuple(row) for row in made.rows]
        out["valid"].append(good.mean(1).numpy())
        out["distinct"].append([len(set(texts[i : i + completions])) for i in range(0, len(texts), completions)])
        for name, cost in (("queries", made.queries), ("calls", made.verifier_calls)):
            out[name].append(cost.double().view(prompts, completions).mean(1).numpy())
    return {name: np.array(values, dtype=float) for name, values in out.items()}


def _decode(
    method: str, lm: Any, rows: list[Any], probe: Any, steps: int, top_p: float, options: dict[str, Any]
) -> Generation:
    if method == WALK:
        reward = Predicate(_reward)
        return decoding.vgb(lm, rows, probe, leaf_value=reward, steps=steps, max_restarts=0, top_p=top_p, **options)
    if method in ("ancestral", GREEDY):
        return getattr(decoding, method)(lm, rows, **options)
    if method == "tokenwise":
        return decoding.tokenwise_rejection(lm, rows, probe, threshold=0.5, max_tries=100, **options)
    if method == "backtracking":
        return decoding.backtrack(lm, rows, probe, quota=4, stride=4, **options)
    if method == "block best of 2":
        return decoding.block_best_of_n(lm, rows, probe, n=2, boundary=4, **options)
    return decoding.action_level(lm, rows, probe, leaf_value=Predicate(_reward), **options)


def _reward(view: View) -> Any:
    return WORLD.valid(view.tokens, view.lengths)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


CLAIMS = (vgb_frontier,)
