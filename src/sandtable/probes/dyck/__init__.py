"""Measurements on models of bracket languages: accuracy, attention, balance."""

from sandtable.probes.dyck.accuracy import asked, closing_accuracy, excess_loss, long_prefixes

__all__ = ["asked", "closing_accuracy", "excess_loss", "long_prefixes"]
