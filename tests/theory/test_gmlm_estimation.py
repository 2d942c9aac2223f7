"""Stacked masked estimators against a plain minimiser of a loss in plain Python, one data set at a time."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import fisher
from sandtable.theory.gmlm.estimation import draw_masks, draw_pairs, draw_sequences, estimate, every_mask
from sandtable.worlds import AdaptiveBlocks, Blocks, Ising, UniformSize

N = 3
STATES = list(product(range(2), repeat=N))
LAW = Ising.of([0.2, -0.1, 0.3], [0.4, 0.1, -0.3])
TRUTH = torch.tensor([0.2, -0.1, 0.3, 0.4, 0.1, -0.3]).double()
FAMILY = fisher.exponential(fisher.ising_statistics(N))
EVERY = tuple(b for k in (1, 2, 3) for b in combinations(range(N), k))
MASKS = {
    "k = 1": UniformSize(N, 1),
    "k = 2": UniformSize(N, 2),
    "k = N": UniformSize(N, N),
    "weighted": Blocks(N, ((0, 1), (1, 2), (0,)), (0.5, 0.3, 0.2)),
    "adaptive": AdaptiveBlocks.of(
        N, EVERY, lambda x: (0.3 * x.sum(1, keepdim=True) * torch.arange(7)).double().softmax(1)
    ),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def plain_loss(theta, table, masks, *, conditioned=True):
    """−Σ f(x, K) log p_θ(x_K | x_−K, K), sum by sum."""
    spins = [[2 * a - 1 for a in x] for x in STATES]
    weight = [
        math.exp(
            sum(h * a for h, a in zip(theta[:N], s, strict=True))
            + sum(j * s[a] * s[b] for j, (a, b) in zip(theta[N:], combinations(range(N), 2), strict=True))
        )
        for s in spins
    ]
    pick, total = masks.probs(torch.tensor(STATES)).tolist(), 0.0
    for b, hidden in enumerate(masks.family.tolist()):
        for i, x in enumerate(STATES):
            if not table[i][b]:
                continue
            same = [j for j, y in enumerate(STATES) if all(h or y[a] == x[a] for a, h in enumerate(hidden))]
            w = [weight[j] * (pick[j][b] if conditioned else 1.0) for j in same]
            total -= table[i][b] * math.log(w[same.index(i)] / sum(w))
    return total


@pytest.mark.parametrize("name", MASKS)
def test_an_estimate_is_the_minimum_of_the_plain_loss(name):
    masks = MASKS[name]
    pairs = draw_pairs(LAW, masks, 400, generator(1), repetitions=3)
    found = estimate(FAMILY, pairs, masks, torch.zeros(6))
    assert found.converged.all()
    for theta, table in zip(found.theta, pairs.tolist(), strict=True):
        best = minimize(plain_loss, np.zeros(6), args=(table, masks), method="BFGS", options={"gtol": 1e-7})
        assert np.allclose(best.x, theta, atol=1e-5)


@pytest.mark.parametrize("name", MASKS)
def test_the_population_gives_the_truth(name):
    masks = MASKS[name]
    found = estimate(FAMILY, fisher.joint(LAW, masks)[None], masks, torch.zeros(6))
    assert torch.allclose(found.theta[0], TRUTH, atol=1e-8)


def test_a_stack_is_its_repetitions_one_by_one():
    masks = MASKS["k = 2"]
    pairs = draw_pairs(LAW, masks, 50, generator(2), repetitions=20)
    together = estimate(FAMILY, pairs, masks, torch.zeros(6))
    for i in range(20):
        alone = estimate(FAMILY, pairs[i : i + 1], masks, torch.zeros(6))
        assert bool(alone.converged) == bool(together.converged[i])
        if alone.converged:
            assert torch.allclose(alone.theta[0], together.theta[i], atol=1e-7)


def test_gradient_descent_ends_where_newton_does():
    masks = MASKS["weighted"]
    pairs = draw_pairs(LAW, masks, 1000, generator(3), repetitions=4)
    newton = estimate(FAMILY, pairs, masks, torch.zeros(6))
    descent = estimate(FAMILY, pairs, masks, torch.zeros(6), method="gradient descent", tol=1e-8)
    assert descent.converged.all()
    assert torch.allclose(newton.theta, descent.theta, atol=1e-5)
    assert newton.steps < 10 < descent.steps
    short = estimate(FAMILY, pairs, masks, torch.zeros(6), method="gradient descent", steps=3)
    assert (short.steps, bool(short.converged.any())) == (3, False)


def test_a_family_that_is_not_convex():
    """log ½(e^{⟨a, s⟩}/Z + e^{b s₁s₂}/Z'), far from the truth at the start."""
    statistics = fisher.ising_statistics(N)

    def family(theta):
        parts = [(statistics[:, :3] @ theta[:3]).log_softmax(0), (statistics[:, 3] * theta[3]).log_softmax(0)]
        return torch.logsumexp(torch.stack(parts), 0)

    truth = torch.tensor([0.8, -0.5, 0.6, -0.9]).double()
    law = Ising.of([0.0] * 3, [0.0] * 3)
    masks = MASKS["k = 2"]
    pairs = family(truth).softmax(0)[:, None] * masks.probs(law.states)
    found = estimate(family, pairs[None], masks, torch.tensor([0.1, 0.1, 0.1, 0.5]))
    assert found.converged.all()
    assert torch.allclose(found.theta[0].abs(), truth.abs(), atol=1e-6)


def test_what_does_not_exist_has_not_converged():
    pairs = torch.zeros(1, 8, 3)
    pairs[0, 7] = 1 / 3  # only +++ was ever seen
    found = estimate(FAMILY, pairs, MASKS["k = 1"], torch.zeros(6))
    assert float(found.gradient) < 1e-6
    assert not found.converged.any()


def test_without_the_mask_in_the_condition_another_minimum():
    masks = MASKS["adaptive"]
    pairs = fisher.joint(LAW, masks)
    naive = estimate(FAMILY, pairs[None], masks, torch.zeros(6), conditioned=False).theta[0]
    best = minimize(
        lambda t: plain_loss(t, pairs.tolist(), masks, conditioned=False), np.zeros(6), options={"gtol": 1e-7}
    )
    assert np.allclose(best.x, naive, atol=1e-5)
    assert float((naive - TRUTH).abs().max()) > 0.05


def test_tables_are_those_of_independent_pairs():
    masks, n, repetitions = MASKS["adaptive"], 40, 40_000
    pairs = draw_pairs(LAW, masks, n, generator(4), repetitions=repetitions) * n
    cells, p = pairs.flatten(1), fisher.joint(LAW, masks).flatten()
    assert torch.equal(cells, cells.round())
    assert torch.allclose(cells.sum(1), torch.full((repetitions,), float(n)).double())
    spread = torch.diag(p) - torch.outer(p, p)  # of one pair: n of them are n times that
    assert torch.allclose(cells.mean(0), n * p, atol=5 * math.sqrt(n / 4 / repetitions))
    assert torch.allclose(torch.cov(cells.T) / n, spread, atol=6e-3 * float(spread.max()) * 5)


def test_masks_of_one_sequence_are_independent_given_it():
    masks, each, n = MASKS["weighted"], 3, 5
    counts = draw_sequences(LAW, n, generator(5), repetitions=20_000)
    assert (counts.sum(1) == n).all()
    pairs = draw_masks(LAW, masks, counts, generator(6), each=each) * n * each
    assert torch.allclose(pairs.sum(2), each * counts.double())
    picked = pairs.sum(1)  # of n · each masks, whatever the sequences
    p = masks.weights
    expected = n * each * (torch.diag(p) - torch.outer(p, p))
    assert torch.allclose(torch.cov(picked.T), expected, atol=0.15)
    once = every_mask(LAW, masks, counts)
    assert torch.allclose(once, counts[:, :, None] / n * p)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "newtown"}, "did you mean 'newton'"),
        ({"tol": 0.0}, "tol=0.0"),
        ({"steps": 0}, "steps=0"),
        ({"pairs": torch.zeros(1, 8, 2)}, "must be repetition × state × 3"),
        ({"start": torch.zeros(2, 6)}, "start of shape"),
        ({"start": torch.zeros(5)}, "start of 5 numbers: the family does not take so many"),
        ({"family": lambda theta: theta}, r"family: gives values of shape \(6,\); must be one for each of 8 states"),
    ],
)
def test_mistakes_are_one_clear_line(change, message):
    arguments = {
        "family": FAMILY,
        "pairs": torch.full((1, 8, 3), 1 / 24),
        "masks": MASKS["k = 1"],
        "start": torch.zeros(6),
        **change,
    }
    with pytest.raises(ArgumentError, match=message):
        estimate(**arguments)


def test_a_mask_law_of_another_length_is_refused():
    with pytest.raises(ArgumentError, match="masks over 4 positions: the law has 3"):
        draw_pairs(LAW, UniformSize(4, 1), 10, generator())
    with pytest.raises(ArgumentError, match="n=0"):
        draw_sequences(LAW, 0, generator())
