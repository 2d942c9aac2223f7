"""Pruning random Transformers to chosen ones (Theorem 2.2.3, Corollary 2.2.3), and the bounds behind it."""

from sandtable.claims.dyck.pruning import bounds, errata, networks

CLAIMS = (*networks.CLAIMS, *bounds.CLAIMS, *errata.CLAIMS)
