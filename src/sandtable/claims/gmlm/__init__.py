"""Claims on masked language models that generate (Li et al. 2024): masks, mixing, parallel decoding."""

CLAIMS = ()
