"""Automata that count nothing: memories, gridworlds, stacks of bounded depth — and (abab)*, which counts to two."""

from __future__ import annotations

from itertools import product
from typing import Any

from sandtable.arguments import capped_power, flag, typed, whole
from sandtable.worlds.automata.automaton import Automaton, require_few
from sandtable.worlds.automata.laws import Legal, Writes


@typed
def memory(n: int, **fields: Any) -> Automaton:
    """Memory on n states: token ⊥ keeps, every other token writes its state."""
    require_few(f"n={n}", whole("n", n), n + 1)
    names = tuple(str(q + 1) for q in range(n))
    rows = tuple((q, *range(n)) for q in range(n))
    fields.setdefault("law", Writes(0.5))
    return Automaton(rows, states=names, tokens=("⊥", *names), **fields)


def flip_flop(**fields: Any) -> Automaton:
    """Memory of one bit."""
    return memory(2, **fields)


@typed
def grid(n: int, *, stay: bool = False, **fields: Any) -> Automaton:
    """The corridor 0 … n−1: L goes to max(q−1, 0), R to min(q+1, n−1); with `stay`, ⊥ keeps."""
    stay = flag("stay", stay)
    require_few(f"n={n}", whole("n", n), 2 + stay)
    rows = tuple((max(q - 1, 0), *[q] * stay, min(q + 1, n - 1)) for q in range(n))
    return Automaton(rows, tokens=("L", *["⊥"] * stay, "R"), states=tuple(map(str, range(n))), **fields)


@typed
def grid_2d(n: int, m: int, *, stay: bool = True, **fields: Any) -> Automaton:
    """The n × m room: ← → ↓ ↑ and, with `stay`, ⊥; state (x, y) is number m·x + y."""
    stay = flag("stay", stay)
    require_few(f"n={n}, m={m}", whole("n", n) * whole("m", m), 4 + stay)
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1), *[(0, 0)] * stay]
    cells = list(product(range(n), range(m)))
    rows = tuple(
        tuple(m * min(max(x + dx, 0), n - 1) + min(max(y + dy, 0), m - 1) for dx, dy in moves) for x, y in cells
    )
    tokens = ("←", "→", "↓", "↑", *["⊥"] * stay)
    return Automaton(rows, tokens=tokens, states=tuple(f"{x},{y}" for x, y in cells), **fields)


@typed
def dyck(n: int, k: int = 2, **fields: Any) -> Automaton:
    """Stacks of at most n brackets of k types, and last a trap that every illegal bracket leads to.

    Tokens are the k opening brackets, then the k closing ones; states are ordered by depth, then by content; inputs
    are legal by default, so that the trap is never entered.
    """
    _few_stacks(n, k)
    stacks = [stack for depth in range(n + 1) for stack in product(range(k), repeat=depth)]
    place = {stack: i for i, stack in enumerate(stacks)}
    trap = len(stacks)
    rows = [
        (
            *(place.get((*stack, t), trap) for t in range(k)),
            *(place[stack[:-1]] if stack and stack[-1] == t else trap for t in range(k)),
        )
        for stack in stacks
    ]
    opening, closing = bracket_names(k)
    states = ["".join(opening[t] for t in stack) or "∅" for stack in stacks]
    rows.append((trap,) * (2 * k))
    fields.setdefault("law", Legal())
    return Automaton(tuple(rows), tokens=(*opening, *closing), states=(*states, "trap"), **fields)


@typed
def stack_top(n: int, k: int) -> tuple[int, ...]:
    """For `observe`: 0 where the stack is empty, and in the trap, otherwise 1 + the type on top."""
    _few_stacks(n, k)
    tops = [1 + stack[-1] if stack else 0 for depth in range(n + 1) for stack in product(range(k), repeat=depth)]
    return (*tops, 0)


def _few_stacks(n: int, k: int) -> None:
    """Refuse stacks of at most n brackets of k types that are too many to write down."""
    deepest = capped_power(max(whole("k", k), 2), whole("n", n)) if k > 1 else n + 1
    require_few(f"n={n}, k={k}", deepest, 2 * k)


def bracket_names(k: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of k opening and k closing brackets."""
    if k <= 4:
        return tuple("[({<"[:k]), tuple("])}>"[:k])
    return tuple(f"({t}" for t in range(k)), tuple(f"{t})" for t in range(k))


def abab(**fields: Any) -> Automaton:
    """(abab)*: states 0 … 3 and the trap 4, start and acceptance in 3; a: 3 → 0, 1 → 2; b: 0 → 1, 2 → 3."""
    rows = ((4, 1), (2, 4), (4, 3), (0, 4), (4, 4))
    fields.setdefault("start", 3)
    return Automaton(rows, tokens=("a", "b"), states=("0", "1", "2", "3", "trap"), **fields)
