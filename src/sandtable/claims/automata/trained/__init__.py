"""Claims on nets that are trained on automata, not compiled from them."""

from sandtable.claims.automata.trained import length, parity, stability
from sandtable.lab import Claim

CLAIMS: tuple[Claim, ...] = (parity.rates, *length.CLAIMS, stability.averages)
