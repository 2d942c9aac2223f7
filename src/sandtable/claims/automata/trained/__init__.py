"""Claims on nets that are trained on automata, not compiled from them."""

from sandtable.claims.automata.trained import depth, length, parity
from sandtable.lab import Claim

CLAIMS: tuple[Claim, ...] = (*parity.CLAIMS, *length.CLAIMS, *depth.CLAIMS)
