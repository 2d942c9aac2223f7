"""How far two attention patterns are apart when nothing ties them together (section 2.2.3, closed forms of our own).

All for causal patterns over N positions, in which query i spreads a mass of one over keys 1 … i, and for the squared
Frobenius distance of two such patterns.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma

from sandtable.arguments import whole


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + … + 1/n = ψ(n + 1) + γ."""
    return float(digamma(whole("n", n, least=0) + 1.0) + np.euler_gamma)


def random_variation(positions: int) -> float:
    """E‖A − A'‖² = 4 H_{N+1} − 2 H_N − 4 for rows drawn uniformly from their simplices.

    A row of i entries has E Σ a² = 2/(i+1), and two independent ones E Σ a a' = 1/i.
    """
    n = whole("positions", positions)
    return 4 * harmonic(n + 1) - 2 * harmonic(n) - 4


def one_hot_variation(positions: int) -> float:
    """E‖A − A'‖² = 2 (N − H_N) for rows that look at one key each, drawn uniformly."""
    n = whole("positions", positions)
    return 2 * (n - harmonic(n))


def largest_variation(positions: int) -> float:
    """max ‖A − A'‖² = 2 (N − 1): every row but the first looks at one key, and never at the same."""
    return 2.0 * (whole("positions", positions) - 1)
