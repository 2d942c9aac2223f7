"""The published numbers: tables 1, 2 and 5 of Li, Li & Risteski (2023), thesis 2.3 to 2.5."""

from __future__ import annotations

Ratios = tuple[float, float, float]
"""(cosine, dot product, attention): same-topic over different-topic."""

THRESHOLDS = (0.0005, 0.001, 0.002)

SEPARATE: dict[str, tuple[Ratios, Ratios, Ratios]] = {
    "BERT": ((1.21, 1.19, 1.32), (1.13, 1.15, 1.28), (1.11, 1.13, 1.22)),
    "ALBERT": ((5.64, 6.29, 1.33), (4.18, 3.74, 1.28), (3.24, 2.93, 1.22)),
    "BART": ((2.80, 2.67, 1.35), (1.95, 1.92, 1.31), (1.63, 1.62, 1.23)),
    "ELECTRA": ((5.98, 5.37, 2.14), (7.70, 7.35, 2.09), (7.46, 8.08, 1.95)),
    "RoBERTa": ((6.44, 6.81, 1.40), (5.73, 6.31, 1.31), (5.24, 5.30, 1.22)),
    "BERT, random": ((1.00080, 1.00063, 0.99943), (0.99974, 1.00036, 0.99996), (1.00016, 1.00027, 1.00007)),
}
"""One topic per word, by model, at the three thresholds (thesis table 2.3)."""

OVERLAPPING: dict[str, tuple[Ratios, Ratios, Ratios]] = {
    "BERT": ((1.14, 1.04, 1.23), (0.97, 1.05, 1.17), (0.99, 0.93, 1.13)),
    "ALBERT": ((4.15, 3.06, 1.23), (3.09, 3.04, 1.17), (1.54, 1.44, 1.11)),
    "BART": ((2.51, 1.76, 1.27), (1.63, 1.12, 1.20), (1.06, 0.85, 1.11)),
    "ELECTRA": ((5.28, 3.99, 1.70), (5.56, 5.57, 1.58), (6.39, 5.61, 1.48)),
    "RoBERTa": ((4.39, 5.01, 1.19), (5.20, 4.25, 1.15), (4.71, 4.15, 1.12)),
    "BERT, random": ((0.99814, 0.99957, 1.00009), (0.99820, 1.00167, 1.00013), (0.99964, 0.99928, 0.99978)),
}
"""Words may have several topics (thesis table 2.4)."""

COOCCURRENCE: dict[int, tuple[float, float, float, float]] = {
    105: (0.00659, 0.00751, 0.468, 0.316),
    435: (0.00621, 0.00695, 0.461, 0.311),
    1711: (0.00597, 0.00677, 0.425, 0.323),
}
"""BERT, by number of pairs: attention of same-topic and of co-occurring pairs, then their cosines (thesis 2.5)."""


def nearest_family(name: str) -> str:
    """The published model whose family a model's name seems to tell, BERT if none."""
    plain = name.lower()
    families = ("RoBERTa", "ALBERT", "ELECTRA", "BART", "BERT")
    return next((family for family in families if family.lower() in plain), "BERT")
