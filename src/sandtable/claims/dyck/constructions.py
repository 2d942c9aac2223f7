"""Transformers that know brackets exactly, whatever they attend to: uniform, random and misleading attention."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import torch

from sandtable.claims.dyck.setting import PAIRS, PATTERN, SIZE, TYPES, WORLD, attention_maps, pattern, variation, wen
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, orders, statistic
from sandtable.lab.figures import comparison
from sandtable.models import Transformer
from sandtable.theory import dyck as theory
from sandtable.theory.dyck.baselines import random_variation
from sandtable.theory.dyck.checking import EXACT
from sandtable.worlds import Batch, DyckPrefixes

# -- uniform attention -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Uniform:
    cases: tuple[tuple[int, int, float, int], ...] = ((2, 4, 0.5, 9), (2, 3, 0.3, 8), (3, 2, 0.6, 7), (1, 4, 0.5, 10))
    long: int = 2000
    attention: str = "uniform"
    closers: float = 1.0


@claim(
    id="dyck/uniform-attention-is-exact",
    statement=(
        "A two-layer Transformer without positions whose attention is uniform everywhere gives the exact next-token "
        "law of bounded Dyck prefixes on every prefix, at every length."
    ),
    source=wen("Corollary 2.2.1, all weights explicit"),
    scales={"smoke": Uniform(cases=((2, 4, 0.5, 8), (3, 2, 0.6, 6)), long=400), "desk": Uniform()},
    controls=(
        Control("values of closers one percent smaller", {"closers": 0.99}, ("all prefixes", "long prefixes")),
        Control("random attention", {"attention": "random"}, ("attention is uniform",)),
    ),
    tour=True,
)
def uniform(settings: Uniform, lab: Lab) -> Evidence:
    errors, long, rows, away = [], [], [], []
    for types, depth, q, longest in settings.cases:
        world, size = DyckPrefixes(types=types, depth=depth, q=q), dict(types=types, depth=depth)
        model = theory.build(settings.attention, **size, q=q)
        model = _closers_scaled(model, settings.closers, **size)
        found = theory.check(model, world, longest=longest, long=settings.long, rows=2, seed=lab.seeds[0])
        errors.append(found.error)
        long.append(found.long_error)
        seen = pattern(model, world.reference)
        away.append(float((seen - torch.ones_like(seen).tril() / torch.arange(1, len(seen) + 1)[:, None]).abs().max()))
        rows.append([types, depth, q, longest, found.prefixes, found.error, found.long_error])
    columns = ["types k", "depth D", "q", "N", "prefixes", "largest error", f"at length {settings.long}"]
    return Evidence(
        [
            bounded("all prefixes", errors, EXACT, unit="world"),
            bounded("long prefixes", long, EXACT, unit="world"),
            bounded("attention is uniform", away, 1e-12, unit="world"),
        ],
        figures={"attention": lambda: _three_maps("Three models, one function (boxes: last open bracket)")},
        tables={"errors": Table(columns, rows)},
    )


def _closers_scaled(model: Transformer, factor: float, *, types: int, depth: int) -> Transformer:
    values = theory.second_layer(model, types=types, depth=depth)[1]
    values[types * depth : -1] *= factor
    return theory.with_values(model, values, types=types, depth=depth)


def _three_maps(title: str):
    return attention_maps({name: _seen(theory.build(name)) for name in theory.ATTENTIONS}, title=title)


def _seen(model: Transformer) -> np.ndarray:
    return pattern(model, WORLD.reference).numpy()


# -- random attention ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Random:
    samples: int = 40
    scale: float = 1.5
    longest: int = 9
    long: int = 2000
    balanced: bool = True
    condition: bool = True


@claim(
    id="dyck/random-attention-is-exact",
    statement=(
        "Second-layer scores drawn from N(0, 1.5²) and projected to balance — 249 of 289 dimensions are free for two "
        "types and depth four — all give exact models, whose attention patterns differ by more than random patterns do."
    ),
    source=wen("Theorem 2.2.1, sufficiency; section 2.2.3 for the variation of attention"),
    scales={"smoke": Random(samples=20, longest=5, long=60), "desk": Random()},
    controls=(
        Control("scores not balanced", {"balanced": False}, ("all prefixes", "long prefixes")),
        Control("scores of size 0.5", {"scale": 0.5}, ("variation of attention",)),
        Control("no condition on the scores", {"condition": False}, ("free dimensions",)),
    ),
)
def random(settings: Random, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "scores")
    errors, long, seen = [], [], []
    for _ in range(settings.samples):
        n = theory.symbol_count(**SIZE)
        drawn = torch.randn(n, n, generator=generator, dtype=torch.float64) * settings.scale
        scores = theory.project(drawn, **SIZE)
        model = theory.from_scores(scores, **SIZE)
        model = model if settings.balanced else theory.with_scores(model, drawn, **SIZE)
        found = theory.check(
            model, WORLD, longest=settings.longest, long=settings.long, rows=1, seed=lab.seeds[0] + len(errors)
        )
        errors.append(found.error)
        long.append(found.long_error)
        seen.append(_seen(model).ravel())
    free = _free_dimensions() if settings.condition else theory.symbol_count(**SIZE) ** 2
    n = theory.symbol_count(**SIZE)
    baseline = random_variation(len(WORLD.reference))
    return Evidence(
        [
            bounded("all prefixes", errors, EXACT, unit="model"),
            bounded("long prefixes", long, EXACT, unit="model"),
            statistic("variation of attention", variation, np.stack(seen), above=baseline, unit="model"),
            exact("free dimensions", free, n**2 - theory.constraint_count(**SIZE), unit="family"),
        ],
        figures={
            "attention": lambda: attention_maps(
                {f"sample {i}": _seen(theory.build("random", seed=i, scale=settings.scale)) for i in range(3)},
                title="Exact models with random balanced attention",
            )
        },
        notes=[f"random baseline for {len(WORLD.reference)} positions: {baseline:.3f}"],
    )


def _free_dimensions() -> int:
    """n² less the rank of eq. 2.47 written out, one row for every pair and every two closers."""
    n, rows = theory.symbol_count(**SIZE), []
    queries = theory.constrained_queries(**SIZE).tolist()
    for p, (a, b) in product(range(PAIRS), combinations(queries, 2)):
        row = np.zeros((n, n))
        row[[p, PAIRS + p, p, PAIRS + p], [a, a, b, b]] = [1, -1, -1, 1]
        rows.append(row.ravel())
    return n**2 - int(np.linalg.matrix_rank(np.stack(rows)))


# -- misleading attention --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Misleading:
    rows: int = 300
    length: int = 60
    scale: float = 6.0
    attention: str = "misleading"
    uniform: str = "uniform"
    thresholds: tuple[float, float] = (1.0, 1.0)
    """Of the two readers: from which share of the least weight of a top it takes a bracket for open."""
    closers: float = 1.0


SPECIFIED = {"closers": (0.0016, 0.43), "top": (0.35, None), "without": (0.59, 0.76)}
"""Misleading and uniform, where the reader of the first takes any trace for an open bracket, and that of the second
only the full weight."""
TRACE = 0.0025
"""About e^−6: a reader that takes any trace of an opener for an open bracket."""


@claim(
    id="dyck/misleading-attention",
    statement=(
        "Attention can look like a stack and hide what it needs. On prefixes of 60 brackets an exact model sends 35 % "
        "of the attention of its closers to the last open bracket and 0.16 % to closers, an exact model with uniform "
        "attention 43 % to closers; and yet, with one reader for both, each loses the same without the attention to "
        "closers: whatever was opened then counts as open, and three quarters of brackets are closed rightly."
    ),
    source=wen("Theorem 2.2.1, a construction that looks like a stack"),
    scales={"smoke": Misleading(rows=400), "desk": Misleading(rows=1500)},
    controls=(
        Control(
            "the two models exchanged",
            {"attention": "uniform", "uniform": "misleading"},
            (
                "attention to closers",
                "attention to the last open bracket",
                "more than uniform attention to the last open bracket",
                "uniform: attention to closers",
            ),
        ),
        Control(
            "short prefixes",
            {"length": 8},
            ("right without closers, any trace read as open", "uniform: right without closers"),
        ),
        Control(
            "a reader of traces for one, of full weights for the other",
            {"thresholds": (TRACE, 1.0)},
            ("right without closers, less uniform", "uniform: right without closers, as counted"),
        ),
        Control("values of closers half as large", {"closers": 0.5}, ("right with closers",)),
    ),
)
def misleading(settings: Misleading, lab: Lab) -> Evidence:
    world = DyckPrefixes(**SIZE, length=settings.length)
    batch = world.sample(settings.rows, lab.generator(lab.seeds[0], "rows"))
    asked = world.brackets.closes(batch.x) & (batch.latents["depth"] > 0)
    batch, asked = batch[asked.any(1)], asked[asked.any(1)]
    names = settings.attention, settings.uniform
    look, flat = (_ablated(settings, *kind, batch, asked) for kind in zip(names, settings.thresholds, strict=True))
    traces = [_ablated(settings, name, TRACE, batch, asked)["without"] for name in names]
    counted = _row_means(_counted(batch, settings.thresholds[0]), asked)
    labels = {"closers": "attention to closers", "top": "to the last open bracket", "without": "right without closers"}
    rows = [[labels[key], a, look[key].mean(), b, flat[key].mean()] for key, (a, b) in SPECIFIED.items()]
    return Evidence(
        [
            exact("right with closers", np.stack([look["with"], flat["with"]]), 1.0, unit="prompt"),
            agrees("attention to closers", look["closers"], 0.0016, relative=0.1, unit="prompt"),
            agrees("attention to the last open bracket", look["top"], 0.35, relative=0.12, unit="prompt"),
            orders(
                "more than uniform attention to the last open bracket",
                look["top"],
                flat["top"],
                margin=0.2,
                unit="prompt",
            ),
            agrees("uniform: attention to closers", flat["closers"], 0.43, relative=0.1, unit="prompt"),
            agrees(
                "right without closers, any trace read as open", traces[0], 0.59, within=0.08, shift=0.3, unit="prompt"
            ),
            agrees("uniform: right without closers", flat["without"], 0.76, within=0.08, shift=0.3, unit="prompt"),
            exact("uniform: right without closers, as counted", flat["without"], counted, atol=1e-9, unit="prompt"),
            agrees(
                "right without closers, less uniform",
                look["without"] - flat["without"],
                0.0,
                within=0.01,
                shift_absolute=0.1,
                unit="prompt",
            ),
        ],
        figures={
            "attention": lambda: _three_maps("Which one is the stack? (boxes: last open bracket)"),
            "without closers": lambda: comparison(
                [
                    (f"{name}: {label}", float(found[key].mean()), *_range(found[key]), None)
                    for name, found in (("misleading", look), ("uniform", flat))
                    for key, label in labels.items()
                ],
                title="Little attention, as much needed",
                xlabel="share",
            ),
        },
        tables={
            "misleading and uniform": Table(
                ["quantity", "misleading, specified", "misleading", "uniform, specified", "uniform"],
                [*rows, ["the same, traces read as open", 0.59, traces[0].mean(), None, traces[1].mean()]],
            )
        },
        notes=[
            "Shares are over closers that leave a bracket open; ties between closers count half. They depend on the "
            "length: the longer the prefix, the more has been opened. The specified contrast of 59 and 76 % compares a "
            f"reader of traces (threshold {TRACE}) on misleading attention with one of full weights on uniform "
            "attention; it is the readers', and not that of attention."
        ],
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    half = 2.6 * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def _ablated(
    settings: Misleading, name: str, threshold: float, batch: Batch, asked: torch.Tensor
) -> dict[str, np.ndarray]:
    """Per row: attention to closers and to the top, and how often the right closer wins, with and without closers."""
    if name == "uniform":
        scores = theory.uniform_scores(**SIZE)
    else:
        scores = theory.misleading_scores(**SIZE, scale=settings.scale)
    model = theory.from_scores(scores, **SIZE, threshold=threshold)
    model = _closers_scaled(model, settings.closers, **SIZE)
    top = batch.latents["top"]
    blind = scores.clone()
    blind[PAIRS : 2 * PAIRS] = -1000.0
    plain, found = model(batch.x, want=(PATTERN,))
    attention = found[PATTERN][:, 0]
    shares = {
        "closers": (attention * WORLD.brackets.closes(batch.x)[:, None]).sum(-1),
        "top": attention.gather(-1, batch.latents["opener"].clamp(min=0)[..., None])[..., 0],
        "with": _right(plain, top),
        "without": _right(theory.with_scores(model, blind, **SIZE)(batch.x), top),
    }
    return {key: _row_means(value, asked) for key, value in shares.items()}


def _row_means(values: torch.Tensor, asked: torch.Tensor) -> np.ndarray:
    return ((values * asked).sum(1) / asked.sum(1)).numpy()


def _counted(batch: Batch, threshold: float) -> torch.Tensor:
    """Whether the right closer wins where all openers count and no closer does: by counting, without a model.

    With n_p openers of pair p so far, p weighs n_p / √(Σ n² + 1) under uniform attention; it is open from θ/√(d + 1)
    on, the least weight of a top at depth d times the threshold, and below that in proportion.
    """
    opens = torch.nn.functional.one_hot(batch.latents["symbol"], 2 * PAIRS + 1)[..., :PAIRS].double()
    n = opens.cumsum(1)
    depth, top = batch.latents["depth"], batch.latents["top"].clamp(min=0)
    level = (depth - 1).clamp(min=0)[..., None, None].expand(-1, -1, TYPES, 1)
    weight = n.unflatten(-1, (TYPES, -1)).gather(-1, level)[..., 0] / (n.square().sum(-1, keepdim=True) + 1).sqrt()
    said = (weight * (depth + 1).sqrt()[..., None] / threshold).clamp(max=1.0)
    right = said.gather(-1, top[..., None])[..., 0]
    wrong = said.sum(-1) - right
    return _wins(right, wrong)


def _right(out: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """1 where the right closer has the largest score, ½ where it shares it (two types), else 0."""
    right = out.gather(-1, TYPES + top.clamp(min=0)[..., None])[..., 0]
    return _wins(right, out[..., TYPES:].sum(-1) - right)


def _wins(right: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    return (right > wrong + 1e-6).double() + 0.5 * ((right - wrong).abs() <= 1e-6).double()


# -- copying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Copying:
    models: int = 40
    layers: int = 3
    scale: float = 1.5
    values: float = 0.0
    head: str = "zero"


@claim(
    id="dyck/attention-determines-nothing",
    statement=(
        "Whatever the keys and queries of all layers, values and MLPs can be chosen so that the model copies its "
        "input, and a head so that it says nothing: attention patterns alone determine no function."
    ),
    source=wen("Proposition 2.2.1, with copying as the example that is not degenerate"),
    scales={"smoke": Copying(), "desk": Copying(models=100)},
    controls=(
        Control("values of size 0.1", {"values": 0.1}, ("copies its input",)),
        Control("the head that copies", {"head": "identity"}, ("says nothing",)),
        Control("keys and queries of size 0.05", {"scale": 0.05}, ("variation of attention",)),
    ),
)
def determines_nothing(settings: Copying, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "keys and queries")
    row = WORLD.reference[None]
    copied, silent, seen = [], [], []
    for _ in range(settings.models):
        model = Transformer(
            len(WORLD.vocab), layers=settings.layers, embedding="one-hot", norm="inner", norm_kind="unit", eps=0.0,
            causal=True, output=False, tied=False,
        ).double()  # fmt: skip
        for name, parameter in model.named_parameters():
            scale = settings.values if name.endswith("W_V") else settings.scale
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
        eye = torch.eye(len(WORLD.vocab), dtype=torch.float64)
        model.set("unembed.W_U", eye).requires_grad_(False)
        out, found = model(row, want=(f"blocks.{settings.layers - 1}.attn.hook_pattern",))
        copied.append(float((out[0] - eye[row[0]]).abs().max()))
        model.set("unembed.W_U", 0 * eye if settings.head == "zero" else eye)
        silent.append(float(model(row).abs().max()))
        seen.append(next(iter(found.values()))[0, 0].numpy().ravel())
    return Evidence(
        [
            bounded("copies its input", copied, 1e-12, unit="model"),
            bounded("says nothing", silent, 0.0, unit="model"),
            statistic(
                "variation of attention",
                variation,
                np.stack(seen),
                above=random_variation(row.shape[1]),
                unit="model",
            ),
        ],
    )


# -- larger models ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Larger:
    layers: tuple[int, ...] = (2, 3, 5)
    widths: tuple[int, ...] = (27, 64, 200)
    longest: int = 7
    values: float = 0.0


@claim(
    id="dyck/larger-models",
    statement=(
        "More width and more layers, which attend at random, keep the exact next-token law: what holds for two layers "
        "of width 3kD + 3 holds for every larger architecture."
    ),
    source=wen("remarks after Theorem 2.2.1 on wider and deeper models"),
    scales={"smoke": Larger(layers=(2, 4), widths=(27, 64), longest=6), "desk": Larger()},
    controls=(Control("values in the further layers", {"values": 0.1}, ("largest error",)),),
)
def larger(settings: Larger, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "values")
    rows, errors = [], []
    for layers, width in product(settings.layers, settings.widths):
        model = theory.build("random", layers=layers, width=width, seed=lab.seeds[0])
        for i in range(2, layers):
            name = f"blocks.{i}.attn.W_V"
            drawn = torch.randn(model.get_parameter(name).shape, generator=generator, dtype=torch.float64)
            model.set(name, settings.values * drawn)
        errors.append(theory.check(model, WORLD, longest=settings.longest).error)
        rows.append([layers, width, sum(p.numel() for p in model.parameters()), errors[-1]])
    return Evidence(
        [bounded("largest error", errors, EXACT, unit="model")],
        tables={"models": Table(["layers", "width", "parameters", "largest error"], rows)},
    )


CLAIMS = (uniform, random, misleading, determines_nothing, larger)
