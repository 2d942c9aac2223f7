"""Claims on masked language models that generate (Li et al. 2024): masks, mixing, parallel decoding."""

from sandtable.claims.gmlm import padir

CLAIMS = (*padir.CLAIMS,)
