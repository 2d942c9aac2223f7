"""Order of a permutation group, and membership, without listing it: a base and strong generators (Schreier and Sims).

G = G⁰ ⊇ G¹ ⊇ … ⊇ {e}, where G^{i+1} fixes base point b_i of Gⁱ. By Schreier's lemma Gⁱ's stabiliser of b_i is generated
by u_{x·s}⁻¹·s·u_x, s running over generators and u_x over elements that take b_i to x; so |G| is the product of the
orbits' sizes once all of these sift through the levels below. Schreier generators of a level sift together, as rows of
an array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int

from sandtable.arguments import ArgumentError

MOST_POINTS = 2_000
"""A level keeps two permutations for every point."""
BLOCK = 1 << 22
"""Entries of Schreier generators that are looked at together."""


@dataclass
class Level:
    """Generators of a stabiliser, the orbit of its base point and, for every point of it, an element leading there."""

    base: int
    generators: Int[np.ndarray, "generator point"]
    orbit: Int[np.ndarray, " orbit"] = field(init=False)
    to: Int[np.ndarray, "point point"] = field(init=False)
    """Row x takes the base to x (rows of points outside the orbit mean nothing)."""
    back: Int[np.ndarray, "point point"] = field(init=False)
    """Row x takes x to the base."""
    inside: Bool[np.ndarray, " point"] = field(init=False)

    def __post_init__(self) -> None:
        self.rebuild()

    def rebuild(self) -> None:
        """The orbit, breadth first."""
        n = self.generators.shape[1]
        self.to = np.zeros((n, n), dtype=self.generators.dtype)
        self.inside = np.zeros(n, dtype=bool)
        self.to[self.base], self.inside[self.base] = np.arange(n), True
        orbit = [self.base]
        for x in orbit:
            for generator, y in zip(self.generators, self.generators[:, x].tolist(), strict=True):
                if not self.inside[y]:
                    self.inside[y], self.to[y] = True, generator[self.to[x]]
                    orbit.append(y)
        self.orbit = np.array(orbit)
        self.back = np.zeros_like(self.to)
        self.back[self.orbit] = np.argsort(self.to[self.orbit], axis=1)

    def schreier(self) -> Iterator[Int[np.ndarray, "row point"]]:
        """All u_{x·s}⁻¹·s·u_x, the identity left out, block by block of the orbit."""
        n = self.generators.shape[1]
        for part in np.array_split(self.orbit, -(-len(self.generators) * len(self.orbit) * n // BLOCK)):
            reached = self.generators[:, self.to[part]]  # generator × orbit × point
            ends = self.generators[:, part]
            rows = np.take_along_axis(self.back[ends], reached.astype(np.int64), 2).reshape(-1, n)
            yield np.unique(rows[(rows != np.arange(n)).any(1)], axis=0)


@dataclass
class Chain:
    """The levels of a group, top first."""

    degree: int
    levels: list[Level]

    @classmethod
    def of(cls, generators: Sequence[Sequence[int]], degree: int) -> Chain:
        if degree > MOST_POINTS:
            raise ArgumentError(f"a group on {degree:,} points: at most {MOST_POINTS:,} are handled")
        chain = cls(degree, [])
        for generator in generators:
            chain.add(generator)
        return chain

    def add(self, generator: Sequence[int]) -> bool:
        """Make the group larger by one more generator; whether it was not in it already."""
        row = np.array(generator, dtype=np.uint16 if self.degree <= 2**16 else np.uint32)
        residue, level = self.sift(row[None])
        if (residue == np.arange(self.degree)).all():
            return False
        self._insert(residue[0], 0, int(level[0]))
        self._complete(int(level[0]))
        return True

    @property
    def order(self) -> int:
        return math.prod(len(level.orbit) for level in self.levels)

    @property
    def base(self) -> tuple[int, ...]:
        return tuple(level.base for level in self.levels)

    def sift(
        self, rows: Int[np.ndarray, "row point"], first: int = 0
    ) -> tuple[Int[np.ndarray, "row point"], Int[np.ndarray, " row"]]:
        """What is left of each row after the levels from `first` on, and the level where it stuck."""
        rows, stuck = rows.copy(), np.full(len(rows), len(self.levels))
        going = np.arange(len(rows))
        for number, level in enumerate(self.levels[first:], start=first):
            image = rows[going, level.base]
            stuck[going[~level.inside[image]]] = number
            going, image = going[level.inside[image]], image[level.inside[image]]
            rows[going] = np.take_along_axis(level.back[image], rows[going].astype(np.int64), 1)
        return rows, stuck

    def contains(self, element: Sequence[int]) -> bool:
        if len(element) != self.degree or set(element) != set(range(self.degree)):
            return False
        residue, _ = self.sift(np.array([element]))
        return bool((residue == np.arange(self.degree)).all())

    def elements(self) -> Int[np.ndarray, "element point"]:
        """All elements: products of one element of every level; the identity first, then lexicographic order."""
        rows = np.arange(self.degree)[None]
        for level in reversed(self.levels):
            rows = level.to[level.orbit][:, rows].reshape(-1, self.degree)
        return rows[np.lexsort(rows.T[::-1])].astype(np.int64)

    def _insert(self, row: np.ndarray, first: int, last: int) -> None:
        """A new strong generator, which fixes the base points of the levels before `last`."""
        if last == len(self.levels):
            moved = int(np.flatnonzero(row != np.arange(self.degree))[0])
            self.levels.append(Level(moved, np.zeros((0, self.degree), dtype=row.dtype)))
        for level in self.levels[first : last + 1]:
            level.generators = np.concatenate([level.generators, row[None].astype(level.generators.dtype)])
            level.rebuild()

    def _complete(self, deepest: int) -> None:
        """Until all Schreier generators of every level sift away."""
        number = deepest
        while number >= 0:
            for rows in self.levels[number].schreier():
                left, stuck = self.sift(rows, number + 1)
                some = (left != np.arange(self.degree)).any(1)
                if some.any():
                    chosen = int(np.flatnonzero(some)[np.argmax(stuck[some])])
                    self._insert(left[chosen], number + 1, int(stuck[chosen]))
                    number = int(stuck[chosen])
                    break
            else:
                number -= 1
