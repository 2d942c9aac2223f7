"""Finite automata as worlds: tables, fixtures, products, cascades, and the laws of what they read."""

from sandtable.worlds.automata.aperiodic import abab, dyck, flip_flop, grid, grid_2d, memory, stack_top
from sandtable.worlds.automata.automaton import Automaton, Map
from sandtable.worlds.automata.combining import Wire, cascade, product
from sandtable.worlds.automata.fixtures import TASKS, fixture, fixtures
from sandtable.worlds.automata.groups import (
    alternating,
    cyclic,
    cyclic_power,
    dihedral,
    parity,
    quaternion,
    symmetric,
    symmetric_tokens,
)
from sandtable.worlds.automata.laws import Bernoulli, Counted, InputLaw, Legal, Repeating, StateLaw, Uniform, Writes
from sandtable.worlds.automata.making import from_permutations, from_table, observed, reached, regular
from sandtable.worlds.automata.puzzles import rubik
from sandtable.worlds.automata.regular import from_regex

__all__ = [
    "TASKS",
    "Automaton",
    "Bernoulli",
    "Counted",
    "InputLaw",
    "Legal",
    "Map",
    "Repeating",
    "StateLaw",
    "Uniform",
    "Wire",
    "Writes",
    "abab",
    "alternating",
    "cascade",
    "cyclic",
    "cyclic_power",
    "dihedral",
    "dyck",
    "fixture",
    "fixtures",
    "flip_flop",
    "from_permutations",
    "from_regex",
    "from_table",
    "grid",
    "grid_2d",
    "memory",
    "observed",
    "parity",
    "product",
    "quaternion",
    "reached",
    "regular",
    "rubik",
    "stack_top",
    "symmetric",
    "symmetric_tokens",
]
