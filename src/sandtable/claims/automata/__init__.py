"""Claims on automata (Liu, Ash, Goel, Krishnamurthy & Zhang 2023): what shallow networks compute and learn."""

from sandtable.claims.automata import trained
from sandtable.lab import Claim

CLAIMS: tuple[Claim, ...] = (*trained.CLAIMS,)
