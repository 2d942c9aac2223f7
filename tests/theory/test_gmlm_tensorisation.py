"""Tensorisation of entropy against sums by hand and another optimiser; the finite-sample bound against its numbers."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.chains import kl, transition
from sandtable.theory.gmlm.estimation import draw_masks, draw_sequences, every_mask
from sandtable.theory.gmlm.finite_sample import (
    bound,
    deviation,
    empirical_bound,
    ising_cells,
    ising_margin,
    pointwise_bound,
)
from sandtable.theory.gmlm.tensorisation import conditional_kl, tensorisation
from sandtable.worlds import AdaptiveBlocks, Blocks, CliqueIsing, Ising, Table, UniformSize


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


ADAPTIVE = AdaptiveBlocks.of(
    2, ((0,), (1,), (0, 1)), lambda x: (x.sum(1, keepdim=True) * torch.arange(3)).double().softmax(1)
)


@pytest.mark.parametrize("masks", [UniformSize(2, 1), Blocks(2, ((0, 1), (1,)), (0.2, 0.8)), ADAPTIVE])
def test_conditional_divergence_group_by_group(masks):
    q, r = Table.random(2, generator(1)), Table.random(2, generator(2)).probs
    states, pick, expected = list(product(range(2), repeat=2)), masks.probs(q.states), 0.0
    for b, hidden in enumerate(masks.family.tolist()):
        for i, x in enumerate(states):
            same = [j for j, y in enumerate(states) if all(h or x[a] == y[a] for a, h in enumerate(hidden))]
            ours, theirs = r * pick[:, b], q.probs * pick[:, b]
            ratio = (ours[i] / ours[same].sum()) / (theirs[i] / theirs[same].sum())
            expected += float(ours[i] * ratio.log())
    assert float(conditional_kl(r, q, masks)) == pytest.approx(expected)
    both = torch.stack([r, q.probs])
    assert conditional_kl(both, q, masks).tolist() == pytest.approx([expected, 0.0], abs=1e-15)


@pytest.mark.parametrize(
    ("coupling", "k", "constant", "poincare"),
    [
        (0.2, 1, 4.83, 4.80),
        (0.2, 2, 1.957, 1.951),
        (0.5, 1, 12.53, 12.29),
        (0.5, 2, 3.87, 3.82),
        (1.0, 1, 82.9, 80.4),
        (1.0, 2, 21.3, 20.7),
    ],
)
def test_reference_values(coupling, k, constant, poincare):
    found = tensorisation(CliqueIsing(3, 3, coupling, 0.1), UniformSize(3, k), generator(), steps=300)
    assert found.constant == pytest.approx(constant, rel=2e-3)
    assert found.poincare == pytest.approx(poincare, rel=2e-3)


@pytest.mark.parametrize("masks", [UniformSize(2, 1), ADAPTIVE])
def test_no_other_optimiser_finds_more(masks):
    q = Table.random(2, generator(3))
    found = tensorisation(q, masks, generator(4), steps=400)

    def negative(logits):
        r = torch.from_numpy(logits).softmax(0)
        return -float(kl(r, q.probs) / conditional_kl(r, q, masks))

    draws = np.random.default_rng(0)
    best = max(-minimize(negative, 2 * draws.standard_normal(4), method="Nelder-Mead").fun for _ in range(20))
    assert found.constant == pytest.approx(best, rel=1e-3)
    assert found.constant >= best - 1e-4
    assert -negative(found.attained_by.log().numpy()) == pytest.approx(found.constant, rel=1e-6)


@pytest.mark.parametrize("masks", [UniformSize(2, 1), ADAPTIVE, Blocks(2, ((0, 1), (1,)), (0.2, 0.8))])
def test_a_law_with_zeros_is_climbed_on_its_support(masks):
    """Against Nelder-Mead over the three states that there are; the law found is nowhere else, and has its ratio."""
    q = Table([[1 / 2, 1 / 3], [1 / 6, 0.0]])
    found = tensorisation(q, masks, generator(4), steps=400)

    def negative(logits):
        r = torch.cat([torch.from_numpy(logits).softmax(0), torch.zeros(1).double()])
        return -float(kl(r, q.probs) / conditional_kl(r, q, masks))

    draws = np.random.default_rng(0)
    best = max(-minimize(negative, 2 * draws.standard_normal(3), method="Nelder-Mead").fun for _ in range(20))
    assert found.constant == pytest.approx(best, rel=1e-3)
    assert float(found.attained_by[3]) == 0
    assert -negative(found.attained_by[:3].log().numpy()) == pytest.approx(found.constant, rel=1e-9)


def test_the_ascent_finds_the_poincare_constant_by_itself():
    """What it returns is what it found: not the Poincaré constant where that is larger."""
    for seed in range(5):
        q, masks = Table.random(3, generator(20 + seed)), UniformSize(3, 1 + seed % 2)
        found = tensorisation(q, masks, generator(seed), steps=300)
        ratio = float(kl(found.attained_by, q.probs) / conditional_kl(found.attained_by, q, masks))
        assert found.constant == pytest.approx(ratio, rel=1e-9)
        assert found.constant >= found.poincare * (1 - 1e-3)
        assert found.at_least == max(found.constant, found.poincare)
    short = tensorisation(CliqueIsing(3, 3, 1.0, 0.1), UniformSize(3, 1), generator(), starts=3, steps=1)
    assert short.constant < short.poincare == short.at_least


def test_divergences_of_conditionals_lie_between_zero_and_the_margin():
    """E KL ≤ ln(1/β), β the least conditional probability; a point mass on a rare atom attains it."""
    for seed in range(20):
        q = Table.random(2, generator(40 + seed))
        r = torch.cat([torch.eye(4).double(), Table.random(2, generator(60 + seed)).probs[None]])
        for masks in (UniformSize(2, 1), UniformSize(2, 2), ADAPTIVE):
            chosen = masks.probs(q.states)
            given = []
            for b, hidden in enumerate(masks.family.tolist()):
                for i, x in enumerate(q.states.tolist()):
                    same = [
                        j
                        for j, y in enumerate(q.states.tolist())
                        if all(h or x[a] == y[a] for a, h in enumerate(hidden))
                    ]
                    weight = q.probs * chosen[:, b]
                    given.append(float(weight[i] / weight[same].sum()))
            found = conditional_kl(r, q, masks)
            assert bool((found >= -1e-12).all())
            assert float(found.max()) <= math.log(1 / min(given)) + 1e-12
    rare = Table([0.01, 0.99])
    assert float(conditional_kl(torch.tensor([1.0, 0.0]).double(), rare, UniformSize(1, 1))) == pytest.approx(
        math.log(100)
    )


def test_product_laws():
    law = Ising.of([0.3, -0.2, 0.5], [0.0] * 3)
    for k in (1, 2, 3):
        found = tensorisation(law, UniformSize(3, k), generator(5), steps=200)
        assert found.constant == pytest.approx(3 / k, rel=1e-3)
        assert found.poincare == pytest.approx(3 / k)


def test_divergence_contracts_at_the_provable_rate():
    q = Table.random(3, generator(6))
    masks = UniformSize(3, 1)
    constant = tensorisation(q, masks, generator(7), steps=300).constant
    p = transition(q, masks)
    for seed in range(20):
        r = Table.random(3, generator(100 + seed)).probs
        assert float(kl(r @ p, q.probs)) <= (1 - 1 / constant) * float(kl(r, q.probs)) + 1e-12


def test_a_law_of_one_state_is_refused():
    with pytest.raises(ArgumentError, match="one state of positive probability"):
        tensorisation(Table([0.0, 1.0]), UniformSize(1, 1), generator())
    with pytest.raises(ArgumentError, match="starts=2"):
        tensorisation(Table([0.5, 0.5]), UniformSize(1, 1), generator(), starts=2)


# -- the finite-sample bound -----------------------------------------------------------------------------------------

REFERENCE = dict(
    length=2, symbols=2, cells=10, masks=10**6, samples=10**6, delta=0.1, margin=0.1, resolution=0.01, tensorisation=4.0
)


def test_the_reference_numbers():
    found = bound(0.5, **REFERENCE)
    assert found.deviation == pytest.approx(0.161828, abs=5e-7)
    assert found.sampling == pytest.approx(0.0089443, abs=5e-8)
    assert found.total == pytest.approx(1.33757, abs=5e-6)
    assert bound(0.0, **REFERENCE).total == pytest.approx(0.883728, abs=5e-7)


def test_the_bound_from_its_parts():
    n, size, cells, m, count, delta, beta, eps, constant = 3, 2, 7.0, 500, 300, 0.2, 0.05, 0.1, 3.0
    b = math.sqrt(2 ** (3 * n) * size**n * cells / (m * delta)) + math.sqrt(math.log(8 * cells / delta) / (2 * count))
    c = math.sqrt(size ** (3 * n) / (8 * delta * count))
    found = bound(
        0.3, length=n, symbols=size, cells=cells, masks=m, samples=count, delta=delta, margin=beta, resolution=eps,
        tensorisation=constant,
    )  # fmt: skip
    assert found == pytest.approx((math.sqrt(constant / 2 * (0.3 + b * math.log(1 / beta) + eps)) + c, b, c))
    assert empirical_bound(length=n, symbols=size, samples=count, delta=delta) == pytest.approx(c / math.sqrt(2))
    point = math.sqrt(2 ** (3 * n - 1) * size**n / (m * delta)) + math.sqrt(math.log(4 / delta) / (2 * count))
    found = pointwise_bound(length=n, symbols=size, masks=m, samples=count, delta=delta, margin=beta)
    assert found == pytest.approx(point * math.log(1 / beta))


PLAIN = dict(length=2, symbols=2, masks=400, samples=100, margin=0.2)


def test_the_general_statement_contains_its_corollary():
    """ε′ and t that leave δ/2 each give the width of the corollary, and all θ at once what the bound is made of."""
    delta, most = 0.1, math.log(5)
    frequencies = math.sqrt(2 ** (2 - 1) * 2**2 / (400 * delta))
    total = most * math.sqrt(100 * math.log(4 / delta) / 2)
    found = deviation(**PLAIN, frequencies=frequencies, total=total)
    assert found == pytest.approx((pointwise_bound(**PLAIN, delta=delta), 1 - delta))
    other = deviation(**PLAIN, frequencies=2.0, total=30.0)
    fails = 2 ** (2 - 2) * 2**2 / (2.0**2 * 400) + 2 * math.exp(-2 * 30.0**2 / (100 * most**2))
    assert other == pytest.approx((2**2 * 2.0 * most + 30.0 / 100, 1 - fails))
    uniform = pointwise_bound(**PLAIN, delta=delta / 2, cells=7.0, resolution=0.1)
    whole = bound(0.0, **PLAIN, delta=delta, cells=7.0, resolution=0.1, tensorisation=1.0)
    assert uniform == pytest.approx(whole.deviation * most + 0.1)


def test_the_general_statement_covers():
    """How often the loss with drawn masks is that near the mean over masks."""
    law, masks = Ising.of([0.2, -0.1], [0.1]), UniformSize(2, 1)
    family, theta = fisher.exponential(fisher.ising_statistics(2)), torch.tensor([0.2, -0.1, 0.1]).double()
    counts = draw_sequences(law, 50, generator(1), repetitions=400)
    drawn = draw_masks(law, masks, counts, generator(2), each=100)
    loss = fisher.masked_loss(family, masks)
    whole = every_mask(law, masks, counts)
    off = torch.stack([loss(theta, one) - loss(theta, all_) for one, all_ in zip(drawn, whole, strict=True)]).abs()
    for frequencies, total in ((0.3, 40.0), (0.5, 60.0), (1.0, 100.0)):
        found = deviation(length=2, symbols=2, masks=100, samples=50, margin=0.2, frequencies=frequencies, total=total)
        assert 0 < found.probability < 1
        assert float((off < found.width).double().mean()) >= found.probability


def test_the_quoted_quantile_of_empirical_laws():
    """At n = 1000, δ = 0.1, N = 2 the 90 % quantile of TV(p̃, p) is 0.034 where the bound is 0.2."""
    drawn = np.random.default_rng(0).multinomial(1000, [0.25] * 4, size=100_000) / 1000
    assert np.quantile(np.abs(drawn - 0.25).sum(1) / 2, 0.9) == pytest.approx(0.034, abs=6e-4)
    assert empirical_bound(length=2, symbols=2, samples=1000, delta=0.1) == pytest.approx(0.2)


def test_what_the_bound_grows_with():
    for change in ({"tensorisation": 8.0}, {"margin": 0.01}, {"cells": 20}, {"delta": 0.05}, {"resolution": 0.1}):
        assert bound(0.1, **{**REFERENCE, **change}).total > bound(0.1, **REFERENCE).total
    for change in ({"masks": 10**7}, {"samples": 10**7}):
        assert bound(0.1, **{**REFERENCE, **change}).total < bound(0.1, **REFERENCE).total


def test_ising_parameters():
    assert ising_cells(3, 0.5, 0.1) == 120.0**3
    assert ising_margin(2, 3, 0.5) == pytest.approx(0.25 * math.exp(-3))
    # No conditional of a model with parameters in [−R, R]^d is below the margin.
    corners = torch.tensor(list(product((-0.5, 0.5), repeat=3))).double()
    least = min(float(Ising.of(c[:2], c[2:]).probs.min()) for c in corners)
    assert least >= ising_margin(2, 3, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, "delta=0.0"),
        ({"margin": 1.5}, "margin=1.5"),
        ({"cells": 0.5}, "cells=0.5"),
        ({"masks": 0}, "masks=0"),
        ({"tensorisation": 0.5}, "tensorisation=0.5"),
        ({"symbols": 1}, "symbols=1"),
    ],
)
def test_mistakes_are_one_clear_line(change, message):
    with pytest.raises(ArgumentError, match=message):
        bound(0.5, **{**REFERENCE, **change})
