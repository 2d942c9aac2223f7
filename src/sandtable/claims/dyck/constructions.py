"""Transformers that know brackets exactly, whatever they attend to: uniform, random and misleading attention."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import torch

from sandtable.claims.dyck.setting import PAIRS, PATTERN, SIZE, TYPES, WORLD, attention_maps, pattern, variation, wen
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, statistic
from sandtable.lab.figures import comparison
from sandtable.models import Transformer
from sandtable.theory import dyck as theory
from sandtable.theory.dyck.baselines import random_variation
from sandtable.worlds import Batch, DyckPrefixes

EXACT = 1e-6
"""Of errors in float64: rounding is amplified by the table of the first layer and by the reader of the stack."""

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
        "Second-layer scores drawn at random and projected to balance — 249 of 289 dimensions are free for two types "
        "and depth four — all give exact models, whose attention patterns differ by more than random patterns do."
    ),
    source=wen("Theorem 2.2.1, sufficiency; section 2.2.3 for the variation of attention"),
    scales={"smoke": Random(samples=20, longest=5, long=60), "desk": Random()},
    controls=(
        Control("scores not balanced", {"balanced": False}, ("all prefixes", "long prefixes")),
        Control("scores of size 0.3", {"scale": 0.3}, ("variation of attention",)),
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
    threshold: float = 0.0025  # about e^−6: a reader that takes any trace of an opener for an open bracket
    closers: float = 1.0


@claim(
    id="dyck/misleading-attention",
    statement=(
        "An exact model can look like a stack and hide what it needs: its closers attend to openers of the right "
        "depth (0.16 % of attention goes to closers, 35 % to the last open bracket), yet without the attention to "
        "closers it closes 59 % of brackets rightly after a closer; under uniform attention 43 % goes there and "
        "76 % are closed rightly without it."
    ),
    source=wen("Theorem 2.2.1, a construction that looks like a stack"),
    scales={"smoke": Misleading(rows=400), "desk": Misleading(rows=1500)},
    controls=(
        Control(
            "the two models exchanged",
            {"attention": "uniform", "uniform": "misleading"},
            ("attention to closers", "attention to the last open bracket", "uniform: attention to closers"),
        ),
        Control("short prefixes", {"length": 8}, ("right without closers", "uniform: right without closers")),
        Control("values of closers a tenth smaller", {"closers": 0.9}, ("right with closers",)),
    ),
)
def misleading(settings: Misleading, lab: Lab) -> Evidence:
    world = DyckPrefixes(**SIZE, length=settings.length)
    batch = world.sample(settings.rows, lab.generator(lab.seeds[0], "rows"))
    asked = world.brackets.closes(batch.x) & (batch.latents["depth"] > 0)
    found = {name: _ablated(settings, name, batch, asked) for name in (settings.attention, settings.uniform)}
    look, flat = found[settings.attention], found[settings.uniform]
    published = [
        ["closers attended to", 0.0016, 0.43],
        ["last open bracket", 0.35, None],
        ["without closers", 0.59, 0.76],
    ]
    measured = [(look[key].mean(), flat[key].mean()) for key in ("closers", "top", "without")]
    return Evidence(
        [
            exact("right with closers", look["with"], 1.0, unit="prompt"),
            agrees("attention to closers", look["closers"], 0.0016, relative=0.1, unit="prompt"),
            agrees("attention to the last open bracket", look["top"], 0.35, relative=0.12, unit="prompt"),
            agrees("right without closers", look["without"], 0.59, within=0.08, shift=0.3, unit="prompt"),
            agrees("uniform: attention to closers", flat["closers"], 0.43, relative=0.1, unit="prompt"),
            agrees("uniform: right without closers", flat["without"], 0.76, within=0.08, shift=0.3, unit="prompt"),
        ],
        figures={
            "attention": lambda: _three_maps("Which one is the stack? (boxes: last open bracket)"),
            "without closers": lambda: comparison(
                [
                    (f"{name}: {label}", float(found[name][key].mean()), *_range(found[name][key]), predicted)
                    for name, values in (("misleading", (0.0016, 0.59)), ("uniform", (0.43, 0.76)))
                    if name in found
                    for label, key, predicted in zip(
                        ("attention to closers", "right without it"), ("closers", "without"), values, strict=True
                    )
                ],
                title="Little attention, much needed",
                xlabel="share",
            ),
        },
        tables={
            "misleading and uniform": Table(
                ["quantity", "misleading, expected", "misleading", "uniform, expected", "uniform"],
                [[label, a, x, b, y] for (label, a, b), (x, y) in zip(published, measured, strict=True)],
            )
        },
        notes=[
            "Shares are over closers that leave a bracket open; ties between closers count half. The expected numbers "
            "are those of an earlier computation that did not state its length; 60 brackets match all of them."
        ],
    )


def _range(values: np.ndarray) -> tuple[float, float]:
    half = 2.6 * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


def _ablated(settings: Misleading, name: str, batch: Batch, asked: torch.Tensor) -> dict[str, np.ndarray]:
    """Per row: attention to closers and to the top, and how often the right closer wins, with and without closers."""
    if name == "uniform":
        scores, threshold = theory.uniform_scores(**SIZE), 1.0
    else:
        scores, threshold = theory.misleading_scores(**SIZE, scale=settings.scale), settings.threshold
    model = theory.from_scores(scores, **SIZE, threshold=threshold)
    model = _closers_scaled(model, settings.closers, **SIZE)
    rows = asked.any(1)
    x, asked = batch.x[rows], asked[rows]
    top, opener = batch.latents["top"][rows], batch.latents["opener"][rows]
    blind = scores.clone()
    blind[PAIRS : 2 * PAIRS] = -1000.0
    plain, found = model(x, want=(PATTERN,))
    attention = found[PATTERN][:, 0]
    closers = (attention * WORLD.brackets.closes(x)[:, None]).sum(-1)
    on_top = attention.gather(-1, opener.clamp(min=0)[..., None])[..., 0]
    without = theory.with_scores(model, blind, **SIZE)(x)
    shares = {
        "closers": closers,
        "top": on_top,
        "with": _right(plain, top),
        "without": _right(without, top),
    }
    count = asked.sum(1)
    return {key: ((value * asked).sum(1) / count).numpy() for key, value in shares.items()}


def _right(out: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
    """1 where the right closer has the largest score, ½ where it shares it (two types), else 0."""
    right = out.gather(-1, TYPES + top.clamp(min=0)[..., None])[..., 0]
    wrong = out[..., TYPES:].sum(-1) - right
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
