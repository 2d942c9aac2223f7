"""The published numbers on test cases: CodeLlama 7B, five runs, mean and standard error (Botta et al. 2025).

Two slips of the tables are put right here: the last row of Table 3.10 is for θ = 0.5 (as Table 3.13 shows), and layer
31 of Table 3.9 was run with θ = 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sandtable.lab import Table

Number = tuple[float, float]

BACKTRACKING: dict[tuple[float, float, int, float], Number] = {
    (0.95, 1.0, 4, 0.1): (0.714, 0.011),
    (0.95, 1.0, 4, 0.5): (0.676, 0.019),
    (1.0, 1.0, 4, 0.1): (0.639, 0.061),
    (1.0, 1.0, 4, 0.5): (0.604, 0.047),
    (1.0, 1.2, 4, 0.1): (0.440, 0.026),
    (1.0, 1.2, 4, 0.5): (0.334, 0.013),
    (1.0, 1.0, 10, 0.1): (0.622, 0.046),
    (1.0, 1.0, 10, 0.5): (0.604, 0.030),
}
"""(top_p, temperature, stride, threshold) → Acc_distinct with quota 4 (Tables 3.6, 3.10)."""

SAMPLING: dict[tuple[float, float], Number] = {
    (0.95, 1.0): (0.660, 0.042),
    (0.9, 1.0): (0.634, 0.023),
    (0.8, 1.0): (0.511, 0.028),
    (0.7, 1.0): (0.353, 0.021),
    (1.0, 1.0): (0.504, 0.025),
    (1.0, 1.2): (0.269, 0.025),
    (0.95, 1.2): (0.584, 0.027),
    (0.9, 1.2): (0.630, 0.028),
    (0.8, 1.2): (0.627, 0.015),
    (0.7, 1.2): (0.531, 0.035),
    (0.9, 0.8): (0.466, 0.032),
    (0.8, 0.8): (0.351, 0.039),
    (0.7, 0.8): (0.239, 0.019),
    (0.95, 0.8): (0.523, 0.029),
    (0.95, 0.6): (0.337, 0.053),
    (0.95, 0.4): (0.176, 0.013),
    (0.95, 0.2): (0.057, 0.018),
    (1.0, 0.8): (0.562, 0.021),
    (1.0, 0.6): (0.399, 0.070),
    (1.0, 0.4): (0.207, 0.029),
    (1.0, 0.2): (0.080, 0.020),
    (0.0, 1.0): (0.013, 0.000),
}
"""(top_p, temperature) → Acc_distinct of plain sampling (Table 3.13)."""

BEST_OF: dict[int, Number] = {2: (0.684, 0.038), 4: (0.623, 0.036), 8: (0.559, 0.038)}
"""Block best-of-n at top_p 0.95 (Table 3.6)."""

QUERIES: dict[str, Number] = {
    "backtracking": (39443, 235),
    "sampling": (38231, 165),
    "best of 2": (39364, 1252),
    "best of 4": (65496, 7638),
    "best of 8": (122933, 3832),
}
"""Total queries of 100 completions at top_p 0.95 (Table 3.13)."""

LAYERS: dict[int, Number] = {
    3: (0.700, 0.028),
    7: (0.691, 0.031),
    11: (0.650, 0.041),
    15: (0.700, 0.028),
    19: (0.692, 0.028),
    23: (0.709, 0.017),
    27: (0.714, 0.011),
    31: (0.688, 0.028),
}
"""Layer of 32 → Acc_distinct (Table 3.9)."""
RANDOM: Number = (0.663, 0.027)

DEPTHS: dict[int, tuple[float, Number]] = {
    1: (0.96, (0.714, 0.011)),
    2: (0.97, (0.687, 0.035)),
    4: (0.97, (0.699, 0.038)),
    8: (0.97, (0.684, 0.015)),
}
"""Linear layers of the verifier → validation accuracy, Acc_distinct (Table 3.11)."""

CEILING: dict[tuple[str, int, int], Number] = {
    ("truth", 4, 4): (0.719, 0.022),
    ("truth", 10, 4): (0.717, 0.015),
    ("trained", 4, 4): (0.714, 0.011),
    ("trained", 10, 4): (0.692, 0.025),
    ("trained", 4, 10): (0.622, 0.046),
    ("random", 4, 4): RANDOM,
}
"""(verifier, quota, stride) → Acc_distinct (Table 3.12)."""

NAMES: dict[str, tuple[Number, Number]] = {
    "sampling": ((0.660, 0.042), (0.606, 0.034)),
    "backtracking, θ = 0.1": ((0.714, 0.011), (0.710, 0.029)),
    "backtracking, θ = 0.5": ((0.676, 0.019), (0.687, 0.024)),
}
"""Acc_distinct on new names and on words that contradict the function (Table 3.15)."""

REDO: dict[float, tuple[Number, Number]] = {
    0.1: ((0.714, 0.011), (0.711, 0.032)),
    0.5: ((0.676, 0.019), (0.663, 0.023)),
}
"""Threshold → Acc_distinct with and without argmax redo (Table 3.17)."""


def gain(top_p: float, temperature: float) -> Number:
    """What backtracking with quota and stride 4 and θ = 0.1 adds to sampling, with the standard error."""
    after, before = BACKTRACKING[top_p, temperature, 4, 0.1], SAMPLING[top_p, temperature]
    return after[0] - before[0], math.hypot(after[1], before[1])


def beside(rows: Mapping[str, tuple[Number | None, np.ndarray | None]], *, what: str = "Acc_distinct") -> Table:
    """Published numbers and those of the stand-in side by side, each with its standard error."""
    lines: list[list[object]] = []
    for name, (printed, values) in rows.items():
        lines.append([name, *(printed or ("", "")), *(("", "") if values is None else mean_and_error(values))])
    return Table([what, "published", "± s.e.", "stand-in", "± s.e. over runs"], lines)


def mean_and_error(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean over runs and its standard error."""
    array = np.asarray(values, dtype=float)
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else 0.0
