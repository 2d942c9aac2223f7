"""Output laws and expected costs of ways to generate, exactly, on an enumerated tree.

`values` are a verifier's scores at every node; queries are tokens drawn from the base law, discarded ones included.
Methods as in Botta, Li, Mehta, Ash, Zhang & Risteski (2025); action-level rejection as in Rohatgi, Shetty, Saless, Li,
Moitra, Risteski & Foster (2025).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from sandtable.arguments import ArgumentError, number, one_of, typed, whole
from sandtable.theory.generation.trees import Tree, node_array

Law = Float[np.ndarray, " leaves"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a method does: the law of its output over the leaves, the chance of none (FAIL), and what it costs."""

    law: Law
    fail: float
    queries: float
    verifier_calls: float
    backtracks: float = 0.0
    erased: float = 0.0

    @property
    def given_success(self) -> Law:
        """The law of the output, given that there is one."""
        return self.law / self.law.sum()


# -- comparing laws --------------------------------------------------------------------------------------------------


def tv(p: Any, q: Any) -> float:
    """Total variation ½ Σ |p − q|."""
    p, q = _pair(p, q)
    return float(np.abs(p - q).sum() / 2)


def kl(p: Any, q: Any) -> float:
    """KL(p ‖ q) = Σ p ln(p/q), infinite where q misses some of p."""
    p, q = _pair(p, q)
    there = p > 0
    if (q[there] == 0).any():
        return math.inf
    return float((p[there] * np.log(p[there] / q[there])).sum())


def coverage(p: Any, q: Any) -> float:
    """max p/q over the support of p: how much rarer than under p a string can be under q."""
    p, q = _pair(p, q)
    there = p > 0
    return math.inf if (q[there] == 0).any() else float((p[there] / q[there]).max())


def _pair(p: Any, q: Any) -> tuple[np.ndarray, np.ndarray]:
    p, q = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
    if p.shape != q.shape:
        raise ArgumentError(f"q of shape {q.shape}: must be that of p, {p.shape}")
    return p, q


# -- targets ---------------------------------------------------------------------------------------------------------


def base_law(tree: Tree) -> Law:
    """π_ref(y)."""
    return tree.prob[tree.leaves]


def restricted_law(tree: Tree, reward: Float[np.ndarray, " leaves"]) -> Law:
    """π*(y) ∝ π_ref(y)·τ(y); for τ = 1[y ∈ A] the base law given A."""
    weights = base_law(tree) * np.asarray(reward, dtype=float)
    if not weights.sum() > 0:
        raise ArgumentError("reward: is zero on all that the base law draws, so that there is nothing to restrict to")
    return weights / weights.sum()


# -- whole strings ---------------------------------------------------------------------------------------------------


@typed
def rejection(
    tree: Tree,
    values: Float[np.ndarray, " nodes"],
    *,
    threshold: float = 0.5,
    abort: bool = False,
    tries: int | None = None,
) -> Prediction:
    """Draw strings until one is accepted, at most `tries`: E[queries] = E[queries of one] · E[number drawn].

    Without `abort` only complete strings are verified, so that the law is the restricted one and the cost D / p(A).
    With `abort` a string is given up at its first rejected prefix.
    """
    accepted = node_array("values", values, tree) >= threshold
    alive = _alive(tree, accepted) if abort else np.ones(len(tree), dtype=bool)
    drawn = float(tree.prob[1:] @ alive[tree.parent[1:]])  # tokens of one string
    success = base_law(tree) * (alive & accepted)[tree.leaves]
    p = float(success.sum())
    strings = _attempts(p, tries)
    return Prediction(
        law=success * strings if p > 0 else success,
        fail=float(p == 0) if tries is None else (1 - p) ** tries,
        queries=drawn * strings,
        verifier_calls=(drawn if abort else 1.0) * strings,
    )


@typed
def best_of_n(tree: Tree, scores: Float[np.ndarray, " nodes"], n: int) -> Prediction:
    """The best of n strings, the first of equals: mass π_ref(y)·(F(s)^n − F(s⁻)^n)/f(s) at score s = s(y)."""
    n = whole("n", n)
    found = node_array("scores", scores, tree)[tree.leaves]
    law = _best(np.zeros(len(found), dtype=np.int64), base_law(tree), found, n)
    length = float(base_law(tree) @ tree.depth[tree.leaves])
    return Prediction(law=law, fail=0.0, queries=n * length, verifier_calls=float(n))


# -- token by token --------------------------------------------------------------------------------------------------


@typed
def tokenwise(
    tree: Tree, values: Float[np.ndarray, " nodes"], *, threshold: float = 0.5, tries: int | None = None
) -> Prediction:
    """At each position draw tokens until the verifier accepts: q(y) = Π p(y_i | y_<i)·V(y_{1:i}) / Z(y_<i).

    Z(v) = Σ_a p(a | v) V(va), and E[queries] = E_q Σ_i 1/Z(y_<i). Where Z = 0 no token will do: the method fails there,
    after `tries` draws, or never stops and costs infinitely many.
    """
    accepted = (node_array("values", values, tree) >= threshold).astype(float)
    return action_level(tree, accepted, bound=1.0, tries=tries)


@typed
def action_level(
    tree: Tree, values: Float[np.ndarray, " nodes"], *, bound: float | None = None, tries: int | None = None
) -> Prediction:
    """At each position choose a with probability ∝ π_ref(a | v)·V̂(va): propose from π_ref, accept with V̂(va)/M.

    M is `bound` ≥ max V̂, by default the maximum. Each position takes M / E_a V̂(va) proposals on average, at most
    `tries`. Tokenwise rejection is the case V̂ ∈ {0, 1}, M = 1.
    """
    values = node_array("values", values, tree)
    most = float(values[1:].max())
    bound = most if bound is None else number("bound", bound, above=0.0)
    if most > bound:
        raise ArgumentError(f"bound={bound:g}: must be at least the largest value, {most:g}")
    chance = tree.step * values / (bound or 1.0)
    success = tree.all_sums(chance)
    attempts = _attempts(success, tries)
    passed = np.where(success > 0, attempts, 0.0)  # chance of a proposal × how many there are on average
    mass = tree.descend(chance * np.append(0.0, passed[tree.parent[1:]]))
    inner = ~tree.leaf & (mass > 0)
    queries = float(mass[inner] @ attempts[inner])
    return Prediction(
        law=mass[tree.leaves],
        fail=float(max(0.0, 1.0 - mass[tree.leaves].sum())),
        queries=queries,
        verifier_calls=queries,
    )


@typed
def exhaustive_tokenwise(
    tree: Tree, values: Float[np.ndarray, " nodes"], *, threshold: float = 0.5, pick: str = "sample"
) -> Prediction:
    """At each position verify every token that π_ref may draw and keep an accepted one: at most |Σ| calls a token.

    `pick` is "sample" (∝ π_ref among the accepted, the law of tokenwise rejection) or "likeliest". It fails where
    nothing is accepted.
    """
    one_of("pick", pick, ("sample", "likeliest"))
    chance = tree.step * (node_array("values", values, tree) >= threshold)
    if pick == "likeliest":
        chance = (likeliest(tree, chance) & (chance > 0)).astype(float)
    total = tree.all_sums(chance)
    share = np.divide(1.0, total, out=np.zeros(len(tree)), where=total > 0)
    mass = tree.descend(chance * np.append(0.0, share[tree.parent[1:]]))
    law = mass[tree.leaves]
    return Prediction(
        law=law,
        fail=float(max(0.0, 1.0 - law.sum())),
        queries=float(mass[~tree.leaf].sum()),
        verifier_calls=float(mass @ tree.all_sums((tree.step > 0).astype(float))),
    )


def likeliest(tree: Tree, weights: Float[np.ndarray, " nodes"] | None = None) -> Bool[np.ndarray, " nodes"]:
    """Whether a node has the largest weight — by default π_ref's — among its siblings, the first of equals."""
    weights = tree.step if weights is None else weights
    order = np.lexsort((tree.token[1:], -weights[1:], tree.parent[1:])) + 1
    best = np.zeros(len(tree), dtype=bool)
    best[order[np.diff(tree.parent[order], prepend=-1) != 0]] = True
    return best


# -- blocks of tokens ------------------------------------------------------------------------------------------------


@typed
def block_best_of_n(tree: Tree, scores: Float[np.ndarray, " nodes"], *, n: int, block: int) -> Prediction:
    """Block after block of `block` tokens, draw n continuations and keep the best, the first of equals."""
    n = whole("n", n)
    return _blocks(tree, scores, block, lambda group, prob, score: (_best(group, prob, score, n), float(n)))


@typed
def block_rejection(
    tree: Tree, scores: Float[np.ndarray, " nodes"], *, tries: int, block: int, threshold: float = 0.5
) -> Prediction:
    """Block after block, draw continuations until one scores `threshold`; after `tries` the best of them is kept."""
    tries = whole("tries", tries)

    def choose(group: np.ndarray, prob: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, Any]:
        good = score >= threshold
        drawn = _attempts(np.bincount(group, prob * good), tries)[group]
        return np.where(good, prob * drawn, _best(group, prob * ~good, score, tries)), drawn

    return _blocks(tree, scores, block, choose)


def _blocks(tree: Tree, scores: Float[np.ndarray, " nodes"], block: int, choose: Any) -> Prediction:
    """Pass mass from one block's end to the next; `choose(group, prob, score)` gives the law of each group's winner.

    A group is the continuations of one prefix; `choose` also tells how many of them are drawn on average.
    """
    scores, block = node_array("scores", scores, tree), whole("block", block)
    mass = np.zeros(len(tree))
    mass[0] = 1.0
    queries = calls = 0.0
    for start in range(0, tree.horizon, block):
        stop = min(start + block, tree.horizon)
        end = (tree.depth == stop) | ((tree.depth > start) & (tree.depth < stop) & tree.leaf)
        ends = np.flatnonzero(end)
        origin = ends.copy()
        for _ in range(stop - start):
            origin = np.where(tree.depth[origin] > start, tree.parent[origin], origin)
        ends, origin = ends[tree.prob[origin] > 0], origin[tree.prob[origin] > 0]
        group = np.unique(origin, return_inverse=True)[1]
        prob = tree.prob[ends] / tree.prob[origin]
        law, drawn = choose(group, prob, scores[ends])
        mass[ends] = mass[origin] * law
        queries += float(np.sum(mass[origin] * drawn * prob * (tree.depth[ends] - start)))
        calls += float(np.sum(mass[origin] * drawn * prob))
    law = mass[tree.leaves]
    return Prediction(law=law, fail=float(max(0.0, 1.0 - law.sum())), queries=queries, verifier_calls=calls)


# -- pieces ----------------------------------------------------------------------------------------------------------


def _alive(tree: Tree, accepted: Bool[np.ndarray, " nodes"]) -> Bool[np.ndarray, " nodes"]:
    """Whether every non-empty prefix of a node, itself included, is accepted."""
    return tree.descend(accepted.astype(float)) > 0


def _attempts(p: Any, tries: int | None) -> Any:
    """E[number of draws until the first success of probability p], at most `tries`: (1 − (1−p)^tries)/p."""
    p = np.asarray(p, dtype=float)
    if tries is None:
        with np.errstate(divide="ignore"):
            return 1.0 / p
    tries = whole("tries", tries)
    none = -np.expm1(tries * np.log1p(-np.minimum(p, 1 - 1e-16)))
    return np.divide(none, p, out=np.full(p.shape, float(tries)), where=p > 0)


def _best(group: np.ndarray, prob: np.ndarray, score: np.ndarray, n: int) -> np.ndarray:
    """The law of the best of n draws in every group, the first of equals; `prob` may sum to less than one.

    With F the mass of scores up to s, f that of s itself: mass prob·(F^n − (F − f)^n)/f. A draw that is none of those
    given loses against nothing: the result is the law of the best, and that all n were among those given.
    """
    order = np.lexsort((score, group))
    g, p, s = group[order], prob[order], score[order]
    new = np.diff(g, prepend=-1) != 0
    tie = np.cumsum(new | (np.diff(s, prepend=np.nan) != 0)) - 1  # classes of equal score, group after group
    mass = np.bincount(tie, p)
    first = np.flatnonzero(np.diff(tie, prepend=-1))
    total = np.cumsum(mass)
    begins = new[first]
    before_group = (total - mass)[begins][np.cumsum(begins) - 1]
    high = total - before_group
    low = high - mass
    share = np.divide(high**n - low.clip(0) ** n, mass, out=np.zeros(len(mass)), where=mass > 0)
    law = np.empty(len(p))
    law[order] = p * share[tie]
    return law
