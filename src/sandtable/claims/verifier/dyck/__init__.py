"""Claims on Dyck strings completed by a trained generator and its verifier (Botta et al. 2025)."""

from sandtable.claims.verifier.dyck import diversity, hard_prefixes, law, necessary, probe, unseen

CLAIMS = (
    *law.CLAIMS,
    *probe.CLAIMS,
    *hard_prefixes.CLAIMS,
    *necessary.CLAIMS,
    *unseen.CLAIMS,
    *diversity.CLAIMS,
)
