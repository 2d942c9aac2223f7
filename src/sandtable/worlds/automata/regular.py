"""Regular expressions to minimal complete automata: positions and what may follow them, subsets, refinement.

Letters are single signs; `|`, `*`, `+`, `?`, brackets, `.` (any letter) and `[ab]` (one of these) mean what they always
do, `()` is the empty word, blanks mean nothing, and a backslash makes any sign a letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.worlds.automata.automaton import Automaton

_SPECIAL = "|*+?()[]."
_FOREIGN = "{}^$"
"""Signs that mean something elsewhere and nothing here."""
MOST_STATES = 20_000
LONGEST = 1000
"""Signs of an expression: pairs of its positions are written down, and brackets are read one inside the other."""


@dataclass(frozen=True)
class Piece:
    """Part of an expression as a set of positions: whether it has the empty word, which positions can come first and
    last, and which pairs of positions can follow one another."""

    empty: bool
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    pairs: frozenset[tuple[int, int]] = frozenset()

    def __or__(self, other: Piece) -> Piece:
        return Piece(
            self.empty or other.empty, self.first | other.first, self.last | other.last, self.pairs | other.pairs
        )

    def then(self, other: Piece) -> Piece:
        return Piece(
            self.empty and other.empty,
            self.first | other.first if self.empty else self.first,
            self.last | other.last if other.empty else other.last,
            self.pairs | other.pairs | _all_pairs(self.last, other.first),
        )

    def again(self) -> Piece:
        """One or more times."""
        return Piece(self.empty, self.first, self.last, self.pairs | _all_pairs(self.last, self.first))


EMPTY = Piece(True)


@typed
def from_regex(pattern: str, *, alphabet: str | None = None, cap: int = MOST_STATES, **fields: Any) -> Automaton:
    """The minimal complete automaton of a regular expression, `observe` telling acceptance (1) from rejection (0).

    States are numbered as a search from the start finds them; a state that nothing can be accepted from is "trap".
    More than `cap` of them, before equivalent ones are merged, are an error: n signs can need 2ⁿ.
    """
    letters = sorted({sign for sign, literal in _signs(pattern) if literal})
    if len(pattern) > LONGEST:
        raise ArgumentError(f"regex of {len(pattern):,} signs: must have at most {LONGEST:,}")
    signs = letters if alphabet is None else list(dict.fromkeys(alphabet))
    for sign in signs:
        if not isinstance(sign, str) or len(sign) != 1:
            raise ArgumentError(f"alphabet={alphabet!r}: must be single signs, {sign!r} is none")
    for sign in letters:
        if sign not in signs:
            raise ArgumentError(f"regex {pattern!r}: {sign!r} is not in the alphabet {alphabet!r}")
    if not signs:
        raise ArgumentError(f"regex {pattern!r}: has no letters; give an alphabet")
    piece, where = _Parser(pattern, signs).parse()
    # A state of the deterministic automaton is the set of positions read last; −1 stands before everything.
    follow: dict[int, set[int]] = {-1: set(piece.first)}
    for before, after in piece.pairs:
        follow.setdefault(before, set()).add(after)
    found, rows = [frozenset([-1])], []
    place = {found[0]: 0}
    for state in found:
        ahead = set().union(*(follow.get(position, set()) for position in state))
        row = [frozenset(position for position in ahead if sign in where[position]) for sign in signs]
        for new in row:
            if new not in place:
                place[new] = len(found)
                found.append(new)
        rows.append([place[new] for new in row])
        if len(found) > whole("cap", cap):
            raise ArgumentError(
                f"cap={cap}: the automaton of regex {pattern!r} has more states; {len(found)} were found"
            )
    accepting = [bool(state & piece.last) or (piece.empty and -1 in state) for state in found]
    return _minimal(rows, accepting, signs, {"name": pattern, **fields})


def _minimal(rows: list[list[int]], accepting: list[bool], signs: list[str], fields: dict[str, Any]) -> Automaton:
    """States that no word tells apart are one (Moore's refinement)."""
    block = [int(a) for a in accepting]
    while True:
        views = [(block[q], *(block[after] for after in row)) for q, row in enumerate(rows)]
        names = {view: i for i, view in enumerate(dict.fromkeys(views))}
        refined = [names[view] for view in views]
        if len(names) == len(set(block)):
            break
        block = refined
    first = {b: q for q, b in reversed(list(enumerate(refined)))}
    table = tuple(tuple(refined[after] for after in rows[first[b]]) for b in range(len(first)))
    accept = tuple(int(accepting[first[b]]) for b in range(len(first)))
    trap = [not a and all(after == b for after in table[b]) for b, a in enumerate(accept)]
    states = tuple("trap" if t else str(b) for b, t in enumerate(trap))
    return Automaton(table, start=refined[0], tokens=tuple(signs), states=states, observe=accept, **fields)


def _signs(pattern: str) -> list[tuple[str, bool]]:
    """Every sign, and whether it is a letter."""
    if not isinstance(pattern, str):
        raise ArgumentError(f"regex {pattern!r}: must be a text")
    found, i = [], 0
    while i < len(pattern):
        if pattern[i] == "\\":
            i += 1
            if i == len(pattern):
                raise ArgumentError(f"regex {pattern!r}: nothing after the backslash at its end")
            found.append((pattern[i], True))
        elif pattern[i] in _FOREIGN:
            raise ArgumentError(
                f"regex {pattern!r}: {pattern[i]!r} has no meaning here; as a letter it needs a backslash before it"
            )
        elif not pattern[i].isspace():
            found.append((pattern[i], pattern[i] not in _SPECIAL))
        i += 1
    return found


class _Parser:
    """union = word { "|" word }, word = { factor }, factor = atom { "*" | "+" | "?" }."""

    def __init__(self, pattern: str, signs: list[str]) -> None:
        self.pattern, self.alphabet = pattern, frozenset(signs)
        self.signs, self.at = _signs(pattern), 0
        self.where: list[frozenset[str]] = []

    def parse(self) -> tuple[Piece, list[frozenset[str]]]:
        """The expression, and which letters may stand at every position."""
        piece = self.union()
        if self.at < len(self.signs):
            self.fail(f"{self.signs[self.at][0]!r} closes nothing")
        return piece, self.where

    def union(self) -> Piece:
        piece = self.word()
        while self.skip("|"):
            piece |= self.word()
        return piece

    def word(self) -> Piece:
        piece = EMPTY
        while self.at < len(self.signs) and self.signs[self.at] not in (("|", False), (")", False), ("]", False)):
            piece = piece.then(self.factor())
        return piece

    def factor(self) -> Piece:
        piece = self.atom()
        while True:
            if self.skip("*"):
                piece = piece.again() | EMPTY
            elif self.skip("+"):
                piece = piece.again()
            elif self.skip("?"):
                piece |= EMPTY
            else:
                return piece

    def atom(self) -> Piece:
        sign, literal = self.signs[self.at]
        self.at += 1
        if literal:
            return self.letter(frozenset([sign]))
        if sign == ".":
            return self.letter(self.alphabet)
        if sign == "(":
            piece = self.union()
            if not self.skip(")"):
                self.fail("a bracket '(' is left open")
            return piece
        if sign == "[":
            return self.letter(self.choice())
        self.at -= 1
        return self.fail(f"{sign!r} has nothing to repeat")

    def choice(self) -> frozenset[str]:
        chosen = set()
        while self.at < len(self.signs) and self.signs[self.at][1]:
            chosen.add(self.signs[self.at][0])
            self.at += 1
        if not self.skip("]") or not chosen:
            self.fail("'[' must be followed by letters and ']'")
        if len(chosen) > 2 and "-" in chosen:
            self.fail("there are no ranges between '[' and ']'; write their letters out")
        return frozenset(chosen)

    def letter(self, signs: frozenset[str]) -> Piece:
        position = len(self.where)
        self.where.append(signs)
        here = frozenset([position])
        return Piece(False, here, here)

    def skip(self, sign: str) -> bool:
        found = self.at < len(self.signs) and self.signs[self.at] == (sign, False)
        self.at += found
        return found

    def fail(self, why: str) -> Any:
        raise ArgumentError(f"regex {self.pattern!r}: does not parse at sign {self.at + 1}: {why}")


def _all_pairs(one: frozenset[int], other: frozenset[int]) -> frozenset[tuple[int, int]]:
    return frozenset((a, b) for a in one for b in other)
