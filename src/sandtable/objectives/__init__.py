"""What is asked of a model: draw the randomness, then a pure loss.

`draw(batch, generator, step)` holds all randomness (masks, inserted prefixes, noise) and gives an `Example`;
`loss(apply, params, example)` is pure and vectorises over models. `OneForward` is the base of the simple ones: it needs
only a score of the outputs. Constants such as a teacher's answers travel in the Example.
"""

from sandtable.objectives.automata import EveryState, RandomShift, RevealedStates, Scratchpad
from sandtable.objectives.base import Apply, Example, Objective, OneForward, Params
from sandtable.objectives.brackets import NextBracket
from sandtable.objectives.copying import Copying
from sandtable.objectives.dropout import Dropout
from sandtable.objectives.masked_blocks import MaskedBlocks
from sandtable.objectives.masked_lm import MaskedLM
from sandtable.objectives.next_token import NextToken
from sandtable.objectives.penalty import l2_penalty
from sandtable.objectives.refinement import Refinement, TeacherForcing

__all__ = [
    "Apply",
    "Copying",
    "Dropout",
    "EveryState",
    "Example",
    "MaskedBlocks",
    "MaskedLM",
    "NextBracket",
    "NextToken",
    "Objective",
    "OneForward",
    "Params",
    "RandomShift",
    "Refinement",
    "RevealedStates",
    "Scratchpad",
    "TeacherForcing",
    "l2_penalty",
]
