"""The bounds that carry the pruning theorem, each with its best constant: never exceeded, and attained.

Suprema are looked for by gradient ascent from many random starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from sandtable.claims.dyck.setting import wen
from sandtable.lab import Check, Control, Evidence, Lab, Table, bounded, claim, exceeds
from sandtable.lab.figures import comparison
from sandtable.models import DeepMLP
from sandtable.models.attention import silent
from sandtable.models.blocks import UnitNorm
from sandtable.theory import pruning
from sandtable.theory.pruning import bounds
from sandtable.training.optimizers import Adam, defaults

ATTAINED = 0.01
ROUNDING = 1e-6
"""Of a ratio of differences: moves of 1e−4 in float64."""
MOVE = 1e-4

EPS = (0.1, 1.0, 3.0)
NORMS = (0.1, 0.5, 2.0)
COMPOSED = ((2.0, 0.01, 0.5, 0.1), (0.5, 0.1, 2.0, 0.01), (1.0, 0.2, 1.0, 0.3))
"""λ₁, ε₁, λ₂, ε₂."""
ATTENDED = ((4.0, 0.5), (1.0, 0.5), (0.5, 2.0))
"""Radius R (4L with L = 1 the first) and C."""
VALUES = ((0.1, 0.2, 1.0), (1.0, 0.5, 3.0), (0.01, 1.0, 0.5))
"""ε₁, ε₂ and ‖P‖₁,₂."""


def climb(
    score: Callable[..., Tensor], shapes: Sequence[tuple[int, ...]], *, steps: int, generator: torch.Generator
) -> Float[Tensor, " case"]:
    """The largest score of every case on the way up from random starts (their first axis); `score` is "start case"."""
    at = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    rule = Adam(lr=0.05)
    settings = {name: torch.full(shapes[0][:1], value).double() for name, value in defaults(rule).items()}
    states = [rule.start(x) for x in at]
    best = torch.tensor(-torch.inf)
    for _ in range(steps):
        found = score(*at)
        best = torch.maximum(best, found.detach().amax(0))
        grads = torch.autograd.grad(found.sum(), at)
        with torch.no_grad():
            for x, grad, state in zip(at, grads, states, strict=True):
                rule.update(x, -grad, state, settings["lr"], settings)
    return best


def _to_ball(x: Tensor) -> Tensor:
    return x / vector_norm(x, dim=-1, keepdim=True).clamp(min=1.0)


def _to_sphere(x: Tensor) -> Tensor:
    return x / vector_norm(x, dim=-1, keepdim=True)


def _to_norm(x: Tensor, norm: Tensor) -> Tensor:
    """Matrices with the given spectral norm."""
    return x * (norm / matrix_norm(x, 2))[..., None, None]


def _column(rows: Sequence[Sequence[float]], index: int) -> Tensor:
    return torch.tensor([row[index] for row in rows], dtype=torch.float64)


# -- one score for every fact ----------------------------------------------------------------------------------------


def softmax_score(x: Tensor, move: Tensor) -> Tensor:
    """‖σ(x + move) − σ(x)‖₁ for ‖move‖∞ = ε."""
    eps = torch.tensor(EPS, dtype=torch.float64)[:, None]
    move = eps * move / move.abs().amax(-1, keepdim=True)
    return ((x + move).softmax(-1) - x.softmax(-1)).abs().sum(-1)


def layer_norm_score(x: Tensor, move: Tensor) -> Tensor:
    """‖LN_C(x + move) − LN_C(x)‖ / ‖move‖."""
    norms = [UnitNorm(x.shape[-1], eps=c) for c in NORMS]
    gaps = [norm((x + move)[:, i]) - norm(x[:, i]) for i, norm in enumerate(norms)]
    return vector_norm(torch.stack(gaps, 1), dim=-1) / vector_norm(move, dim=-1)


def composition_score(g1: Tensor, e1: Tensor, g2: Tensor, e2: Tensor) -> Tensor:
    """‖(G₂ + E₂)(G₁ + E₁) − G₂G₁‖₂ for matrices of norms λ and ε."""
    g1, e1, g2, e2 = (_to_norm(x, _column(COMPOSED, i)) for i, x in enumerate((g1, e1, g2, e2)))
    return matrix_norm((g2 + e2) @ (g1 + e1) - g2 @ g1, 2)


def attention_score(x: Tensor, move: Tensor, scores: Tensor, values: Tensor) -> Tensor:
    """How far LN_C(attention(X)) + X moves at the last position, per move of X."""
    x, move = _column(ATTENDED, 0)[:, None, None] * _to_ball(x), MOVE * _to_ball(move)
    one = torch.ones(len(ATTENDED), dtype=torch.float64)
    scores, values = _to_norm(scores, one), _to_norm(values, one)
    # So that both ends stay in the ball of radius R.
    x = x * (1 - MOVE / _column(ATTENDED, 0))[:, None, None]
    return vector_norm(_layer(x + move, scores, values) - _layer(x, scores, values), dim=-1) / MOVE


def _layer(x: Tensor, scores: Tensor, values: Tensor) -> Tensor:
    """LN_C(attention(X)) + X at the last position, C by case."""
    query = x[..., -1, :]
    weights = (x @ scores @ query[..., None]).softmax(-2)
    out = (weights.mT @ x @ values)[..., 0, :]
    out = torch.stack([UnitNorm(3, eps=c)(out[..., i, :]) for i, (_, c) in enumerate(ATTENDED)], dim=-2)
    return out + query


def witnessed(keys: int) -> Tensor:
    """The same score at the inputs that come nearest to the bound: there are too many keys to climb there."""
    found = [bounds.attention_witness(radius, keys) for radius, _ in ATTENDED]
    x, move, scores, values = (torch.stack(parts) for parts in zip(*found, strict=True))
    return attention_score(x / _column(ATTENDED, 0)[:, None, None], move, scores, values)


def values_score(p: Tensor, off: Tensor, rest: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """‖BA − Pσ‖ for ‖P‖₁,₂ of the given size, B off P by ε₂, and A, σ two mixtures that share all but ε₁/2."""
    pattern, values, size = (_column(VALUES, i) for i in range(3))
    p = (size / pruning.norm12(p))[..., None, None] * p
    b = p + (values / pruning.norm12(off))[..., None, None] * off
    a, sigma = (rest.softmax(-1).lerp(part.softmax(-1), pattern[:, None] / 2) for part in (one, two))
    return vector_norm((a[..., None] * b - sigma[..., None] * p).sum(-2), dim=-1)


def stages_score(x: Tensor, w1: Tensor, e1: Tensor, w2: Tensor, e2: Tensor) -> Tensor:
    """‖ReLU(x(W₁ + E₁))(W₂ + E₂) − ReLU(xW₁)W₂‖ / ‖x‖ for norms 2√2 and ε/8."""
    eps = torch.tensor(EPS, dtype=torch.float64)
    w1, w2 = (_to_norm(w, torch.full_like(eps, 8**0.5)) for w in (w1, w2))
    e1, e2 = (_to_norm(e, eps / 8) for e in (e1, e2))
    x = _to_sphere(x)[..., None, :]
    return vector_norm((x @ (w1 + e1)).relu() @ (w2 + e2) - (x @ w1).relu() @ w2, dim=-1)[..., 0]


# -- never exceeded, and attained ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    starts: int = 16
    steps: int = 400
    keys: int = 400
    factor: float = 1.0
    composition: str = "corrected"
    avoiding: str = "random"
    mean_free: bool = True


FACTS = ("softmax", "layer norm", "composition", "attention", "attended values", "two stages")


@claim(
    id="dyck/helper-bounds",
    statement=(
        "The bounds behind the pruning theorem hold with these constants and with no smaller ones: 2 tanh(ε/2) for "
        "softmax, 1/C for LN_C, (λ₁ + ε₁)(λ₂ + ε₂) − λ₁λ₂ for composition, (R² + √(R⁴ + 1))/C + 1 for "
        "LN_C(attention) + X, ε₁‖P‖ + ε₂ for attended values and 4√2 ε₀ + ε₀² for two stages; and n − 2 orthonormal "
        "mean-free vectors can avoid any points."
    ),
    source=wen("Lemmas 2.2.3–2.2.16, constants sharpened"),
    scales={"smoke": Bounds(steps=150), "desk": Bounds(starts=64, steps=1500, keys=2000)},
    controls=(
        Control("constants 2 % smaller", {"factor": 0.98}, tuple(f"{fact}: respected" for fact in FACTS)),
        Control("constants 2 % larger", {"factor": 1.02}, tuple(f"{fact}: attained" for fact in FACTS)),
        Control("orthogonal to one of the points", {"avoiding": "a point"}, ("points outside the span",)),
        Control("means not taken out", {"mean_free": False}, ("orthonormal and mean-free",)),
    ),
)
def helpers(settings: Bounds, lab: Lab) -> Evidence:
    found = {k: v[0] for k, v in lab.measure(maxima, settings.starts, settings.steps, settings.keys).items()}
    best, printed = constants(settings.composition), printed_constants()
    checks: list[Check] = []
    for fact in FACTS:
        ratio = found[fact] / (settings.factor * np.array(best[fact]))
        checks.append(bounded(f"{fact}: respected", ratio - 1, 0.0, atol=ROUNDING, unit="case"))
        checks.append(bounded(f"{fact}: attained", 1 - ratio, ATTAINED, unit="case"))
    basis, points = missing(settings, lab.generator(lab.seeds[0], "points"))
    outside = float((vector_norm(points - points @ basis.mT @ basis, dim=1) / vector_norm(points, dim=1)).min())
    off = max(float((basis @ basis.mT - torch.eye(len(basis))).abs().max()), float(basis.sum(1).abs().max()))
    checks.append(exceeds("points outside the span", outside, 1e-9, unit="point", deterministic=True))
    checks.append(bounded("orthonormal and mean-free", off, 1e-12, unit="basis"))
    rows = [
        (f"{fact}, {case}", value, best[fact][i], printed[fact][i] if fact in printed else None)
        for fact in FACTS
        for i, (case, value) in enumerate(zip(CASES[fact], found[fact].tolist(), strict=True))
    ]
    return Evidence(
        checks,
        figures={
            "constants": lambda: comparison(
                [(label, value / low, value / low, 1.0, up / low) for label, value, low, up in rows if up is not None],
                xlabel="over the best constant; dashed: as printed",
                title="Printed constants: loose, or too small",
                log_x=True,
            )
        },
        tables={
            "constants": Table(["bound", "largest found", "best constant", "printed"], [list(row) for row in rows])
        },
        notes=[
            "The printed constants of softmax, LN_C and attention (for R = 4L) are valid and loose; the printed bound "
            "on composition is exceeded. Where none is shown, the printed one is the best."
        ],
    )


CASES = {
    "softmax": [f"ε = {eps:g}" for eps in EPS],
    "layer norm": [f"C = {c:g}" for c in NORMS],
    "composition": ["λ = {0:g}, {2:g}; ε = {1:g}, {3:g}".format(*case) for case in COMPOSED],
    "attention": ["R = {:g}, C = {:g}".format(*case) for case in ATTENDED],
    "attended values": ["ε = {:g}, {:g}; ‖P‖ = {:g}".format(*case) for case in VALUES],
    "two stages": [f"ε = {eps:g}" for eps in EPS],
}


def maxima(lab: Lab, starts: int, steps: int, keys: int) -> dict[str, np.ndarray]:
    """Per seed and case, the largest value of every fact that was found."""
    rows: dict[str, list[np.ndarray]] = {fact: [] for fact in FACTS}
    for seed in lab.seeds:
        for fact, (score, *shapes) in SCORES.items():
            lab.say(f"looking for the largest: {fact}")
            shapes = [(starts, 3, *shape) for shape in shapes]
            best = climb(score, shapes, steps=steps, generator=lab.generator(seed, fact))
            rows[fact].append((torch.maximum(best, witnessed(keys)) if fact == "attention" else best).numpy())
    return {fact: np.stack(values) for fact, values in rows.items()}


SCORES: dict[str, tuple] = {
    "softmax": (softmax_score, (4,), (4,)),
    "layer norm": (layer_norm_score, (4,), (4,)),
    "composition": (composition_score, *[(2, 2)] * 4),
    "attention": (attention_score, (7, 3), (7, 3), (3, 3), (3, 3)),
    "attended values": (values_score, (4, 3), (4, 3), (4,), (4,), (4,)),
    "two stages": (stages_score, (2,), *[(2, 2)] * 4),
}


def constants(composition: str) -> dict[str, list[float]]:
    compose = bounds.composition if composition == "corrected" else bounds.composition_printed
    return {
        "softmax": [bounds.softmax_perturbation(eps) for eps in EPS],
        "layer norm": [bounds.layer_norm_lipschitz(c) for c in NORMS],
        "composition": [compose(*case) for case in COMPOSED],
        "attention": [bounds.attention_lipschitz(*case) for case in ATTENDED],
        "attended values": [bounds.value_error(*case) for case in VALUES],
        "two stages": [bounds.two_stage_error(eps) for eps in EPS],
    }


def printed_constants() -> dict[str, list[float | None]]:
    return {
        "softmax": [bounds.softmax_perturbation_printed(eps) for eps in EPS],
        "layer norm": [bounds.layer_norm_lipschitz_printed(c) for c in NORMS],
        "composition": [bounds.composition_printed(*case) for case in COMPOSED],
        "attention": [bounds.attention_lipschitz_printed(1, c) if r == 4.0 else None for r, c in ATTENDED],
    }


def missing(settings: Bounds, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A basis that should avoid the points, and the points: mean-free, as only those could lie in its span."""
    points = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    points = points - points.mean(1, keepdim=True)
    if settings.avoiding == "random" and settings.mean_free:
        return bounds.missing_basis(points, generator=generator), points
    ones = torch.ones(1, 6, dtype=torch.float64)
    # Orthogonal to what is orthogonal to a point: the point itself lies in the span.
    v = bounds.orthogonal_to(torch.cat([ones, points[:1]]))[:1]
    return bounds.orthogonal_to(torch.cat([ones, v]) if settings.mean_free else v), points


# -- directions of sums ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Directions:
    starts: int = 32
    steps: int = 300
    ratio: str = "2/ε"
    factor: float = 1.0


RADII = tuple((eps, r0) for eps in (0.05, 0.2, 0.5) for r0 in (0.05, 0.3, 1.0, 3.0))
"""ε and r₀."""


@claim(
    id="dyck/added-direction",
    statement=(
        "For ‖a‖, ‖b‖ ≤ r₀ the directions of a + r and b + r differ by at most ε from ‖r‖ = 2r₀/ε on, and not before."
    ),
    source=wen("proof of Theorem 2.2.2, R_ε corrected"),
    scales={"smoke": Directions(), "desk": Directions(starts=200, steps=2000)},
    controls=(
        Control("2 % nearer", {"factor": 0.98}, ("distance over ε: respected",)),
        Control("2 % further", {"factor": 1.02}, ("distance over ε: attained",)),
    ),
)
def directions(settings: Directions, lab: Lab) -> Evidence:
    ratio = [
        bounds.needed_ratio(eps) if settings.ratio == "2/ε" else bounds.needed_ratio_printed(eps, r0)
        for eps, r0 in RADII
    ]
    ratio = [settings.factor * r for r in ratio]
    found = lab.measure(gaps, tuple(ratio), settings.starts, settings.steps)["gap"][0]
    over = found / np.array([eps for eps, _ in RADII])
    return Evidence(
        [
            bounded("distance over ε: respected", over - 1, 0.0, atol=ROUNDING, unit="case"),
            bounded("distance over ε: attained", 1 - over, ATTAINED, unit="case"),
        ],
        tables={
            "distances": Table(
                ["ε", "r₀", "‖r‖ / r₀", "largest distance", "over ε"],
                [[*case, r, *row] for case, r, *row in zip(RADII, ratio, found.tolist(), over.tolist(), strict=True)],
            )
        },
    )


def gaps(lab: Lab, ratio: tuple[float, ...], starts: int, steps: int) -> dict[str, np.ndarray]:
    """Per seed and case, the largest distance of two directions that was found at ‖r‖ = ratio · r₀."""
    r0, far = _column(RADII, 1)[:, None], torch.tensor(ratio, dtype=torch.float64)[:, None]

    def score(a: Tensor, b: Tensor, r: Tensor) -> Tensor:
        a, b, r = r0 * _to_ball(a), r0 * _to_ball(b), far * r0 * _to_sphere(r)
        return vector_norm(_to_sphere(a + r) - _to_sphere(b + r), dim=-1)

    shapes = [(starts, len(RADII), 3)] * 3
    found = [climb(score, shapes, steps=steps, generator=lab.generator(seed, "directions")) for seed in lab.seeds]
    return {"gap": torch.stack(found).numpy()}


# -- several networks in one -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Multiplex:
    draws: int = 20
    networks: int = 4
    inputs: int = 200
    spacing: float = 2.0
    biases: str = "chosen"


@claim(
    id="dyck/multiplexer",
    statement=(
        "K ReLU networks with one hidden layer are one network with one hidden layer that is told k: "
        "f([k; x]) = f_k(x) on bounded x, with pre-activations 2M apart and the output bias of f_k."
    ),
    source=wen("Lemma 2.2.19, corrected"),
    scales={"smoke": Multiplex(), "desk": Multiplex(draws=300)},
    controls=(
        Control("pre-activations M apart", {"spacing": 1.0}, ("largest error",)),
        Control("the sum of all output biases", {"biases": "summed"}, ("largest error",)),
    ),
)
def multiplexed(settings: Multiplex, lab: Lab) -> Evidence:
    forms = ((1.0, "summed"), (1.0, "chosen"), (2.0, "chosen"))
    generator = lab.generator(lab.seeds[0], "networks")
    errors: dict[tuple[float, str], list[float]] = {}
    for _ in range(settings.draws):
        networks = [_one_hidden_layer(generator) for _ in range(settings.networks)]
        x = torch.randn(settings.inputs, 3, generator=generator, dtype=torch.float64)
        for form in {*forms, (settings.spacing, settings.biases)}:
            errors.setdefault(form, []).append(_multiplex_error(networks, x, *form))
    return Evidence(
        [bounded("largest error", errors[settings.spacing, settings.biases], 1e-9, unit="draw")],
        tables={
            "errors": Table(
                ["pre-activations apart by", "output biases", "median error", "largest error"],
                [[f"{s:g} M", b, float(np.median(errors[s, b])), max(errors[s, b])] for s, b in forms],
            )
        },
        notes=["The first row is the printed form; with its biases put right, the second, the error stays."],
    )


def _one_hidden_layer(generator: torch.Generator) -> DeepMLP:
    net = DeepMLP(3, (6,), out_width=2).double().requires_grad_(False)
    for parameter in net.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.copy_(drawn / len(parameter) ** 0.5)
    return net


def _multiplex_error(networks: list[DeepMLP], x: Tensor, spacing: float, biases: str) -> float:
    inner = [x @ net.get_parameter("W_0") + net.get_parameter("b_0") for net in networks]
    bound = max(float(u.abs().max()) for u in inner)
    made = pruning.multiplexer(networks, bound, spacing=spacing, biases=biases)
    told = partial(torch.full, (len(x), 1), dtype=torch.float64)
    gaps = [made(torch.cat([told(float(k)), x], 1), silent) - net(x, silent) for k, net in enumerate(networks, start=1)]
    return max(float(gap.abs().max()) for gap in gaps)


CLAIMS = (helpers, directions, multiplexed)
