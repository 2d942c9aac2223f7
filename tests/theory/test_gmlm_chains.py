"""Block dynamics against matrices written entry by entry, and the specification's reference values."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import chains
from sandtable.worlds import AdaptiveBlocks, Blocks, CliqueIsing, Ising, Table, UniformSize, UniformSubset
from sandtable.worlds.finite import conditional_log_probs

POINCARE = {
    0.0: (4.000, 2.000, 1.333, 1),
    0.05: (4.701, 2.234, 1.411, 1),
    0.1: (5.655, 2.552, 1.517, 1),
    0.3: (14.699, 5.552, 2.517, 1),
    0.5: (48.80, 16.42, 6.14, 1),
    1.0: (1540.8, 357.2, 119.7, 1),
}
CORRELATION = {0.0: 0, 0.05: 0.0085, 0.1: 0.0385, 0.3: 0.4668, 0.5: 1.2014, 1.0: 2.0018}
APART = {0.0: 0, 0.05: 0.0386, 0.1: 0.0796, 0.3: 0.2233, 0.5: 0.1720, 1.0: 0.0050}
"""TV between what the parallel sampler ends up with and the law: N = c = 4, h = 0."""


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def adaptive(n=3, seed=0, symbols=2):
    blocks = tuple(b for k in range(1, n + 1) for b in combinations(range(n), k))
    g = generator(seed)
    return AdaptiveBlocks.of(
        n, blocks, lambda x: torch.rand(len(x), len(blocks), generator=g).double().softmax(1), symbols=symbols
    )


def uniform_clique(coupling, n=4):
    return Ising.of([0.0] * n, [coupling] * (n * (n - 1) // 2))


CASES = {
    "k of N": (Table.random(3, generator(1)), UniformSize(3, 2)),
    "subsets": (Table.random(3, generator(2)), UniformSubset(3, 0.4)),
    "three symbols": (Table.random(2, generator(3), symbols=3), Blocks(2, ((0,), (0, 1)), (0.4, 0.6))),
    "adaptive": (Table.random(3, generator(4)), adaptive()),
    "adaptive, three symbols": (Table.random(2, generator(5), symbols=3), adaptive(2, 1, 3)),
    "zeros": (Table([[0.5, 1 / 3], [1 / 6, 0.0]]), UniformSize(2, 1)),
}
NAMES = pytest.mark.parametrize("name", CASES)


def by_hand(law, masks, *, naive=False):
    """P(x, y) = Σ_K p(K | x) 1[x_−K = y_−K] p(y_K | x_−K, K), entry by entry."""
    states = list(product(range(law.symbols), repeat=law.length))
    p, pick = law.probs.tolist(), masks.probs(law.states).tolist()
    out = np.zeros((len(states), len(states)))
    for b, hidden in enumerate(masks.family.tolist()):
        for i, x in enumerate(states):
            same = [j for j, y in enumerate(states) if all(h or x[a] == y[a] for a, h in enumerate(hidden))]
            weight = [p[j] * (1 if naive else pick[j][b]) for j in same]
            for j, w in zip(same, weight, strict=True):
                out[i, j] += pick[i][b] * w / sum(weight)
    return out


@NAMES
@pytest.mark.parametrize("naive", [False, True])
def test_the_matrix_of_block_dynamics(name, naive):
    law, masks = CASES[name]
    found = chains.transition(law, masks, naive=naive)
    assert np.allclose(found, by_hand(law, masks, naive=naive), atol=1e-14)
    assert torch.allclose(found.sum(1), torch.ones(len(found)).double())
    f = torch.randn(len(found), 2, generator=generator(6)).double()
    assert torch.allclose(chains.apply(law, masks, f, naive=naive), found @ f)
    if not naive or not masks.adaptive:
        flow = law.probs[:, None] * found
        assert torch.allclose(flow, flow.T, atol=1e-15)  # reversible
        assert torch.allclose(chains.stationary(found), law.probs, atol=1e-12)


@NAMES
def test_dirichlet_forms_agree(name):
    law, masks = CASES[name]
    p, n = chains.transition(law, masks), len(law.probs)
    f, g = torch.randn(2, n, generator=generator(7)).double()
    inner = float((law.probs * f * (g - p @ g)).sum())
    assert chains.dirichlet(p, law.probs, f, g) == pytest.approx(inner)
    assert chains.block_dirichlet(law, masks, f, g) == pytest.approx(inner)


@NAMES
def test_dirichlet_forms_of_functions_of_state_and_block(name):
    """½ Σ μ P Δf Δg of the chain on pairs that keeps K, its matrix entry by entry; a function of x alone is one too."""
    law, masks = CASES[name]
    states = law.states.tolist()
    f, g = torch.randn(2, len(states), len(masks.family), generator=generator(12)).double()
    joint, total = law.probs[:, None] * masks.probs(law.states), 0.0
    for b, hidden in enumerate(masks.family.tolist()):
        for i, x in enumerate(states):
            same = [j for j, y in enumerate(states) if all(h or x[a] == y[a] for a, h in enumerate(hidden))]
            mass = float(joint[same, b].sum())
            for j in same:
                flow = float(joint[i, b] * joint[j, b]) / mass if mass else 0.0
                total += flow * float((f[i, b] - f[j, b]) * (g[i, b] - g[j, b])) / 2
    assert chains.block_dirichlet(law, masks, f, g) == pytest.approx(total, abs=1e-14)
    alone = f[:, 0]
    wide = alone[:, None].expand_as(f)
    both = [chains.block_dirichlet(law, masks, h, g) for h in (alone, wide)]
    assert both[0] == pytest.approx(both[1], abs=1e-15)
    with pytest.raises(ArgumentError, match="f and g of shapes"):
        chains.block_dirichlet(law, masks, f[:, :0], g)


@NAMES
def test_poincare_constants_by_eigenvalues_and_by_functions(name):
    law, masks = CASES[name]
    support = law.probs > 0
    p = chains.transition(law, masks)[support][:, support].numpy()
    values = np.sort(np.linalg.eigvals(p).real)
    constant = chains.poincare(law, masks)
    assert constant == pytest.approx(1 / (1 - values[-2]))
    assert values[0] > -1e-12
    for f in torch.randn(200, len(law.probs), generator=generator(8)).double():
        variance = float((law.probs * (f - law.probs @ f).square()).sum())
        assert variance <= constant * chains.block_dirichlet(law, masks, f, f) * (1 + 1e-9)


@pytest.mark.parametrize("coupling", POINCARE)
def test_the_reference_table(coupling):
    law = uniform_clique(coupling)
    for k, expected in enumerate(POINCARE[coupling], 1):
        digits = 0.1 if expected > 100 else 0.01 if coupling == 0.5 else 0.001
        # The table prints 16.42 where the constant is 16.4148.
        assert chains.poincare(law, UniformSize(4, k)) == pytest.approx(expected, abs=0.55 * digits)
    assert chains.total_correlation(law, range(4)) == pytest.approx(CORRELATION[coupling], abs=5.1e-5)
    stationary = chains.stationary(chains.parallel_transition(law))
    assert torch.allclose(stationary, law.parallel_law(), atol=1e-9)
    assert chains.tv(stationary, law.probs) == pytest.approx(APART[coupling], abs=5.1e-5)


def test_lanczos_finds_what_dense_algebra_finds(monkeypatch):
    g = generator(9)
    law = Ising.of(torch.randn(7, generator=g).double(), 0.5 * torch.randn(21, generator=g).double())
    zeros = Table([[[0.5, 0.0], [0.2, 0.0]], [[0.0, 0.0], [0.1, 0.2]]])
    for world, masks in ((law, UniformSize(7, 2)), (law, UniformSubset(7)), (law, adaptive(7)), (zeros, adaptive())):
        dense = chains.poincare(world, masks)
        with monkeypatch.context() as patch:
            patch.setattr(chains, "DENSE", 1)
            assert chains.poincare(world, masks) == pytest.approx(dense, rel=1e-10)
            patch.setattr(chains, "MOST_ENTRIES", 1)
            assert chains.poincare(world, masks) == pytest.approx(dense, rel=1e-10)


def test_product_laws_and_two_spins():
    product_law = Ising.of([0.3, -0.2, 0.5, 0.1, 0.0], [0.0] * 10)
    for k in range(1, 6):
        assert chains.poincare(product_law, UniformSize(5, k)) == pytest.approx(5 / k)
    for coupling in (0.2, 0.7, 1.5):
        expected = 2 / (1 - math.tanh(coupling))
        assert expected == pytest.approx(1 + math.exp(2 * coupling))
        assert chains.poincare(uniform_clique(coupling, 2), UniformSize(2, 1)) == pytest.approx(expected)


def test_chi_square_where_nothing_is():
    """0/0 counts nothing, mass over nothing is infinite; elsewhere scipy's statistic over the number of samples."""
    law = Table([[1 / 2, 1 / 3], [1 / 6, 0.0]]).probs
    assert chains.chi_square(law, law) == 0
    assert chains.chi_square(torch.full((4,), 0.25).double(), law) == math.inf
    p, mu = Table.random(3, generator(13)).probs, Table.random(3, generator(14)).probs
    assert chains.chi_square(p, mu) == pytest.approx(float(chisquare(p.numpy(), mu.numpy(), sum_check=False).statistic))


@pytest.mark.parametrize("matrix", [chains.parallel_transition, lambda law: chains.transition(law, UniformSize(18, 1))])
def test_a_matrix_too_large_to_write_down(matrix):
    with pytest.raises(ArgumentError, match=r"law over 18 positions: a matrix of 2\^18 .* at most 8,192") as caught:
        matrix(CliqueIsing(18, 4, 0.1))
    assert "\n" not in str(caught.value)


def test_a_chain_that_never_mixes():
    law = Table([[0.5, 0.0], [0.0, 0.5]])
    assert chains.poincare(law, UniformSize(2, 1)) == math.inf
    assert chains.poincare(law, UniformSize(2, 2)) == pytest.approx(1.0)
    assert chains.poincare(Table([1.0, 0.0]), UniformSize(1, 1)) == pytest.approx(1.0)
    with pytest.raises(ArgumentError, match="reducible"):
        chains.stationary(torch.eye(3).double())


def test_the_adaptive_example_in_fractions():
    law = Table([[1 / 2, 1 / 3], [1 / 6, 0.0]])
    masks = AdaptiveBlocks(2, ((0,), (1,)), ((1 / 2, 1 / 2), (1 / 3, 2 / 3), (1 / 4, 3 / 4), (1 / 2, 1 / 2)))
    expected = [Fraction(1, 4), Fraction(1, 4), Fraction(1, 9), Fraction(2, 9), Fraction(1, 24), Fraction(1, 8), 0, 0]
    joint = law.probs[:, None] * masks.probs(law.states)
    assert joint.flatten().tolist() == pytest.approx([float(f) for f in expected])
    first = torch.tensor([[0, 0]])
    assert float(law.block_conditional(first, [1], masks)[0, 0]) == pytest.approx(9 / 17)
    assert float(law.block_conditional(first, [0], masks)[0, 0]) == pytest.approx(6 / 7)
    assert float(law.block_conditional(first, [1])[0, 0]) == pytest.approx(3 / 5)
    assert float(law.block_conditional(first, [0])[0, 0]) == pytest.approx(3 / 4)
    naive = chains.stationary(chains.transition(law, masks, naive=True))
    assert naive.tolist() == pytest.approx([6 / 13, 3 / 13, 4 / 13, 0], abs=1e-12)
    assert chains.tv(naive, law.probs) == pytest.approx(11 / 78)


def test_sites_and_the_parallel_chain():
    law = Table.random(3, generator(10), symbols=3)
    sites = chains.site_conditionals(law)
    p = chains.parallel_transition(law)
    for i in range(3):
        hidden = torch.arange(3) == i
        given = conditional_log_probs(law.log_probs, hidden, 3).exp()
        assert torch.allclose(sites[torch.arange(27), i, law.states[:, i]], given)
    x, y = 5, 19
    expected = math.prod(float(sites[x, i, law.states[y, i]]) for i in range(3))
    assert float(p[x, y]) == pytest.approx(expected)


def test_total_correlation_and_entropy_by_sums():
    law = Table.random(3, generator(11))
    p = {s: float(q) for s, q in zip(product(range(2), repeat=3), law.probs, strict=True)}

    def given(x, block):
        same = {s: q for s, q in p.items() if all(s[i] == x[i] for i in range(3) if i not in block)}
        total = sum(same.values())
        return {s: q / total for s, q in same.items()}

    def correlation(block):
        out = 0.0
        for x, q in p.items():
            rows = given(x, block)
            alone = [sum(w for s, w in rows.items() if s[i] == x[i]) for i in block]
            out += q * math.log(rows[x] / math.prod(alone))
        return out

    for block in [b for k in range(4) for b in combinations(range(3), k)]:
        assert chains.total_correlation(law, block) == pytest.approx(correlation(block), abs=1e-12)
    masks = Blocks(3, ((0, 1), (2,)), (0.3, 0.7))
    expected = 0.3 * correlation((0, 1)) + 0.7 * correlation((2,))
    assert chains.expected_total_correlation(law, masks) == pytest.approx(expected)
    entropy = -sum(q * (0.3 * math.log(given(x, (0, 1))[x]) + 0.7 * math.log(given(x, (2,))[x])) for x, q in p.items())
    assert chains.conditional_entropy(law, masks) == pytest.approx(entropy)
    picky = adaptive()
    joint = law.probs[:, None] * picky.probs(law.states)
    given_mask = torch.stack(
        [
            conditional_log_probs(law.log_probs, hidden, 2, picky.log_prob(law.states, hidden))
            for hidden in picky.family
        ],
        1,
    )
    assert chains.conditional_entropy(law, picky) == pytest.approx(-float((joint * given_mask).sum()))
    with pytest.raises(ArgumentError, match="do not depend on x"):
        chains.expected_total_correlation(law, picky)


def test_two_spins_from_the_table():
    found = [chains.total_correlation(uniform_clique(j, 2), (0, 1)) for j in (0.2, 0.5, 1.0, 2.0)]
    assert found == pytest.approx([0.0196, 0.1109, 0.3278, 0.6031], abs=5.1e-5)


def test_distances():
    p, q = torch.tensor([0.5, 0.5, 0.0]).double(), torch.tensor([0.25, 0.5, 0.25]).double()
    assert chains.tv(p, q) == pytest.approx(0.25)
    assert chains.chi_square(p, q) == pytest.approx(0.25**2 / 0.25 + 0.25**2 / 0.25)
    assert float(chains.kl(p, q)) == pytest.approx(0.5 * math.log(2))
    assert float(chains.kl(q, p)) == math.inf


def test_a_mask_law_of_another_length_is_refused():
    for function in (chains.poincare, chains.transition, chains.conditional_entropy, chains.expected_total_correlation):
        with pytest.raises(ArgumentError, match="masks over 3 positions: the law has 4"):
            function(CliqueIsing(4, 2, 0.3), UniformSize(3, 1))
    with pytest.raises(ArgumentError, match="block=4"):
        chains.total_correlation(CliqueIsing(4, 2, 0.3), (4,))
