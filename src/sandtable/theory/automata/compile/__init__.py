"""From any finite automaton to an ordinary Transformer with every weight set.

`recognise` an automaton's kind; a construction (`counter`, `memory`, `grid`, `groups`, `cascade`, `log_depth`) writes a
`program` of heads and `gadgets` over named coordinates; `assemble` makes it a Transformer; `compiled` knows how inputs
are written for it and answers read; `files` keeps it; `sizes` measures it beside the theorem's bound. `depths` tells
the number of layers without building anything.
"""

from sandtable.theory.automata.compile.compiled import Compiled
from sandtable.theory.automata.compile.depths import Depth, depths, shallowest
from sandtable.theory.automata.compile.methods import METHODS, NotThisWay, compile
from sandtable.theory.automata.compile.sizes import Sizes

__all__ = ["METHODS", "Compiled", "Depth", "NotThisWay", "Sizes", "compile", "depths", "shallowest"]
