"""What the theorems say: closed forms, exact computations, weights built by construction."""

from sandtable.theory import automata, dyck, generation, pruning, topics

__all__ = ["automata", "dyck", "generation", "pruning", "topics"]
