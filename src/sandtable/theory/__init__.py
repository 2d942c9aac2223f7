"""What the theorems say: closed forms, exact computations, weights built by construction.

One folder per line of work. `topics`: optima and dynamics; `dyck`: exact Transformers with any attention; `pruning`:
what random networks contain; `generation`: laws and costs of every decoder on enumerated trees; `gmlm`: what masks
teach and how chains mix; `automata`: algebra, and the compiler from automata to weights. Constructed networks are
ordinary `models.Transformer`s.
"""

from sandtable.theory import automata, dyck, generation, gmlm, pruning, topics

__all__ = ["automata", "dyck", "generation", "gmlm", "pruning", "topics"]
