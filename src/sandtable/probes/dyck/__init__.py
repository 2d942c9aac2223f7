"""Measurements on models of bracket languages: accuracy, attention, balance."""

from sandtable.probes.dyck.accuracy import asked, closing_accuracy, excess_loss, long_prefixes
from sandtable.probes.dyck.balance import (
    Tokenwise,
    antiparallelism,
    balance_violation,
    bilinear_residual,
    least_outputs,
    pair_sums,
    tokenwise,
)
from sandtable.probes.dyck.pumping import (
    attended,
    log_slope,
    pumped_counts,
    pumped_rows,
    pumping_distance,
    pumping_outputs,
)

__all__ = [
    "Tokenwise",
    "antiparallelism",
    "asked",
    "attended",
    "balance_violation",
    "bilinear_residual",
    "closing_accuracy",
    "excess_loss",
    "least_outputs",
    "log_slope",
    "long_prefixes",
    "pair_sums",
    "pumped_counts",
    "pumped_rows",
    "pumping_distance",
    "pumping_outputs",
    "tokenwise",
]
