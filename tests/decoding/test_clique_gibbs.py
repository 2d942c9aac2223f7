"""k-Gibbs on cliques by magnetisation: against the enumerated matrix, the generic sampler and the lumped chain."""

import math

import pytest
import torch
from exact_chains import assert_follows, assert_reaches, assert_steps, generator

from sandtable.arguments import ArgumentError
from sandtable.decoding import BlockDynamics, CliqueGibbs, MatrixChain, k_gibbs, run_chains
from sandtable.theory.gmlm import chains, magnetisation
from sandtable.worlds import CliqueIsing, UniformSize

EVEN = CliqueIsing(6, 4, 0.35, (0.1, 0.1, 0.1, 0.1, 0.6, -0.3))
UNEVEN = CliqueIsing(6, 4, 0.35, (0.5, -0.7, 0.0, 1.1, 0.6, -0.3))
WORLDS = pytest.mark.parametrize("world", [EVEN, UNEVEN, CliqueIsing(4, 4, 0.2, (0.3, 0.0, -0.4, 0.2))], ids=str)


@WORLDS
@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
def test_a_step(world, k):
    k = min(k, world.size)
    matrix = chains.transition(world, UniformSize(world.size, k))
    assert_steps(CliqueGibbs(world, k=k), world.states, world.codes, matrix, draws=1500)


@WORLDS
def test_the_long_run(world):
    assert_reaches(CliqueGibbs(world, k=2), world.states[0], world.codes, world.probs, steps=80)


@WORLDS
def test_fast_and_generic_path_agree(world):
    start = world.states[3].expand(30_000, -1)
    counts = []
    for sampler in (CliqueGibbs(world, k=3), BlockDynamics(world, UniformSize(world.size, 3))):
        x = run_chains(sampler, start, steps=2, generator=generator(8)).x
        counts.append(torch.bincount(world.codes(x), minlength=len(world.probs)).double())
    assert_follows(torch.stack(counts), torch.linalg.matrix_power(_matrix(world), 2)[3].expand(2, -1))


def _matrix(world):
    return chains.transition(world, UniformSize(world.size, 3))


@pytest.mark.parametrize("k", [8, 32, 48, 64])
def test_a_large_clique_against_its_lumped_chain(k):
    world = CliqueIsing(64, 32, 0.05, (0.02,) * 32 + (0.7,) * 32)
    lumped = magnetisation.k_gibbs_chain(world, k=k)
    for up, steps in ((0, 1), (16, 1), (32, 4)):
        start = (torch.arange(64) < up).long().expand(20_000, -1)
        x = run_chains(CliqueGibbs(world, k=k), start, steps=steps, generator=generator(up)).x
        law = torch.tensor(lumped.after(steps, start=up))[None]
        assert_follows(torch.bincount(x[:, :32].sum(1), minlength=33).double()[None], law)
        # Which of the clique are up is left to chance, and the rest is drawn where the block holds it.
        share, held = x[:, 32:].double().mean(0), 1 - (1 - k / 64) ** steps
        assert float((share - held / (1 + math.exp(-1.4))).abs().max()) < 0.02
        if up == 0:
            assert float(x[:, :32].double().mean(0).std()) < 0.01


def test_extreme_couplings_neither_overflow_nor_move_a_mode():
    for field in (0.1, tuple(0.01 * i for i in range(40))):
        world = CliqueIsing(40, 30, 500.0, field)
        up, down = torch.ones(200, 40, dtype=torch.long), torch.zeros(200, 40, dtype=torch.long)
        for start in (up, down):
            x = run_chains(CliqueGibbs(world, k=20), start, steps=5, generator=generator()).x
            assert torch.equal(x[:, :30], start[:, :30])
        x = CliqueGibbs(world, k=40)(down.repeat(10, 1), generator())
        assert set(x[:, :30].sum(1).tolist()) <= {0, 30}


@pytest.mark.parametrize("c", [40, 120])
def test_laws_listed_or_not(c):
    """The same states whether the laws of all blocks are written down or one for every chain."""
    world = CliqueIsing(c + 5, c, 0.02, 0.01)
    start = (torch.arange(c + 5) % 3 == 0).long().expand(20_000, -1)
    x = CliqueGibbs(world, k=c // 2)(start, generator())
    law = magnetisation.k_gibbs_chain(world, k=c // 2).after(1, start=int(start[0, :c].sum()))
    assert_follows(torch.bincount(x[:, :c].sum(1), minlength=c + 1).double()[None], torch.tensor(law)[None])


def test_the_lumped_chain_is_a_chain_too():
    world = CliqueIsing(64, 32, 0.05, 0.02)
    lumped = magnetisation.k_gibbs_chain(world, k=40)
    sampler = MatrixChain(lumped.transition)
    found = run_chains(
        sampler,
        torch.full((20_000, 1), 3),
        steps=3,
        generator=generator(),
        until=lambda x: x[:, 0] == 32,
        stop=False,
    )
    counts = torch.bincount(found.x[:, 0], minlength=33).double()
    assert_follows(counts[None], torch.tensor(lumped.after(3, start=3))[None])
    hit = float((found.hits >= 0).double().mean())
    assert hit == pytest.approx(lumped.hit_probability(3, start=3), abs=0.02)
    for bad, message in ((torch.tensor([[33]]), "from 0 to 32"), (torch.tensor([[0, 1]]), "one number a chain")):
        with pytest.raises(ArgumentError, match=message):
            sampler(bad, generator())
    with pytest.raises(ArgumentError, match="must be square"):
        MatrixChain(torch.ones(2, 3))
    with pytest.raises(ArgumentError, match="sum to 1"):
        MatrixChain(torch.ones(2, 2))


def test_states_keep_their_type():
    x = torch.zeros(5, 6, dtype=torch.uint8)
    assert CliqueGibbs(EVEN, k=3)(x, generator()).dtype == torch.uint8


def test_choice_of_path_and_bad_input():
    assert isinstance(k_gibbs(EVEN, 3), CliqueGibbs)
    assert not isinstance(k_gibbs(EVEN.ising(), 3), CliqueGibbs)
    with pytest.raises(ArgumentError, match="k=7: must be a whole number from 1 to 6"):
        CliqueGibbs(EVEN, k=7)
    with pytest.raises(ArgumentError, match="x holds 2"):
        k_gibbs(EVEN, 2)(torch.full((1, 6), 2), generator())
    with pytest.raises(ArgumentError, match="6 to a state"):
        k_gibbs(EVEN, 2)(torch.zeros(1, 5, dtype=torch.long), generator())
