"""Test cases for a Python function: tables 3.6 to 3.17 of Botta et al. (2025) on a small code model trained here."""

from sandtable.claims.verifier.code import limits, main, verifiers

CLAIMS = (*main.CLAIMS, *verifiers.CLAIMS, *limits.CLAIMS)
