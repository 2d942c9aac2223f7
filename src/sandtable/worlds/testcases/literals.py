"""Literals of Python, read from their syntax tree: nothing that a model wrote is ever run."""

from __future__ import annotations

import ast
import warnings
from typing import Any

DEEPEST = 20
"""Brackets within brackets; deeper ones are not read."""

_CLOSES = {"(": ")", "[": "]", "{": "}"}


class SyntaxFault(Exception):
    """Not an expression; `char` is where Python stumbled."""

    def __init__(self, char: int) -> None:
        super().__init__(char)
        self.char = char


class NotLiteral(Exception):
    """An expression without a value of its own: `variable` tells a bare name from everything else."""

    def __init__(self, char: int, *, variable: bool = False) -> None:
        super().__init__(char)
        self.char, self.variable = char, variable


def closing(text: str, start: int) -> tuple[int | None, int | None]:
    """Where the bracket at `start` is closed, or None; and where a bracket does not fit or lies too deep, or None."""
    stack, quote, i = [], "", start
    while i < len(text):
        char = text[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "#":
            break
        elif char in _CLOSES:
            stack.append(_CLOSES[char])
            if len(stack) > DEEPEST:
                return None, i
        elif char in ")]}":
            if stack.pop() != char:
                return None, i
            if not stack:
                return i, None
        i += 1
    return None, None


def expression(text: str) -> ast.expr:
    """The syntax tree of one expression on one line; `SyntaxFault` or `NotLiteral` where there is none."""
    # Blanks keep every place: a return character would start a new line for Python.
    plain = "".join(" " if char in "\r\n\f" else char for char in text)
    indent = len(plain) - len(plain.lstrip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(plain[indent:], mode="eval").body
    except SyntaxError as error:
        raise SyntaxFault(min(len(text), indent + max(0, (error.offset or 1) - 1))) from None
    except (ValueError, OverflowError, RecursionError, MemoryError):  # no text at all, or too much of it
        raise NotLiteral(indent) from None
    # Python counts columns in bytes of UTF-8.
    stripped = plain[indent:].encode()
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.keyword):
            node.col_offset = indent + len(stripped[: node.col_offset].decode(errors="ignore"))
            node.end_col_offset = indent + len(stripped[: node.end_col_offset].decode(errors="ignore"))
    return tree


def value(node: ast.expr) -> Any:
    """The value of a literal — numbers, texts, None, lists, tuples, sets, dictionaries — or `NotLiteral`."""
    match node:
        case ast.Constant():
            return node.value
        case ast.List():
            return [value(item) for item in node.elts]
        case ast.Tuple():
            return tuple(value(item) for item in node.elts)
        case ast.Set() | ast.Dict():
            return _hashed(node)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() | complex() as size)):
            return -size if isinstance(node.op, ast.USub) else +size
        case ast.Name():
            raise NotLiteral(node.col_offset, variable=True)
    raise NotLiteral(node.col_offset)


def _hashed(node: ast.Set | ast.Dict) -> Any:
    try:
        if isinstance(node, ast.Set):
            return {value(item) for item in node.elts}
        if None in node.keys:  # {**other}
            raise NotLiteral(node.col_offset)
        return {value(k): value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}
    except TypeError:
        raise NotLiteral(node.col_offset) from None
