"""The tree of all that a decoder tried for one row, to be looked at or drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Node:
    """One prefix: the token that led to it from node `parent`, how often it was written, and the last verdict on it."""

    token: int
    parent: int
    depth: int
    visits: int = 0
    score: float = math.nan
    rejected: bool = False
    kept: bool = False
    """Whether it is a prefix of what came out."""


@dataclass
class Tree:
    """Prefixes in the order in which they were first written; node 0 is `root`, what was never erased of the prompt."""

    root: list[int]
    nodes: list[Node]

    @property
    def parents(self) -> list[int]:
        """The parent of every node; −1 for the root."""
        return [node.parent for node in self.nodes]

    def labels(self, name: Callable[[int], str] = str) -> list[str]:
        """The token of every node by its name."""
        return ["…" if node.parent < 0 else name(node.token) for node in self.nodes]

    def text(self, name: Callable[[int], str] = str) -> str:
        """The tree in characters: * on the way to what came out, x where the verifier turned down, with its scores."""
        below: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes[1:], start=1):
            below[node.parent].append(number)
        labels, lines, stack = self.labels(name), [], [(0, "", "")]
        while stack:
            number, lead, branch = stack.pop()
            node = self.nodes[number]
            marks = [labels[number], *["*"] * node.kept, *["x"] * node.rejected]
            marks += [f"{node.score:.3g}"] if math.isfinite(node.score) else []
            lines.append(f"{lead}{branch}{' '.join(marks)}")
            inner = lead + ("" if not branch else "│  " if branch.startswith("├") else "   ")
            last = below[number][-1:]
            stack += [(child, inner, "└─ " if [child] == last else "├─ ") for child in reversed(below[number])]
        return "\n".join(lines)


def tree_of(prompt: list[int], events: list) -> Tree:
    """The tree that the events of one row walk through."""
    base = min([len(prompt), *(event.length for event in events)])
    nodes, at = [Node(-1, -1, 0, visits=1)], 0
    found: dict[tuple[int, int], int] = {}

    def step(at: int, token: int) -> int:
        number = found.setdefault((at, token), len(nodes))
        if number == len(nodes):
            nodes.append(Node(token, at, nodes[at].depth + 1))
        nodes[number].visits += 1
        return number

    for token in prompt[base:]:
        at = step(at, token)
    for event in events:
        if event.action == "append":
            at = step(at, event.token)
        elif event.action == "score":
            nodes[at].score, nodes[at].rejected = event.score, not event.passed
        else:
            for _ in range(event.token):
                at = nodes[at].parent
    while at >= 0:
        nodes[at].kept, at = True, nodes[at].parent
    return Tree(prompt[:base], nodes)
