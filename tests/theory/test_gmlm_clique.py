"""Bounds on cliques: against enumeration, against exact chains, and against the printed numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.theory.gmlm import chains, clique, magnetisation
from sandtable.worlds import CliqueIsing, UniformSize


def random_strong(seed, size=None):
    """A random clique that the theorems speak of, and its J₀."""
    rng = np.random.default_rng(seed)
    size = size or int(rng.integers(3, 9))
    world = clique.random_strong(size, int(rng.integers(2, size + 1)), torch.Generator().manual_seed(seed))
    return world, world.coupling - float(world.h.abs().sum())


@pytest.mark.parametrize("seed", range(25))
def test_modes_state_by_state(seed):
    world, j0 = random_strong(seed)
    found = clique.ferromagnet(world)
    assert found.strong
    assert found.slack == pytest.approx(j0)
    p = {tuple(x): float(q) for x, q in zip(world.states.tolist(), world.probs, strict=True)}
    c = world.clique
    up = {x: q for x, q in p.items() if sum(x[:c]) == c}
    down = {x: q for x, q in p.items() if sum(x[:c]) == 0}
    rest = {x: q for x, q in p.items() if 0 < sum(x[:c]) < c}
    ratios = clique.mode_ratios(world)
    for x, q in up.items():
        assert math.log(q / p[(0,) * c + x[c:]]) == pytest.approx(2 * float(world.h[:c].sum()))
    np.testing.assert_allclose(ratios.flip, clique.flip_ratio(world))
    assert ratios.up_over_down == pytest.approx(math.log(min(up.values()) / max(down.values())))
    assert ratios.down_over_rest == pytest.approx(math.log(min(down.values()) / max(rest.values())))
    assert ratios.up_over_down == pytest.approx(2 * (found.clique_field - found.outside_field))
    assert ratios.down_over_rest >= clique.rest_ratio(world) - 1e-9
    assert clique.rest_ratio(world) >= 2 * j0 - 1e-9


def test_the_bound_between_modes_and_the_rest_is_met():
    """c = 2, h = (a, 0), J = J₀ + a: the state (+, −) is just e^{−2J₀} times as likely as (−, −)."""
    world = CliqueIsing(2, 2, 0.3 + 0.7, (0.7, 0.0))
    assert clique.mode_ratios(world).down_over_rest == pytest.approx(2 * 0.3, abs=1e-12)
    assert clique.strongly_ferromagnetic(world, j0=0.3 - 1e-12)
    assert not clique.strongly_ferromagnetic(world, j0=0.31)


@pytest.mark.parametrize("seed", range(25))
def test_one_step_reaches_the_mode(seed):
    """From every state, by the whole transition matrix; the joint route by the two laws it is made of."""
    world, _ = random_strong(seed, size=6)
    up = world.mode(world.states) == 1
    for k in range(world.clique, 7):
        step = chains.transition(world, UniformSize(6, k))[:, up].sum(1)
        bound = clique.reach_bound(world, k=k)
        assert bound == pytest.approx(clique.reach_enumerated(world, k=k), rel=1e-12)
        held = UniformSize(6, k).family[:, : world.clique].all(1).double().mean()
        assert clique.joint_reach(world, k=k) == pytest.approx(float(held) * float(world.probs[up].sum()), rel=1e-12)
        assert bound <= clique.joint_reach(world, k=k) <= float(step.min()) + 1e-12


QUOTED = [((6, 3, 0.2, 0.1, 5), (0.1798, 0.3321)), ((8, 2, 0.3, 0.2, 7), (0.4399, 0.4925))]


@pytest.mark.parametrize(("instance", "numbers"), QUOTED)
def test_quoted_chances_of_reaching_the_mode(instance, numbers):
    size, c, field, j0, k = instance
    world = clique.with_slack(size, c, field=field, j0=j0)
    assert clique.reach_bound(world, k=k) == pytest.approx(numbers[0], abs=5e-5)
    assert clique.joint_reach(world, k=k) == pytest.approx(numbers[1], abs=5e-5)


def test_printed_denominators():
    world = clique.with_slack(6, 3, field=0.2, j0=0.1)
    j0, top = 0.1, 2 * (0.1 + 0.6)
    for name, rest in (
        ("counted", math.exp(2 * j0) + 6),
        ("fused", math.exp(2 * j0 + 4)),
        ("twice", math.exp(2 * j0) + 4),
    ):
        expected = 0.5 * math.exp(top) / (math.exp(top) + rest)
        assert clique.reach_bound(world, k=5, denominator=name) == pytest.approx(expected, rel=1e-12)
    assert clique.reach_bound(world, k=5, denominator="fused") == pytest.approx(0.0287, abs=5e-5)
    # With 2c − 2 in place of 2^c − 2 the "bound" exceeds what it should bound.
    weak = clique.with_slack(6, 3, field=0.005, j0=0.01)
    exact = clique.joint_reach(weak, k=6)
    assert clique.reach_bound(weak, k=6) <= exact < clique.reach_bound(weak, k=6, denominator="twice")


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_enough_steps_for_the_mode(delta):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        size, c = 8, int(rng.integers(2, 6))
        world = clique.with_slack(size, c, field=float(rng.exponential(0.2)), j0=float(rng.exponential(0.2)) + 0.01)
        for k in range(c, size + 1):
            steps = clique.reach_steps(world, k=k, delta=delta)
            chain = magnetisation.k_gibbs_chain(world, k=k)
            worst = min(chain.hit_probability(steps, start=u) for u in range(c + 1))
            assert worst >= 1 - delta
            miss = 1 - clique.reach_bound(world, k=k)
            assert miss**steps <= delta * (1 + 1e-9)
            assert steps == 1 or miss ** (steps - 1) > delta


def test_how_tight_enough_steps_are():
    """In strong cliques nothing but a joint step reaches the mode: 0.9500 of a promised 0.95 (quoted: 0.9501)."""
    tightest = 1.0
    for size, c in ((7, 3), (9, 4), (10, 3)):
        world = clique.with_slack(size, c, field=2.0, j0=12.0)
        steps = clique.reach_steps(world, k=c, delta=0.05)
        worst = magnetisation.k_gibbs_chain(world, k=c).hit_probability(steps)
        alone = 1 - (1 - 1 / math.comb(size, c)) ** steps
        assert 0.95 <= worst == pytest.approx(alone, abs=1e-6)
        tightest = min(tightest, worst)
    assert tightest == pytest.approx(0.9501, abs=1.1e-4)


@pytest.mark.parametrize(("c", "field", "j0", "leaves"), [(12, 0.05, 0.8, 4.36e-7), (30, 0.02, 1.5, 1.017e-26)])
def test_quoted_survivals_of_the_parallel_sampler(c, field, j0, leaves):
    """1 − 4.4e-7 and 1 − 1e-26 from the highest start that is held (quoted: 0.9999996, more than 1 − 1e-12)."""
    chain = magnetisation.parallel_chain(clique.with_slack(c, c, field=field, j0=j0))
    steps = clique.stuck_steps(c, j0, delta=0.5)
    assert chain.escape_probability(steps, start=c // 2 - 1) == pytest.approx(leaves, rel=5e-4)
    if c == 12:
        world = clique.with_slack(c, c, field=field, j0=j0)
        low = (world.states.sum(1) == 5).nonzero()[0, 0]
        up = chains.site_conditionals(world)[low, :, 1].tolist()
        law = np.ones(1)
        for q in up:  # how many of twelve independent spins are up
            law = np.convolve(law, [1 - q, q])
        assert law[6:].sum() == pytest.approx(leaves, rel=5e-4)


@pytest.mark.parametrize(
    ("c", "field", "j0", "exponent", "steps"), [(30, 0.02, 1.5, 10.546, 9504), (12, 0.05, 0.8, 1.4843, 1)]
)
def test_the_parallel_sampler_is_stuck(c, field, j0, exponent, steps):
    world = clique.with_slack(c, c, field=field, j0=j0)
    assert clique.stuck_exponent(c, j0) == pytest.approx(exponent, abs=5e-4)
    assert clique.stuck_steps(c, j0, delta=0.5) == steps
    chain = magnetisation.parallel_chain(world)
    for start in range((c - 2) // 2 + 1):
        assert chain.escape_probability(1, start=start) <= math.exp(-exponent)
        assert chain.escape_probability(steps, start=start) <= 0.25


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 40), st.floats(0.05, 3), st.floats(0.001, 0.5))
def test_what_one_parallel_step_may_do(c, j0, field):
    world = clique.with_slack(c, c, field=field / c, j0=j0)
    chain = magnetisation.parallel_chain(world)
    if math.tanh(j0) * c > 2:
        worst = max(chain.escape_probability(1, start=u) for u in range((c - 2) // 2 + 1))
        assert worst <= math.exp(-clique.stuck_exponent(c, j0)) + 1e-15
    else:
        with pytest.raises(ArgumentError, match="must be > 2"):
            clique.stuck_exponent(c, j0)


def test_no_spin_turns_up_more_often_than_its_bound():
    for seed in range(10):
        world, j0 = random_strong(seed)
        c = world.clique
        low = world.states[world.states[:, :c].sum(1) * 2 - c <= -2]
        up = chains.site_conditionals(world)[world.codes(low)][:, :c, 1]
        assert float(up.max()) <= clique.turn_up_bound(j0) + 1e-12
    assert clique.turn_up_bound(0.5) == pytest.approx(math.exp(-1) / (1 + math.exp(-1)))
    assert clique.turn_up_bound(1e6) >= 0


def test_without_its_precondition_the_bound_fails():
    """Two spins hardly coupled: the formula promises one step at δ = 0.74, the chain leaves with probability 3/4."""
    j0, delta = 1e-3, 0.74
    assert clique.stuck_steps(2, j0, delta=delta, precondition=False) == 1
    chain = magnetisation.parallel_chain(clique.with_slack(2, 2, field=1e-4, j0=j0))
    assert chain.survival(1) < 1 - delta
    with pytest.raises(ArgumentError, match="tanh"):
        clique.stuck_steps(2, j0, delta=delta)


TABLE = [
    (0.5, 1, 25, 1.320, 8.66, 0.9333, 0.75),
    (0.2, 10, 51, 1.819, 17.68, 0.9744, 0.90),
    (0.1, 100, 75, 2.178, 25.99, 0.9873, 0.95),
    (0.1, 1000, 93, 2.178, 32.23, 0.9873, 0.95),
]


@pytest.mark.parametrize("row", TABLE)
def test_the_table_of_separations(row):
    delta, steps, c, field, j0, reached, needed = row
    least = clique.strong_interaction(delta, steps)
    assert least.clique == c
    assert least.field == pytest.approx(field, abs=5e-4)
    assert least.j0 == pytest.approx(j0, abs=5e-3)
    world = clique.separating(delta, steps)
    assert clique.strongly_ferromagnetic(world, j0=least.j0)
    assert world.clique_field >= least.field
    assert clique.joint_reach(world, k=c) == pytest.approx(reached, abs=5e-5)
    assert needed == pytest.approx(1 - delta / 2)
    assert clique.reach_bound(world, k=c) >= needed
    assert clique.stuck_steps(c, least.j0, delta=delta) >= steps
    chain = magnetisation.parallel_chain(world)
    assert chain.escape_probability(steps, start=(c - 2) // 2) <= delta / 2


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_the_steps_of_the_proof_of_separation(delta, steps):
    least = clique.strong_interaction(delta, steps)
    world = clique.separating(delta, steps)
    c = least.clique
    assert clique.reach_bound(world, k=c) >= (4 - delta) / 4  # the block is everything
    assert clique.stuck_exponent(c, least.j0) >= c / 8 - 1 >= math.log(4 * steps / delta)
    for size in (c, 2 * c, 40 * c):
        k = clique.large_block(size, c, delta)
        assert clique.holds_clique(size, c, k) >= (4 - 2 * delta) / (4 - delta) - 1e-12
        assert k == c or k >= size - delta * (size + 1) / ((4 - delta) * c + delta) - 1e-9
        assert clique.holds_clique(size, c, k) * clique.reach_bound(world, k=c) >= 1 - delta / 2


def test_smaller_blocks_need_many_positions():
    assert clique.large_block(250, 25, 0.5) == 249
    assert clique.joint_reach(clique.separating(0.5, 1, size=250), k=249) == pytest.approx(0.84, abs=5e-5)
    assert clique.large_block(25, 25, 0.5) == 25
    assert clique.holds_clique(10, 4, 3) == 0
    assert clique.holds_clique(10, 4, 6) == pytest.approx(math.comb(6, 2) / math.comb(10, 6))
    assert clique.holds_clique(2000, 150, 1990) == pytest.approx(math.exp(_log_hypergeometric(2000, 150, 1990)))


def _log_hypergeometric(n, c, k):
    log_choose = lambda a, b: math.lgamma(a + 1) - math.lgamma(b + 1) - math.lgamma(a - b + 1)  # noqa: E731
    return log_choose(n - c, k - c) - log_choose(n, k)


def test_bounds_at_extreme_couplings():
    world = clique.with_slack(60, 60, field=1.0, j0=1e4)
    assert clique.reach_bound(world, k=60) == pytest.approx(1.0)
    fused = clique.reach_bound(world, k=60, denominator="fused")  # J₀ cancels: σ(2h_G − 2c + 2)
    assert fused == pytest.approx(1 / (1 + math.exp(-2)), rel=1e-9)
    assert clique.reach_steps(world, k=60, delta=0.01) == 1
    with pytest.raises(ArgumentError, match="too many to count"):
        clique.stuck_steps(10**6, 10.0, delta=0.5)


def test_fields_outside_do_not_matter_to_the_joint_route():
    for outside in (0.0, 0.01):
        world = clique.with_slack(7, 3, field=(0.4, 0.1, 0.3), j0=0.2, outside=outside)
        assert world.slack == pytest.approx(0.2)
        assert float(world.probs[world.mode(world.states) == 1].sum()) == pytest.approx(
            clique.joint_reach(world, k=7), rel=1e-12
        )


def test_what_is_refused():
    strong = clique.with_slack(6, 3, field=0.2, j0=0.1)
    for call, message in (
        (lambda: clique.reach_bound(strong, k=2), "k=2: must be a whole number from 3 to 6"),
        (lambda: clique.reach_bound(strong, k=7), "k=7"),
        (lambda: clique.reach_bound(CliqueIsing(6, 3, 0.1, 0.2), k=6), "clique's field 0.6 must exceed"),
        (lambda: clique.reach_bound(CliqueIsing(4, 4, 0.1, 0.2), k=4), "coupling=0.1 must exceed"),
        (lambda: clique.reach_bound(strong, k=5, denominator="fussed"), "did you mean 'fused'"),
        (lambda: clique.strong_interaction(1.0, 3), "delta=1.0"),
        (lambda: clique.strong_interaction(0.5, 0), "steps=0"),
        (lambda: clique.separating(0.5, 1, size=24), "size=24"),
        (lambda: clique.large_block(5, 6, 0.5), "clique=6"),
        (lambda: clique.stuck_exponent(2, 5.0), "must be > 2"),
        (lambda: clique.with_slack(4, 3, field=0.1, j0=0.0), "j0=0.0"),
    ):
        with pytest.raises(ArgumentError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_two_spins_are_never_held_by_the_theorem():
    for j0 in (0.1, 1.0, 50.0):
        with pytest.raises(ArgumentError):
            clique.stuck_exponent(2, j0)


def test_states_of_the_enumeration_are_in_order():
    world, _ = random_strong(3)
    assert torch.equal(world.codes(world.states), torch.arange(len(world.states)))
