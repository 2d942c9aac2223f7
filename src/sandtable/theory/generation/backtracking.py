"""Tokenwise rejection sampling with backtracking, exactly (Botta, Li, Mehta, Ash, Zhang & Risteski 2025, Algorithm 1).

On a tree: the mass of every state (prefix, quota left, tokens still to redo), for any verifier. On the oracle that
slips with probability η at each token, with a perfect verifier: closed forms.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import stats

from sandtable.arguments import ArgumentError, flag, number, one_of, typed, whole
from sandtable.theory.generation.laws import Prediction, likeliest
from sandtable.theory.generation.trees import Tree, node_array

MOST_LENGTH, MOST_QUOTA = 1_000_000, 10_000
"""What the recursions go through step by step."""
REDO = ("argmax", "sample", "none", "greedy-rest", "released-counter")


@typed
def backtracking(
    tree: Tree,
    values: Float[np.ndarray, " nodes"],
    *,
    quota: int,
    stride: int,
    threshold: float = 0.5,
    redo: str = "argmax",
    verify_redo: bool = False,
    prompt: int = 0,
    protect_prompt: bool = True,
) -> Prediction:
    """Draw tokens; where the verifier rejects and quota is left, erase `stride` tokens (all, if fewer) and go on.

    After that `redo` tokens: "argmax", as many greedy ones as were erased; "sample" or "none", nothing special;
    "greedy-rest", greedy ones to the end; "released-counter", greedy ones up to stride × backtracks after the prompt,
    verified like all others. Redone tokens are verified only with `verify_redo`. The verifier is asked while quota is
    left. Quota falls at every return and depth rises otherwise, so one pass over (quota, depth) gives all masses.

    The row begins at the node `prompt`, by default the empty prefix; with `protect_prompt=False` what leads there may
    be erased too. The law is over the leaves of the whole tree.
    """
    quota, stride = whole("quota", quota, least=0, most=MOST_QUOTA), whole("stride", stride)
    one_of("redo", redo, REDO)
    rejected = node_array("values", values, tree) < number("threshold", threshold)
    greedy, nodes = likeliest(tree), np.arange(len(tree))
    prompt = whole("prompt", prompt, least=0, most=len(tree) - 1)
    if tree.leaf[prompt]:
        raise ArgumentError(f"prompt={prompt}: is a leaf, after which nothing can be written")
    start = int(tree.depth[prompt])
    floor = start if flag("protect_prompt", protect_prompt) else 0
    back = nodes
    for _ in range(min(stride, tree.horizon)):
        back = np.where(tree.depth[back] > floor, tree.parent[back], back)
    erased = tree.depth - tree.depth[back]
    # Redo states: 0 is sampling; r > 0 greedy tokens to come ("argmax"), or greedy for good ("greedy-rest").
    states = {"argmax": min(stride, tree.horizon) + 1, "greedy-rest": 2}.get(redo, 1)

    law = np.zeros(len(tree.leaves))
    queries = calls = returns = lost = 0.0
    entering = np.zeros((states, len(tree)))
    entering[0, prompt] = 1.0
    for left in range(quota, -1, -1):
        mass, turned = entering, np.zeros(len(tree))
        counter = start + stride * (quota - left) if redo == "released-counter" else 0
        for depth in range(tree.horizon):
            below = tree.level(depth + 1)
            above = tree.parent[below]
            for state in range(states):
                chosen = greedy[below] if state > 0 or depth < counter else tree.step[below]
                moved = mass[state, above] * chosen
                queries += float(moved.sum())
                if left > 0 and (state == 0 or verify_redo):
                    calls += float(moved.sum())
                    turned[below] += moved * rejected[below]
                    moved = moved * ~rejected[below]
                mass[state if redo == "greedy-rest" else max(state - 1, 0), below] += moved
        law += mass[:, tree.leaves].sum(0)
        returns += float(turned.sum())
        lost += float(turned @ erased)
        state = {"argmax": erased, "greedy-rest": np.ones_like(nodes)}.get(redo, np.zeros_like(nodes))
        entering = np.bincount(state * len(tree) + back, turned, minlength=states * len(tree)).reshape(states, -1)
    return Prediction(law, 0.0, queries, calls, backtracks=returns, erased=lost)


# -- the oracle that slips -------------------------------------------------------------------------------------------


@typed
def slip_accuracy(length: int, slip: float, *, quota: int, stride: int, redo: str = "argmax") -> float:
    """P(no wrong token) for a perfect verifier and an argmax that is always right.

    "argmax": every position is sampled once, so at most `quota` of Binomial(D, η) slips can be repaired, whatever the
    stride. "sample", stride 1: Σ_{k≤Q} C(D+k−1, k) η^k (1−η)^D. "sample" in general: f(D, ·) = 1,
    f(i, 0) = (1−η)^(D−i), f(i, q) = (1−η)f(i+1, q) + η f(i+1−min(B, i+1), q−1), and the answer is f(0, Q).
    """
    length, slip, quota, stride = _slip_arguments(length, slip, quota, stride)
    if one_of("redo", redo, ("argmax", "sample")) == "argmax":
        return float(stats.binom.cdf(quota, length, slip))
    if stride == 1:
        return float(stats.nbinom.cdf(quota, length, 1 - slip))
    clean = (1 - slip) ** np.arange(length, -1, -1.0)
    return _resampled(length, slip, quota, stride, first=clean, cost=0.0)


@typed
def slip_queries(length: int, slip: float, *, quota: int, stride: int, redo: str = "argmax") -> float:
    """E[queries] of the same.

    "argmax": D + Σ_{i=1}^{D} η·P(Binomial(i−1, η) < Q)·min(B, i): at each repaired slip as many tokens are redone as
    there are to erase. "sample": g(i, q) = 1 + (1−η)g(i+1, q) + η g(i+1−min(B, i+1), q−1), g(i, 0) = D − i.
    """
    length, slip, quota, stride = _slip_arguments(length, slip, quota, stride)
    if one_of("redo", redo, ("argmax", "sample")) == "argmax":
        position = np.arange(1, length + 1)
        repaired = slip * stats.binom.cdf(quota - 1, position - 1, slip)
        return float(length + repaired @ np.minimum(stride, position))
    return _resampled(length, slip, quota, stride, first=np.arange(length, -1, -1.0), cost=1.0)


def _resampled(length: int, slip: float, quota: int, stride: int, *, first: np.ndarray, cost: float) -> float:
    """The recursion over (position, quota left) where erased positions are sampled again; `first` is quota 0."""
    before = first
    for _ in range(quota):
        now = first.copy()
        for i in range(length - 1, -1, -1):
            now[i] = cost + (1 - slip) * now[i + 1] + slip * before[i + 1 - min(stride, i + 1)]
        before = now
    return float(before[0])


def _slip_arguments(length: int, slip: float, quota: int, stride: int) -> tuple[int, float, int, int]:
    slip = number("slip", slip, least=0.0)
    if slip >= 0.5:
        raise ArgumentError(f"slip={slip:g}: must be at least 0 and below 1/2, or the argmax is wrong")
    length = whole("length", length, most=MOST_LENGTH)
    return length, slip, whole("quota", quota, least=0), whole("stride", stride)
