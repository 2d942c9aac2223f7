"""What the theorems say: closed forms, exact computations, weights built by construction."""

from sandtable.theory import topics

__all__ = ["topics"]
