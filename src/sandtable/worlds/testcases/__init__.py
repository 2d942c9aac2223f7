"""Test cases for a function that appends: prompts, rules, counting, and a small world of such documents."""

from sandtable.worlds.testcases.counting import accuracy_distinct, correct_cases, distinct_correct
from sandtable.worlds.testcases.documents import FLAWS, AppendDocuments
from sandtable.worlds.testcases.parser import Fault, FirstError, Line, first_error, read_line, token_at
from sandtable.worlds.testcases.prompts import (
    OOD_NAMES,
    REQUESTED,
    SUMS,
    TRAIN_NAMES,
    prompt,
    random_names,
    random_sums,
)
from sandtable.worlds.testcases.task import TestCaseTask
from sandtable.worlds.testcases.vocab import TextVocab, testcase_vocab

__all__ = [
    "FLAWS",
    "OOD_NAMES",
    "REQUESTED",
    "SUMS",
    "TRAIN_NAMES",
    "AppendDocuments",
    "Fault",
    "FirstError",
    "Line",
    "TestCaseTask",
    "TextVocab",
    "accuracy_distinct",
    "correct_cases",
    "distinct_correct",
    "first_error",
    "prompt",
    "random_names",
    "random_sums",
    "read_line",
    "testcase_vocab",
    "token_at",
]
