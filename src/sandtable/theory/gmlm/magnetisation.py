"""Two samplers on a clique of any size, exactly: how many of its spins are up is a Markov chain of c + 1 states.

Where all spins of the clique have one field h, a state matters to the clique only through u, the number of spins up:
with m = 2u − c, E(u) = h m + J(m² − c)/2 is its energy, and the spins outside never influence it. All weights are kept
as logarithms until a row is normalised, so no coupling overflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, log_expit, log_softmax, logsumexp, softmax

from sandtable.arguments import ArgumentError, whole
from sandtable.theory.gmlm.clique import MOST_CLIQUE
from sandtable.worlds import CliqueIsing


@dataclass(frozen=True, eq=False)
class Magnetisation:
    """The chain of u, the number of clique spins up: `transition[u, u']`, and the law it keeps."""

    transition: Float[np.ndarray, "up up"]
    stationary: Float[np.ndarray, " up"]

    @property
    def clique(self) -> int:
        return len(self.transition) - 1

    @cached_property
    def reach(self) -> Float[np.ndarray, " up"]:
        """How likely one step from u ends in R₁, u = c."""
        return self.transition[:, -1]

    def after(self, steps: int, *, start: int = 0) -> Float[np.ndarray, " up"]:
        """The law of u after `steps` steps from `start` spins up."""
        return np.linalg.matrix_power(self.transition, whole("steps", steps, least=0))[self._start(start)]

    def hit_probability(self, budget: int, *, start: int = 0) -> float:
        """P(τ ≤ budget), τ the first step at which the whole clique is up."""
        return self._absorbed(np.arange(self.clique + 1) == self.clique, budget, start)

    def expected_hitting(self, budget: int, *, start: int = 0) -> float:
        """E min(τ, budget) = Σ_{t < budget} P(τ > t)."""
        budget, c = whole("budget", budget, least=0), self.clique
        if self._start(start) == c:
            return 0.0
        # The n-th power of [[Q, I], [0, I]] holds I + Q + … + Q^{n−1}, Q the chain away from R₁.
        inside, eye = self.transition[:c, :c], np.eye(c)
        block = np.block([[inside, eye], [np.zeros((c, c)), eye]])
        return min(float(budget), float(np.linalg.matrix_power(block, budget)[start, c:].sum()))

    def escape_probability(self, steps: int, *, start: int = 0, most: int = -2) -> float:
        """P(m_t > `most` for some t ≤ steps), m = 2u − c: the chance that the clique was not held down.

        A sum of what leaves at each step, so that chances far below 1e-16 are right too.
        """
        return self._absorbed(2 * np.arange(self.clique + 1) - self.clique > most, steps, start)

    def survival(self, steps: int, *, start: int = 0, most: int = -2) -> float:
        """P(m_t ≤ `most` for all t ≤ steps)."""
        return 1.0 - self.escape_probability(steps, start=start, most=most)

    def _absorbed(self, target: np.ndarray, steps: int, start: int) -> float:
        """The chance of having been in `target` within `steps`: that set made one state that is never left."""
        steps = whole("steps", steps, least=0)
        if target[self._start(start)]:
            return 1.0
        inside = self.transition[~target][:, ~target]
        leaves = self.transition[~target][:, target].sum(1)
        size = len(inside)
        stopped = np.zeros((size + 1, size + 1))
        stopped[:size, :size], stopped[:size, size], stopped[size, size] = inside, leaves, 1.0
        row = int(np.flatnonzero(~target).tolist().index(start))
        return min(1.0, float(np.linalg.matrix_power(stopped, steps)[row, size]))

    def _start(self, start: int) -> int:
        return whole("start", start, least=0, most=self.clique)


def clique_law(world: CliqueIsing) -> Float[np.ndarray, " up"]:
    """The law of u under p: C(c, u) e^{E(u)}, normalised."""
    return softmax(_log_choose(world.clique, np.arange(world.clique + 1)) + _energy(world))


def k_gibbs_chain(world: CliqueIsing, *, k: int) -> Magnetisation:
    """k-Gibbs: of a uniform block of `k` positions, j lie in the clique (hypergeometric), and a of these were up.

    The v = u − a others stay; of the j, b turn up with chance ∝ C(j, b) e^{E(v + b)}. O(c³) for each possible j.
    """
    c, n = whole_clique(world), world.size
    k = whole("k", k, least=0, most=n)
    up, energy = np.arange(c + 1), _energy(world)
    transition = np.zeros((c + 1, c + 1))
    for j in range(max(0, k - (n - c)), min(c, k) + 1):
        left = np.arange(c - j + 1)
        a = up[:, None] - left
        chosen = _log_choose(up[:, None], a) + _log_choose(c - up[:, None], j - a) - _log_choose(c, j)
        b = up - left[:, None]
        drawn = _log_choose(j, b) + energy
        weight = np.exp(_log_choose(c, j) + _log_block(n, c, k, j))
        transition += weight * np.exp(chosen) @ np.exp(drawn - logsumexp(drawn, axis=1, keepdims=True))
    return Magnetisation(transition / transition.sum(1, keepdims=True), clique_law(world))


def parallel_chain(world: CliqueIsing) -> Magnetisation:
    """All spins at once: u spins see m − 1 and are up again with chance σ(2(h + J(m − 1))), the others see m + 1.

    The next u is the sum of two binomials. The chain keeps Little's law, not p.
    """
    c = whole_clique(world)
    up = np.arange(c + 1)
    pull_up, pull_down = _pulls(world)
    rows = []
    for u in range(c + 1):
        stay = _log_binomial(u, 2 * pull_up[u])
        turn = _log_binomial(c - u, 2 * pull_down[u])
        b = up - np.arange(u + 1)[:, None]
        there = (b >= 0) & (b <= c - u)
        rows.append(np.logaddexp.reduce(stay[:, None] + np.where(there, turn[np.clip(b, 0, c - u)], -np.inf), axis=0))
    little = _log_choose(c, up) + float(world.h[0]) * (2 * up - c)
    little = little + up * np.logaddexp(pull_up, -pull_up) + (c - up) * np.logaddexp(pull_down, -pull_down)
    return Magnetisation(np.exp(log_softmax(np.array(rows), axis=1)), softmax(little))


def whole_clique(world: CliqueIsing) -> int:
    """c, or an `ArgumentError` where the number of spins up does not say everything."""
    if not world.even:
        raise ArgumentError("world: all spins of the clique must have the same field, or their number does not decide")
    return whole("clique", world.clique, least=2, most=MOST_CLIQUE)


# -- logarithms of weights -------------------------------------------------------------------------------------------


def _energy(world: CliqueIsing) -> Float[np.ndarray, " up"]:
    """E(u) = h m + J(m² − c)/2, m = 2u − c."""
    c = whole_clique(world)
    m = 2.0 * np.arange(c + 1) - c
    return float(world.h[0]) * m + world.coupling * (m**2 - c) / 2


def _pulls(world: CliqueIsing) -> tuple[np.ndarray, np.ndarray]:
    """h + J(m − 1), what a spin that is up feels from the others, and h + J(m + 1), what one that is down feels."""
    m = 2.0 * np.arange(world.clique + 1) - world.clique
    h = float(world.h[0])
    return h + world.coupling * (m - 1), h + world.coupling * (m + 1)


def _log_choose(n: int | np.ndarray, k: int | np.ndarray) -> np.ndarray:
    """ln C(n, k), −∞ where k is not in 0 … n."""
    n, k = np.broadcast_arrays(n, k)
    inside = (k >= 0) & (k <= n)
    kept = np.where(inside, k, 0)
    return np.where(inside, gammaln(n + 1.0) - gammaln(kept + 1.0) - gammaln(n - kept + 1.0), -np.inf)


def _log_block(n: int, c: int, k: int, j: int) -> float:
    """ln of the chance that a uniform block of k out of n holds j given positions and not c − j others."""
    held, free = np.arange(j), np.arange(c - j)
    return float(np.log((k - held) / (n - held)).sum() + np.log((n - k - free) / (n - j - free)).sum())


def _log_binomial(n: int, logit: float) -> Float[np.ndarray, " count"]:
    """ln of the binomial law of n trials whose success has these log-odds."""
    count = np.arange(n + 1)
    return _log_choose(n, count) + count * log_expit(logit) + (n - count) * log_expit(-logit)
