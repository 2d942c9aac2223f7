"""Generalised Fisher matrices against sums over states, finite differences and the specification's table."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import fisher
from sandtable.worlds import AdaptiveBlocks, Blocks, CliqueIsing, Ising, Mixture, Table, UniformSize, UniformSubset
from sandtable.worlds.finite import all_states

TRACES = {
    0.0: (28.000, 15.200, 11.333, 10.000),
    0.05: (28.261, 15.335, 11.446, 10.112),
    0.1: (29.141, 15.791, 11.819, 10.478),
    0.3: (43.732, 23.462, 17.821, 16.327),
    0.5: (106.19, 56.96, 43.88, 41.55),
    1.0: (2576.1, 1473.0, 1221.2, 1190.5),
}
"""Tr Γ^k of N = c = 4, h = 0, θ = (h, J)."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ising(n=4, seed=0):
    g = generator(seed)
    return Ising.of(torch.randn(n, generator=g).double(), torch.randn(n * (n - 1) // 2, generator=g).double())


def uniform_clique(coupling, n=4):
    return Ising.of([0.0] * n, [coupling] * (n * (n - 1) // 2))


def adaptive(n=3, seed=0, symbols=2):
    blocks = tuple(b for k in range(1, n + 1) for b in combinations(range(n), k))
    g = generator(seed)
    return AdaptiveBlocks.of(
        n,
        blocks,
        lambda x: (0.05 + torch.rand(len(x), len(blocks), generator=g).double()).log().softmax(1),
        symbols=symbols,
    )


def ising_scores(law):
    pairs = law.j[*torch.triu_indices(law.length, law.length, 1)]
    return fisher.scores(fisher.exponential(fisher.ising_statistics(law.length)), torch.cat([law.h, pairs]))


def by_hand(scores, law, masks):
    """E Cov(score | x_−K, K), group by group."""
    states = list(product(range(law.symbols), repeat=law.length))
    s, p, pick = scores.numpy(), law.probs.numpy(), masks.probs(law.states).numpy()
    total = np.zeros((s.shape[1], s.shape[1]))
    for b, hidden in enumerate(masks.family.tolist()):
        groups = {}
        for i, x in enumerate(states):
            groups.setdefault(tuple(a for a, h in zip(x, hidden, strict=True) if not h), []).append(i)
        for group in groups.values():
            w = p[group] * pick[group, b]
            if w.sum() > 0:
                total += w.sum() * np.cov(s[group].T, aweights=w, ddof=0).reshape(total.shape)
    return total


MASKS = {
    "k of N": UniformSize(3, 2),
    "all": UniformSize(3, 3),
    "subsets": UniformSubset(3, 0.4),
    "weighted": Blocks(3, ((0, 1), (2,)), (0.3, 0.7)),
    "adaptive": adaptive(),
}


@pytest.mark.parametrize("name", MASKS)
def test_information_is_the_expected_conditional_covariance(name):
    for law in (ising(3), Table.random(3, generator(1)), Table([[[0.5, 0.0], [0.2, 0.0]], [[0.0, 0.0], [0.1, 0.2]]])):
        scores = torch.randn(8, 4, generator=generator(2)).double()
        scores -= law.probs @ scores
        found = fisher.information(scores, law, MASKS[name])
        assert np.allclose(found, by_hand(scores, law, MASKS[name]), atol=1e-13)
    three = Table.random(3, generator(3), symbols=3)
    masks = adaptive(symbols=3) if name == "adaptive" else MASKS[name]
    scores = torch.randn(27, 2, generator=generator(4)).double()
    assert np.allclose(fisher.information(scores, three, masks), by_hand(scores, three, masks), atol=1e-13)


def test_everything_masked_is_fisher_s_information():
    law = ising()
    statistics = fisher.ising_statistics(4)
    expected = torch.from_numpy(np.cov(statistics.numpy().T, aweights=law.probs.numpy(), ddof=0))
    scores = ising_scores(law)
    assert torch.allclose(fisher.fisher(scores, law), expected)
    assert torch.allclose(fisher.information(scores, law, UniformSize(4, 4)), expected)


def two_ising(theta):
    """Half of an Ising model with fields and no couplings, half of one with couplings and no fields."""
    statistics = fisher.ising_statistics(3)
    parts = [statistics[:, :3] @ theta[:3], statistics[:, 3:] @ theta[3:6]]
    return torch.logsumexp(torch.stack([part.log_softmax(0) for part in parts]), 0)


THETA = torch.tensor([0.3, -0.4, 0.2, 0.5, -0.2, 0.6]).double()
MIXED = Mixture((Ising.of(THETA[:3], [0.0] * 3), Ising.of([0.0] * 3, THETA[3:])), (0.5, 0.5))


def test_scores_of_any_family_are_its_derivatives():
    found = fisher.scores(two_ising, THETA)
    assert torch.allclose(two_ising(THETA).softmax(0), MIXED.probs)
    for i in range(6):
        step = 1e-6 * torch.eye(6).double()[i]
        slope = (two_ising(THETA + step).log_softmax(0) - two_ising(THETA - step).log_softmax(0)) / 2e-6
        assert torch.allclose(found[:, i], slope, atol=1e-8)
    assert torch.allclose(MIXED.probs @ found, torch.zeros(6).double(), atol=1e-14)


@pytest.mark.parametrize("name", MASKS)
def test_information_is_curvature_and_spread_of_scores(name):
    """Of a family that is not exponential: Hessian of the loss, covariance of scores, E Cov(score | x_−K, K)."""
    masks = MASKS[name]
    information = fisher.information(fisher.scores(two_ising, THETA), MIXED, masks)
    loss = fisher.population_loss(two_ising, MIXED, masks)
    curvature, eye, e = torch.zeros(6, 6), torch.eye(6).double(), 1e-4
    for i, j in product(range(6), repeat=2):
        a, b = e * eye[i], e * eye[j]
        curvature[i, j] = (loss(THETA + a + b) - loss(THETA + a - b) - loss(THETA - a + b) + loss(THETA - a - b)) / 4e-8
    assert torch.allclose(curvature.double(), information, atol=1e-6)
    scores = fisher.masked_scores(two_ising, THETA, masks)
    weight = fisher.joint(MIXED, masks)
    assert torch.allclose(torch.einsum("sb,sbp->p", weight, scores), torch.zeros(6).double(), atol=1e-14)
    assert torch.allclose(torch.einsum("sb,sbp,sbq->pq", weight, scores, scores), information)


@pytest.mark.parametrize("name", ["k of N", "adaptive"])
def test_the_loss_is_where_its_parameters_are(name):
    """On "meta", which holds no numbers and refuses all other devices."""
    masks = MASKS[name]
    statistics = fisher.ising_statistics(3).to("meta")
    loss = fisher.masked_loss(fisher.exponential(statistics), masks)
    found = loss(torch.zeros(6, device="meta").double(), torch.zeros(8, len(masks.family), device="meta").double())
    assert found.device.type == "meta"
    scores = fisher.masked_scores(fisher.exponential(statistics), torch.zeros(6, device="meta").double(), masks)
    assert scores.device.type == "meta"


def test_leaving_the_mask_out_of_the_condition_is_biased():
    masks = MASKS["adaptive"]
    scores = fisher.masked_scores(two_ising, THETA, masks, conditioned=False)
    slope = torch.einsum("sb,sbp->p", fisher.joint(MIXED, masks), scores)
    assert float(slope.abs().max()) > 0.01
    loss = fisher.population_loss(two_ising, MIXED, masks, conditioned=False)
    step = 1e-6 * torch.eye(6).double()
    assert torch.allclose(slope, -torch.stack([(loss(THETA + s) - loss(THETA - s)) / 2e-6 for s in step]), atol=1e-8)


def test_the_loss_is_the_expected_negative_log_conditional():
    masks, law = MASKS["weighted"], Table.random(3, generator(5))
    theta = torch.randn(6, generator=generator(6)).double()
    q = two_ising(theta).softmax(0)
    expected = 0.0
    for hidden, share in zip(((0, 1), (2,)), (0.3, 0.7), strict=True):
        for i, x in enumerate(product(range(2), repeat=3)):
            same = [
                j
                for j, y in enumerate(product(range(2), repeat=3))
                if all(y[a] == x[a] for a in range(3) if a not in hidden)
            ]
            expected -= share * float(law.probs[i]) * math.log(float(q[i] / q[same].sum()))
    assert float(fisher.population_loss(two_ising, law, masks)(theta)) == pytest.approx(expected)


@pytest.mark.parametrize("coupling", TRACES)
def test_the_table_of_traces(coupling):
    law = uniform_clique(coupling)
    scores = ising_scores(law)
    for k, expected in enumerate(TRACES[coupling], 1):
        gamma = fisher.asymptotic_covariance(fisher.information(scores, law, UniformSize(4, k)))
        digits = 0.05 if expected > 1000 else 0.005 if coupling == 0.5 else 0.0005
        assert float(gamma.trace()) == pytest.approx(expected, abs=1.01 * digits)
        if coupling:
            assert torch.allclose(ising_scores(CliqueIsing(4, 4, coupling).ising()), scores)


@pytest.mark.parametrize(
    ("coupling", "expected"), [(0.05, (12.128, 7.283, 6.078, 6.078)), (0.3, (19.381, 11.823, 10.249, 10.249))]
)
def test_couplings_alone(coupling, expected):
    law = uniform_clique(coupling)
    scores = fisher.scores(
        fisher.exponential(fisher.ising_statistics(4, fields=False)), torch.full((6,), coupling).double()
    )
    found = [fisher.information(scores, law, UniformSize(4, k)) for k in range(1, 5)]
    traces = [float(fisher.asymptotic_covariance(h).trace()) for h in found]
    assert traces == pytest.approx(expected, abs=5.1e-4)
    assert torch.allclose(found[2], found[3], atol=1e-14)  # not strictly better


def test_the_trace_at_independence():
    assert [fisher.independent_trace(4, k) for k in range(1, 5)] == pytest.approx([28, 15.2, 34 / 3, 10])
    for n in (2, 3, 5):
        law = Ising.of([0.0] * n, [0.0] * (n * (n - 1) // 2))
        for k in range(1, n + 1):
            gamma = fisher.asymptotic_covariance(fisher.information(ising_scores(law), law, UniformSize(n, k)))
            assert float(gamma.trace()) == pytest.approx(fisher.independent_trace(n, k))


@pytest.mark.parametrize("seed", range(3))
def test_one_more_masked_place_adds_the_information_of_its_conditional(seed):
    law = Table.random(4, generator(seed)) if seed else Table.random(3, generator(9), symbols=3)
    scores = torch.randn(len(law.probs), 5, generator=generator(seed + 10)).double()
    n = law.length
    h = [fisher.information(scores, law, UniformSize(n, k)) for k in range(1, n + 1)]
    for k in range(1, n):
        added = fisher.increment(scores, law, k)
        assert torch.allclose(h[k] - h[k - 1], added, atol=1e-13)
        assert float(torch.linalg.eigvalsh(added)[0]) > -1e-13


def test_all_masks_of_a_sequence_at_once():
    expected = {0.05: (10.112,) * 4, 0.3: (16.337, 16.327, 16.327, 16.327)}
    for coupling, traces in expected.items():
        law = uniform_clique(coupling)
        scores = ising_scores(law)
        found = [float(fisher.covariance_of_many(scores, law, UniformSize(4, k)).trace()) for k in range(1, 5)]
        assert found == pytest.approx(traces, abs=5.1e-4)


@pytest.mark.parametrize("name", MASKS)
def test_several_masks_for_each_sequence(name):
    """Γ_m from the covariance of the mean of m scores, all m-tuples of masks written out."""
    masks, m = MASKS[name], 2
    scores = fisher.scores(two_ising, THETA)
    h = fisher.information(scores, MIXED, masks)
    each = fisher.masked_scores(two_ising, THETA, masks)
    pick, meat = masks.probs(MIXED.states), torch.zeros(6, 6).double()
    for a, b in product(range(len(masks.family)), repeat=m):
        mean = (each[:, a] + each[:, b]) / 2
        meat += mean.T @ ((MIXED.probs * pick[:, a] * pick[:, b])[:, None] * mean)
    expected = torch.linalg.inv(h) @ meat @ torch.linalg.inv(h)
    found = fisher.covariance_of_many(scores, MIXED, masks, each=2)
    assert torch.allclose(found, expected, rtol=1e-8, atol=1e-8)
    one = fisher.covariance_of_many(scores, MIXED, masks, each=1)
    assert torch.allclose(one, fisher.asymptotic_covariance(h), rtol=1e-8, atol=1e-8)


def test_a_large_model_takes_little_memory():
    n = 12
    law = Ising.of([0.0] * n, [0.0] * 66)
    scores = fisher.scores(fisher.exponential(fisher.ising_statistics(n)), torch.zeros(78).double())
    gamma = fisher.asymptotic_covariance(fisher.information(scores, law, UniformSize(n, 6)))
    assert float(gamma.trace()) == pytest.approx(fisher.independent_trace(n, 6))


def test_traces_of_masks_for_two_coupled_pairs():
    """The specification's numbers for four spins, J = 1.5 on two pairs."""
    pairs = list(combinations(range(4), 2))
    law = Ising.of([0.0] * 4, [1.5 * (pair in ((0, 1), (2, 3))) for pair in pairs])
    scores = ising_scores(law)
    assert float(torch.linalg.inv(fisher.fisher(scores, law)).trace()) == pytest.approx(155.696, abs=5e-4)
    cross = tuple(pair for pair in pairs if pair not in ((0, 1), (2, 3)))
    for blocks, trace in ((((0, 1), (2, 3)), 188.9), (tuple(pairs), 168.3), (cross, 181.3)):
        gamma = fisher.asymptotic_covariance(fisher.information(scores, law, Blocks(4, blocks)))
        assert float(gamma.trace()) == pytest.approx(trace, abs=0.051)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fisher.information(torch.zeros(4, 2), ising(3), UniformSize(3, 1)), "scores with 4 rows: .* 8 states"),
        (
            lambda: fisher.information(torch.zeros(8, 2), ising(3), UniformSize(4, 1)),
            "masks over 4 positions: .* has 3",
        ),
        (lambda: fisher.asymptotic_covariance(torch.zeros(2, 2)), "do not identify θ"),
        (lambda: fisher.increment(torch.zeros(8, 2), ising(3), 3), "k=3"),
        (lambda: fisher.increment(torch.zeros(16, 2), ising(3), 1), "scores with 16 rows: .* 8 states"),
        (lambda: fisher.fisher(torch.zeros(16, 2), ising(3)), "scores with 16 rows: .* 8 states"),
        (lambda: fisher.covariance_of_many(torch.zeros(8, 2), ising(3), UniformSize(3, 1), each=0.5), "each=0.5"),
        (lambda: fisher.independent_trace(1, 1), "length=1"),
        (lambda: fisher.joint(ising(3), UniformSize(2, 1)), "masks over 2 positions"),
    ],
)
def test_mistakes_are_one_clear_line(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_states_and_statistics():
    assert fisher.ising_statistics(3).shape == (8, 6)
    s = 2.0 * all_states(2, 3) - 1
    assert torch.equal(fisher.ising_statistics(3)[:, 4], (s[:, 0] * s[:, 2]).double())


@pytest.mark.parametrize("of", ["scores", "masked"])
def test_parameters_may_be_of_single_precision_and_must_be_as_many_as_the_family_has(of):
    family = fisher.exponential(fisher.ising_statistics(3))
    find = (lambda at: fisher.scores(family, at)) if of == "scores" else (
        lambda at: fisher.masked_scores(family, at, UniformSize(3, 1))
    )  # fmt: skip
    assert torch.equal(find(torch.zeros(6)), find(torch.zeros(6).double()))
    for theta, message in (
        (torch.zeros(5), "theta of 5 numbers: the family does not take so many parameters of torch.float64"),
        (torch.zeros(6, 1), r"theta of shape \(6, 1\): must be one vector of parameters"),
    ):
        with pytest.raises(ArgumentError, match=message):
            find(theta)
