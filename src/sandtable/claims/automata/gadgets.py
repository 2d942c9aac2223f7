"""The parts that exact networks are made of: tables, thresholds, composition of maps, sharp softmax, positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from sandtable.claims.automata.sources import liu
from sandtable.lab import Claim, Control, Evidence, Lab, Table, bounded, claim, printed
from sandtable.lab.figures import curves
from sandtable.theory.automata.compile import gadgets
from sandtable.theory.automata.compile.networks import Net

EXACT = 1e-9
GAP = 0.7
"""Δ of lookups and thresholds; tables have whole numbers, Δ = 1."""

PASSED = "noise grown, both maps noisy"

# -- tables and thresholds -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gadgets:
    tables: int = 30
    noise: float = 0.25
    spacing: float = 1.0
    bias: str = "d − 1"
    half_width: float = 0.5
    product: str = "f(q') where g(q) = q'"
    shut: str = "2n"
    """By how much units of the composition that forgives noise of the later map are shut."""
    maps: tuple[int, ...] = (2, 3)


@claim(
    id="automata/gadgets",
    statement=(
        "Small ReLU networks look up tables over a line and over several whole numbers, decide signs and compose maps "
        "exactly under noise of a quarter of the spacing Δ, within the widths and norms of their lemmas. Of the maps "
        "composed it is the earlier one that may be noisy; noise of the later one passes, and does not grow where "
        "units are shut by twice as much."
    ),
    source=liu("Lemmas 10, 11, 12 and 14, corrected"),
    scales={"smoke": Gadgets(), "desk": Gadgets(tables=200, maps=(2, 3, 4))},
    controls=(
        Control(
            "noise of 0.3 Δ, for signs 0.6 Δ",
            {"noise": 0.3},
            ("table on a line", "table", "sign", "composition", PASSED),
        ),
        Control("units shut by n, not 2n", {"shut": "n"}, (PASSED,)),
        Control("points half as far apart, ramps half as wide", {"spacing": 0.5, "half_width": 0.25}, ("over bound",)),
    ),
)
def exact_gadgets(settings: Gadgets, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "tables")
    errors: dict[str, list[float]] = {"table on a line": [], "table": [], "sign": [], "composition": [], PASSED: []}
    over: list[float] = []
    for _ in range(settings.tables):
        _line(settings, generator, errors["table on a line"], over)
        _table(settings, generator, errors["table"], over)
    _sign(settings, errors["sign"], over)
    for n in settings.maps:
        _composition(settings, n, generator, errors["composition"], over)
        _passed(settings, n, generator, errors[PASSED], over)
    return Evidence(
        [
            *(bounded(name, found, EXACT, unit="network") for name, found in errors.items()),
            bounded("over bound", over, 1.0, atol=EXACT, unit="size"),
        ],
        figures={"ramps": _ramps},
    )


def _line(settings: Gadgets, generator: torch.Generator, errors: list[float], over: list[float]) -> None:
    count = int(torch.randint(2, 12, (), generator=generator))
    steps = settings.spacing * GAP * torch.randint(1, 4, (count,), generator=generator).double()
    steps[0] = settings.spacing * GAP  # some neighbours are as near as points may be
    points = steps.cumsum(0) - 3.0
    values = 5 * (2 * torch.rand(count, 3, generator=generator).double() - 1)
    found = gadgets.lookup(points, values)
    moved = points + _noise(points, settings.noise * GAP * settings.spacing, generator)
    errors.append(float((found(moved[:, None]) - values).abs().max()))
    largest = float(points.abs().max())
    over += _over(found, [4 * count], [4 / GAP, float(values.abs().max())], [4 * largest / GAP + 2, 0.0])


def _table(settings: Gadgets, generator: torch.Generator, errors: list[float], over: list[float]) -> None:
    dimensions = int(torch.randint(2, 5, (), generator=generator))
    points = torch.unique(torch.randint(-2, 4, (40, dimensions), generator=generator), dim=0).double()
    values = 5 * (2 * torch.rand(len(points), 2, generator=generator).double() - 1)
    bias = None if settings.bias == "d − 1" else -float(dimensions)
    found = gadgets.table(points, values, bias=bias)
    errors.append(float((found(points + _noise(points, settings.noise, generator)) - values).abs().max()))
    seen = 4 * sum(len(column.unique()) for column in points.T)
    largest = float(points.abs().max())
    over += _over(
        found,
        [seen, len(points)],
        [4.0, 1.0, float(values.abs().max())],
        [4 * largest + 2, float(dimensions), 0.0],
    )


def _sign(settings: Gadgets, errors: list[float], over: list[float]) -> None:
    found = gadgets.positive(GAP, half_width=settings.half_width * GAP)
    noise = GAP * (2 * settings.noise if settings.noise > gadgets.EXACT_WITHIN else settings.noise)
    x = GAP * torch.tensor([-5.0, -2.0, -1.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    for moved in (x - noise, x, x + noise):
        errors.append(float((found(moved[:, None])[:, 0] - (x > 0).double()).abs().max()))
    over += _over(found, [2], [1 / GAP, 1.0], [0.5, 0.0])


def _pairs(n: int) -> tuple[Tensor, Tensor]:
    """All pairs of maps of n states."""
    maps = torch.tensor(list(product(range(n), repeat=n)))
    return maps.repeat_interleave(len(maps), 0), maps.repeat(len(maps), 1)


def _composition(settings: Gadgets, n: int, generator: torch.Generator, errors: list[float], over: list[float]) -> None:
    """The earlier map with noise."""
    first, second = _pairs(n)
    read = torch.cat([first + 1 + _noise(first.double(), settings.noise, generator), second + 1.0], 1)
    found = gadgets.composition(n, product=settings.product)
    errors.append(float((found(read) - (second.gather(1, first) + 1.0)).abs().max()))
    over += _over_composition(found, n)


def _passed(settings: Gadgets, n: int, generator: torch.Generator, errors: list[float], over: list[float]) -> None:
    """Both maps with noise; what is off beyond the noise of the later one."""
    first, second = _pairs(n)
    read = torch.cat([first, second], 1) + 1.0
    found = gadgets.composition(n, robust=settings.shut == "2n")
    answer = found(read + _noise(read, settings.noise, generator))
    errors.append(float((answer - (second.gather(1, first) + 1.0)).abs().max()) - settings.noise)
    over += _over_composition(found, n)


def _over_composition(found: Net, n: int) -> list[float]:
    norm = 4.0 * n + 2
    return _over(found, [4 * n * n + n, n * n], [norm] * 3, [norm] * 3)


def _noise(like: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Every number moved by `size`, up or down."""
    return size * (2.0 * torch.randint(2, like.shape, generator=generator).double() - 1)


def _over(found: Net, widths: list[int], weights: list[float], biases: list[float]) -> list[float]:
    """Widths and largest entries over what they may be."""
    sizes = [layer.shape[1] / width for layer, width in zip(found.weights, widths, strict=False)]
    for matrices, limits in ((found.weights, weights), (found.biases, biases)):
        for matrix, limit in zip(matrices, limits, strict=True):
            largest = float(matrix.abs().max())
            sizes.append(largest / limit if limit else float(largest > 0))
    return sizes


def _ramps() -> Figure:
    x = torch.linspace(-1.5, 1.5, 601, dtype=torch.float64)
    forms: dict[str, Float[Tensor, " point"]] = {
        "ramp of half-width Δ/2": gadgets.positive(1.0)(x[:, None])[:, 0],
        "as printed, Δ": gadgets.positive(1.0, half_width=1.0)(x[:, None])[:, 0],
    }
    return curves(
        x.numpy(),
        {name: values.numpy() for name, values in forms.items()},
        xlabel="x / Δ; inputs are at most −3/4 or at least 3/4",
        title="1[x > 0]: the printed ramp is not flat where inputs lie",
    )


# -- softmax ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Softmax:
    rows: int = 200
    share: float = 1.0


@claim(
    id="automata/sharp-softmax",
    statement="If one of T scores exceeds all others by γ, softmax is within 2T·exp(−γ) of it in L1.",
    source=liu("Lemma 13"),
    scales={"smoke": Softmax(), "desk": Softmax(rows=5000)},
    controls=(Control("others only γ/2 below", {"share": 0.5}, ("distance over 2T·exp(−γ)",)),),
)
def softmax(settings: Softmax, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "scores")
    ratios, rows = [], []
    for length, gap in product((2, 8, 100, 1000), (0.5, 2.0, 8.0, 20.0)):
        below = torch.rand(settings.rows, length, generator=generator, dtype=torch.float64)
        below[0] = 0.0  # all others as near as they may be
        scores = -settings.share * gap - 3 * below
        scores[:, 0] = 0.0
        rest = 1 / (1 + torch.logsumexp(scores[:, 1:], 1).neg().exp())  # 1 − α of the best, without cancellation
        ratios.append(float((2 * rest).max()) / (2 * length * math.exp(-gap)))
        rows.append([length, gap, float((2 * rest).max()), 2 * length * math.exp(-gap)])
    return Evidence(
        [bounded("distance over 2T·exp(−γ)", ratios, 1.0, unit="pair (T, γ)")],
        tables={"distances": Table(["T", "γ", "largest distance", "2T·exp(−γ)"], rows)},
    )


# -- positions on a circle -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Circle:
    longest: int = 300
    constant: str = "8"
    absolute: bool = False
    turns: float = 1.0


@claim(
    id="automata/circle",
    statement=(
        "Positions on a circle, p_t = (cos 2πt/T, sin 2πt/T), have inner products of at most 1 − 8/T² with one another."
    ),
    source=liu("Proposition 2, corrected"),
    scales={"smoke": Circle(), "desk": Circle(longest=2000)},
    controls=(Control("half a circle", {"turns": 0.5}, ("above 1 − c/T²",)),),
)
def circle(settings: Circle, lab: Lab) -> Evidence:
    constant = 8.0 if settings.constant == "8" else 2 * math.pi**2
    lengths = sorted({*range(2, 65), *(2**k for k in range(7, 12) if 2**k <= settings.longest), settings.longest})
    above, nearest = [], []
    for length in lengths:
        angles = 2 * math.pi * settings.turns * torch.arange(length, dtype=torch.float64) / length
        points = torch.stack([angles.cos(), angles.sin()], 1)
        inner = points @ points.T
        inner = inner.abs() if settings.absolute else inner
        largest = float(inner.masked_fill(torch.eye(length, dtype=torch.bool), -1.0).max())
        above.append(largest - (1 - constant / length**2))
        nearest.append((1 - largest) * length**2)
    return Evidence(
        [bounded("above 1 − c/T²", above, 1e-12, unit="T")],
        figures={
            "distance from 1": lambda: curves(
                lengths,
                {"(1 − largest inner product)·T²": nearest},
                predictions={"8": [8.0] * len(lengths), "2π², as printed": [2 * math.pi**2] * len(lengths)},
                log_x=True,
                xlabel="T",
                title="How far the nearest positions are apart",
            )
        },
    )


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED: tuple[Claim, ...] = (
    printed(
        "lookup-bias",
        exact_gadgets,
        {"bias": "d"},
        statement="Unit ReLU(Σ_i ψ_{x_i} − d) tells whether d coordinates have their values x_i.",
        where="Lemma 11",
        erratum="The sum of d indicators is at most d, so that the unit is 0 everywhere. The bias must be −(d − 1).",
    ),
    printed(
        "threshold-ramp",
        exact_gadgets,
        {"half_width": 1.0},
        statement="((x + Δ)/2Δ)₊ − ((x − Δ)/2Δ)₊ is 1[x > 0] for |x| ≥ Δ under noise of Δ/4.",
        where="Lemma 12",
        erratum="At x = Δ − Δ/4 it is 0.875. A ramp of half-width Δ/2 is exact, with the norms that the lemma states.",
    ),
    printed(
        "composition-product",
        exact_gadgets,
        {"product": "f(q)"},
        statement="Coordinate q of f∘g is the sum over q' of f(q)·1[g(q) = q'].",
        where="Lemma 14, the displayed product",
        erratum="That is f(q) whatever g is. It must be f(q')·1[g(q) = q'], summed over q' for every q.",
    ),
    printed(
        "circle",
        circle,
        {"constant": "2π²", "absolute": True},
        statement="|⟨p_t, p_t'⟩| ≤ 1 − 2π²/T² for positions t ≠ t' on a circle.",
        where="Proposition 2",
        erratum=(
            "Opposite points have inner product −1, and cos x ≥ 1 − x²/2 goes the other way. Without the absolute "
            "value 1 − 8/T² is right for all T ≥ 2; 2π² is the limit of the constant, from below."
        ),
    ),
)

CLAIMS = (exact_gadgets, softmax, circle, *PRINTED)
