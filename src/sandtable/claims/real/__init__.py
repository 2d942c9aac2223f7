"""Claims on topics in real text and real models (Li, Li & Risteski 2023); by default on a BERT trained on the spot."""

from sandtable.claims.real import dynamics, topics

CLAIMS = (*topics.CLAIMS, *dynamics.CLAIMS)
