"""Mask laws: which positions a masked model must predict, and what it sees there."""

from __future__ import annotations

from dataclasses import dataclass

from sandtable.arguments import ArgumentError, probability


@dataclass(frozen=True)
class BertMasking:
    """The (p_m, p_c, p_r) scheme of BERT.

    Each position is selected with probability `select` = p_m. A selected position shows its true token with
    probability `keep` = p_c, a uniformly random word with probability `random` = p_r (which may be the true one), and
    the mask token otherwise.
    """

    select: float = 0.15
    keep: float = 0.1
    random: float = 0.1

    def __post_init__(self) -> None:
        probability("select", self.select)
        probability("keep", self.keep)
        probability("random", self.random)
        if self.select == 0:
            raise ArgumentError("select=0: must be > 0, or no position is ever predicted")
        if self.keep + self.random > 1:
            raise ArgumentError(f"keep + random = {self.keep + self.random:g}: must be ≤ 1")

    @property
    def hide(self) -> float:
        """Probability that a selected position shows the mask token: 1 − p_c − p_r."""
        return max(0.0, 1.0 - self.keep - self.random)
