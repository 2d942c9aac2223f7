"""What trained nets attend to: no stack, with or without positions, and not the same under other embeddings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.dyck import nets
from sandtable.claims.dyck.nets import ACCURATE, POSITIONS, SEEDS, Deep, Minimal, accurate
from sandtable.claims.dyck.setting import attention_maps, variation, wen
from sandtable.lab import Control, Evidence, Lab, Table, below, claim, statistic
from sandtable.lab.figures import strips
from sandtable.probes import dyck as probe
from sandtable.theory import dyck as theory

# -- figure 2.11 -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NonStack:
    steps: int = 1500
    width: int = 50
    lr: float = 3e-3
    attention: str = "trained"


_KINDS = tuple(POSITIONS)


@claim(
    id="dyck/non-stack-attention",
    statement=(
        "Most two-layer GPTs trained on brackets close at least 97 % rightly, and yet their closers attend mostly "
        "elsewhere than to the last open bracket: on average less than half of second-layer attention goes there, and "
        "less than half of the time it gets the most."
    ),
    source=wen("Figure 2.11"),
    scales={"desk": NonStack(), "paper": NonStack(steps=3000, width=200, lr=3e-4)},
    controls=(
        Control("untrained", {"steps": 0}, tuple(f"accuracy, {kind}" for kind in _KINDS)),
        Control(
            "an exact model that looks like a stack",
            {"attention": "misleading"},
            tuple(f"{what}, {kind}" for what in ("most attention", "attention") for kind in _KINDS),
        ),
    ),
    seeds=SEEDS,
)
def non_stack(settings: NonStack, lab: Lab) -> Evidence:
    checks, rows, panels = [], [], {}
    for kind, positions in POSITIONS.items():
        net = Deep(steps=settings.steps, width=settings.width, lr=settings.lr, positions=positions)
        found, like = lab.measure(nets.accuracy, net), lab.measure(nets.likeness, net)
        fixed = settings.attention == "misleading"
        if fixed:
            like = {name: np.full(len(lab.seeds), value) for name, value in _looks_like_a_stack(net).items()}
        checks += [
            accurate(f"accuracy, {kind}", found["near"]),
            below(f"most attention, {kind}", like["hits"], 0.5, deterministic=fixed),
            below(f"attention, {kind}", like["top"], 0.5, deterministic=fixed),
        ]
        rows.append([kind, *(float(v.mean()) for v in (found["near"], found["far"], *like.values()))])
        panels |= {f"{kind}, {k}": v for k, v in _first(lab.measure(nets.patterns, net)["1"]).items()}
    columns = ["net", "accuracy", "at 400–500", "attention to the last open", "is most", "to its depth"]
    return Evidence(
        checks,
        figures={"attention": lambda: attention_maps(panels, title="Second layers (boxes: last open bracket)")},
        tables={"means over seeds": Table(columns, rows)},
    )


def _first(seen: np.ndarray, count: int = 2) -> dict[str, np.ndarray]:
    return {f"seed {i}": seen[i, 0] for i in range(min(count, len(seen)))}


def _looks_like_a_stack(net: Deep) -> dict[str, float]:
    law = net.world.law
    batch = law.sample(200, torch.Generator().manual_seed(0))
    found = probe.stack_likeness(theory.build("misleading"), batch, law, layer=1)
    return {name: float(value) for name, value in found._asdict().items()}


# -- trained without positions, and with uniform attention -----------------------------------------------------------


@dataclass(frozen=True)
class NoPositions:
    steps: int = 1500
    width: int = 50
    lr: float = 3e-3


@claim(
    id="dyck/no-positions",
    statement="Without positional encodings, most two-layer GPTs learn to close at least 97 % of brackets rightly.",
    source=wen("section 2.2.3, footnote on positional encodings"),
    scales={"desk": NoPositions(), "paper": NoPositions(steps=3000, width=200, lr=3e-4)},
    controls=(Control("untrained", {"steps": 0}, ("accuracy",)),),
    seeds=SEEDS,
)
def no_positions(settings: NoPositions, lab: Lab) -> Evidence:
    net = Deep(steps=settings.steps, width=settings.width, lr=settings.lr)
    found = {kind: lab.measure(nets.accuracy, replace(net, positions=p)) for kind, p in POSITIONS.items()}
    return Evidence(
        [accurate("accuracy", found["no positions"]["near"])],
        figures={
            "accuracy": lambda: strips(
                {f"{kind}, {where}": values[where] for kind, values in found.items() for where in ("near", "far")},
                predictions=ACCURATE,
                xlabel="share of brackets closed rightly",
                title="With and without positions (near: trained lengths, far: 400–500)",
            )
        },
    )


@dataclass(frozen=True)
class UniformNets:
    steps: int = 1500
    layers: int = 2
    width: int = 50


@claim(
    id="dyck/uniform-attention-trains",
    statement=(
        "Most two-layer Transformers whose attention is held uniform in every layer learn to close more than 99 % of "
        "brackets rightly."
    ),
    source=wen("section 2.2.3, footnote on uniform attention; Corollary 2.2.1"),
    scales={"desk": UniformNets(), "paper": UniformNets(steps=3000)},
    controls=(
        Control("untrained", {"steps": 0}, ("accuracy",)),
        Control("a single layer", {"layers": 1}, ("accuracy",)),
    ),
    seeds=SEEDS,
)
def uniform_trains(settings: UniformNets, lab: Lab) -> Evidence:
    net = Deep(steps=settings.steps, layers=settings.layers, width=settings.width, attention="uniform")
    found = lab.measure(nets.accuracy, net)
    return Evidence(
        [accurate("accuracy", found["near"], 0.99)],
        figures={
            "accuracy": lambda: strips(
                {"trained lengths": found["near"], "400–500": found["far"]},
                predictions={"trained lengths": 0.99},
                xlabel="share of brackets closed rightly",
                title="Uniform attention in every layer",
            )
        },
    )


# -- figure 2.12 -----------------------------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "one-hot pairs, attention only": dict(embedding="E1", form="attention", lr=1e-2),
    "one-hot pairs": dict(embedding="E1", lr=3e-3),
    "type and angle": dict(embedding="E3", lr=3e-3),
    "type and depth": dict(embedding="E2", lr=3e-3),
}


@dataclass(frozen=True)
class Embeddings:
    steps: int = 600
    width: int = 50
    labels: str = "true"


def _between_over_within(units: np.ndarray) -> float:
    """log of mean ‖A − A'‖² over pairs from different settings, over that of pairs from one; column 0 says which."""
    groups = [units[units[:, 0] == label, 1:] for label in np.unique(units[:, 0])]
    within = np.mean([variation(group) for group in groups])
    between = probe.between_variation([torch.from_numpy(group)[:, None] for group in groups])
    return float(np.log(float(between) / max(within, 1e-300)))


@claim(
    id="dyck/embeddings-change-attention",
    statement=(
        "On minimal first layers, the embedding of (type, depth), the layer's form and the learning rate change the "
        "attention that is learned: on average, patterns of two settings differ more than twice as much as those of "
        "two seeds; in every setting most nets close 97 % of brackets rightly."
    ),
    source=wen("Figure 2.12"),
    scales={"desk": Embeddings(), "paper": Embeddings(width=500)},
    controls=(
        Control("untrained", {"steps": 0}, (*(f"accuracy, {name}" for name in SETTINGS), "between over within")),
        Control("settings shuffled over models", {"labels": "shuffled"}, ("between over within",)),
    ),
    seeds=SEEDS,
)
def embeddings(settings: Embeddings, lab: Lab) -> Evidence:
    checks, seen, panels, rows = [], [], {}, []
    for name, how in SETTINGS.items():
        net = Minimal(width=settings.width, steps=settings.steps, **how)
        near = lab.measure(nets.accuracy, net)["near"]
        like = lab.measure(nets.likeness, net)
        found = lab.measure(nets.patterns, net)["0"]
        seen.append(nets.flat(found))
        checks.append(accurate(f"accuracy, {name}", near))
        panels[name] = found[0, 0]
        rows.append([name, float(near.mean()), variation(seen[-1]), float(like["top"].mean())])
    labels = np.repeat(np.arange(len(seen), dtype=float), len(lab.seeds))
    if settings.labels == "shuffled":
        labels = np.random.default_rng(lab.seeds[0]).permutation(labels)
    units = np.column_stack([labels, np.concatenate(seen)])
    checks.append(
        statistic("between over within", _between_over_within, units, above=np.log(2.0), strata=labels, unit="model")
    )
    columns = ["setting", "accuracy", "variation over seeds", "attention to the last open bracket"]
    return Evidence(
        checks,
        figures={"attention": lambda: attention_maps(panels, title="One seed each (boxes: last open bracket)")},
        tables={"settings": Table(columns, rows)},
        notes=["“Between over within” shows the logarithm of the ratio."],
    )


CLAIMS = (non_stack, no_positions, uniform_trains, embeddings)
