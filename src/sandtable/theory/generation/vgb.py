"""The value-guided walk that may go back (VGB: Rohatgi, Shetty, Saless, Li, Moitra, Risteski & Foster 2025), exactly.

A random walk on the tree of prefixes with edge weights w(v) = π_ref(v)·V̂(v) between v and its parent: from y it moves
to the parent with weight V̂(y) or to a child ya with weight π_ref(a | y)·V̂(ya); when lazy it stays with probability ½.
With V̂ the true completion probability of a uniform law it is the walk of Sinclair & Jerrum (1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import linalg

from sandtable.arguments import ArgumentError, fits_in_memory, number, one_of, typed, whole
from sandtable.theory.generation.laws import Law
from sandtable.theory.generation.trees import Tree, node_array

_DENSE = 600  # up to so many nodes all eigenvalues are computed


class Return(NamedTuple):
    """A walk of fixed length that is rerun until it returns a leaf: its law, the chance of a leaf, steps in all."""

    law: Law
    leaf_chance: float
    steps: float


@dataclass(frozen=True, eq=False)
class Chain:
    """The walk on `tree` with edge weights `weight` (of the edge to the parent; 0 at the root).

    Edges that cannot be reached from the root have weight 0.
    """

    tree: Tree
    weight: Float[np.ndarray, " nodes"]

    @classmethod
    def of(cls, tree: Tree, values: Float[np.ndarray, " nodes"]) -> Chain:
        """The walk guided by the values V̂ ≥ 0 of all nodes; a zero cuts off what is below it."""
        weight = tree.prob * node_array("values", values, tree)
        weight[0] = 0.0
        weight[tree.descend((weight > 0).astype(float)) == 0] = 0.0
        if not weight.any():
            raise ArgumentError("values: are zero at all children of the root, so that the walk cannot move")
        return cls(tree, weight)

    # -- the long run ------------------------------------------------------------------------------------------------

    @cached_property
    def total(self) -> Float[np.ndarray, " nodes"]:
        """Weight of all edges at a node."""
        return self.weight + self.tree.all_sums(self.weight)

    @cached_property
    def stationary(self) -> Float[np.ndarray, " nodes"]:
        """π̃(v) ∝ w(v) + Σ_children w."""
        return self.total / self.total.sum()

    @property
    def leaf_mass(self) -> float:
        """π̃(leaves) = W_H / (2 Σ_h W_h) with W_h the weight between levels h − 1 and h; 1/(2H) for V̂ = V*."""
        return float(self.stationary[self.tree.leaves].sum())

    @property
    def root_mass(self) -> float:
        """π̃(root) = W_1 / (2 Σ_h W_h); 1/(2H) for V̂ = V*."""
        return float(self.stationary[0])

    @property
    def level_weights(self) -> Float[np.ndarray, " levels"]:
        """W_h for h = 1 … H."""
        return np.add.reduceat(self.weight, self.tree.starts[1:-1])

    @property
    def leaf_law(self) -> Law:
        """π̃ given a leaf, ∝ π_ref·V̂: exactly π* where V̂ = τ at the leaves, whatever the inner values are."""
        mass = self.stationary[self.tree.leaves]
        if not mass.any():
            raise ArgumentError("values: no leaf can be reached")
        return mass / mass.sum()

    def transition(self, *, lazy: bool = True) -> sparse.csr_array:
        """P as a sparse matrix; nodes that the walk never sees stay where they are."""
        n, child = len(self.tree), np.arange(1, len(self.tree))
        parent, weight = self.tree.parent[1:], self.weight[1:]
        there = weight > 0
        child, parent, weight = child[there], parent[there], weight[there]
        down, up = weight / self.total[parent], weight / self.total[child]
        stay = np.where(self.total > 0, 0.0, 1.0)
        nodes = np.arange(n)
        values = np.concatenate([down, up, stay])
        matrix = sparse.csr_array(
            (values, (np.concatenate([parent, child, nodes]), np.concatenate([child, parent, nodes]))), shape=(n, n)
        )
        return sparse.csr_array(0.5 * (matrix + sparse.eye_array(n))) if lazy else matrix

    def balance_error(self) -> float:
        """max |π̃(u)P(u, v) − π̃(v)P(v, u)|: zero for a reversible chain."""
        flow = sparse.diags_array(self.stationary) @ self.transition()
        return float(abs(flow - flow.T).max())

    def gap(self) -> float:
        """1 − λ₂ of the lazy chain on the nodes it sees: all eigenvalues of small trees, Lanczos near 1 for others."""
        seen = np.flatnonzero(self.total > 0)
        root = np.sqrt(self.stationary[seen])
        matrix = self.transition()[seen][:, seen]
        symmetric = (sparse.diags_array(root) @ matrix @ sparse.diags_array(1 / root)).tocsc()
        if len(seen) <= _DENSE:
            return float(1 - np.linalg.eigvalsh(symmetric.toarray())[-2])
        # A tree factors without fill-in, so inverting about a point just above 1 costs as much as one step.
        found = linalg.eigsh(symmetric, k=2, sigma=1 + 1e-6, which="LM", return_eigenvectors=False, v0=root + 1e-3)
        return float(1 - np.sort(found)[0])

    def mixing_bound(self, distance: float) -> float:
        """T = (½ ln 1/π̃(root) + ln 1/(2δ)) / gap: from then on the lazy walk from the root is within δ of π̃."""
        delta = number("distance", distance, above=0.0, most=1.0)
        return max(0.0, (0.5 * math.log(1 / self.root_mass) + math.log(1 / (2 * delta))) / self.gap())

    # -- some time ---------------------------------------------------------------------------------------------------

    def after(self, steps: int, *, lazy: bool = True, average: bool = False) -> Float[np.ndarray, " nodes"]:
        """The law of the walk after `steps` from the root, or its `average` over times 1 … steps."""
        steps = whole("steps", steps, least=1 if average else 0)
        backwards = self.transition(lazy=lazy).T.tocsr()
        law = np.zeros(len(self.tree))
        law[0] = 1.0
        total = np.zeros(len(self.tree))
        for _ in range(steps):
            law = backwards @ law
            if average:
                total += law
        return total / steps if average else law

    def returned(self, steps: int, *, returns: str = "last", lazy: bool = True) -> Return:
        """What `steps` of the walk return: their last node, or one of them `uniform`ly; rerun until it is a leaf."""
        if returns not in ("last", "uniform"):
            raise ArgumentError(f"returns={returns!r}: must be one of last, uniform (first leaves: first_leaf_law)")
        mass = self.after(steps, lazy=lazy, average=returns == "uniform")[self.tree.leaves]
        chance = float(mass.sum())
        time = (steps + 1) / 2 if returns == "uniform" else steps  # a walk is over when the node to return is reached
        return Return(mass / chance if chance else mass, chance, time / chance if chance else math.inf)

    def queries(self, steps: int, *, returns: str = "last", lazy: bool = True) -> float:
        """E[different inner nodes that the walk leaves, all its reruns together]: queries where answers are kept.

        With a_v = P(a run ends in a leaf and never moved on from v), b_v = P(it ends elsewhere and never did): v is
        asked about with probability 1 − a_v / (1 − b_v). One walk for every inner node, killed where it moves on.
        """
        steps = whole("steps", steps)
        uniform = one_of("returns", returns, ("last", "uniform")) == "uniform"
        asked = np.flatnonzero(~self.tree.leaf & (self.total > 0))
        fits_in_memory("tree", len(self.tree), 4.0 * len(asked) * len(self.tree), size=8)
        matrix = self.transition(lazy=lazy)
        stay = 0.5 if lazy else 0.0
        law = np.zeros((len(asked), len(self.tree)))
        law[:, 0] = 1.0
        ends = np.zeros((2, len(asked)))
        for step in range(1, steps + 1):
            at = law[np.arange(len(asked)), asked]
            law[np.arange(len(asked)), asked] = 0.0
            law = law @ matrix
            law[np.arange(len(asked)), asked] += stay * at
            if uniform or step == steps:
                leaf = law[:, self.tree.leaves].sum(1)
                ends += np.stack([leaf, law.sum(1) - leaf]) / (steps if uniform else 1)
        return float((1 - np.divide(ends[0], 1 - ends[1], out=np.ones(len(asked)), where=ends[1] < 1)).sum())

    # -- the first leaf ----------------------------------------------------------------------------------------------

    @cached_property
    def below(self) -> Float[np.ndarray, " nodes"]:
        """Conductance from a node down to the leaves below it, its own edge not included; infinite at a leaf."""
        tree, conductance = self.tree, np.zeros(len(self.tree))
        for depth in reversed(range(tree.horizon + 1)):
            here = tree.level(depth)
            sums = tree.sums(self._branches(conductance, depth + 1), depth) if depth < tree.horizon else 0.0
            conductance[here] = np.where(tree.leaf[here], np.inf, sums)
        return conductance

    def _branches(self, below: Float[np.ndarray, " nodes"], depth: int) -> Float[np.ndarray, " level"]:
        here = self.tree.level(depth)
        return _in_series(self.weight[here], below[here])

    @cached_property
    def branch(self) -> Float[np.ndarray, " nodes"]:
        """b(v) = 1/(1/w(v) + 1/Σ_children b), b(leaf) = w: conductance from the parent through v to the leaves."""
        return _in_series(self.weight, self.below)

    @property
    def first_leaf_law(self) -> Law:
        """Where the walk from the root first meets a leaf: descend with probability ∝ b(child). π* for V̂ = V*."""
        share = np.zeros(len(self.tree))
        above = self.below[self.tree.parent[1:]]
        share[1:] = np.divide(self.branch[1:], above, out=np.zeros(len(above)), where=above > 0)
        return self.tree.descend(share)[self.tree.leaves]

    @cached_property
    def voltage(self) -> Float[np.ndarray, " nodes"]:
        """φ: 1 at the root, 0 at the leaves, harmonic between."""
        drop = np.divide(self.weight, self.weight + self.below, out=np.ones(len(self.tree)), where=self.weight > 0)
        return self.tree.descend(np.where(self.tree.leaf, 0.0, drop))

    def steps_to_leaf(self, *, lazy: bool = True) -> float:
        """E[steps from the root to the first leaf] = Σ_inner c(v)φ(v)/C, C the root's conductance to the leaves.

        H² moves for V̂ = V*, twice as many when lazy.
        """
        if self.below[0] == 0:
            return math.inf
        moves = float(self.total @ np.where(self.tree.leaf, 0.0, self.voltage)) / float(self.below[0])
        return 2 * moves if lazy else moves

    @cached_property
    def reached(self) -> Float[np.ndarray, " nodes"]:
        """P(the walk visits a node before its first leaf): at a leaf that it is the first one."""
        tree = self.tree
        # Conductance from a node to all leaves but those below its child v: up and through the siblings of v.
        upward = np.zeros(len(tree))
        share = np.ones(len(tree))
        for depth in range(1, tree.horizon + 1):
            here = tree.level(depth)
            above = tree.parent[here]
            other = (upward[above] + self.below[above] - self.branch[here]).clip(min=0.0)
            upward[here] = _in_series(self.weight[here], other)
            weight = self.weight[here]
            share[here] = np.divide(weight, weight + other, out=np.zeros(len(weight)), where=weight > 0)
        return tree.descend(share)

    @property
    def distinct_queries(self) -> float:
        """E[different inner nodes seen before the first leaf]: queries of π_ref when answers are kept."""
        return float(self.reached[~self.tree.leaf].sum())


def _in_series(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Conductance 1/(1/a + 1/b) of two edges in a row, 0 if either is."""
    with np.errstate(divide="ignore"):
        resistance = np.divide(1.0, first) + np.divide(1.0, second)
    return 1.0 / resistance


@typed
def exact_gap(horizon: int, first_branching: int | None = 0) -> float:
    """Gap of the lazy walk for V̂ = V* on strings of one length, whose first branching is at depth k.

    Levels are a lazy reflected walk on 0 … H, with gap (1 − cos(π/H))/2; differences between branches below depth k
    decay at (1 − cos(π/(2(H−k))))/2, smaller for k < H/2. With no branching (None) there are only levels.
    """
    horizon = whole("horizon", horizon)
    levels = (1 - math.cos(math.pi / horizon)) / 2
    if first_branching is None:
        return levels
    left = horizon - whole("first_branching", first_branching, least=0, most=horizon - 1)
    return min(levels, (1 - math.cos(math.pi / (2 * left))) / 2)


@typed
def leaf_mass_bound(horizon: int, error: float) -> float:
    """π̃(leaves) ≥ 1/(2(1 + (H−1)(1+ε))) where V*/(1+ε) ≤ V̂ ≤ (1+ε)V* and leaves are exact."""
    return 1 / (2 * (1 + (whole("horizon", horizon) - 1) * (1 + number("error", error, least=0.0))))


@typed
def root_mass_bound(horizon: int, error: float) -> float:
    """π̃(root) ≥ 1/(2H(1+ε)²) under the same."""
    return 1 / (2 * whole("horizon", horizon) * (1 + number("error", error, least=0.0)) ** 2)


@typed
def gap_bound(horizon: int, error: float, first_branching: int | None = 0) -> float:
    """gap ≥ gap(V*)/(1+ε)²: Dirichlet forms and variances change by at most the factor 1+ε each."""
    return exact_gap(horizon, first_branching) / (1 + number("error", error, least=0.0)) ** 2
