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
from sandtable.worlds.masks import BertMasking
from sandtable.worlds.topics import TopicModel

__all__ = [
    "Batch",
    "BertMasking",
    "Expectation",
    "HasConditional",
    "HasLogProb",
    "HasNextToken",
    "Recogniser",
    "SamplesEach",
    "TokenWorld",
    "TopicModel",
    "Vocab",
    "World",
]
