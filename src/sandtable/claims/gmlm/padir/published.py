"""What was published of the refiner, to stand beside our own numbers (Li et al. 2024, Tables 4.1 to 4.5)."""

from __future__ import annotations

from sandtable.lab import Table

PAIRS = ("DE→EN", "EN→DE", "RO→EN", "EN→RO", "ZH→EN", "EN→ZH")
_COLUMNS = ["model", "hypotheses", "steps", *PAIRS]

BLEU = Table(
    _COLUMNS,
    [
        ["AR", "5 (beam)", "N", 33.50, 29.54, 34.89, 29.75, 27.59, 33.94],
        ["refiner", "5 (lengths)", "4", 33.49, 28.61, 33.98, 28.98, 26.47, 32.59],
        ["refiner", "5", "10", 33.63, 28.58, 33.99, 28.97, 26.54, 32.68],
    ],
)
OTHERS = Table(
    _COLUMNS,
    [
        ["DisCo AR", "5", "N", 31.71, 28.60, 34.46, 34.16, 24.65, 35.01],
        ["CMLM", "5", "4", 30.75, 26.73, 33.02, 33.67, 22.57, 33.58],
        ["CMLM", "5", "10", 31.24, 27.39, 33.67, 33.33, 23.76, 34.24],
        ["DisCo easy-first", "5", "3–6", 31.31, 27.34, 33.25, 33.22, 23.83, 34.63],
        ["SUNDAE stochastic", "16", "4", 32.10, 27.94, "", "", "", ""],
        ["SUNDAE stochastic", "16", "10", 32.29, 28.33, "", "", "", ""],
        ["refiner", "5", "4", 34.17, 29.49, 34.55, 29.57, 27.18, 32.59],
        ["refiner", "5", "10", 34.33, 29.48, 34.57, 29.56, 27.25, 32.60],
    ],
)
BLEURT = Table(
    _COLUMNS,
    [
        ["AR", "5", "N", 73.55, 74.97, 67.23, 71.76, 68.14, 65.71],
        ["refiner", "5", "4", 71.26, 72.08, 65.90, 70.23, 65.16, 63.95],
        ["refiner", "5", "10", 71.82, 73.28, 66.09, 70.49, 66.19, 64.30],
    ],
)
TABLES = {"Table 4.1, BLEU": BLEU, "Table 4.2, BLEU beside other systems": OTHERS, "Table 4.3, BLEURT": BLEURT}

SELF = {
    "min": (0.0004, 0.0005),
    "avg": (0.032, 0.033),
    "max": (0.16, 0.17),
    "top-1": (0.20, 0.17),
    "top-2": (0.39, 0.37),
}
"""Table 4.4: (stutter, other pairs)."""
CROSS = {
    "TV min": (0.06, 0.11), "TV avg": (0.13, 0.23), "TV max": (0.23, 0.35),
    "cosine min": (0.01, 0.04), "cosine avg": (0.10, 0.20), "cosine max": (0.25, 0.38),
    "top-1": (0.57, 0.40), "top-2": (0.89, 0.81),
}  # fmt: skip
"""Table 4.5: (stutter, other pairs)."""
