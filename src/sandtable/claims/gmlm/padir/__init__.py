"""Claims on translation by parallel refinement (Li et al. 2024, sections 4.5 and 4.6)."""

from sandtable.claims.gmlm.padir import choices, dialect, quality, refinement, speed, stutter

CLAIMS = (
    *quality.CLAIMS,
    *speed.CLAIMS,
    *stutter.CLAIMS,
    *refinement.CLAIMS,
    *choices.CLAIMS,
    *dialect.CLAIMS,
)
