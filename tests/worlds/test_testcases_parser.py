"""The rules for test cases: every kind of error by hand, and decisions compared with Python's own append."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sandtable.arguments import ArgumentError
from sandtable.worlds.testcases import Fault, correct_cases, distinct_correct, first_error, token_at
from sandtable.worlds.testcases.literals import NotLiteral, SyntaxFault, expression, value

# (line, kind, the text that begins where the error is)
WRONG = [
    ("def other(a):", "LINE_WITHOUT_ASSERT", "def other"),
    ("asset abc([1], 2) == [1, 2]", "LINE_WITHOUT_ASSERT", "t abc"),
    ("asserted abc([1], 2) == [1, 2]", "LINE_WITHOUT_ASSERT", "ed abc"),
    ("assert abd([1], 2) == [1, 2]", "FUNCTION_NOT_TESTED", "d([1]"),
    ("assert [1, 2] == abc([1], 2)", "FUNCTION_NOT_TESTED", "[1, 2] =="),
    ("assert abc([1], 2 == [1, 2]", "FUNCTION_CALL_NO_CLOSING_PARENTHESIS", ""),
    ("assert abc(['a], 2) == [1, 2]", "FUNCTION_CALL_NO_CLOSING_PARENTHESIS", ""),
    ("assert abc([1,, 2], 3) == [1, 2, 3]", "FUNCTION_CALL_SYNTAX_ERROR", ", 2], 3)"),
    ("assert abc([1, 2), 3) == [1, 2, 3]", "FUNCTION_CALL_SYNTAX_ERROR", "), 3)"),
    ("assert abc([1] * 3, 2) == [1, 1, 1, 2]", "FUNCTION_CALL_VALUE_ERROR", "[1] * 3"),
    ("assert abc([1], f'{1}') == [1, '1']", "FUNCTION_CALL_VALUE_ERROR", "f'{1}'"),
    ("assert abc([1], {[2]}) == [1, {2}]", "FUNCTION_CALL_VALUE_ERROR", "{[2]}"),
    ("assert abc(list=[1], item=2) == [1, 2]", "FUNCTION_CALL_VALUE_ERROR", "[1], item"),
    ("assert abc(*[[1], 2]) == [1, 2]", "FUNCTION_CALL_VALUE_ERROR", "*[[1]"),
    ("assert abc([1, x], 2) == [1, 2]", "FUNCTION_CALL_UNKNOWN_VARIABLE", "x], 2)"),
    ("assert abc((1, 2), 3) == [1, 2, 3]", "FIRST_ARGUMENT_TYPE_ERROR", "(1, 2), 3"),
    ("assert abc(1, 2) == [1, 2]", "FIRST_ARGUMENT_TYPE_ERROR", "1, 2) =="),
    ("assert abc([1]) == [1]", "ONLY_ONE_ARGUMENT", ") =="),
    ("assert abc() == []", "ONLY_ONE_ARGUMENT", ") =="),
    ("assert abc([1], 2, 3) == [1, 2, 3]", "MORE_THAN_TWO_ARGUMENTS", "3) =="),
    ("assert abc([1], 2)", "NO_ASSERTION_EQUALITY", ""),
    ("assert abc([1], 2) = [1, 2]", "NO_ASSERTION_EQUALITY", " [1, 2]"),
    ("assert abc([1], 2) is [1, 2]", "NO_ASSERTION_EQUALITY", "is [1"),
    ("assert abc([1], 2) == [1, 2", "EXPECTED_OUTPUT_NO_CLOSING_BRACKET", ""),
    ("assert abc([1], 2) ==", "EXPECTED_OUTPUT_SYNTAX_ERROR", ""),
    ("assert abc([1], 2) == [1 2]", "EXPECTED_OUTPUT_SYNTAX_ERROR", "1 2]"),
    ("assert abc([1], 2) == [1, 2)", "EXPECTED_OUTPUT_SYNTAX_ERROR", ")"),
    ("assert abc([1], 2) == [1, 2] assert", "EXPECTED_OUTPUT_SYNTAX_ERROR", "assert"),
    ("assert abc([1], 2) == [1, 1 + 1]", "EXPECTED_OUTPUT_VALUE_ERROR", "1 + 1]"),
    ("assert abc([1], 2) == [1, 2] + []", "EXPECTED_OUTPUT_VALUE_ERROR", "+ []"),
    ("assert abc([1], 2) == [i for i in (1, 2)]", "EXPECTED_OUTPUT_VALUE_ERROR", "[i for"),
    ("assert abc([1], 2) == 12", "EXPECTED_OUTPUT_TYPE_ERROR", "12"),
    ("assert abc([1], 2) == (1, 2)", "EXPECTED_OUTPUT_TYPE_ERROR", "(1, 2)"),
    ("assert abc([1], 2) == [1, y]", "EXPECTED_OUTPUT_UNDEFINED_VARIABLE", "y]"),
    ("assert abc([1], 2) == result", "EXPECTED_OUTPUT_UNDEFINED_VARIABLE", "result"),
    ("assert abc([2], 1) == [1, 2]", "ASSERTION_FAILURE", "1, 2]"),
    ("assert abc([1, 2], 3) == [1, 5, 3]", "ASSERTION_FAILURE", "5, 3]"),
    ("assert abc([1, 2], 3) == [1, 2]", "ASSERTION_FAILURE", "]"),
    ("assert abc([], 3) == []", "ASSERTION_FAILURE", "]"),
    ("assert abc([1], 2) == [1, 2, 3]", "ASSERTION_FAILURE", ", 3]"),
    ("assert abc(['é', 'b'], 2) == ['é', 'c', 2]", "ASSERTION_FAILURE", "'c', 2]"),
]
RIGHT = [
    "assert abc([1], 2) == [1, 2]",
    "  assert   abc( [ 1 ] ,2 )==[1,2,]  # fine",
    "assert abc([], []) == [[]]",
    "assert abc(['a', \"b)\"], None) == ['a', 'b)', None], 'a message'",
    "assert abc(l=[-1, 2.5], item={'k': (1, 2)}) == [-1, 2.5, {'k': (1, 2)}]",
]


@pytest.mark.parametrize(("line", "kind", "rest"), WRONG)
def test_kind_and_place_of_every_error(line, kind, rest):
    good = RIGHT[0]
    text = f"\n{good}\n\n{line}\n{good}"
    error = first_error(text, "abc", requested=3)
    assert (error.kind, error.line) == (kind, 3)
    before = len(good) + 3
    assert text[error.position : before + len(line)].startswith(rest)
    assert error.position == before + error.char
    assert rest or error.char == len(line)


def test_every_kind_is_tried():
    ends = {"EXTRA_CONTENT_AFTER_TASK_COMPLETION", "FEWER_TEST_CASES_THAN_EXPECTED"}
    assert {kind for _, kind, _ in WRONG} | ends == set(Fault)


@pytest.mark.parametrize("line", RIGHT)
def test_right_lines(line):
    assert first_error(f"\n{line}\n", "abc", requested=1) is None


def test_too_many_and_too_few():
    text = f"\n{RIGHT[0]}\n{RIGHT[2]}\n"
    extra = first_error(text + "\n  def g():\n", "abc", requested=2)
    assert (extra.kind, extra.char, extra.position) == ("EXTRA_CONTENT_AFTER_TASK_COMPLETION", 2, len(text) + 3)
    fewer = first_error(text, "abc", requested=3)
    assert (fewer.kind, fewer.position) == ("FEWER_TEST_CASES_THAN_EXPECTED", len(text))
    assert first_error(text, "abc", requested=3, finished=False) is None
    with pytest.raises(ArgumentError, match="requested=0"):
        first_error(text, "abc", requested=0)


digits = some.lists(some.integers(0, 12), max_size=4)


@given(digits, some.integers(0, 12), digits, some.sampled_from(["abc", "abd"]))
@settings(max_examples=300, deadline=None)
def test_decisions_are_those_of_append(tested, item, expected, name):
    line = f"assert {name}({tested}, {item}) == {expected}"
    result = list(tested)
    result.append(item)
    assert (first_error(line, "abc", requested=1) is None) == (name == "abc" and result == expected)
    for given_list in (result, [item, *tested]):
        right = first_error(f"assert abc({tested}, {item}) == {given_list}", "abc", requested=1) is None
        assert right == (given_list == result)


pieces = some.sampled_from([*(line for line, _, _ in WRONG), *RIGHT, "\n", "assert ", "abc(", "[1", ", 2", "]", ")"])


@given(some.lists(pieces, max_size=6).map("\n".join), some.data())
@settings(max_examples=300, deadline=None)
def test_an_error_of_a_beginning_is_one_of_the_whole(text, data):
    whole = first_error(text, "abc", requested=3)
    cut = data.draw(some.integers(0, len(text)))
    part = first_error(text[:cut], "abc", requested=3, finished=False)
    if part is not None:
        assert whole is not None
        assert whole.position <= part.position < cut
    if whole is not None and cut <= whole.position:
        assert part is None


def test_beginnings_are_judged_as_soon_as_possible():
    line = "assert abc([1, 2], 13) == [1, 4, 13]"
    error = first_error(line, "abc", requested=1)
    assert line[error.position] == "4"
    for cut in range(len(line) + 1):
        part = first_error(line[:cut], "abc", requested=1, finished=False)
        assert (part is not None) == (cut > error.position)
    half = "assert abc([], 13) == [1"
    assert first_error(half, "abc", finished=False) is None
    assert first_error(half + "2", "abc", finished=False).kind == "ASSERTION_FAILURE"


@given(some.text(max_size=80) | some.text(alphabet="asert bc([]),=123'\"{}#\\\n:-.", max_size=200))
@settings(max_examples=500, deadline=None)
def test_any_text_is_judged(text):
    for prefix in ("", "assert abc(", "assert abc([1], 2) == ["):
        for finished in (True, False):
            error = first_error(prefix + text, "abc", finished=finished)
            assert error is None or 0 <= error.position <= len(prefix + text)
        assert len(correct_cases(prefix + text, "abc")) <= 8


STRANGE = [
    "[" * 10**6,
    "(" * 150 + ")" * 150,
    "\n" * 10**5,
    "assert abc(" + "[" * 10**5,
    "assert abc([" + "-" * 10**5 + "1], 2)",
    "assert abc([1], " + "9" * 10**6,
    "assert abc([1], 0x" + "f" * 900 + ") == [1, 0x" + "f" * 10,
    "assert abc([1], '\ud800\x00')",
    "assert abc([1], '\\d\r') == ['\t",
    "assert abc([1], 2\n" * 10**4,
    "assert abc([1], 2) == [1, " + "2e" * 400,
]


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_strange_text_is_judged(text):
    for finished in (True, False):
        first_error(text, "abc", finished=finished)
    correct_cases(text, "abc")


numbers = some.integers() | some.floats(allow_nan=False, allow_infinity=False)
things = some.recursive(
    some.none() | some.booleans() | numbers | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.tuples(inner, inner),
)


@given(things)
@settings(max_examples=200, deadline=None)
def test_literals_have_the_values_of_literal_eval(thing):
    assert repr(value(expression(repr(thing)))) == repr(ast.literal_eval(repr(thing)))


@pytest.mark.parametrize("text", ["print(1)", "[].append(1)", "1 + 1", "lambda: 1", "x", "__import__('os')", "-'a'"])
def test_what_is_no_literal_has_no_value(text):
    with pytest.raises((NotLiteral, SyntaxFault)):
        value(expression(text))


@given(some.lists(some.text(max_size=4), max_size=8), some.integers(0, 40))
def test_token_at_a_character(tokens, position):
    owner = [i for i, token in enumerate(tokens) for _ in token]
    assert token_at(position, tokens, "".join) == (owner[position] if position < len(owner) else len(tokens))


def test_distinct_cases_are_counted_per_name():
    one, two, wrong = "assert abc([1], 2) == [1, 2]", "assert abc([2], 2) == [2, 2]", "assert abc([1], 3) == [3, 1]"
    assert distinct_correct([f"\n{one}\n{one}\n{two}\n{wrong}", f"\n{two}\n"], "abc") == 2
    assert len(correct_cases("\n".join(f"assert abc([{i}], 2) == [{i}, 2]" for i in range(12)), "abc")) == 8
    assert len(correct_cases("\n".join([wrong] * 7 + [one, two]), "abc")) == 1  # wrong cases count among the eight
    talk = "so:\nand\nthen\n\n"
    assert len(correct_cases(talk + one + "\na\nb\n" + two, "abc")) == 2
    assert len(correct_cases(talk + one + "\na\nb\nc\n" + two, "abc")) == 1
    assert correct_cases(one, "abd") == set()
