"""Measurements on models of bracket languages: accuracy, attention, balance."""

from sandtable.probes.dyck.accuracy import asked, closing_accuracy, excess_loss, long_prefixes
from sandtable.probes.dyck.pumping import (
    attended,
    log_slope,
    pumped_counts,
    pumped_rows,
    pumping_distance,
    pumping_outputs,
)

__all__ = [
    "asked",
    "attended",
    "closing_accuracy",
    "excess_loss",
    "log_slope",
    "long_prefixes",
    "pumped_counts",
    "pumped_rows",
    "pumping_distance",
    "pumping_outputs",
]
