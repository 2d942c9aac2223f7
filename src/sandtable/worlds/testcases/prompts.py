"""Prompts that ask for test cases of a function that appends: one demonstration, the function, the request."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Sequence

import torch

from sandtable.arguments import ArgumentError, names, typed, whole

REQUESTED = 8
"""Test cases asked for in every prompt."""
SUMS = 8
"""Test cases shown in the demonstration of the published prompt."""

TRAIN_NAMES = ("ovs", "cyk", "mcl", "heh", "fgu", "knk", "zmf")
"""Function names on which verifiers are trained."""
OOD_NAMES = ("pop", "add", "sub", "mul", "div", "max", "min", "std", "avg", "exp")
"""Words that contradict what the function does; no verifier sees them in training."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
RESERVED = frozenset((*TRAIN_NAMES, *OOD_NAMES, *(word for word in keyword.kwlist if len(word) == 3)))

# The parts of the template, so that a vocabulary may have them as single tokens.
DEMONSTRATION = "def f(a, b):\n    return a + b\n\n"
REQUEST = f"List {REQUESTED} test cases of the above function "
ONE_A_LINE = ", one in each line:"
DEFINE = "\n\ndef "
ARGUMENTS = "(l, item):\n    assert type(l) is list\n"
APPEND = "    l.append(item)\n"
INSERT = "    l.insert(0, item)\n"
RETURN = "    return l\n\n\n"


@typed
def random_names(n: int, generator: torch.Generator, *, avoid: Collection[str] = RESERVED) -> list[str]:
    """`n` distinct names of three random lower-case letters, none of `avoid` (keywords and the named lists)."""
    n = whole("n", n, least=0, most=10_000)
    found: dict[str, None] = {}
    taken = set(names("avoid", avoid))
    if n + len(taken) > len(LETTERS) ** 3:
        raise ArgumentError(f"n={n}: there are {len(LETTERS) ** 3:,} names, {len(taken)} of them to be avoided")
    while len(found) < n:
        letters = torch.randint(len(LETTERS), (3,), generator=generator).tolist()
        name = "".join(LETTERS[i] for i in letters)
        if name not in taken:
            found[name] = None
    return list(found)


@typed
def random_sums(n: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """`n` pairs of numbers from 1 to 9 for the demonstration; repeats are allowed."""
    pairs = torch.randint(1, 10, (whole("n", n, least=0), 2), generator=generator).tolist()
    return [(a, b) for a, b in pairs]


@typed
def prompt(name: str, sums: Sequence[tuple[int, int]]) -> str:
    """The published prompt (Botta, Li, Mehta, Ash, Zhang & Risteski 2025), with one line for every pair in `sums`.

    Two blank lines stand before the request, and nothing follows its colon.
    """
    if not (isinstance(name, str) and name.isidentifier()) or keyword.iskeyword(name):
        raise ArgumentError(f"name={name!r}: must be a name that a Python function can have")
    shown = "".join(f"\nassert f({a}, {b}) == {a + b}" for a, b in sums)
    demonstration = f"{DEMONSTRATION}{REQUEST}f{ONE_A_LINE}{shown}"
    return f"{demonstration}{DEFINE}{name}{ARGUMENTS}{APPEND}{RETURN}{REQUEST}{name}{ONE_A_LINE}"
