"""Claims on bounded Dyck languages (Wen, Li, Liu & Risteski 2023): balance, attention that is no stack, pruning."""

from sandtable.claims.dyck import attention, balance, constructions, copying, errata, law, necessity, pruning

CLAIMS = (
    *law.CLAIMS,
    *constructions.CLAIMS,
    *necessity.CLAIMS,
    *errata.CLAIMS,
    *attention.CLAIMS,
    *balance.CLAIMS,
    *copying.CLAIMS,
    *pruning.CLAIMS,
)
