"""Data laws with exact ground truth: sample, score, condition, recognise.

A world is a frozen dataclass of its parameters. `world.sample(n, generator)` gives a `Batch`: tokens or vectors `x`, a
`mask` of real positions, and `latents` — what only the world knows (the topic of every word, the depth of every prefix,
the state of the automaton). Where the mathematics allows it a world also tells `log_prob`, `next_token_probs`,
`conditional` or `accepts`: small protocols, so that a function asks for exactly what it needs. Mask laws (`Blocks`,
`UniformSize`, …) live here too, since the same object drives a training loss and a block sampler.
"""

from sandtable.worlds import automata, testcases
from sandtable.worlds.automata import Automaton
from sandtable.worlds.base import (
    Batch,
    Expectation,
    HasConditional,
    HasLogProb,
    HasNextToken,
    Recogniser,
    SamplesEach,
    TokenWorld,
    Vocab,
    World,
)
from sandtable.worlds.dyck import DyckPrefixes, DyckWords, FixedLengthDyck
from sandtable.worlds.finite import FiniteLaw, Mixture, Table
from sandtable.worlds.ising import CliqueIsing, Ising
from sandtable.worlds.masks import AdaptiveBlocks, BertMasking, Blocks, MaskLaw, UniformSize, UniformSubset
from sandtable.worlds.oracles import HiddenPrefix, Knapsack, OneZero, SlippingDyck, Slips, Trap, Zeros
from sandtable.worlds.topics import TopicModel
from sandtable.worlds.translation import DialectTask, DropTask, FertilityTask, translation_task

__all__ = [
    "AdaptiveBlocks",
    "Automaton",
    "Batch",
    "BertMasking",
    "Blocks",
    "CliqueIsing",
    "DialectTask",
    "DropTask",
    "DyckPrefixes",
    "DyckWords",
    "Expectation",
    "FertilityTask",
    "FiniteLaw",
    "FixedLengthDyck",
    "HasConditional",
    "HasLogProb",
    "HasNextToken",
    "HiddenPrefix",
    "Ising",
    "Knapsack",
    "MaskLaw",
    "Mixture",
    "OneZero",
    "Recogniser",
    "SamplesEach",
    "SlippingDyck",
    "Slips",
    "Table",
    "TokenWorld",
    "TopicModel",
    "Trap",
    "UniformSize",
    "UniformSubset",
    "Vocab",
    "World",
    "Zeros",
    "automata",
    "testcases",
    "translation_task",
]
