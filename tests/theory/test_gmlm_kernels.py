"""The Transformer that realises a product kernel, entry by entry; what no product kernel can do."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sandtable.arguments import ArgumentError
from sandtable.decoding import MaskedNetwork, ModelBlocks
from sandtable.theory.gmlm import chains, kernels
from sandtable.worlds import Ising, UniformSize
from sandtable.worlds.finite import all_states

SIZES = pytest.mark.parametrize(("length", "symbols"), [(1, 2), (1, 5), (2, 2), (2, 5), (3, 3), (4, 2), (5, 2), (2, 9)])


def random_table(length, symbols, seed=0, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    states = symbols**length
    return (spread * torch.randn(states, length, symbols, generator=generator, dtype=torch.float64)).softmax(-1)


def kernel_by_hand(table):
    states, length, symbols = table.shape
    rows = list(itertools.product(range(symbols), repeat=length))
    assert len(rows) == states
    entries = [[math.prod(float(p[j, y]) for j, y in enumerate(to)) for to in rows] for p in table]
    return torch.tensor(entries, dtype=torch.float64)


@SIZES
def test_every_entry_of_the_kernel(length, symbols):
    table = random_table(length, symbols)
    model = kernels.product_kernel(table)
    step = model(all_states(symbols, length)).softmax(-1)
    assert step.dtype == torch.float64
    torch.testing.assert_close(step, table, atol=1e-13, rtol=1e-12)
    found = kernels.kernel_of(model, length=length, symbols=symbols)
    torch.testing.assert_close(found, kernel_by_hand(table), atol=1e-12, rtol=0)


def test_probabilities_next_to_zero():
    table = random_table(3, 2, spread=40.0)
    assert float(table.min()) < 1e-30
    found = kernels.product_kernel(table)(all_states(2, 3)).log_softmax(-1)
    torch.testing.assert_close(found, table.log(), atol=1e-12, rtol=1e-12)


def test_it_is_the_model_that_was_promised():
    """Two blocks, one head, no norm; hidden widths N|Ω| and N|Ω|^N; attention is uniform."""
    model = kernels.product_kernel(random_table(3, 3))
    assert [block.mlp.config["hidden"] for block in model.layers] == [9, 81]
    assert model.width == 2 * 3 + 3 + 2 * 9
    assert all(block.ln1 is None and block.ln2 is None for block in model.layers)
    _, found = model(all_states(3, 3), want=("blocks.1.attn.hook_pattern",))
    torch.testing.assert_close(
        found["blocks.1.attn.hook_pattern"], torch.full((27, 1, 3, 3), 1 / 3, dtype=torch.float64)
    )


def test_any_map_by_taking_the_likeliest():
    """f: Ω^N → Ω^N iterated: argmax of a kernel that favours f(τ)."""
    states = all_states(3, 3)
    image = torch.randint(27, (27,), generator=torch.Generator().manual_seed(1))
    table = torch.nn.functional.one_hot(states[image], 3).double() * 0.7 + 0.1
    model = kernels.product_kernel(table)
    x, code = states, torch.arange(27)
    for _ in range(4):
        x, code = model(x).argmax(-1), image[code]
        assert torch.equal(x, states[code])


def test_gibbs_at_a_given_position_is_a_product_and_keeps_its_law():
    """A product step does not make the law it keeps a product (T15 c); with the position left to chance it is none."""
    law = Ising((0.0, 0.0), ((0.0, 0.7), (0.7, 0.0)))
    at_first = chains.transition(law, UniformSize(2, 1))
    torch.testing.assert_close(law.probs @ at_first, law.probs)
    single = torch.zeros(4, 2, 2, dtype=torch.float64)
    single[:, 0] = chains.site_conditionals(law)[:, 0]
    single[:, 1] = torch.nn.functional.one_hot(law.states[:, 1], 2).double() * (1 - 2e-300) + 1e-300
    found = kernels.kernel_of(kernels.product_kernel(single), length=2, symbols=2)
    torch.testing.assert_close(law.probs @ found, law.probs, atol=1e-12, rtol=0)
    marginals = [at_first.view(4, 2, 2).sum(2 - i) for i in range(2)]
    products = (marginals[0][:, :, None] * marginals[1][:, None]).view(4, 4)
    distance = (at_first - products).abs().sum(1) / 2
    # From two spins alike the printed 0.0196; from two that differ far more.
    np.testing.assert_allclose(distance, [0.0196, 0.3217, 0.3217, 0.0196], atol=5e-5)


PAIRS = {0.2: (0.0196, 0.0942), 0.5: (0.1109, 0.2092), 1.0: (0.3278, 0.3273), 2.0: (0.6031, 0.4014)}


@pytest.mark.parametrize("coupling", [*PAIRS, -0.5, 0.0])
def test_two_spins(coupling):
    law = Ising((0.0, 0.0), ((0.0, coupling), (coupling, 0.0)))
    p = law.probs.numpy()

    def product(v):
        return np.outer([1 - v[0], v[0]], [1 - v[1], v[1]]).ravel()

    def best(distance):
        starts = itertools.product((0.3, 0.5, 0.7), repeat=2)
        options = dict(xatol=1e-10, fatol=1e-13, maxiter=3000)
        runs = [
            minimize(distance, s, method="Nelder-Mead", bounds=[(1e-9, 1 - 1e-9)] * 2, options=options) for s in starts
        ]
        return min(run.fun for run in runs)

    nearest = best(lambda v: float(np.sum(p * np.log(p / product(v)))))
    assert kernels.two_spin_correlation(coupling) == pytest.approx(nearest, abs=1e-9)
    assert kernels.two_spin_correlation(coupling) == pytest.approx(chains.total_correlation(law, (0, 1)), abs=1e-12)
    assert kernels.two_spin_distance(coupling) == pytest.approx(best(lambda v: abs(p - product(v)).sum() / 2), abs=1e-6)
    if coupling in PAIRS:
        found = kernels.two_spin_correlation(coupling), kernels.two_spin_distance(coupling)
        assert found == pytest.approx(PAIRS[coupling], abs=5.1e-5)


def test_limits_of_two_spins():
    assert kernels.two_spin_correlation(50.0) == pytest.approx(math.log(2))
    assert kernels.two_spin_distance(50.0) == pytest.approx(math.sqrt(2) - 1)


def test_the_model_decodes_in_parallel():
    """As a model of hidden positions all of which are drawn at once, it does the kernel's step."""
    table = random_table(2, 3, seed=4)
    network = kernels.product_kernel(table)
    generator = torch.Generator().manual_seed(0)
    state = torch.tensor([[1, 2]])
    logits = network(state.expand(20_000, -1))
    law = kernels.kernel_of(network, length=2, symbols=3)[5]
    drawn = torch.multinomial(logits.flatten(0, 1).softmax(-1), 1, generator=generator).view(-1, 2)
    counts = torch.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=9).double()
    assert float((counts / 20_000 - law).abs().sum()) / 2 < 0.02


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.full((4, 2), 0.5), "state × position × symbol"),
        (torch.full((3, 2, 2), 0.5), "one for each of 2\\^2"),
        (torch.full((4, 2, 2), 0.6), "sum to 1"),
        (torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]), "must be positive"),
        (torch.full((2**14, 14, 2), 0.5), "hidden units"),
    ],
)
def test_what_is_refused(table, message):
    with pytest.raises(ArgumentError, match=message):
        kernels.product_kernel(table)


def test_a_masked_network_needs_no_mask_of_its_own():
    sampler = ModelBlocks(
        MaskedNetwork(kernels.product_kernel(random_table(2, 3)), mask=2, vocab_size=2),
        UniformSize(2, 2),
        within="independent",
    )
    x = sampler(torch.zeros(500, 2, dtype=torch.long), torch.Generator().manual_seed(0))
    assert set(x.unique().tolist()) <= {0, 1}
