"""VGB beside the other decoders on brackets unlike those of training: accuracy, diversity, queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sandtable import decoding
from sandtable.claims.verifier.dyck import setting
from sandtable.claims.verifier.dyck.setting import PUBLISHED, READ, WORLD, Trained
from sandtable.claims.verifier.sources import rohatgi
from sandtable.decoding import Generation, Hidden, Predicate, View
from sandtable.lab import Control, Evidence, Lab, Table, below, claim, exceeds, orders
from sandtable.lab.figures import frontier

BRACKETS = 25
WALK, WHOLE = "VGB", "rejection"
GREEDY = "greedy"
OTHERS = (
    "ancestral",
    GREEDY,
    "tokenwise",
    "backtracking",
    "block best of 2",
    "block rejection",
    "action level",
    "SMC",
    "best of 2",
)
"""All are given what the walk is given: the probe for unfinished rows, the true reward for finished ones; best of two,
and rejection of whole strings, need the reward only. SMC has two particles, for the walk's price.
"""
LOST = 0.7
"""Different completions of ten that a method may lose against sampling: the tolerance of the diversity table."""
LEAST = 0.01
"""A difference that a user would notice: one string in a hundred."""


@dataclass(frozen=True)
class Frontier:
    trained: Trained = field(default_factory=Trained)
    prompts: int = 200
    completions: int = 10
    walk_steps: int = 2000
    walk_top_p: float = 1.0
    tries: int = 20


@claim(
    id="vgb/frontier",
    statement=(
        "On brackets unlike those of training, seven from the end, with a probe's values inside and the true reward at "
        "the end for all methods, VGB writes more balanced strings than sampling, greedy completion, rejection of "
        "tokens and of blocks, backtracking, block best-of-2, best-of-2, action-level sampling and SMC with two "
        "particles, and hardly fewer different ones than sampling. Rejection of whole strings, which needs the reward "
        "only, writes as many for fewer queries."
    ),
    source=rohatgi("constrained generation of Dyck words"),
    scales={"desk": Frontier(), "paper": Frontier(trained=PUBLISHED)},
    controls=(
        Control(
            "a walk of eight steps",
            {"walk_steps": 8},
            (*(f"more valid than {name}" for name in OTHERS), "fewer queries by rejection"),
        ),
        Control("a walk on likeliest tokens only", {"walk_top_p": 0.0}, ("diversity kept",)),
        Control("rejection that tries once", {"tries": 1}, ("as valid by rejection",)),
    ),
    seeds=setting.MODELS,
)
def vgb_frontier(settings: Frontier, lab: Lab) -> Evidence:
    how = {WALK: (settings.walk_steps, settings.walk_top_p), WHOLE: (settings.tries, 1.0)}
    found = {
        name: lab.measure(completed, settings.trained, name, settings.prompts, settings.completions, *how.get(name, ()))
        for name in (*OTHERS, WHOLE, WALK)
    }
    valid = {name: values["valid"].ravel() for name, values in found.items()}
    queries = {name: values["queries"].ravel() for name, values in found.items()}
    kept = (found[WALK]["distinct"] - found["ancestral"]["distinct"]).ravel()
    checks = [
        *(orders(f"more valid than {name}", valid[WALK], valid[name], unit="prompt") for name in OTHERS),
        exceeds("diversity kept", kept, -LOST, unit="prompt"),
        below("as valid by rejection", valid[WALK] - valid[WHOLE], LEAST, unit="prompt"),
        orders("fewer queries by rejection", queries[WALK], queries[WHOLE], unit="prompt"),
    ]
    columns = ["method", "valid", "distinct of ten", "queries a string", "verifier calls a string"]
    names = ("valid", "distinct", "queries", "calls")
    rows = [[name, *(float(values[key].mean()) for key in names)] for name, values in found.items()]
    return Evidence(
        checks,
        figures={
            "frontier": lambda: frontier(
                {
                    name: [("", float(v["queries"].mean()), _wrong(v["valid"]), _error(v["valid"]))]
                    for name, v in found.items()
                },
                xlabel="queries a string",
                ylabel="share of wrong strings",
                title="Wrong strings and their price, the reward being given to all",
                log_x=True,
                log_y=True,
            )
        },
        tables={
            "mean over prompts and models": Table(columns, rows),
            "by prompt": _by_difficulty(valid["ancestral"], {name: (valid[name], queries[name]) for name in how}),
        },
        notes=[
            f"Rejection gives up after {settings.tries} strings. It takes D/a queries where a of the samples are "
            "balanced, the walk about D² moves for true values (vgb/steps), whatever a is: the walk can only be "
            "cheaper where a is below 1/D.",
        ],
    )


def _by_difficulty(sampled: np.ndarray, arms: dict[str, tuple[np.ndarray, np.ndarray]]) -> Table:
    """Valid strings and queries on prompts of which few or many samples are valid."""
    columns = ["valid samples", "prompts", *(f"{name}, {what}" for name in arms for what in ("valid", "queries"))]
    rows = []
    for low, high in ((0.0, 0.25), (0.25, 0.75), (0.75, 1.0), (1.0, np.inf)):
        here = (sampled >= low) & (sampled < high)
        name = f"{low:.0%} to {high:.0%}" if high <= 1 else "all"
        means = [float(values[here].mean()) if here.any() else "" for arm in arms.values() for values in arm]
        rows.append([name, int(here.sum()), *means])
    return Table(columns, rows)


def completed(
    lab: Lab, trained: Trained, method: str, prompts: int, completions: int, most: int = 0, top_p: float = 1.0
) -> dict[str, np.ndarray]:
    """Per prompt: share of valid completions, how many differ, and what one costs.

    `most` are the steps of a walk, or the strings that rejection tries.
    """
    out: dict[str, list[Any]] = {name: [] for name in ("valid", "distinct", "queries", "calls")}
    for seed, lm, probe in setting.judges(lab, trained, "probe"):
        once = WORLD.prompts(
            prompts, lab.generator(seed, "frontier prompts"), lengths=(BRACKETS, BRACKETS), p=setting.SHIFTED
        )
        rows = [row for row in once for _ in range(completions)]
        options: dict[str, Any] = dict(max_tokens=READ, generator=lab.generator(seed, "frontier completions"))
        made = _decode(method, lm, rows, probe, most, options | {"top_p": top_p})
        good = (WORLD.valid(made.tokens, made.lengths) & made.accepted).double().view(prompts, completions)
        texts = [tuple(row) for row in made.rows]
        out["valid"].append(good.mean(1).numpy())
        out["distinct"].append([len(set(texts[i : i + completions])) for i in range(0, len(texts), completions)])
        for name, cost in (("queries", made.queries), ("calls", made.verifier_calls)):
            out[name].append(cost.double().view(prompts, completions).mean(1).numpy())
    return {name: np.array(values, dtype=float) for name, values in out.items()}


def _decode(method: str, lm: Any, rows: list[Any], probe: Any, most: int, options: dict[str, Any]) -> Generation:
    reward, both = Predicate(_reward), _Rewarded(probe)
    if method == WALK:
        return decoding.vgb(lm, rows, probe, leaf_value=reward, steps=most, max_restarts=0, **options)
    if method == WHOLE:
        return decoding.rejection(lm, rows, reward, max_tries=most, **options)
    if method == "ancestral":
        return decoding.ancestral(lm, rows, **options)
    if method == GREEDY:
        return decoding.ancestral(lm, rows, **options | {"top_p": 0.0})
    if method == "tokenwise":
        return decoding.tokenwise_rejection(lm, rows, both, threshold=0.5, max_tries=100, **options)
    if method == "backtracking":
        return decoding.backtrack(lm, rows, both, quota=4, stride=4, **options)
    if method == "block best of 2":
        return decoding.block_best_of_n(lm, rows, both, n=2, boundary=4, **options)
    if method == "block rejection":
        return decoding.block_rejection(lm, rows, both, max_tries=4, boundary=4, **options)
    if method == "SMC":
        return decoding.smc(lm, rows, probe, leaf_value=reward, particles=2, **options)
    if method == "best of 2":
        return decoding.best_of_n(lm, rows, reward, n=2, **options)
    return decoding.action_level(lm, rows, probe, leaf_value=reward, **options)


def _reward(view: View) -> Any:
    return WORLD.valid(view.tokens, view.lengths)


@dataclass
class _Rewarded:
    """The probe's word on unfinished rows, the true reward of finished ones."""

    probe: Any
    is_value: bool = False

    @property
    def needs(self) -> Hidden | None:
        return self.probe.needs

    def score(self, view: View) -> Tensor:
        inside = torch.as_tensor(self.probe.score(view)).cpu()
        last = view.tokens.gather(1, view.lengths[:, None] - 1)[:, 0]
        over = (view.lengths >= READ) | (last == WORLD.eos)
        return _reward(view).to(inside.dtype).where(over, inside)


def _wrong(valid: np.ndarray) -> float:
    """Share of wrong strings; where there is none, that of half a prompt, which a logarithmic axis can show."""
    return max(1 - float(valid.mean()), 0.5 / valid.size)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


CLAIMS = (vgb_frontier,)
