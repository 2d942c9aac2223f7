"""Data laws with exact ground truth: sample, score, condition, recognise."""

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
from sandtable.worlds.masks import BertMasking
from sandtable.worlds.oracles import HiddenPrefix, Knapsack, OneZero, Slips, Trap, Zeros
from sandtable.worlds.topics import TopicModel

__all__ = [
    "Batch",
    "BertMasking",
    "DyckPrefixes",
    "DyckWords",
    "Expectation",
    "FixedLengthDyck",
    "HasConditional",
    "HasLogProb",
    "HasNextToken",
    "HiddenPrefix",
    "Knapsack",
    "OneZero",
    "Recogniser",
    "SamplesEach",
    "Slips",
    "TokenWorld",
    "TopicModel",
    "Trap",
    "Vocab",
    "World",
    "Zeros",
]
