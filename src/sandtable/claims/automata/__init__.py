"""Claims on automata (Liu, Ash, Goel, Krishnamurthy & Zhang 2023): what shallow networks compute and learn."""

from sandtable.claims.automata import (
    algebra,
    cascades,
    corridors,
    doubling,
    extensions,
    gadgets,
    groups,
    hardness,
    one_layer,
    trained,
)
from sandtable.lab import Claim

CLAIMS: tuple[Claim, ...] = (
    *gadgets.CLAIMS,
    *doubling.CLAIMS,
    *one_layer.CLAIMS,
    *groups.CLAIMS,
    *cascades.CLAIMS,
    *corridors.CLAIMS,
    *hardness.CLAIMS,
    *algebra.CLAIMS,
    *extensions.CLAIMS,
    *trained.CLAIMS,
)
