"""The clique in which joint resampling finds the likelier mode and parallel resampling does not: bounds in closed form.

p(x) ∝ exp(Σ_i h_i s_i + J Σ_{i<j in the clique} s_i s_j), every unordered pair once. R₁ has the whole clique up, R₋₁
the whole clique down. What is exact at any size is in `sandtable.theory.gmlm.magnetisation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from sandtable.arguments import ArgumentError, fits_in_memory, number, numbers, one_of, typed, whole
from sandtable.worlds import CliqueIsing

MOST_CLIQUE = 200
"""The largest clique whose chains are written down."""

# -- assumptions -----------------------------------------------------------------------------------------------------


class Ferromagnet(NamedTuple):
    """What decides whether a clique is strongly ferromagnetic: h_G > Σ_outside |h_i| and J − ‖h‖₁ = J₀ > 0."""

    clique_field: float
    outside_field: float
    slack: float

    @property
    def strong(self) -> bool:
        return self.clique_field > self.outside_field and self.slack > 0


def ferromagnet(world: CliqueIsing) -> Ferromagnet:
    """h_G, Σ_outside |h_i| and the largest J₀ of a clique."""
    return Ferromagnet(world.clique_field, float(world.h[world.clique :].abs().sum()), world.slack)


def strongly_ferromagnetic(world: CliqueIsing, *, j0: float | None = None) -> bool:
    """Whether h_G > Σ_outside |h_i| and J − ‖h‖₁ ≥ J₀; without `j0`, for any J₀ > 0."""
    found = ferromagnet(world)
    return found.strong and (j0 is None or found.slack >= number("j0", j0, above=0.0))


def require_strong(world: CliqueIsing) -> Ferromagnet:
    """The same numbers, or an `ArgumentError` where the theorems on cliques do not speak of this one."""
    found = ferromagnet(world)
    if not found.clique_field > found.outside_field:
        raise ArgumentError(
            f"world: the clique's field {found.clique_field:g} must exceed the others' {found.outside_field:g}"
        )
    if not found.slack > 0:
        raise ArgumentError(f"world: coupling={world.coupling:g} must exceed ‖h‖₁ = {world.coupling - found.slack:g}")
    return found


class Sizes(NamedTuple):
    """The least clique, clique field h_G and J₀ = J − ‖h‖₁ of a strong interaction."""

    clique: int
    field: float
    j0: float


@typed
def strong_interaction(delta: float, steps: int) -> Sizes:
    """The least c ≥ 8(1 + ln(4M/δ)), h_G ≥ ½ ln(2(4−δ)/δ) and J₀ ≥ ½ c ln 2 that separate the samplers for M steps."""
    delta, steps = _delta(delta), whole("steps", steps)
    clique = math.ceil(8 * (1 + math.log(4 * steps / delta)))
    return Sizes(clique, math.log(2 * (4 - delta) / delta) / 2, clique * math.log(2) / 2)


def large_block(size: int, clique: int, delta: float) -> int:
    """The least k ≥ max{c, N − δ(N+1)/((4−δ)c + δ)}."""
    clique = whole("clique", clique, least=2, most=whole("size", size, least=2))
    delta = _delta(delta)
    # A k on the boundary itself counts, whatever its last bit says.
    least = size - delta * (size + 1) / ((4 - delta) * clique + delta)
    return max(clique, math.ceil(least - 1e-9))


@typed
def separating(delta: float, steps: int, *, size: int | None = None) -> CliqueIsing:
    """The weakest clique that separates the samplers: h_G spread evenly over it, no field outside, J = J₀ + h_G."""
    least = strong_interaction(delta, steps)
    size = whole("size", least.clique if size is None else size, least=least.clique)
    field = (least.field / least.clique,) * least.clique + (0.0,) * (size - least.clique)
    # A relative 1e-12 on top keeps J − ‖h‖₁ ≥ J₀ and Σh ≥ h_G true after rounding.
    field = tuple(h * (1 + 1e-12) for h in field)
    return CliqueIsing(size, least.clique, (least.j0 + least.field) * (1 + 1e-11), field)


def _alone(field: Any) -> bool:
    """One number for all spins, not one for each."""
    return not hasattr(field, "__len__")


@typed
def with_slack(
    size: int,
    clique: int,
    *,
    field: float | tuple[float, ...],
    j0: float,
    outside: float | tuple[float, ...] = 0.0,
) -> CliqueIsing:
    """A clique with J = J₀ + ‖h‖₁: `field` on its spins, `outside` on the others, one number or one for each."""
    whole("clique", clique, least=2, most=whole("size", size, least=2))
    fits_in_memory("size", size, size, size=100)  # bytes of a number in a tuple
    inside = (number("field", field),) * clique if _alone(field) else numbers("field", field)
    rest = (number("outside", outside),) * (size - clique) if _alone(outside) else numbers("outside", outside)
    h = (*inside, *rest)
    return CliqueIsing(size, clique, number("j0", j0, above=0.0) + sum(abs(value) for value in h), h)


@typed
def random_strong(size: int, clique: int, generator: torch.Generator) -> CliqueIsing:
    """A random clique to which the theorems apply, with a different field on every spin; its J₀ is its `slack`."""
    whole("clique", clique, least=2, most=whole("size", size, least=2))
    normal = torch.randn(size, generator=generator, dtype=torch.float64) * 0.4
    more, j0 = (-torch.rand(2, generator=generator, dtype=torch.float64).log() * 0.4 + 1e-3).tolist()
    normal[:clique] += (float(normal[clique:].abs().sum()) + more - float(normal[:clique].sum())) / clique
    return with_slack(
        size, clique, field=tuple(normal[:clique].tolist()), j0=j0, outside=tuple(normal[clique:].tolist())
    )


# -- modes -----------------------------------------------------------------------------------------------------------


class ModeRatios(NamedTuple):
    """Logarithms of ratios of probabilities, over all states: what the theorem on modes is about."""

    flip: Float[np.ndarray, " states"]
    """log p(x)/p(x') for every x ∈ R₁, x' the same with its clique turned over."""
    up_over_down: float
    """log of the least p(x)/p(y), x ∈ R₁, y ∈ R₋₁."""
    down_over_rest: float
    """log of the least p(y)/p(z), y ∈ R₋₁, z in neither mode."""


def mode_ratios(world: CliqueIsing) -> ModeRatios:
    """By enumeration. Theorem: flip = 2h_G exactly, up over down > 0, down over rest ≥ 2(c−1)J − 2‖h‖₁ ≥ 2J₀."""
    log_p, mode = world.log_probs.numpy(), world.mode(world.states).numpy()
    up, down, rest = log_p[mode == 1], log_p[mode == -1], log_p[mode == 0]
    # Codes count the clique first, so both modes list the other spins in the same order.
    return ModeRatios(up - down, float(up.min() - down.max()), float(down.min() - rest.max()))


def flip_ratio(world: CliqueIsing) -> float:
    """log p(x)/p(x') = 2h_G between x ∈ R₁ and the same with its clique turned over."""
    return 2 * world.clique_field


def rest_ratio(world: CliqueIsing) -> float:
    """The lower bound 2(c−1)J − 2‖h‖₁ on log p(y)/p(z), y ∈ R₋₁ and z in neither mode; at least 2J₀."""
    return 2 * (world.clique - 1) * world.coupling - 2 * float(world.h.abs().sum())


# -- k-Gibbs reaches R₁ ----------------------------------------------------------------------------------------------


DENOMINATORS = ("counted", "fused", "twice")


def holds_clique(size: int, clique: int, k: int) -> float:
    """The chance C(N−c, k−c)/C(N, k) that a uniform block of k positions holds the whole clique."""
    clique, k = whole("clique", clique, most=whole("size", size)), whole("k", k, least=0, most=size)
    return math.exp(sum(math.log((k - i) / (size - i)) for i in range(clique))) if k >= clique else 0.0


def reach_bound(world: CliqueIsing, *, k: int, denominator: str = "counted") -> float:
    """1 − c_{R₁}: at least so likely does one k-Gibbs step, from any state, end in R₁ (k ≥ c).

    C(N−c, k−c)/C(N, k) · e^{2(J₀+h_G)} / (e^{2(J₀+h_G)} + D). `denominator` is what D is: the 2^c − 2 states in neither
    mode "counted", D = e^{2J₀} + 2^c − 2; printed in the text and "fused" into one exponent, D = e^{2J₀+2c−2}; printed
    in the proof of the corollary, "twice" the clique, D = e^{2J₀} + 2c − 2.
    """
    j0, top = _reach(world, k)
    c = world.clique
    rest = {
        "counted": _log_sum([2 * j0, c * math.log(2) + math.log1p(-(2.0 ** (1 - c)))]),
        "fused": 2 * j0 + 2 * c - 2,
        "twice": _log_sum([2 * j0, math.log(2 * c - 2)]),
    }[one_of("denominator", denominator, DENOMINATORS)]
    return holds_clique(world.size, c, k) * math.exp(top - _log_sum([top, rest]))


def reach_enumerated(world: CliqueIsing, *, k: int) -> float:
    """The proof's own sum: R₁ against R₋₁ and every z of the clique's other states at its largest, e^{−2J₀} of R₋₁."""
    j0, top = _reach(world, k)
    weights = [top, 2 * j0] + [0.0] * (2 ** whole("clique", world.clique, most=20) - 2)
    return holds_clique(world.size, world.clique, k) * math.exp(top - _log_sum(weights))


def joint_reach(world: CliqueIsing, *, k: int) -> float:
    """Exactly how likely one step draws the whole clique, and draws it up: C(N−c, k−c)/C(N, k) · p(R₁)."""
    return holds_clique(world.size, world.clique, k) * float(world.log_up.softmax(0)[-1])


def reach_steps(world: CliqueIsing, *, k: int, delta: float, denominator: str = "counted") -> int:
    """T = ⌈ln δ / ln c_{R₁}⌉: within so many steps k-Gibbs has been in R₁ with probability ≥ 1 − δ."""
    reach = reach_bound(world, k=k, denominator=denominator)
    return 1 if reach >= 1 else max(1, math.ceil(math.log(_delta(delta)) / math.log1p(-reach)))


# -- the parallel sampler is stuck -----------------------------------------------------------------------------------


@typed
def stuck_exponent(clique: int, j0: float, *, precondition: bool = True) -> float:
    """c_stuck = (2/c)(tanh(J₀) c/2 − 1)²: from Σ_clique s_i ≤ −2, one parallel step leaves with chance ≤ e^{−c_stuck}.

    Hoeffding's inequality gives this only if tanh(J₀)·c > 2; otherwise the square grows as the bound weakens.
    `precondition=False` evaluates the formula all the same, as it is printed.
    """
    pull = math.tanh(number("j0", j0, above=0.0)) * whole("clique", clique, least=2)
    if precondition and not pull > 2:
        raise ArgumentError(f"j0={j0:g}: tanh(j0)·clique = {pull:.4g} must be > 2, or nothing holds the clique down")
    return 2 / clique * (pull / 2 - 1) ** 2


@typed
def stuck_steps(clique: int, j0: float, *, delta: float, precondition: bool = True) -> int:
    """T = ⌊(δ/2) e^{c_stuck}⌋: for so many parallel steps Σ_clique s_i ≤ −2, with probability ≥ 1 − δ."""
    exponent = stuck_exponent(clique, j0, precondition=precondition) + math.log(_delta(delta) / 2)
    if exponent > 700:
        raise ArgumentError(f"clique={clique}, j0={j0:g}: e^{exponent:.0f} steps are too many to count")
    return math.floor(math.exp(exponent))


def turn_up_bound(j0: float) -> float:
    """e^{−2J₀}/(1 + e^{−2J₀}): no spin of a clique with Σ_clique s_i ≤ −2 turns, or stays, up with a larger chance."""
    return 1 / (1 + math.exp(min(2 * number("j0", j0, above=0.0), 700.0)))


# -- helpers ---------------------------------------------------------------------------------------------------------


def _reach(world: CliqueIsing, k: int) -> tuple[float, float]:
    """J₀ and 2(J₀ + h_G) of a strongly ferromagnetic clique, k ≥ c."""
    whole("k", k, least=world.clique, most=world.size)
    found = require_strong(world)
    return found.slack, 2 * (found.slack + found.clique_field)


def _log_sum(logs: Sequence[float]) -> float:
    return float(np.logaddexp.reduce(logs))


def _delta(value: float) -> float:
    if not 1e-300 < number("delta", value) < 1:
        raise ArgumentError(f"delta={value!r}: must be > 0 and < 1")
    return value
