"""Small exact ReLU networks: tables over a line, tables over several integers, thresholds, composition of maps.

Lemmas 10 to 12 and 14 of the shortcut constructions of Liu, Ash, Goel, Krishnamurthy & Zhang (2023). Where the printed
form errs, the form here is the one that works; arguments bring the printed one back, so that it can be run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile.networks import Net, affine, beside, net, passing, then

MOST_ROWS = 200_000
EXACT_WITHIN = 0.25
"""Tables give the exact value as far as this fraction of the spacing of their points."""


def indicators(points: Float[Tensor, " point"], spacing: float) -> Net:
    """ψ_p(x) for every p: 1 where |x − p| ≤ Δ/4, 0 where |x − p| ≥ Δ/2, by four units each (Lemma 10)."""
    return _weighted_indicators(points, spacing, torch.eye(len(points)))


def lookup(points: Float[Tensor, " point"], values: Float[Tensor, "point out"]) -> Net:
    """f(p) for points p on a line, 0 away from all of them: 4 units a point (Lemma 10)."""
    points = points.double()
    spacing = float(points.sort().values.diff().min()) if len(points) > 1 else 1.0
    if spacing <= 0:
        raise ArgumentError("points: two of them coincide, so that no table can tell them apart")
    return _weighted_indicators(points, spacing, values)


def _weighted_indicators(points: Float[Tensor, " point"], spacing: float, values: Float[Tensor, "point out"]) -> Net:
    """Σ_p f(p)·ψ_p, f written straight into the four units of each p: weights are linear in the number of points."""
    points, step = points.double(), spacing / 4
    inner = torch.full((1, 4 * len(points)), 1 / step, dtype=torch.float64)
    shift = (torch.tensor([2.0, 1.0, -1.0, -2.0]) - points[:, None] / step).flatten()
    outer = torch.tensor([1.0, -1.0, -1.0, 1.0])[:, None] * values.double()[:, None]
    return net([inner, outer.flatten(0, 1)], [shift, None])


def steps(points: Float[Tensor, " point"], values: Float[Tensor, "point out"]) -> Net:
    """The same by a staircase, f(p_1) + Σ_i (f(p_{i+1}) − f(p_i))·ramp_i: 2 units where the value changes.

    Ramps rise over the middle half between neighbours, so that values are exact within a quarter of the spacing.
    """
    order = points.argsort()
    points, values = points[order].double(), values[order].double()
    changes = (values.diff(dim=0) != 0).any(1).nonzero()[:, 0]
    before, after = points[changes], points[changes + 1]
    slope = 2 / (after - before)
    starts, ends = before + 0.5 / slope, after - 0.5 / slope
    inner = torch.cat([slope, slope])[None]
    rises = values.diff(dim=0)[changes]
    if not len(changes):
        return affine(values.new_zeros(1, values.shape[1]), values[0])
    return net([inner, torch.cat([rises, -rises])], [torch.cat([-slope * starts, -slope * ends]), values[0]])


def table(
    points: Float[Tensor, "row coordinate"],
    values: Float[Tensor, "row out"],
    *,
    bias: float | None = None,
    sparse: bool = True,
) -> Net:
    """f(x) for rows x of integers: indicators of every value of every coordinate, one unit per row, f (Lemma 11).

    A row's unit is ReLU(Σ_i ψ_{x_i} − (d − 1)); the printed `bias` −d would leave it at 0. Rows of value 0 need no
    unit and get none, unless `sparse=False`.
    """
    if len(points) > MOST_ROWS:
        raise ArgumentError(f"a table of {len(points):,} rows: at most {MOST_ROWS:,} units are made for one")
    points, values = points.double(), values.double()
    dimensions = points.shape[1]
    if len(torch.unique(points, dim=0)) < len(points):
        raise ArgumentError("points: two rows coincide, so that no table can tell them apart")
    if sparse and len(points) > 1:
        kept = (values != 0).any(1)
        kept[0] |= ~kept.any()
        points, values = points[kept], values[kept]
    if dimensions == 1:
        return _weighted_indicators(points[:, 0], 1.0, values)
    seen, conjunction = [], []
    for column in points.T:
        levels = torch.unique(column)
        seen.append(indicators(levels, 1.0))
        conjunction.append((levels[:, None] == column).double())
    shift = torch.full((len(points),), -(dimensions - 1.0) if bias is None else bias, dtype=torch.float64)
    return then(beside(seen), net([torch.cat(conjunction), values], [shift, None]))


def threshold(low: float, high: float) -> Net:
    """0 up to `low`, 1 from `high` on, a ramp between: two units (Lemma 12 has low = −Δ/2, high = Δ/2)."""
    slope = 1 / (high - low)
    inner = torch.full((1, 2), slope, dtype=torch.float64)
    return net([inner, torch.tensor([[1.0], [-1.0]])], [torch.tensor([-slope * low, -slope * high]), None])


def positive(gap: float, *, half_width: float | None = None) -> Net:
    """1[x > 0] for |x| ≥ Δ with noise up to Δ/4 (Lemma 12): a ramp of half-width Δ/2; printed is Δ, which errs."""
    half = gap / 2 if half_width is None else half_width
    return threshold(-half, half)


def larger() -> Net:
    """max(a, b) = b + ReLU(a − b) for b ≥ 0."""
    return net([torch.tensor([[1.0, 0.0], [-1.0, 1.0]]), torch.ones(2, 1)], [None, None])


def composition(
    states: int,
    *,
    pairs: Sequence[tuple[int, int]] | None = None,
    product: str = "f(q') where g(q) = q'",
    robust: bool = False,
) -> Net:
    """(g, f) ↦ f∘g for maps as vectors of values 1 … n: 4n² + n units, then n², then n (Lemma 14).

    Layer 1 tells 1[g(q) = q'] for all q, q' and passes f; unit (q, q') of layer 2 is ReLU(n·1[g(q) = q'] + f(q') − n);
    coordinate q of the result sums over q'. The lemma prints f(q)·1[g(q) = q'], which is `product` "f(q)". `pairs`:
    those (q, q') that can occur, grouped by q; all unless given.

    Noise of g within `EXACT_WITHIN` is rounded away, noise of f passes, and where f(q') = n it also leaks through the
    units of all q with g(q) ≠ q'. `robust` has 2n for n in layer 2, which keeps those shut: noise of f passes as it is.
    """
    n, shut = states, (2 if robust else 1) * states
    units = [(q, image) for q in range(n) for image in range(n)] if pairs is None else list(pairs)
    seen = [torch.tensor([image + 1 for q, image in units if q == state]) for state in range(n)]
    first = beside([*(indicators(points, 1.0) for points in seen), passing(n)])
    meet = torch.zeros(len(units) + n, len(units), dtype=torch.float64)
    merge = torch.zeros(len(units), n, dtype=torch.float64)
    for unit, (q, image) in enumerate(units):
        meet[unit, unit] = shut
        meet[len(units) + (q if product == "f(q)" else image), unit] = 1.0
        merge[unit, q] = 1.0
    bias = torch.full((len(units),), -float(shut), dtype=torch.float64)
    return then(first, net([meet, merge], [bias, None]))


def tables_over(rows: Sequence[tuple[Sequence[int], Sequence[int]]], **options) -> Net:
    """`table` from pairs (integers in, integers out)."""
    points, values = (torch.tensor([pair[i] for pair in rows]) for i in (0, 1))
    return table(points, values, **options)
