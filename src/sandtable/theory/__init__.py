"""What the theorems say: closed forms, exact computations, weights built by construction."""

from sandtable.theory import dyck, generation, pruning, topics

__all__ = ["dyck", "generation", "pruning", "topics"]
