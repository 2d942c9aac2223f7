"""Claims on nets that are trained on automata, not compiled from them."""

from sandtable.claims.automata.trained import attention, depth, length, parity, positions, stability, supervision
from sandtable.lab import Claim

CLAIMS: tuple[Claim, ...] = (
    *depth.CLAIMS,
    *parity.CLAIMS,
    *length.CLAIMS,
    *attention.CLAIMS,
    *supervision.CLAIMS,
    *stability.CLAIMS,
    *positions.CLAIMS,
)
