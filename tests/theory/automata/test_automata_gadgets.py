"""Small networks on all their points, with noise up to what the lemmas allow, and their weights beside the bounds."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.theory.automata.compile.gadgets import (
    composition,
    indicators,
    larger,
    lookup,
    positive,
    steps,
    table,
    tables_over,
    threshold,
)
from sandtable.theory.automata.compile.heads import counting_log, half_circle, sharpness
from sandtable.theory.automata.compile.networks import affine, beside, deepen, net, passing, then

DRAWN = settings(max_examples=30, deadline=None)
EXACT = dict(atol=1e-9, rtol=0)


def noise(*shape, size, seed=0):
    """Uniform in [−size, size], ends included."""
    drawn = 2 * torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    drawn[..., 0] = drawn[..., 0].sign()
    return size * drawn


def widths(network):
    return [weight.shape[1] for weight in network.weights[:-1]]


def largest(network, i):
    return float(network.weights[i].abs().max()), float(network.biases[i].abs().max())


# -- one line ----------------------------------------------------------------------------------------------------------


def lines():
    """Points on a line, their spacing at least Δ, and values."""
    gaps = st.lists(st.floats(0.5, 3.0), min_size=1, max_size=6)
    return st.tuples(st.floats(-5, 5), gaps, st.integers(1, 3), st.integers(0, 10_000))


@DRAWN
@given(lines())
def test_tables_over_a_line(drawn):
    """Lemma 10: exact within a quarter of the spacing, 4 units a point, and its norms."""
    first, gaps, out, seed = drawn
    points = torch.tensor([first, *(first + sum(gaps[: i + 1]) for i in range(len(gaps)))], dtype=torch.float64)
    values = torch.randn(len(points), out, generator=torch.Generator().manual_seed(seed)).double()
    spacing = float(points.diff().min())
    x = points[:, None] + noise(len(points), 9, size=spacing / 4, seed=seed)
    network = lookup(points, values)
    for found in (network(x[..., None]), steps(points, values)(x[..., None])):
        assert torch.allclose(found, values[:, None].expand_as(found), **EXACT)
    assert widths(network) == [4 * len(points)]
    assert max(widths(steps(points, values))) <= 2 * (len(points) - 1)
    weight, bias = largest(network, 0)
    assert weight <= 4 / spacing + 1e-9
    assert bias <= 4 * float(points.abs().max()) / spacing + 2 + 1e-9
    assert largest(network, 1) == (float(values.abs().max()), 0.0)


def test_long_tables_stay_linear():
    """A hundred thousand points: as many rows of each matrix as units, where points by units would be 320 GB."""
    points = torch.arange(100_000, dtype=torch.float64)
    network = lookup(points, torch.stack([points % 3, points % 2], 1))
    assert [weight.shape for weight in network.weights] == [(1, 400_000), (400_000, 2)]
    x = torch.tensor([[0.0], [1.0], [65_537.0], [99_999.0]], dtype=torch.float64)
    assert torch.allclose(network(x), torch.cat([x % 3, x % 2], 1), atol=1e-6)


def test_indicators_end_where_the_next_begins():
    """1 within Δ/4, 0 from Δ/2 on; beyond Δ/4 they are neither."""
    seen = indicators(torch.tensor([0.0, 1.0]), 1.0)
    x = torch.tensor([[0.25], [0.5], [0.75], [-0.25], [-0.5], [7.0], [0.3]], dtype=torch.float64)
    expected = torch.tensor([[1, 0], [0, 0], [0, 1], [1, 0], [0, 0], [0, 0], [0.8, 0]], dtype=torch.float64)
    assert torch.allclose(seen(x), expected, **EXACT)


def test_staircases_have_steps_only_where_values_change():
    network = steps(torch.arange(10.0), torch.tensor([[0.0]] * 5 + [[1.0]] * 5))
    assert widths(network) == [2]
    assert steps(torch.arange(4.0), torch.ones(4, 1)).depth == 1


# -- several integers --------------------------------------------------------------------------------------------------


@DRAWN
@given(st.integers(1, 3), st.integers(1, 12), st.integers(0, 10_000), st.booleans())
def test_tables_over_several_integers(dimensions, rows, seed, sparse):
    """Lemma 11, on every grid point: rows give their values, all others 0."""
    generator = torch.Generator().manual_seed(seed)
    everything = torch.tensor(list(itertools.product(range(4), repeat=dimensions)), dtype=torch.float64)
    chosen = torch.randperm(len(everything), generator=generator)[:rows]
    values = torch.randint(-1, 3, (len(chosen), 2), generator=generator).double()
    network = table(everything[chosen], values, sparse=sparse)
    expected = torch.zeros(len(everything), 2, dtype=torch.float64)
    expected[chosen] = values
    noisy = everything[:, None] + noise(len(everything), 5, dimensions, size=0.25, seed=seed)
    assert torch.allclose(network(noisy), expected[:, None].expand(-1, 5, -1), **EXACT)
    if not sparse and dimensions > 1:
        levels = sum(len(column.unique()) for column in everything[chosen].T)
        assert widths(network) == [4 * levels, len(chosen)]
        assert largest(network, 0)[0] <= 4
        assert largest(network, 0)[1] <= 4 * 3 + 2
        assert largest(network, 1) == (1.0, dimensions - 1.0)
        assert largest(network, 2) == (float(values.abs().max()), 0.0)


def test_printed_bias_silences_a_table():
    rows = [((a, b), (a + b + 1,)) for a in range(3) for b in range(3)]
    points = torch.tensor([point for point, _ in rows], dtype=torch.float64)
    assert (tables_over(rows)(points)[:, 0] == torch.tensor([float(v) for _, (v,) in rows])).all()
    assert (tables_over(rows, bias=-2.0)(points) == 0).all()


def test_rows_that_coincide():
    with pytest.raises(ArgumentError, match="two rows coincide"):
        tables_over([((0, 1), (0,)), ((0, 1), (1,))])
    with pytest.raises(ArgumentError, match="two of them coincide"):
        lookup(torch.zeros(2), torch.zeros(2, 1))
    with pytest.raises(ArgumentError, match="at most 200,000 units"):
        table(torch.zeros(200_001, 1), torch.zeros(200_001, 1))


# -- thresholds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [0.5, 1.0, 4.0])
def test_thresholds(gap):
    """Lemma 12: a ramp of half-width Δ/2 stands noise Δ/4; the printed one of half-width Δ gives 7/8 there."""
    x = torch.tensor([gap, 2 * gap, -gap, -3 * gap], dtype=torch.float64)[:, None] + noise(4, 20, size=gap / 4)
    right = (x > 0).double()
    assert torch.allclose(positive(gap)(x[..., None])[..., 0], right, **EXACT)
    assert largest(positive(gap), 0) == (1 / gap, 0.5)
    printed = positive(gap, half_width=gap)
    assert float(printed(torch.tensor([[0.75 * gap]], dtype=torch.float64))) == pytest.approx(0.875)
    ramp = threshold(1.0, 3.0)(torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0]], dtype=torch.float64))
    assert ramp[:, 0].tolist() == [0, 0, 0.5, 1, 1]


def test_larger():
    pairs = torch.tensor(list(itertools.product([0.0, 0.5, 2.0, 7.0], repeat=2)), dtype=torch.float64)
    assert torch.allclose(larger()(pairs)[:, 0], pairs.amax(1), **EXACT)


# -- composition -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_composition(n):
    """Lemma 14 on all pairs of maps, as vectors of 1 … n; the product that it displays is another one."""
    maps = list(itertools.product(range(n), repeat=n))
    pairs = list(itertools.product(maps, maps))
    rows = torch.tensor([(*g, *f) for g, f in pairs], dtype=torch.float64) + 1
    right = torch.tensor([[f[x] for x in g] for g, f in pairs], dtype=torch.float64) + 1
    network = composition(n)
    assert torch.equal(network(rows), right)
    noisy = rows.clone()
    noisy[:, :n] += noise(len(rows), n, size=0.25)
    assert torch.allclose(network(noisy), right, **EXACT)
    assert widths(network) == [4 * n * n + n, n * n]
    assert max(max(largest(network, i)) for i in range(3)) <= 4 * n + 2
    printed = composition(n, product="f(q)")(rows)
    assert (printed == right).all() == (n == 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_noise_of_the_later_map_passes_and_does_not_leak(n):
    """With 2n for n it is off by the noise of f(g(q)) and no more; as printed by up to that of all f(q') = n."""
    maps = torch.tensor(list(itertools.product(range(n), repeat=n)))
    g, f = maps.repeat_interleave(len(maps), 0), maps.repeat(len(maps), 1)
    rows = torch.cat([g, f], 1).double() + 1
    off = noise(len(rows), 2 * n, size=0.25)
    robust, right = composition(n, robust=True)(rows + off), f.gather(1, g) + 1.0
    assert torch.allclose(robust, right + off[:, n:].gather(1, g), **EXACT)
    errors = (composition(n)(rows + 0.25) - right).abs()
    assert float(errors.max()) == pytest.approx(n * 0.25)


def test_composition_of_what_can_occur():
    """Where q goes to the points of its own half only, half of the units do."""
    pairs = [(q, image) for q in range(4) for image in ((0, 1) if q < 2 else (2, 3))]
    network = composition(4, pairs=pairs)
    maps = [(*a, *b) for a in itertools.product((0, 1), repeat=2) for b in itertools.product((2, 3), repeat=2)]
    rows = torch.tensor([(*g, *f) for g in maps for f in maps], dtype=torch.float64) + 1
    right = torch.tensor([[f[x] for x in g] for g in maps for f in maps], dtype=torch.float64) + 1
    assert torch.equal(network(rows), right)
    assert widths(network) == [4 * 8 + 4, 8]


# -- networks ----------------------------------------------------------------------------------------------------------


def drawn_net(seed, *shape):
    g = torch.Generator().manual_seed(seed)
    weights = [torch.randn(a, b, generator=g) for a, b in itertools.pairwise(shape)]
    return net(weights, [torch.randn(b, generator=g) for b in shape[1:]])


@pytest.mark.parametrize("one", [(3, 2), (3, 4, 2), (3, 4, 5, 2)])
@pytest.mark.parametrize("other", [(2, 3), (2, 6, 1)])
def test_one_network_after_and_beside_another(one, other):
    first, second = drawn_net(0, *one), drawn_net(1, *other)
    x, y = torch.randn(50, 3).double(), torch.randn(50, 2).double()
    assert torch.allclose(then(first, second)(x), second(first(x)))
    assert then(first, second).depth == first.depth + second.depth - 1
    both = beside([first, second])(torch.cat([x, y], 1))
    assert torch.allclose(both, torch.cat([first(x), second(y)], 1))
    deep = deepen(first, 5)
    assert deep.depth == 5
    assert torch.allclose(deep(x), first(x))
    assert torch.equal(passing(3)(x.abs()), x.abs())
    assert torch.equal(affine(torch.eye(3))(x), x)


# -- what softmax can tell apart ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [2, 10, 300])
def test_sharp_enough(positions):
    """Lemma 13, its worst case: all other keys exactly γ below; values of either sign of the largest size."""
    for worst in (1.0, 7.0):
        gap = sharpness(positions, worst)
        scores = torch.full((positions,), -gap, dtype=torch.float64)
        scores[0] = 0.0
        weights = scores.softmax(0)
        one = torch.eye(positions, dtype=torch.float64)[0]
        assert float((weights - one).abs().sum()) <= 2 * positions * math.exp(-gap)
        values = torch.full((positions,), -worst, dtype=torch.float64)
        values[0] = worst
        assert abs(float(weights @ values) - worst) < 1 / 8


@pytest.mark.parametrize("n", [2, 3, 5, 8, 100])
def test_neighbours_on_a_circle(n):
    """⟨p_t, p_t'⟩ ≤ 1 − 8/n² on the full circle; the printed 1 − 2π²/n² is smaller than what neighbours have."""
    circle = half_circle(n, n / 2)
    points = torch.tensor([circle["cos"], circle["sin"]], dtype=torch.float64).T
    products = points @ points.T - 3 * torch.eye(n, dtype=torch.float64)
    assert float(products.max()) <= 1 - 8 / n**2 + 1e-12
    assert float(products.max()) > 1 - 2 * math.pi**2 / n**2


def test_counting_is_a_sum_over_twice_the_length():
    """Score log(2N − t) for the pad and 0 for all others: every other key weighs 1/2N."""
    n = 9
    for t in range(1, n + 1):
        scores = torch.zeros(t + 1, dtype=torch.float64)
        scores[0] = counting_log(n)[t]
        assert scores.softmax(0)[1:].tolist() == pytest.approx([1 / (2 * n)] * t)
