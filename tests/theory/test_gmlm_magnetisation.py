"""Lumped chains of a clique: against the whole transition matrix, the printed table, and themselves at any size."""

import math

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import chains, magnetisation
from sandtable.worlds import CliqueIsing, UniformSize

SMALL = [
    CliqueIsing(6, 4, 0.3, 0.15),
    CliqueIsing(5, 2, 0.8, (0.2, 0.2, -0.5, 0.1, 0.0)),
    CliqueIsing(5, 5, 0.25, -0.1),
    CliqueIsing(4, 3, 1.5, (0.0, 0.0, 0.0, 1.0)),
]
WORLDS = pytest.mark.parametrize("world", SMALL, ids=str)


def lumped(world, matrix):
    """Rows of a transition matrix summed over states with as many clique spins up; equal within a class."""
    up = world.states[:, : world.clique].sum(1)
    into = torch.nn.functional.one_hot(up, world.clique + 1).double()
    rows = matrix @ into
    for u in range(world.clique + 1):
        assert float(rows[up == u].std(0, correction=0).max()) < 1e-12
    return torch.stack([rows[up == u][0] for u in range(world.clique + 1)]).numpy()


@WORLDS
def test_k_gibbs_is_the_lumped_matrix(world):
    for k in range(1, world.size + 1):
        expected = lumped(world, chains.transition(world, UniformSize(world.size, k)))
        chain = magnetisation.k_gibbs_chain(world, k=k)
        np.testing.assert_allclose(chain.transition, expected, atol=1e-13)
        np.testing.assert_allclose(chain.stationary @ chain.transition, chain.stationary, atol=1e-13)


@WORLDS
def test_parallel_is_the_lumped_matrix(world):
    matrix = chains.parallel_transition(world)
    chain = magnetisation.parallel_chain(world)
    np.testing.assert_allclose(chain.transition, lumped(world, matrix), atol=1e-13)
    up = world.states[:, : world.clique].sum(1)
    kept = torch.bincount(up, weights=chains.stationary(matrix), minlength=world.clique + 1)
    np.testing.assert_allclose(chain.stationary, kept.numpy(), atol=1e-10)


@WORLDS
def test_the_law_of_the_magnetisation(world):
    up = world.states[:, : world.clique].sum(1)
    expected = torch.bincount(up, weights=world.probs, minlength=world.clique + 1).numpy()
    np.testing.assert_allclose(magnetisation.clique_law(world), expected, atol=1e-14)
    np.testing.assert_allclose(magnetisation.clique_law(world), world.log_up.softmax(0).numpy(), atol=1e-14)


@WORLDS
def test_hitting_times_step_by_step(world):
    c, budget = world.clique, 37
    chain = magnetisation.k_gibbs_chain(world, k=2)
    for start in range(c + 1):
        at, expected, escaped = np.eye(c + 1)[start], 0.0, 0.0
        for t in range(budget + 1):
            hit = at[c]
            if t < budget:
                expected += at[:c].sum()
            at = np.append(at[:c], 0.0) @ chain.transition if t < budget else at
            escaped += hit
        assert chain.expected_hitting(budget, start=start) == pytest.approx(expected, rel=1e-10, abs=1e-12)
        assert chain.hit_probability(budget, start=start) == pytest.approx(escaped, rel=1e-10)
        np.testing.assert_allclose(
            chain.after(5, start=start), np.linalg.matrix_power(chain.transition, 5)[start], atol=1e-14
        )


def test_escape_step_by_step():
    chain = magnetisation.parallel_chain(CliqueIsing(7, 7, 0.2, 0.05))
    m = 2 * np.arange(8) - 7
    for start in (0, 2, 5):
        at, escaped = np.eye(8)[start], 0.0
        for t in range(12):
            escaped += at[m > -2].sum()
            at = np.where(m > -2, 0.0, at)
            at = at @ chain.transition if t < 11 else at
        assert chain.escape_probability(11, start=start) == pytest.approx(escaped, rel=1e-12)
        assert chain.survival(11, start=start) == pytest.approx(1 - escaped)


# min(τ, 1000) from all spins down; N = 10, c = 4, h = 5: k = 1 … 10, then the parallel sampler.
PRINTED = {
    1: [20.9, 10.1, 6.5, 4.7, 3.6, 2.9, 2.3, 1.9, 1.4, 1.0, 1.1],
    2.5: [447, 22.3, 10.1, 6.2, 4.3, 3.2, 2.4, 1.9, 1.4, 1.0, 39.7],
    3: [954, 382, 29.5, 10.4, 5.6, 3.6, 2.6, 1.9, 1.4, 1.0, 552],
    4: [1000, 999, 33.4, 10.8, 5.6, 3.6, 2.6, 1.9, 1.4, 1.0, 998],
    5: [1000, 1000, 64.2, 19.0, 9.0, 5.2, 3.4, 2.3, 1.5, 1.0, 1000],
    6: [1000, 1000, 961, 198, 41.1, 13.9, 6.0, 3.0, 1.7, 1.0, 1000],
    8: [1000, 1000, 1000, 208, 42.0, 14.0, 6.0, 3.0, 1.7, 1.0, 1000],
    20: [1000, 1000, 1000, 208, 42.0, 14.0, 6.0, 3.0, 1.7, 1.0, 1000],
}


@pytest.mark.parametrize("coupling", PRINTED)
def test_the_printed_hitting_times(coupling):
    world = CliqueIsing(10, 4, float(coupling), 5.0)
    found = [magnetisation.k_gibbs_chain(world, k=k).expected_hitting(1000) for k in range(1, 11)]
    found.append(magnetisation.parallel_chain(world).expected_hitting(1000))
    # Half a unit of the last printed digit; 954 is printed where 953.46 is right.
    slack = [0.55 if value > 99 else 0.0501 for value in PRINTED[coupling]]
    for value, printed, allowed in zip(found, PRINTED[coupling], slack, strict=True):
        assert abs(value - printed) <= allowed


def test_chances_of_hitting():
    assert magnetisation.parallel_chain(CliqueIsing(10, 4, 4.0, 5.0)).hit_probability(1000) == pytest.approx(
        0.003, abs=5e-4
    )
    world = CliqueIsing(10, 4, 8.0, 5.0)
    for k in range(4, 11):
        chain = magnetisation.k_gibbs_chain(world, k=k)
        mean = math.comb(10, k) / math.comb(6, k - 4)  # in the limit of large J the clique moves only as one
        assert chain.reach[0] == pytest.approx(1 / mean, rel=1e-9)
        assert chain.expected_hitting(10**6) == pytest.approx(mean, rel=1e-6)
        assert chain.hit_probability(1000) >= 0.97


def test_fields_outside_the_clique_change_nothing():
    for outside in (0.0, 5.0):
        world = CliqueIsing(10, 4, 2.5, (5.0,) * 4 + (outside,) * 6)
        assert magnetisation.k_gibbs_chain(world, k=3).expected_hitting(1000) == pytest.approx(10.119, abs=1e-3)


@pytest.mark.parametrize("coupling", [1e-9, 1.0, 50.0, 1e4, 1e8])
@pytest.mark.parametrize("c", [2, 33, 200])
def test_nothing_overflows(coupling, c):
    world = CliqueIsing(c + 40, c, coupling, 0.3)
    for chain in (magnetisation.k_gibbs_chain(world, k=c + 10), magnetisation.parallel_chain(world)):
        assert np.isfinite(chain.transition).all()
        assert (chain.transition >= 0).all()
        np.testing.assert_allclose(chain.transition.sum(1), 1.0, atol=1e-10)
        assert chain.stationary.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(chain.stationary @ chain.transition, chain.stationary, atol=1e-9)
        assert 0 <= chain.hit_probability(1000) <= 1
        assert 0 <= chain.expected_hitting(1000) <= 1000


def test_very_small_chances_are_right():
    """Thirty spins leave together with probability 1e-67; a difference from one would give 0."""
    chain = magnetisation.parallel_chain(CliqueIsing(30, 30, 0.2, 0.01))
    up = 1 / (1 + math.exp(-2 * (0.01 - 0.2 * 29)))
    # From all down every spin turns up with the same chance; fourteen of them are just not enough to leave.
    leading = sum(math.comb(30, b) * up**b * (1 - up) ** (30 - b) for b in range(15, 31))
    assert 0 < leading < 1e-60
    assert chain.escape_probability(1) == pytest.approx(leading, rel=1e-9)


def test_limits_of_the_block():
    world = CliqueIsing(9, 4, 0.5, 0.1)
    np.testing.assert_allclose(magnetisation.k_gibbs_chain(world, k=0).transition, np.eye(5), atol=1e-14)
    everything = magnetisation.k_gibbs_chain(world, k=9)
    np.testing.assert_allclose(everything.transition, np.tile(everything.stationary, (5, 1)), atol=1e-14)
    assert everything.expected_hitting(0) == 0
    assert everything.expected_hitting(10, start=4) == 0
    assert everything.hit_probability(0, start=4) == 1


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="same field"):
        magnetisation.parallel_chain(CliqueIsing(4, 3, 0.5, (0.1, 0.2, 0.1, 0.0)))
    with pytest.raises(ArgumentError, match="clique=201"):
        magnetisation.k_gibbs_chain(CliqueIsing(300, 201, 0.5, 0.1), k=3)
    with pytest.raises(ArgumentError, match="k=10"):
        magnetisation.k_gibbs_chain(CliqueIsing(9, 4, 0.5, 0.1), k=10)
    chain = magnetisation.parallel_chain(CliqueIsing(4, 3, 0.5))
    with pytest.raises(ArgumentError, match="start=4"):
        chain.hit_probability(3, start=4)
    with pytest.raises(ArgumentError, match="steps=-1"):
        chain.after(-1)
