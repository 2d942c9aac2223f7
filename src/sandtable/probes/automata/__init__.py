"""How well models know the states of an automaton, and whom they attend to for it (Liu et al. 2023)."""

from sandtable.probes.automata.accuracy import (
    Answer,
    accuracy_by_count,
    accuracy_by_length,
    accuracy_by_position,
    accuracy_by_rate,
    accuracy_of_rows,
    answers,
    correct,
    write_states,
)
from sandtable.probes.automata.attention import (
    entropy_ratio,
    latest,
    mass_before,
    mass_on,
    patterns,
    random_mass,
)
from sandtable.probes.automata.curves import best_less_median, crossing, drawdown, drops, smooth

__all__ = [
    "Answer",
    "accuracy_by_count",
    "accuracy_by_length",
    "accuracy_by_position",
    "accuracy_by_rate",
    "accuracy_of_rows",
    "answers",
    "best_less_median",
    "correct",
    "crossing",
    "drawdown",
    "drops",
    "entropy_ratio",
    "latest",
    "mass_before",
    "mass_on",
    "patterns",
    "random_mass",
    "smooth",
    "write_states",
]
