"""Claims on automata (Liu, Ash, Goel, Krishnamurthy & Zhang 2023): what shallow networks compute and learn.

What the source prints and what does not hold stands beside the claim that does. Left out, because nothing can be
measured: bounds that contradict one another while the networks here are smaller than both (Lemma 20), a term of the
norm that is missing from Theorem 11, stages and features that are counted differently in two places (Lemma 18,
Theorem 12), O(S) printed for O(1), and captions that name the complement of what their axis shows.
"""

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
