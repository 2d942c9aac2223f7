"""Claims on bounded Dyck languages (Wen, Li, Liu & Risteski 2023): balance, attention that is no stack, pruning."""

from sandtable.claims.dyck import (
    attention,
    balance,
    constructions,
    copying,
    errata,
    law,
    layers,
    necessity,
    pruning,
    variation,
)

CLAIMS = (
    *law.CLAIMS,
    *constructions.CLAIMS,
    *necessity.CLAIMS,
    *errata.CLAIMS,
    *attention.CLAIMS,
    *variation.CLAIMS,
    *layers.CLAIMS,
    *balance.CLAIMS,
    *copying.CLAIMS,
    *pruning.CLAIMS,
)
