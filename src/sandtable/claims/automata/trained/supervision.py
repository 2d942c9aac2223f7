"""Less to learn from: labels that do not tell the state (indirect), and labels that are mostly missing (incomplete)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sandtable.claims.automata.sources import liu
from sandtable.claims.automata.trained import measures
from sandtable.claims.automata.trained.nets import DESK_LSTM, GPT, PAPER, PAPER_LSTM, QUICK, Net, Recurrent, Size
from sandtable.claims.automata.trained.published import INDIRECT
from sandtable.lab import Control, Evidence, Lab, Table, below, claim, exceeds, orders, passing
from sandtable.lab.figures import curves, strips

BEST = 1 / 25
"""The share of nets, at least, of which "the best of 25 nets" is said."""
MOST = 0.5


# -- indirect --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Indirect:
    tasks: tuple[str, ...] = ("GRID4-WALL", "C4-ZERO", "D8-PLACE", "ABAB-ALWAYS", "ABAB-HALF")
    length: int = 14
    layers: int = 2
    size: Size = QUICK
    steps: int = 3000
    lstm: Size = DESK_LSTM
    lstm_steps: int = 600
    scored: str = "overall"
    """"overall", or "shuffled": against the labels of another row."""

    def gpt(self, task: str) -> GPT:
        return GPT(task, length=self.length, layers=self.layers, size=self.size, steps=self.steps)

    def recurrent(self, task: str) -> Recurrent:
        return Recurrent(task, length=self.length, size=self.lstm, steps=self.lstm_steps)
