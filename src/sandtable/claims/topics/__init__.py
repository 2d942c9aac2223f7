"""Claims on how a one-layer Transformer learns topics (Li, Li & Risteski 2023): exact, trained, and printed errors."""

from sandtable.claims.topics import attention, attention_theory, dynamics, embeddings, errata, exact, values

CLAIMS = (
    *exact.CLAIMS,
    *attention_theory.CLAIMS,
    *values.CLAIMS,
    *embeddings.CLAIMS,
    *attention.CLAIMS,
    *dynamics.CLAIMS,
    *errata.CLAIMS,
)
