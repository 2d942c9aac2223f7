"""Measurements on models of bracket languages: accuracy, attention, balance."""
