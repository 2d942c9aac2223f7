"""Claims on masked language models that generate (Li et al. 2024): masks, mixing, parallel decoding."""

from sandtable.claims.gmlm import conditioning, finite_sample, fits, joint, masking, mixing, padir

CLAIMS = (
    *masking.CLAIMS,
    *fits.CLAIMS,
    *mixing.CLAIMS,
    *conditioning.CLAIMS,
    *joint.CLAIMS,
    *finite_sample.CLAIMS,
    *padir.CLAIMS,
)
