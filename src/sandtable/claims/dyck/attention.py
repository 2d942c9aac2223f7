"""What trained nets attend to: no stacks, not the same across seeds, embeddings and layers, and not needed either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.dyck import nets
from sandtable.claims.dyck.nets import ACCURATE, MOST, Deep, Minimal, World
from sandtable.claims.dyck.setting import attention_maps, variation, wen
from sandtable.lab import Check, Control, Evidence, Lab, Table, below, claim, passing, statistic
from sandtable.lab.figures import comparison, strips
from sandtable.probes import dyck as probe
from sandtable.theory import dyck as theory
from sandtable.theory.dyck.baselines import random_variation

POSITIONS = {"no positions": None, "linear positions": "linear"}
SEEDS = {"desk": 16, "paper": 40}


def accurate(name: str, values: np.ndarray, least: float = ACCURATE) -> Check:
    return passing(name, values, above=least, at_least=MOST)


def _first(seen: np.ndarray, count: int = 2) -> dict[str, np.ndarray]:
    return {f"seed {i}": seen[i, 0] for i in range(min(count, len(seen)))}


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


# -- variation over seeds --------------------------------------------------------------------------------------------

THEORY = "x + LN(f(x)), no positions"
PUBLISHED = {"words": {"no positions": 2.27, "linear positions": 2.20, "minimal first layer": 0.24}}
PUBLISHED["prefixes"] = {
    THEORY: 14.51, "no positions": 14.51, "linear positions": 11.92, "minimal first layer": 0.34
}  # fmt: skip


@dataclass(frozen=True)
class Variation:
    steps: int = 1500
    minimal_steps: int = 600
    width: int = 50
    lr: float = 3e-3
    minimal: str = "trained"


def _ratio(of: np.ndarray) -> float:
    """log of the variation of the first group over that of the second; the first column says which."""
    first, second = (of[of[:, 0] == label, 1:] for label in (0, 1))
    return float(np.log(max(variation(first), 1e-300) / max(variation(second), 1e-300)))


def _log_variation(patterns: np.ndarray) -> float:
    return float(np.log(max(variation(patterns), 1e-300)))


def varies(name: str, patterns: np.ndarray, *, above: float | None = None, below: float | None = None) -> Check:
    """Variation on a logarithmic scale."""
    low, high = (None if limit is None else float(np.log(limit)) for limit in (above, below))
    return statistic(name, _log_variation, patterns, above=low, below=high, unit="model")


def over(name: str, first: np.ndarray, second: np.ndarray, factor: float) -> Check:
    """Models of the first kind differ at least `factor` times as much as those of the second."""
    labels = np.repeat([0.0, 1.0], [len(first), len(second)])
    units = np.column_stack([labels, np.concatenate([first, second])])
    return statistic(name, _ratio, units, above=np.log(factor), strata=labels, unit="model")


def _kinds(settings: Variation, data: str) -> dict[str, Deep | Minimal]:
    world = World(data)
    deep = Deep(world, steps=settings.steps, width=settings.width, lr=settings.lr)
    minimal = Minimal(world, width=settings.width, steps=settings.minimal_steps)
    return {kind: replace(deep, positions=p) for kind, p in POSITIONS.items()} | {"minimal first layer": minimal}


def _accuracies(settings: Variation, lab: Lab, data: str) -> list[Check]:
    found = {kind: lab.measure(nets.accuracy, net)["near"] for kind, net in _kinds(settings, data).items()}
    return [accurate(f"accuracy, {kind}", near) for kind, near in found.items()]


def _last_layer(lab: Lab, net: Deep | Minimal) -> np.ndarray:
    found = lab.measure(nets.patterns, net)
    return nets.flat(found[max(found)])


def _varied(settings: Variation, lab: Lab, data: str) -> dict[str, np.ndarray]:
    """Patterns of the last layers of all models, a vector each, by kind of net."""
    seen = {kind: _last_layer(lab, net) for kind, net in _kinds(settings, data).items()}
    if settings.minimal == "deep":
        seen["minimal first layer"] = seen["no positions"]
    return seen


def _table(seen: Mapping[str, np.ndarray], data: str) -> Table:
    rows = [[kind, PUBLISHED[data][kind], variation(values)] for kind, values in seen.items()]
    return Table(["net", "published", "measured"], [*rows, ["random patterns", 2.85, nets.baseline(World(data))]])


@claim(
    id="dyck/attention-variation",
    statement=(
        "Second layers of GPTs trained from different seeds differ in attention at least 0.4 times as much as random "
        "patterns do, single layers on a minimal first layer less than 0.3 times as much as random patterns, and the "
        "former at least three times as much as the latter; most nets close 97 % of brackets rightly."
    ),
    source=wen("section 2.2.3.2, variation over 40 seeds"),
    scales={"desk": Variation(), "paper": Variation(steps=3000)},
    controls=(
        Control(
            "untrained GPTs",
            {"steps": 0},
            tuple(f"{what}{kind}" for kind in _KINDS for what in ("", "accuracy, ", "over minimal first layers, ")),
        ),
        Control("untrained layers", {"minimal_steps": 0}, ("accuracy, minimal first layer",)),
        Control("GPTs for minimal first layers", {"minimal": "deep"}, ("minimal first layer",)),
    ),
    seeds={"desk": 32, "paper": 40},
)
def seeds_vary(settings: Variation, lab: Lab) -> Evidence:
    seen = _varied(settings, lab, "words")
    random = nets.baseline(World())
    checks = [varies(kind, seen[kind], above=0.4 * random) for kind in POSITIONS]
    checks.append(varies("minimal first layer", seen["minimal first layer"], below=0.3 * random))
    checks += [
        over(f"over minimal first layers, {kind}", seen[kind], seen["minimal first layer"], 3.0) for kind in POSITIONS
    ]
    checks += _accuracies(settings, lab, "words")
    return Evidence(
        checks,
        figures={"variation": lambda: _bars(seen, "words")},
        tables={"variation": _table(seen, "words")},
        notes=[
            f"Patterns are of 17 positions, ⟨bos⟩ included; random ones differ by {random:.3f} there. Checks show "
            "logarithms: a few seeds with sharp attention make variations skewed."
        ],
    )


def _bars(seen: Mapping[str, np.ndarray], data: str):
    rows = [(kind, *_jackknife(values), PUBLISHED[data][kind]) for kind, values in seen.items()]
    return comparison(rows, xlabel="mean ‖A − A'‖² over pairs of seeds", title="Variation (dashes: published)")


@dataclass(frozen=True)
class Prefixes:
    steps: int = 2500
    minimal_steps: int = 600
    gpt_steps: int = 1500
    width: int = 50


@claim(
    id="dyck/prefixes",
    statement=(
        "Trained on prefixes instead of complete words, second layers of Transformers x + LN(f(x)) differ at least "
        "twice as much from seed to seed as single layers on a minimal first layer; most nets close at least 97 % of "
        "brackets rightly."
    ),
    source=wen("section 2.2.3.4, Figures 2.14–2.16"),
    scales={"desk": Prefixes(), "paper": Prefixes(steps=3000, gpt_steps=3000)},
    controls=(
        Control("untrained Transformers", {"steps": 0}, ("variation", "accuracy")),
        Control("untrained layers", {"minimal_steps": 0}, ("accuracy, minimal first layer",)),
    ),
    seeds=SEEDS,
)
def prefixes(settings: Prefixes, lab: Lab) -> Evidence:
    others = _kinds(
        Variation(steps=settings.gpt_steps, minimal_steps=settings.minimal_steps, width=settings.width), "prefixes"
    )
    deep = Deep(World("prefixes"), norm="inner", width=settings.width, steps=settings.steps)
    kinds: dict[str, Deep | Minimal] = {THEORY: deep} | others
    seen = {kind: _last_layer(lab, net) for kind, net in kinds.items()}
    near = {kind: lab.measure(nets.accuracy, net)["near"] for kind, net in kinds.items()}
    return Evidence(
        [
            over("variation", seen[THEORY], seen["minimal first layer"], 2.0),
            accurate("accuracy", near[THEORY]),
            accurate("accuracy, minimal first layer", near["minimal first layer"]),
        ],
        figures={"variation": lambda: _bars(seen, "prefixes")},
        tables={"variation": _table(seen, "prefixes")},
        notes=[
            "GPTs, with the norm before attention, are shown beside: there the published variation is not reached. "
            "The check shows the logarithm of a ratio."
        ],
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
    means, squares = [group.mean(0) for group in groups], [np.square(g - g.mean(0)).sum(1).mean() for g in groups]
    pairs = [(i, j) for i in range(len(groups)) for j in range(i)]
    between = np.mean([squares[i] + squares[j] + np.square(means[i] - means[j]).sum() for i, j in pairs])
    return float(np.log(between / max(within, 1e-300)))


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


# -- table 2.6 -------------------------------------------------------------------------------------------------------

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
    shown: tuple[tuple[int, int, int], ...] = ()
    steps: int = 2500
    width: int = 50
    order: tuple[int, ...] = (0, 1)
    last: int = -1


def _growth(pairs: np.ndarray) -> float:
    """log of the variation of a layer over that of another; `pairs` are (model, one or the other, entry)."""
    return _log_variation(pairs[:, 1]) - _log_variation(pairs[:, 0])


def grows(name: str, lower: np.ndarray, upper: np.ndarray) -> Check:
    """Models differ more in the one than in the other."""
    return statistic(name, _growth, np.stack([lower, upper], axis=1), above=0.0, unit="model")


def _case(case: tuple[int, int, int]) -> str:
    return "k={}, D={}, {} layers".format(*case)


def _by_layer(settings: Layers, lab: Lab, case: tuple[int, int, int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Accuracy, and the patterns of every layer on the same sentences."""
    types, depth, count = case
    world = World(types=types, depth=depth)
    net = Deep(world, layers=count, width=settings.width, norm="inner", steps=settings.steps)
    found = lab.measure(nets.patterns, net, "sentences")
    return lab.measure(nets.accuracy, net)["near"], [nets.flat(found[str(i)]) for i in range(count)]


def _table_rows(case: tuple[int, int, int], near: np.ndarray, seen: list[np.ndarray]) -> list[list[object]]:
    return [[*case, i + 1, TABLE[case][i], variation(at), float(near.mean())] for i, at in enumerate(seen)]


_COLUMNS = ["types k", "depth D", "layers", "layer", "published", "measured", "accuracy"]


def _layer_evidence(settings: Layers, lab: Lab) -> Evidence:
    """Checks on one case, and the published numbers beside it and the others that are shown."""
    random = random_variation(nets.SENTENCE + 1)
    rows, bars = [], {}
    for case in settings.shown:
        rows += _table_rows(case, *_by_layer(settings, lab, case))
    near, seen = _by_layer(settings, lab, settings.case)
    rows += _table_rows(settings.case, near, seen)
    bars = {f"{_case(settings.case)}, layer {i + 1}": at for i, at in enumerate(seen)}
    last = seen[settings.last]
    seen = [seen[i] for i in settings.order]
    checks = [
        accurate("accuracy", near),
        varies("first layer", seen[0], below=0.5),
        grows("second over first", seen[0], seen[1]),
        varies("last layer", last, above=random / 2),
    ]
    checks += [grows("third over second", seen[1], seen[2])] if len(seen) > 2 else []
    return Evidence(
        checks,
        figures={"variation": lambda: _layer_bars(bars)},
        tables={"Table 2.6": Table(_COLUMNS, rows)},
        notes=[
            f"Random patterns of {nets.SENTENCE + 1} positions differ by {random:.3f} (published 3.33). Checks show "
            "logarithms. The published nets have one more residual, h ← LN(h) + h, in layers not described further."
        ],
    )


UNTRAINED = Control("untrained", {"steps": 0}, ("accuracy",))
FOR_LAST = Control("the first layer for the last", {"last": 0}, ("last layer",))


@claim(
    id="dyck/layers",
    statement=(
        "In Transformers of two layers x + LN(f(x)), trained on two types and depth four, attention of first layers "
        "hardly differs between seeds (below 0.5), that of second layers differs more, and by at least half of what "
        "random patterns do; most nets close 97 % of brackets rightly."
    ),
    source=wen("Table 2.6"),
    scales={
        "desk": Layers(),
        "paper": Layers(shown=tuple(case for case in TABLE if case[2] == 2 and case != (2, 4, 2)), steps=3000),
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
        "paper": Three(shown=tuple(case for case in TABLE if case[2] == 3 and case != (2, 4, 3)), steps=3000),
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


def _layer_bars(shown: Mapping[str, np.ndarray]):
    rows = [(name, *_jackknife(values), None) for name, values in shown.items()]
    return comparison(rows, xlabel="mean ‖A − A'‖² over pairs of seeds", title="Variation of attention by layer")


def _jackknife(values: np.ndarray) -> tuple[float, float, float]:
    """Variation with an interval, for figures."""
    apart = [variation(np.delete(values, i, axis=0)) for i in range(len(values))] if len(values) > 2 else [0.0]
    found, half = variation(values), 2.6 * (len(apart) - 1) ** 0.5 * float(np.std(apart))
    return found, max(found - half, 0.0), found + half


CLAIMS = (non_stack, no_positions, uniform_trains, seeds_vary, prefixes, embeddings, layers, third)
