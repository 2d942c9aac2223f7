"""Output laws and expected costs of ways to generate, exactly, on an enumerated tree.

`values` are a verifier's scores at every node; queries are tokens drawn from the base law, discarded ones included, and
every number means what it means in the bill of the decoder. The walk has its own class (`Chain`). Sequential Monte
Carlo is not here: the particles of a row depend on one another, and no recursion over the tree gives their law.
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
    """What a method does: the law of its output over the leaves, the chance of none (FAIL), and what it costs.

    A row is rewound `backtracks` times, by `erased` tokens in all: as often as it is begun anew by rejection, token by
    token by tokenwise rejection, where it is told to by backtracking.
    """

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
    again = strings - 1  # every string but the last was erased, and was a rejected one
    rejected = drawn - float(success @ tree.depth[tree.leaves])
    return Prediction(
        law=success * strings if p > 0 else success,
        fail=float(p == 0) if tries is None else (1 - p) ** tries,
        queries=drawn * strings,
        verifier_calls=(drawn if abort else 1.0) * strings,
        backtracks=float(again),
        erased=float(again * rejected / (1 - p)) if p < 1 else 0.0,
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
    """At each position choose a with probability ∝ π_ref(a | v)·V̂(va).

    Without `bound` every token that π_ref may draw is scored, for one query a position. With `bound` M ≥ max V̂ tokens
    are proposed from π_ref and accepted with V̂(va)/M: M / E_a V̂(va) proposals a position on average, at most `tries`.
    Tokenwise rejection is the case V̂ ∈ {0, 1}, M = 1.
    """
    values = node_array("values", values, tree)
    if bound is None:
        if tries is not None:
            raise ArgumentError(f"tries={tries}: goes with bound=; without one every token is scored and none is drawn")
        return _scored(tree, tree.step * values)
    bound, most = number("bound", bound, above=0.0), float(values[1:].max())
    if most > bound:
        raise ArgumentError(f"bound={bound:g}: must be at least the largest value, {most:g}")
    chance = tree.step * values / bound
    success = tree.all_sums(chance)
    attempts = _attempts(success, tries)
    passed = np.where(success > 0, attempts, 0.0)  # chance of a proposal × how many there are on average
    mass = tree.descend(chance * np.append(0.0, passed[tree.parent[1:]]))
    inner = ~tree.leaf & (mass > 0)
    queries = float(mass[inner] @ attempts[inner])
    rejected = queries - float(mass[1:].sum())  # all but those that were taken
    return Prediction(
        law=mass[tree.leaves],
        fail=float(max(0.0, 1.0 - mass[tree.leaves].sum())),
        queries=queries,
        verifier_calls=queries,
        backtracks=rejected,
        erased=rejected,
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
    return _scored(tree, chance)


def _scored(tree: Tree, chance: Float[np.ndarray, " nodes"]) -> Prediction:
    """At each position every token that π_ref may draw is verified, and one is taken with probability ∝ `chance`."""
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
    return _blocks(tree, scores, block, lambda group, prob, score: (_best(group, prob, score, n), float(n), 0.0))


@typed
def block_rejection(
    tree: Tree,
    scores: Float[np.ndarray, " nodes"],
    *,
    tries: int,
    block: int,
    threshold: float = 0.5,
    otherwise: str = "best",
) -> Prediction:
    """Block after block, draw continuations until one scores `threshold`.

    After `tries` the best of them is kept, or with `otherwise="fail"` the method fails. A continuation is erased before
    the next is drawn, and the last one where an earlier one is better.
    """
    tries = whole("tries", tries)
    one_of("otherwise", otherwise, ("best", "fail"))

    def choose(group: np.ndarray, prob: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, Any, np.ndarray]:
        good = score >= threshold
        drawn = _attempts(np.bincount(group, prob * good), tries)[group]
        bad = prob * ~good
        rejected = np.bincount(group, bad)[group]
        # All but the last of `tries` draws that are rejected are erased: Σ_{k<tries} P(the first k are).
        before = np.where(
            rejected < 1, (1 - rejected ** (tries - 1)) / np.where(rejected < 1, 1 - rejected, 1), tries - 1
        )
        erased = bad * before
        if otherwise == "fail":
            return prob * good * drawn, drawn, erased
        # Of the last one too, unless it is better than all before: P(tries − 1 rejected) − P(tries − 1 worse ones).
        worse = _below(group, bad, score)[0]
        last = bad * (rejected ** (tries - 1) - worse ** (tries - 1))
        return np.where(good, prob * drawn, _best(group, bad, score, tries)), drawn, erased + last

    return _blocks(tree, scores, block, choose)


def _blocks(tree: Tree, scores: Float[np.ndarray, " nodes"], block: int, choose: Any) -> Prediction:
    """Pass mass from one block's end to the next; `choose(group, prob, score)` gives the law of each group's winner.

    A group is the continuations of one prefix; `choose` also tells how many of them are drawn on average, and how often
    each is drawn and erased.
    """
    scores, block = node_array("scores", scores, tree), whole("block", block)
    mass = np.zeros(len(tree))
    mass[0] = 1.0
    queries = calls = returns = lost = 0.0
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
        law, drawn, erased = choose(group, prob, scores[ends])
        length = tree.depth[ends] - start
        returns += float(np.sum(mass[origin] * erased))
        lost += float(np.sum(mass[origin] * erased * length))
        mass[ends] = mass[origin] * law
        queries += float(np.sum(mass[origin] * drawn * prob * length))
        calls += float(np.sum(mass[origin] * drawn * prob))
    law = mass[tree.leaves]
    fail = float(max(0.0, 1.0 - law.sum()))
    return Prediction(law=law, fail=fail, queries=queries, verifier_calls=calls, backtracks=returns, erased=lost)


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
    low, mass = _below(group, prob, score)
    return prob * np.divide((low + mass) ** n - low**n, mass, out=np.zeros(len(mass)), where=mass > 0)


def _below(group: np.ndarray, prob: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every draw the mass in its group of lower scores, F − f, and of equal ones, f."""
    order = np.lexsort((score, group))
    g, p, s = group[order], prob[order], score[order]
    new = np.diff(g, prepend=-1) != 0
    tie = np.cumsum(new | (np.diff(s, prepend=np.nan) != 0)) - 1  # classes of equal score, group after group
    mass = np.bincount(tie, p)
    before = np.cumsum(mass) - mass
    begins = new[np.flatnonzero(np.diff(tie, prepend=-1))]
    low = (before - before[begins][np.cumsum(begins) - 1]).clip(0)
    found = np.empty((2, len(p)))
    found[:, order] = low[tie], mass[tie]
    return found[0], found[1]
