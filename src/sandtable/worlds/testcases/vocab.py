"""A vocabulary of characters and chunks for the documents of test cases: text to tokens and back without loss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from sandtable.arguments import ArgumentError, nearest
from sandtable.worlds.base import Vocab
from sandtable.worlds.testcases import prompts

EOS = "<eos>"
UNRELATED = "(a, b):\n    return a - b\n"
"""Body of the function that documents wander off to."""


@dataclass(frozen=True)
class TextVocab(Vocab):
    """Tokens that are pieces of text; token 0 ends a text and is written as nothing."""

    @property
    def eos(self) -> int:
        return 0

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(token) for token in sorted(self.tokens[1:], key=len, reverse=True)))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def id(self, token: str) -> int:
        if token not in self._ids:
            raise ArgumentError(f"token={token!r}: not in this vocabulary{nearest(token, self.tokens)}")
        return self._ids[token]

    def encode(self, text: str) -> list[int]:
        """The text as tokens: at every place the longest that fits, unless the rest could not be written then."""
        ids, end = [], 0
        for match in self._pattern.finditer(text):
            if match.start() != end:
                break
            ids.append(self._ids[match[0]])
            end = match.end()
        return ids if end == len(text) else self._careful(text)

    def _careful(self, text: str) -> list[int]:
        """The same where the longest token is not always right: from the end, which places can be reached?"""
        chosen: dict[int, int] = {len(text): self.eos}
        longest_first = sorted(range(1, len(self)), key=lambda token: -len(self.tokens[token]))
        for place in range(len(text) - 1, -1, -1):
            for token in longest_first:
                if text.startswith(self.tokens[token], place) and place + len(self.tokens[token]) in chosen:
                    chosen[place] = token
                    break
        if 0 not in chosen:
            known = set("".join(self.tokens[1:]))
            place = next((i for i, char in enumerate(text) if char not in known), 0)
            raise ArgumentError(f"text: {text[place : place + 9]!r} at character {place} is not in this vocabulary")
        ids, place = [], 0
        while place < len(text):
            ids.append(chosen[place])
            place += len(self.tokens[chosen[place]])
        return ids

    def text(self, ids: Sequence[int] | Tensor) -> str:
        """Tokens as text; the end token is written as nothing."""
        listed = ids.tolist() if isinstance(ids, Tensor) else ids
        return "".join(self.tokens[i] for i in listed if i != self.eos)


def testcase_vocab() -> TextVocab:
    """The fixed parts of the prompt and of an assert as single tokens; names as letters, numbers as digits.

    The telling names are words, and words are tokens of their own, as in the vocabularies of code models.
    """
    parts = (prompts.DEMONSTRATION, prompts.REQUEST, prompts.ONE_A_LINE, prompts.DEFINE, prompts.ARGUMENTS)
    parts += (prompts.APPEND, prompts.INSERT, prompts.RETURN, UNRELATED)
    marks = ("\n", "assert ", "(", "([", "], ", ") == [", ") == ", "]", ", ")
    digits = "0123456789"
    return TextVocab(
        (EOS, *parts, *marks, *digits, *(f", {digit}" for digit in digits), *prompts.LETTERS, *prompts.OOD_NAMES)
    )
