"""What the theorems say: closed forms, exact computations, weights built by construction."""

from sandtable.theory import generation, topics

__all__ = ["generation", "topics"]
