"""Green's D-classes as egg boxes: rows are R-classes, columns are L-classes, cells are H-classes of equal size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from sandtable.theory.automata.permutations import PermutationGroup
from sandtable.theory.automata.semigroup import Semigroup


@dataclass(frozen=True, eq=False)
class EggBox:
    """One D-class: maps of equal rank. Maps of a row have one kernel in common, maps of a column one image."""

    semigroup: Semigroup
    elements: Int[np.ndarray, " element"]
    stars: Bool[np.ndarray, "row column"]
    """Which cells hold an idempotent; these cells are groups, isomorphic to one another."""
    rows: Int[np.ndarray, " row"]
    """An element of every row …"""
    columns: Int[np.ndarray, " column"]
    """… and of every column."""

    @property
    def order(self) -> int:
        return len(self.elements)

    @property
    def rank(self) -> int:
        """The size of every image."""
        return int(self.semigroup.ranks[self.elements[0]])

    @property
    def cell(self) -> int:
        """How many elements every H-class has."""
        return self.order // self.stars.size

    @property
    def idempotents(self) -> int:
        """One for every star."""
        return int(self.stars.sum())

    @property
    def is_regular(self) -> bool:
        """Some, and then every, row and every column has a star."""
        return bool(self.stars.any())

    @property
    def group(self) -> PermutationGroup | None:
        """What the starred cells are; None where there are none."""
        star = np.intersect1d(self.elements, self.semigroup.idempotents)
        return self.semigroup.maximal_subgroup(int(star[0])) if len(star) else None

    def kernel(self, row: int) -> list[list[int]]:
        """The states that the maps of a row take to the same place, block by block."""
        image = self.semigroup.maps[self.rows[row]]
        return [np.flatnonzero(image == value).tolist() for value in dict.fromkeys(image.tolist())]

    def image(self, column: int) -> list[int]:
        """The states that the maps of a column reach."""
        return np.unique(self.semigroup.maps[self.columns[column]]).tolist()


def egg_boxes(semigroup: Semigroup) -> list[EggBox]:
    """All D-classes, by rank from the highest; of equal rank, those with shorter words first."""
    order = np.argsort(semigroup.d_class, kind="stable")
    ends = np.flatnonzero(np.diff(semigroup.d_class[order])) + 1
    is_idempotent = np.zeros(semigroup.order, dtype=bool)
    is_idempotent[semigroup.idempotents] = True
    found = []
    for elements in np.split(order, ends):
        _, rows, row = np.unique(semigroup.r_class[elements], return_index=True, return_inverse=True)
        _, columns, column = np.unique(semigroup.l_class[elements], return_index=True, return_inverse=True)
        stars = np.zeros((len(rows), len(columns)), dtype=bool)
        here = is_idempotent[elements]
        stars[row[here], column[here]] = True
        found.append(EggBox(semigroup, elements, stars, elements[rows], elements[columns]))
    return sorted(found, key=lambda box: (-box.rank, int(box.elements[0])))


def covers(semigroup: Semigroup, boxes: list[EggBox]) -> list[tuple[int, int]]:
    """(upper, lower) for D-classes one right below the other: s below r where s = u·r·v for words u, v, or none."""
    place = np.empty(len(boxes), dtype=np.int64)
    for number, box in enumerate(boxes):
        place[semigroup.d_class[box.elements[0]]] = number
    numbers = place[semigroup.d_class]
    below = np.zeros((len(boxes), len(boxes)), dtype=bool)
    for table in (semigroup.right, semigroup.left):
        below[np.repeat(numbers, table.shape[1]), numbers[table.ravel()]] = True
    np.fill_diagonal(below, False)
    while ((wider := below | (below.astype(np.float32) @ below.astype(np.float32) > 0)) != below).any():
        below = wider
    between = below.astype(np.float32) @ below.astype(np.float32) > 0
    return [(int(upper), int(lower)) for upper, lower in np.argwhere(below & ~between)]
