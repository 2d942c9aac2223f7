"""What n sequences with m masks each guarantee: the bound on total variation, and its parts."""

from __future__ import annotations

import math
from typing import NamedTuple

from sandtable.arguments import number, typed, whole


class Bound(NamedTuple):
    """TV(p_θ̂, p) < √(½ C_AT (loss + deviation · ln(1/β) + ε)) + sampling, with probability 1 − δ."""

    total: float
    deviation: float
    sampling: float


@typed
def bound(
    loss: float,
    *,
    length: int,
    symbols: int,
    cells: float,
    masks: int,
    samples: int,
    delta: float,
    margin: float,
    resolution: float,
    tensorisation: float,
) -> Bound:
    """The finite-sample bound for an empirical loss.

    B = √(2^{3N} |Ω|^N C_ε/(mδ)) + √(ln(8 C_ε/δ)/(2n)),  C = √(|Ω|^{3N}/(8δn)): `cells` = C_ε cells on which all
    conditional log-probabilities vary by at most ε/2 (`resolution` = ε), `margin` = β the least conditional one.
    The loss is a cross-entropy in the statement; with the conditional KL (the excess over entropy) it says more.
    """
    n, size = whole("length", length), whole("symbols", symbols, least=2)
    m, count = whole("masks", masks), whole("samples", samples)
    number("loss", loss, least=0.0)
    number("cells", cells, least=1.0)
    number("delta", delta, above=0.0, most=1.0)
    number("resolution", resolution, above=0.0)
    number("tensorisation", tensorisation, least=1.0)
    deviation = math.sqrt(2.0 ** (3 * n) * float(size) ** n * cells / (m * delta))
    deviation += math.sqrt(math.log(8 * cells / delta) / (2 * count))
    sampling = math.sqrt(float(size) ** (3 * n) / (8 * delta * count))
    inside = loss + deviation * _most(margin) + resolution
    return Bound(math.sqrt(tensorisation / 2 * inside) + sampling, deviation, sampling)


@typed
def empirical_bound(*, length: int, symbols: int, samples: int, delta: float) -> float:
    """TV(p̃, p) < √(|Ω|^{3N}/(16δn)) with probability 1 − δ, p̃ the empirical law."""
    size = float(whole("symbols", symbols, least=2)) ** (3 * whole("length", length))
    return math.sqrt(size / (16 * number("delta", delta, above=0.0, most=1.0) * whole("samples", samples)))


class Deviation(NamedTuple):
    """|L̂ − L̃| < `width` with a probability of at least `probability`, which may be below 0: then nothing is said."""

    width: float
    probability: float


@typed
def deviation(
    *, length: int, symbols: int, masks: int, samples: int, margin: float, frequencies: float, total: float
) -> Deviation:
    """For one θ: |L̂ − L̃| < 2^N ε′ ln(1/β) + t/n, `frequencies` = ε′, `total` = t, n samples with m masks each,

    with probability 1 − 2^{N−2} |Ω|^N/(ε′² m) − 2 exp(−2t²/(n ln²(1/β))).
    """
    n, size = whole("length", length), float(whole("symbols", symbols, least=2))
    m, count = whole("masks", masks), whole("samples", samples)
    number("frequencies", frequencies, above=0.0)
    number("total", total, above=0.0)
    most = _most(margin)
    fails = 2.0 ** (n - 2) * size**n / frequencies / frequencies / m
    fails += 2 * math.exp(-2 * total**2 / (count * most**2)) if most else 0.0
    return Deviation(2.0**n * frequencies * most + total / count, 1 - fails)


@typed
def pointwise_bound(
    *,
    length: int,
    symbols: int,
    masks: int,
    samples: int,
    delta: float,
    margin: float,
    cells: float = 1.0,
    resolution: float = 0.0,
) -> float:
    """|L̂ − L̃| < (√(2^{3N−1} |Ω|^N C/(mδ)) + √(ln(4C/δ)/(2n))) ln(1/β) + ε with probability 1 − δ.

    For one θ, C = 1 and ε = 0; for all θ at once, C = `cells` on which conditional log-probabilities vary by at most
    ε/2, `resolution` = ε.
    """
    n, size = whole("length", length), whole("symbols", symbols, least=2)
    number("delta", delta, above=0.0, most=1.0)
    number("cells", cells, least=1.0)
    number("resolution", resolution, least=0.0)
    by_masks = math.sqrt(2.0 ** (3 * n - 1) * float(size) ** n * cells / (whole("masks", masks) * delta))
    by_samples = math.sqrt(math.log(4 * cells / delta) / (2 * whole("samples", samples)))
    return (by_masks + by_samples) * _most(margin) + resolution


def _most(margin: float) -> float:
    """ln(1/β): what a conditional divergence can be at most, where no conditional probability is below β."""
    return -math.log(number("margin", margin, above=0.0, most=1.0))


@typed
def ising_cells(parameters: int, radius: float, resolution: float) -> float:
    """C_ε ≤ ⌈8dR/ε⌉^d for parameters in [−R, R]^d."""
    d = whole("parameters", parameters)
    return (
        float(math.ceil(8 * d * number("radius", radius, above=0.0) / number("resolution", resolution, above=0.0))) ** d
    )


def ising_margin(length: int, parameters: int, radius: float) -> float:
    """β ≥ 2^{−N} e^{−2Rd} for an Ising model with parameters in [−R, R]^d."""
    return 2.0 ** -whole("length", length) * math.exp(-2 * number("radius", radius, above=0.0) * whole("d", parameters))
