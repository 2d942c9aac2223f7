"""Claims on masked language models that generate (Li et al. 2024): masks, mixing, parallel decoding."""

from sandtable.claims.gmlm import (
    cliques,
    conditioning,
    convexity,
    finite_sample,
    fits,
    heads,
    hitting,
    joint,
    kernels,
    masking,
    mixing,
    padir,
    parallel,
    samplers,
    separation,
)

CLAIMS = (
    *masking.CLAIMS,
    *fits.CLAIMS,
    *mixing.CLAIMS,
    *conditioning.CLAIMS,
    *joint.CLAIMS,
    *finite_sample.CLAIMS,
    *cliques.CLAIMS,
    *samplers.CLAIMS,
    *parallel.CLAIMS,
    *separation.CLAIMS,
    *hitting.CLAIMS,
    *kernels.CLAIMS,
    *heads.CLAIMS,
    *convexity.CLAIMS,
    *padir.CLAIMS,
)
