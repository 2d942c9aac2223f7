"""Claims on the value-guided walk that may go back (VGB, Rohatgi et al. 2025)."""

from sandtable.claims.vgb import dyck, endings, exact, first_leaf, frontier

CLAIMS = (
    *exact.CLAIMS,
    *first_leaf.CLAIMS,
    *endings.CLAIMS,
    *dyck.CLAIMS,
    *frontier.CLAIMS,
)
