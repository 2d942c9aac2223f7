"""`automaton` shows finite automata, their algebra and their pictures; `compile` writes exact Transformers for them."""

from sandtable.cli.automata.choosing import sampled
from sandtable.cli.automata.commands import automaton, compile_automaton

__all__ = ["automaton", "compile_automaton", "sampled"]
