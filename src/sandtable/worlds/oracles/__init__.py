"""Toy oracles: fixed-length strings with an exact next-token law and an exact verifier (Botta et al. 2025)."""

from sandtable.worlds.oracles.base import Oracle
from sandtable.worlds.oracles.brackets import SlippingDyck
from sandtable.worlds.oracles.constrained import OneZero, Trap, Zeros
from sandtable.worlds.oracles.hidden import HiddenPrefix
from sandtable.worlds.oracles.knapsack import Knapsack, Sums
from sandtable.worlds.oracles.slips import Slips

__all__ = ["HiddenPrefix", "Knapsack", "OneZero", "Oracle", "SlippingDyck", "Slips", "Sums", "Trap", "Zeros"]
