"""Claims on bounded Dyck languages (Wen, Li, Liu & Risteski 2023): balance, attention that is no stack, pruning."""

from sandtable.claims.dyck import constructions, errata, law, necessity

CLAIMS = (*law.CLAIMS, *constructions.CLAIMS, *necessity.CLAIMS, *errata.CLAIMS)
