"""The balance condition on attention scores: what it asks, how far a matrix is from it, the nearest that meets it.

Scores are matrices "key × query" over the n = 2kD + 1 symbols of a minimal first layer: pair p = t·D + c − 1 (type t,
pair depth c) opens with symbol p and closes with symbol kD + p; the start is symbol 2kD. Only closers that leave
something open, of pair depth c ≥ 2, constrain anything as queries.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed, whole


def symbol_count(types: int, depth: int) -> int:
    return 2 * whole("types", types) * whole("depth", depth) + 1


@typed
def constrained_queries(types: int, depth: int) -> Int[Tensor, " query"]:
    """The closers of depth ≥ 1, whose answer hangs on what is left of the stack."""
    pairs = torch.arange(whole("types", types) * whole("depth", depth))
    return types * depth + pairs[pairs % depth > 0]


@typed
def constraint_count(types: int, depth: int) -> int:
    """kD·(k(D−1) − 1): the rank of the balance condition as linear equations for n² scores."""
    return types * depth * max(types * (depth - 1) - 1, 0)


def offsets(
    scores: Float[Tensor, "... n n"], *, types: int, depth: int
) -> tuple[Float[Tensor, "... pair"], Float[Tensor, "... pair query"]]:
    """Per pair, the mean over constrained queries of score(opener) − score(closer), and what deviates from it."""
    checked = check_scores(scores, types=types, depth=depth)
    pairs = types * depth
    gaps = (checked[..., :pairs, :] - checked[..., pairs : 2 * pairs, :])[..., constrained_queries(types, depth)]
    if not gaps.shape[-1]:
        return checked.new_zeros(*checked.shape[:-2], pairs), gaps
    mean = gaps.mean(-1)
    return mean, gaps - mean[..., None]


def residual(scores: Float[Tensor, "... n n"], *, types: int, depth: int) -> Float[Tensor, ...]:
    """‖(deviations of all pairs)‖_F: zero iff eq. 2.47 holds (Wen, Li, Liu & Risteski 2023, Theorem 2.2.1).

    Eq. 2.47 asks that (e(opener) − e(closer))ᵀ W_Kᵀ W_Q (e(query) − e(query')) = 0 for every pair and all closers of
    depth ≥ 1: that the difference of scores does not depend on the query.
    """
    return offsets(scores, types=types, depth=depth)[1].square().sum((-2, -1)).sqrt()


def project(scores: Float[Tensor, "... n n"], *, types: int, depth: int) -> Float[Tensor, "... n n"]:
    """The nearest balanced matrix in Frobenius norm: openers give half of each deviation, closers take half."""
    scores = scores.double()  # in float32, rounding would count as a violation
    _, away = offsets(scores, types=types, depth=depth)
    pairs, queries = types * depth, constrained_queries(types, depth)
    near = scores.clone()
    rows = torch.arange(pairs)[:, None]
    near[..., rows, queries] -= away / 2
    near[..., pairs + rows, queries] += away / 2
    return near


def check_scores(scores: Float[Tensor, "... n n"], *, types: int, depth: int) -> Float[Tensor, "... n n"]:
    """`scores` if they are finite, with one row and one column for every symbol."""
    n = symbol_count(types, depth)
    if tuple(scores.shape[-2:]) != (n, n):
        raise ArgumentError(
            f"scores of shape {tuple(scores.shape)}: types={types}, depth={depth} have {n} symbols, so {n} × {n}"
        )
    if not bool(scores.isfinite().all()):
        raise ArgumentError(f"scores with {int((~scores.isfinite()).sum())} entries nan or inf: must be finite")
    return scores


def one_matrix(scores: Float[Tensor, "n n"], *, types: int, depth: int) -> Float[Tensor, "n n"]:
    """`scores` in float64 if they are those of a single layer."""
    if scores.ndim != 2:
        raise ArgumentError(f"scores of shape {tuple(scores.shape)}: must be those of one layer, key × query")
    return check_scores(scores, types=types, depth=depth).double()


@typed
def approximate_balance_bounds(
    length: int, *, query_depth: int, depth: int, q: float, lipschitz: float, error: float = 0.0
) -> list[float]:
    """Bounds B_1 … B_D on ‖S_{d,c,i,j}‖ / P_{d,j} of a model accurate at length N (Theorem 2.2.2, made explicit).

    Let every L2 prediction error be ≤ η and the last MLP γ-Lipschitz. Two prefixes that differ in the type to close
    have laws √2(1−q) apart, so the normalised attention outputs differ by Δ = (√2(1−q) − 2η)/γ; hence what was pumped
    in is at most R·P with R = 2/Δ, and with n_c = ⌊N/2⌋ − c − d − 1 copies
    B_1 = R/n_0, B_{c+1} = (R + Σ_{c'≤c} B_{c'})/n_c.
    """
    whole("query_depth", query_depth, least=2, most=whole("depth", depth, least=2))
    number("lipschitz", lipschitz, above=0.0)
    apart = math.sqrt(2) * (1 - number("q", q, above=0.0, most=1.0)) - 2 * number("error", error, least=0.0)
    if apart <= 0:
        raise ArgumentError(f"error={error}: must be < (1−q)/√2 = {(1 - q) / math.sqrt(2):g}, or nothing follows")
    copies = whole("length", length) // 2 - query_depth - 1
    if copies - (depth - 1) < 1:
        raise ArgumentError(f"length={length}: must leave room for a pumped pair at depth {depth}; try {8 * depth + 1}")
    ratio, found = 2 * lipschitz / apart, []
    for c in range(depth):
        found.append((ratio + sum(found)) / (copies - c))
    return found
