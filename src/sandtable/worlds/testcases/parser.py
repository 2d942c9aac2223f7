"""Rules for a completion of test cases: the first error, its kind and its place (Botta et al. 2025)."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from sandtable.arguments import typed, whole
from sandtable.worlds.testcases.literals import NotLiteral, SyntaxFault, closing, expression, value
from sandtable.worlds.testcases.prompts import REQUESTED

LONGEST = 1000
"""Characters of a line that are read; what lies behind them counts as missing."""

_T = TypeVar("_T")


class Fault(StrEnum):
    """What can be wrong with a completion, as the published parser names it."""

    LINE_WITHOUT_ASSERT = "LINE_WITHOUT_ASSERT"
    EXTRA_CONTENT_AFTER_TASK_COMPLETION = "EXTRA_CONTENT_AFTER_TASK_COMPLETION"
    FUNCTION_NOT_TESTED = "FUNCTION_NOT_TESTED"
    FUNCTION_CALL_NO_CLOSING_PARENTHESIS = "FUNCTION_CALL_NO_CLOSING_PARENTHESIS"
    FUNCTION_CALL_SYNTAX_ERROR = "FUNCTION_CALL_SYNTAX_ERROR"
    FUNCTION_CALL_VALUE_ERROR = "FUNCTION_CALL_VALUE_ERROR"
    FUNCTION_CALL_UNKNOWN_VARIABLE = "FUNCTION_CALL_UNKNOWN_VARIABLE"
    FIRST_ARGUMENT_TYPE_ERROR = "FIRST_ARGUMENT_TYPE_ERROR"
    ONLY_ONE_ARGUMENT = "ONLY_ONE_ARGUMENT"
    MORE_THAN_TWO_ARGUMENTS = "MORE_THAN_TWO_ARGUMENTS"
    NO_ASSERTION_EQUALITY = "NO_ASSERTION_EQUALITY"
    EXPECTED_OUTPUT_NO_CLOSING_BRACKET = "EXPECTED_OUTPUT_NO_CLOSING_BRACKET"
    EXPECTED_OUTPUT_SYNTAX_ERROR = "EXPECTED_OUTPUT_SYNTAX_ERROR"
    EXPECTED_OUTPUT_VALUE_ERROR = "EXPECTED_OUTPUT_VALUE_ERROR"
    EXPECTED_OUTPUT_TYPE_ERROR = "EXPECTED_OUTPUT_TYPE_ERROR"
    EXPECTED_OUTPUT_UNDEFINED_VARIABLE = "EXPECTED_OUTPUT_UNDEFINED_VARIABLE"
    ASSERTION_FAILURE = "ASSERTION_FAILURE"
    FEWER_TEST_CASES_THAN_EXPECTED = "FEWER_TEST_CASES_THAN_EXPECTED"


class FirstError(NamedTuple):
    """Kind of the first error, and its place: line and character of the line, and character of the completion."""

    kind: Fault
    line: int
    char: int
    position: int


class Line(NamedTuple):
    """One line: `case` (the tested list and item, spelled out) where it is a test case, `kind` and `char` if wrong."""

    case: str | None = None
    kind: Fault | None = None
    char: int = 0


class _Wrong(Exception):
    def __init__(self, kind: Fault, char: int) -> None:
        super().__init__(kind, char)
        self.kind, self.char = kind, char


@typed
def first_error(text: str, name: str, *, requested: int = REQUESTED, finished: bool = True) -> FirstError | None:
    """The first error in a completion that should list `requested` test cases of the function `name`.

    With `finished=False` the text is the beginning of a completion: what is only missing yet is no error. No beginning
    of a right completion has one; of the others a few have none yet, since a call is judged where its parenthesis is
    closed, and an element of the output where a comma or the bracket ends it. (Of a number the digits are compared as
    they come: it is wrong as soon as they do not begin those of the right one.)
    """
    requested = whole("requested", requested)
    lines = text.split("\n")
    found, start = 0, 0
    for i, line in enumerate(lines):
        if line.strip():
            if found == requested:
                char = len(line) - len(line.lstrip())
                return FirstError(Fault.EXTRA_CONTENT_AFTER_TASK_COMPLETION, i, char, start + char)
            read = read_line(line, name, finished or i + 1 < len(lines))
            if read.kind is not None:
                return FirstError(read.kind, i, read.char, start + read.char)
            found += 1
        start += len(line) + 1
    if finished and found < requested:
        return FirstError(Fault.FEWER_TEST_CASES_THAN_EXPECTED, len(lines) - 1, len(lines[-1]), len(text))
    return None


@typed
def token_at(position: int, ids: Sequence[_T], decode: Callable[[Sequence[_T]], str]) -> int:
    """Index of the first token whose decoded text passes the character at `position`; `len(ids)` if none does.

    `decode` turns tokens into text, so tokenizers whose tokens have no text of their own are served too; for a list of
    pieces it is `"".join`.
    """
    return bisect_right(range(1, len(ids) + 1), position, key=lambda count: len(decode(ids[:count])))


@typed
@lru_cache(maxsize=1 << 16)
def read_line(line: str, name: str, finished: bool = True) -> Line:
    """`assert NAME(list, item) == list` judged from left to right. An unfinished line lacks nothing yet."""
    text = line[:LONGEST]
    case = None
    try:
        start = _after(text, len(text) - len(text.lstrip()), "assert", Fault.LINE_WITHOUT_ASSERT)
        if text[start : start + 1].isidentifier():
            raise _Wrong(Fault.LINE_WITHOUT_ASSERT, start)
        start = _after(text, _blanks(text, start), f"{name}(", Fault.FUNCTION_NOT_TESTED)
        start, wanted, item = _call(text, start - 1)
        start = _after(text, _blanks(text, start), "==", Fault.NO_ASSERTION_EQUALITY)
        case = repr((wanted, item))
        _output(text, _blanks(text, start), [*wanted, item], finished)
    except _Wrong as wrong:
        if finished or wrong.char < len(line):
            return Line(case, wrong.kind, wrong.char)
    except (ValueError, RecursionError, MemoryError):  # a number too long to be spelled out, a value too deep
        return Line(None, Fault.FUNCTION_CALL_VALUE_ERROR, 0)
    return Line(case)


def _blanks(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _after(text: str, start: int, expected: str, kind: Fault) -> int:
    """The place behind `expected`, which must stand at `start`."""
    for i, char in enumerate(expected, start):
        if text[i : i + 1] != char:
            raise _Wrong(kind, i)
    return start + len(expected)


# -- the call --------------------------------------------------------------------------------------------------------


def _call(text: str, start: int) -> tuple[int, list[Any], Any]:
    """The place behind the call whose parenthesis opens at `start`, its list and its item."""
    end, misfit = closing(text, start)
    if misfit is not None:
        raise _Wrong(Fault.FUNCTION_CALL_SYNTAX_ERROR, misfit)
    if end is None:
        raise _Wrong(Fault.FUNCTION_CALL_NO_CLOSING_PARENTHESIS, len(text))
    try:
        tree = expression("f" + text[start : end + 1])
    except SyntaxFault as fault:
        raise _Wrong(Fault.FUNCTION_CALL_SYNTAX_ERROR, min(end, max(start, start + fault.char - 1))) from None
    except NotLiteral:
        raise _Wrong(Fault.FUNCTION_CALL_VALUE_ERROR, start + 1) from None
    if not isinstance(tree, ast.Call):  # quotes within quotes that `closing` reads otherwise than Python
        raise _Wrong(Fault.FUNCTION_CALL_SYNTAX_ERROR, start)
    given: dict[str, tuple[Any, int]] = {}
    for i, node in enumerate([*tree.args, *tree.keywords]):
        place, node = (
            (node.arg, node.value) if isinstance(node, ast.keyword) else (("l", "item", None)[min(i, 2)], node)
        )
        char = start + node.col_offset - 1
        if i == 2:
            raise _Wrong(Fault.MORE_THAN_TWO_ARGUMENTS, char)
        try:
            found = value(node)
        except NotLiteral as fault:
            kind = Fault.FUNCTION_CALL_UNKNOWN_VARIABLE if fault.variable else Fault.FUNCTION_CALL_VALUE_ERROR
            raise _Wrong(kind, start + fault.char - 1) from None
        if place not in ("l", "item") or place in given:
            raise _Wrong(Fault.FUNCTION_CALL_VALUE_ERROR, char)
        if place == "l" and not isinstance(found, list):
            raise _Wrong(Fault.FIRST_ARGUMENT_TYPE_ERROR, char)
        given[place] = found, char
    if len(given) < 2:
        raise _Wrong(Fault.ONLY_ONE_ARGUMENT, end)
    return end + 1, given["l"][0], given["item"][0]


# -- the expected output ---------------------------------------------------------------------------------------------


def _output(text: str, start: int, wanted: list[Any], finished: bool) -> None:
    """Raise the first error of the list that begins at `start` and must equal `wanted`."""
    if start == len(text):
        raise _Wrong(Fault.EXPECTED_OUTPUT_SYNTAX_ERROR, start)
    if text[start] != "[":
        raise _Wrong(_kind_of(text[start:]), start)
    end, misfit = closing(text, start)
    if misfit is not None:
        raise _Wrong(Fault.EXPECTED_OUTPUT_SYNTAX_ERROR, misfit)
    if end is None:
        if not finished:
            _unfinished(text, start, wanted)
        raise _Wrong(Fault.EXPECTED_OUTPUT_NO_CLOSING_BRACKET, len(text))
    _compare(text, start, end, _elements(text[start : end + 1], start), wanted)
    _tail(text, start, end + 1, finished)


def _elements(text: str, start: int) -> list[tuple[Any, int, int]]:
    """Value, first character and end of every element of the list spelled `text`, which stands at `start`."""
    try:
        tree = expression(text)
    except SyntaxFault as fault:
        raise _Wrong(Fault.EXPECTED_OUTPUT_SYNTAX_ERROR, start + fault.char) from None
    except NotLiteral:
        raise _Wrong(Fault.EXPECTED_OUTPUT_VALUE_ERROR, start) from None
    if not isinstance(tree, ast.List):  # a comprehension
        raise _Wrong(Fault.EXPECTED_OUTPUT_VALUE_ERROR, start)
    try:
        return [(value(e), start + e.col_offset, start + (e.end_col_offset or 0)) for e in tree.elts]
    except NotLiteral as fault:
        kind = Fault.EXPECTED_OUTPUT_UNDEFINED_VARIABLE if fault.variable else Fault.EXPECTED_OUTPUT_VALUE_ERROR
        raise _Wrong(kind, start + fault.char) from None


def _compare(text: str, start: int, end: int, found: Sequence[tuple[Any, int, int]], wanted: list[Any]) -> None:
    """Raise at the first element that differs, or where one list goes on and the other does not."""
    for i, (element, char, _) in enumerate(found):
        if i == len(wanted):
            raise _Wrong(Fault.ASSERTION_FAILURE, text.index(",", found[i - 1][2]) if i else char)
        if element != wanted[i]:
            raise _Wrong(Fault.ASSERTION_FAILURE, char)
    if len(found) < len(wanted):
        raise _Wrong(Fault.ASSERTION_FAILURE, end)


def _unfinished(text: str, start: int, wanted: list[Any]) -> None:
    """Raise if no way to go on from an open list gives `wanted`: elements with a comma behind them must be right."""
    cut = _last_comma(text, start)
    done = [] if cut is None else _elements(text[start:cut] + "]", start)
    _compare(text, start, len(text), done, wanted[: len(done)])
    rest = _blanks(text, start + 1 if cut is None else cut + 1)
    if cut is not None and len(done) == len(wanted) and rest < len(text):  # a comma alone may still end the list
        raise _Wrong(Fault.ASSERTION_FAILURE, cut)
    digits, right = text[rest:].rstrip(), wanted[len(done)] if len(done) < len(wanted) else None
    if digits.isdecimal() and type(right) is int and not str(right).startswith(digits):
        raise _Wrong(Fault.ASSERTION_FAILURE, rest)


def _last_comma(text: str, start: int) -> int | None:
    """The last comma of the open list itself, not of what is inside its elements."""
    i, comma = start + 1, None
    while i < len(text):
        if text[i] == ",":
            comma = i
        elif text[i] in "([{":
            end, _ = closing(text, i)
            if end is None:
                break
            i = end
        elif text[i] in "'\"":
            end = _end_of_quote(text, i)
            if end is None:
                break
            i = end
        i += 1
    return comma


def _end_of_quote(text: str, start: int) -> int | None:
    i = start + 1
    while i < len(text):
        if text[i] == text[start]:
            return i
        i += 2 if text[i] == "\\" else 1
    return None


def _tail(text: str, start: int, end: int, finished: bool) -> None:
    """Behind the list a comment or a message may stand, nothing else."""
    at = _blanks(text, end)
    rest = text[at:]
    if not rest or rest[0] == "#" or (rest[0] == "," and not finished):
        return
    try:
        expression(rest[1:] if rest[0] == "," else text[start:])
    except (SyntaxFault, NotLiteral):
        raise _Wrong(Fault.EXPECTED_OUTPUT_SYNTAX_ERROR, at) from None
    if rest[0] != ",":
        raise _Wrong(Fault.EXPECTED_OUTPUT_VALUE_ERROR, at)


def _kind_of(text: str) -> Fault:
    """What an expected output is that does not begin as a list."""
    try:
        value(expression(text))
    except SyntaxFault:
        return Fault.EXPECTED_OUTPUT_SYNTAX_ERROR
    except NotLiteral as fault:
        return Fault.EXPECTED_OUTPUT_UNDEFINED_VARIABLE if fault.variable else Fault.EXPECTED_OUTPUT_VALUE_ERROR
    return Fault.EXPECTED_OUTPUT_TYPE_ERROR
