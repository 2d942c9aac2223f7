"""Samplers of blocks: every step against the row of its transition matrix, long runs against the law they keep."""

import itertools
import math

import pytest
import torch
from exact_chains import THREE, THREE_MASKS, assert_reaches, assert_steps, generator, random_adaptive, random_ising

from sandtable.arguments import ArgumentError
from sandtable.decoding import (
    BlockDynamics,
    ExactConditional,
    MaskedNetwork,
    ModelBlocks,
    Parallel,
    Truncation,
    block_dynamics,
    k_gibbs,
    run_chains,
)
from sandtable.models import Transformer
from sandtable.theory.gmlm import chains
from sandtable.worlds import Blocks, CliqueIsing, Ising, Table, UniformSize, UniformSubset

TERNARY = Table.random(3, generator(5), symbols=3)
PAIRS = Blocks(3, ((0, 2), (1,), (0, 1)), (0.5, 0.3, 0.2))
LOOKS = random_adaptive(3, [(0,), (1, 2), (0, 2)], seed=4)
CASES = {
    "weighted blocks": (TERNARY, PAIRS, False),
    "k of n": (random_ising(4), UniformSize(4, 2), False),
    "any subset": (random_ising(3, seed=1), UniformSubset(3), False),
    "everything": (random_ising(3, seed=2), UniformSize(3, 3), False),
    "adaptive": (random_ising(3, seed=3), LOOKS, False),
    "adaptive, naive": (random_ising(3, seed=3), LOOKS, True),
    "three states": (THREE, THREE_MASKS, False),
    "three states, naive": (THREE, THREE_MASKS, True),
}


def supported(law):
    """States of positive probability."""
    return law.states[law.probs > 0]


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_block_dynamics(name):
    law, masks, naive = CASES[name]
    matrix = chains.transition(law, masks, naive=naive)[law.probs > 0]
    assert_steps(BlockDynamics(law, masks, naive=naive), supported(law), law.codes, matrix)


@pytest.mark.parametrize("name", CASES)
def test_block_dynamics_in_the_long_run(name):
    law, masks, naive = CASES[name]
    alive = law.probs > 0
    kept = torch.zeros_like(law.probs)
    kept[alive] = chains.stationary(chains.transition(law, masks, naive=naive)[alive][:, alive])
    if not naive:
        torch.testing.assert_close(kept, law.probs, atol=1e-10, rtol=0)
    assert_reaches(BlockDynamics(law, masks, naive=naive), supported(law)[-1], law.codes, kept, steps=60)


def test_what_forgetting_the_mask_keeps():
    sampler = BlockDynamics(THREE, THREE_MASKS, naive=True)
    printed = torch.tensor([6, 3, 4, 0], dtype=torch.float64) / 13
    assert_reaches(sampler, THREE.states[0], THREE.codes, printed, steps=60, chains=40_000)


@pytest.mark.parametrize(
    "law", [random_ising(4), TERNARY, CliqueIsing(5, 3, 0.4, 0.1)], ids=["ising", "table", "clique"]
)
def test_all_positions_at_once(law):
    matrix = chains.parallel_transition(law)
    sampler = Parallel(law)
    assert_steps(sampler, law.states, law.codes, matrix)
    assert_reaches(sampler, law.states[0], law.codes, chains.stationary(matrix), steps=60)


@pytest.mark.parametrize(
    "law", [random_ising(4), CliqueIsing(5, 3, 0.4, (0.1, -0.2, 0.3, 0.5, 0.0))], ids=["ising", "clique"]
)
def test_the_law_that_parallel_sampling_keeps(law):
    torch.testing.assert_close(Parallel(law).stationary(), chains.stationary(chains.parallel_transition(law)))
    with pytest.raises(ArgumentError, match="only Ising models"):
        Parallel(TERNARY).stationary()


@pytest.mark.parametrize("coupling", [0.2, 1.0, 3.0])
def test_two_spins_in_parallel_forget_each_other(coupling):
    law = Ising((0.0, 0.0), ((0.0, coupling), (coupling, 0.0)))
    kept = Parallel(law).stationary()
    torch.testing.assert_close(kept, torch.full((4,), 0.25, dtype=torch.float64))
    assert chains.tv(kept, law.probs) == pytest.approx(math.tanh(coupling) / 2)


@pytest.mark.parametrize(
    ("coupling", "distance"), [(0.05, 0.0386), (0.1, 0.0796), (0.3, 0.2233), (0.5, 0.1720), (1.0, 0.0050)]
)
def test_quoted_distances_of_the_parallel_law(coupling, distance):
    law = CliqueIsing(4, 4, coupling)
    assert chains.tv(Parallel(law).stationary(), law.probs) == pytest.approx(distance, abs=5e-5)


def test_parallel_sampling_of_a_model_asks_for_every_position():
    torch.testing.assert_close(
        Parallel(ExactConditional(TERNARY)).logits(TERNARY.states).softmax(-1),
        Parallel(TERNARY).logits(TERNARY.states).softmax(-1),
    )


# -- any model of hidden positions -----------------------------------------------------------------------------------


def at_once(law, masks):
    """The matrix of a block whose positions are drawn independently from p(x_i | x_−K)."""
    total = torch.zeros(len(law.probs), len(law.probs), dtype=torch.float64)
    for hidden, weight in zip(masks.family, masks.probs(law.states[:1])[0], strict=True):
        marginals = law.conditional(law.states, hidden.expand(len(law.states), -1))
        for i, y in enumerate(law.states):
            total[:, i] += weight * marginals.gather(2, y.expand(len(law.states), -1)[..., None])[..., 0].prod(1)
    return total


MASKS = UniformSize(3, 2)


def test_one_by_one_is_the_joint_conditional():
    assert_steps(
        ModelBlocks(TERNARY, PAIRS), TERNARY.states, TERNARY.codes, chains.transition(TERNARY, PAIRS), draws=2000
    )


def test_independently_is_the_product():
    sampler = ModelBlocks(TERNARY, MASKS, within="independent")
    matrix = at_once(TERNARY, MASKS)
    joint = chains.transition(TERNARY, MASKS)
    assert float((matrix - joint).abs().sum(1).max()) / 2 > 0.02  # so that the two can be told apart
    assert_steps(sampler, TERNARY.states, TERNARY.codes, matrix)


def test_single_positions_are_exact_either_way():
    alone = UniformSize(3, 1)
    torch.testing.assert_close(at_once(TERNARY, alone), chains.transition(TERNARY, alone))


def masked_network(seed=0, width=8):
    """Reads three symbols and [MASK] = 3, writes three; nobody says that its conditionals fit together."""
    network = Transformer(
        4, width=width, heads=2, layers=1, mlp=16, outputs=3, tied=False, positions="learned", longest=3
    )
    network.initialise(generator(seed), scale=30.0)
    return MaskedNetwork(network, mask=3)


def test_a_network_step_by_step():
    model = masked_network()
    states = TERNARY.states
    matrix = torch.zeros(27, 27, dtype=torch.float64)
    for block in itertools.combinations(range(3), 2):
        for order in (block, block[::-1]):  # both orders are as likely
            for s, x in enumerate(states):
                hidden = torch.zeros(1, 3, dtype=torch.bool)
                hidden[0, list(block)] = True
                first = model.conditional_logits(x[None], hidden)[0, order[0]].double().softmax(-1)
                for a in range(3):
                    y = x.clone()
                    y[order[0]] = a
                    rest = hidden.clone()
                    rest[0, order[0]] = False
                    second = model.conditional_logits(y[None], rest)[0, order[1]].double().softmax(-1)
                    for b in range(3):
                        y[order[1]] = b
                        matrix[s, int(TERNARY.codes(y))] += float(first[a] * second[b]) / 6
    torch.testing.assert_close(matrix.sum(1), torch.ones(27, dtype=torch.float64), atol=1e-6, rtol=0)
    sampler = k_gibbs(model, 2, positions=3)
    assert_steps(sampler, states, TERNARY.codes, matrix, draws=2000)
    assert_reaches(sampler, states[0], TERNARY.codes, chains.stationary(matrix), steps=30, chains=5000)


def test_hidden_positions_are_not_read_and_the_mask_is_never_written():
    model = masked_network()
    x = TERNARY.states[:9]
    hidden = torch.tensor([True, False, True]).expand(9, -1)
    other = x.clone()
    other[:, 0] = (other[:, 0] + 1) % 3
    torch.testing.assert_close(model.conditional_logits(x, hidden), model.conditional_logits(other, hidden))
    writes_mask = MaskedNetwork(lambda ids: torch.zeros(*ids.shape, 4), mask=3, vocab_size=4)
    assert bool((writes_mask.conditional_logits(x, hidden)[..., 3] == -torch.inf).all())


def test_positions_that_are_not_free_stay():
    x = TERNARY.states
    sampler = ModelBlocks(TERNARY, UniformSize(2, 1), free=torch.tensor([0, 2]))
    moved = torch.stack([sampler(x, generator(seed)) for seed in range(40)])
    assert bool((moved[:, :, 1] == x[:, 1]).all())
    assert bool((moved != x).any(0).any(0)[[0, 2]].all())


def test_sampling_at_temperature_zero_takes_the_likeliest():
    sampler = ModelBlocks(TERNARY, UniformSize(3, 3), within="independent", sampling=Truncation(temperature=0.0))
    likeliest = TERNARY.conditional(TERNARY.states, torch.ones(27, 3, dtype=torch.bool)).argmax(-1)
    assert torch.equal(sampler(TERNARY.states, generator()), likeliest)


# -- which sampler, and large laws -----------------------------------------------------------------------------------


def test_the_way_is_chosen_by_what_the_law_offers():
    assert isinstance(block_dynamics(TERNARY, MASKS), BlockDynamics)
    assert isinstance(block_dynamics(TERNARY, LOOKS, naive=True), BlockDynamics)
    assert isinstance(block_dynamics(TERNARY, MASKS, within="independent"), ModelBlocks)
    assert isinstance(k_gibbs(masked_network(), 1, positions=3), ModelBlocks)


def test_laws_too_large_for_a_table():
    """Forty spins that are twenty independent pairs: after a step the pair of a full block has its own law."""
    n = 40
    j = torch.zeros(n, n, dtype=torch.float64)
    for i in range(0, n, 2):
        j[i, i + 1] = j[i + 1, i] = 0.7
    law = Ising((0.2,) * n, tuple(map(tuple, j.tolist())))
    masks = Blocks(n, tuple((i, i + 1) for i in range(0, n, 2)))
    x = BlockDynamics(law, masks)(torch.zeros(40_000, n, dtype=torch.long), generator())
    pair = Ising((0.2, 0.2), ((0.0, 0.7), (0.7, 0.0)))
    changed = x.view(-1, 20, 2)
    counts = torch.bincount(pair.codes(changed[:, 0]), minlength=4).double()
    expected = torch.tensor([0.95, 0, 0, 0], dtype=torch.float64) + pair.probs / 20
    assert float((counts / 40_000 - expected).abs().sum()) / 2 < 0.02
    assert int((changed.sum(2) > 0).sum(1).max()) == 1


def test_a_model_of_sixty_four_spins():
    """Read like a model, a large law is asked for the completions of what is hidden, and for nothing else."""
    law = CliqueIsing(64, 32, 0.03, 0.1)
    start = law.sample(20_000, generator(3)).x
    x = ModelBlocks(law, Blocks(64, tuple((i, (i + 1) % 64) for i in range(64))))(start[:200], generator())
    assert int((x != start[:200]).sum(1).max()) <= 2
    logits = ExactConditional(law).conditional_logits(start[:5], torch.arange(64).expand(5, -1) == 40)
    torch.testing.assert_close(logits[:, 40].softmax(1)[:, 1], torch.sigmoid(torch.full((5,), 0.2)).double())
    once = BlockDynamics(law, UniformSize(64, 3))(start, generator(4))
    up, before = (rows[:, :32].sum(1).double() for rows in (once, start))
    spread = float(before.std()) / math.sqrt(20_000)
    assert abs(float(up.mean() - before.mean())) < 6 * spread  # a step keeps the law
    assert bool(((once != start).sum(1) <= 3).all())


@pytest.mark.parametrize("masks", [UniformSize(64, 40), UniformSubset(64, 0.15), Blocks(64, (tuple(range(64)),))])
def test_blocks_too_large_are_named_before_the_first_draw(masks):
    with pytest.raises(ArgumentError, match=r"block of (40|64) positions: 2\^\d+ .*are too many to enumerate, at most"):
        BlockDynamics(CliqueIsing(64, 32, 0.1), masks)


def test_large_tables_of_completions_are_cut_into_pieces(monkeypatch):
    law = random_ising(4)
    whole = BlockDynamics(law, UniformSize(4, 3))(law.states, generator(7))
    monkeypatch.setattr("sandtable.decoding.blocks.MOST_ENTRIES", 20)
    assert torch.equal(BlockDynamics(law, UniformSize(4, 3))(law.states, generator(7)), whole)


# -- running chains --------------------------------------------------------------------------------------------------


class Clock:
    """Adds one to every position each step."""

    def check(self, x):
        pass

    def draw(self, x, generator):
        return x + 1


def test_hitting_times_of_a_clock():
    start = torch.tensor([[3], [0], [9], [5]])
    found = run_chains(Clock(), start, steps=4, generator=generator(), until=lambda x: x[:, 0] >= 5, keep=True)
    assert found.hits.tolist() == [2, -1, 0, 0]
    assert found.censored().tolist() == [2, 4, 0, 0]
    assert found.x[:, 0].tolist() == [5, 4, 9, 5]
    assert found.states[:, :, 0].tolist() == [[3, 0, 9, 5], [4, 1, 9, 5], [5, 2, 9, 5], [5, 3, 9, 5], [5, 4, 9, 5]]
    on = run_chains(Clock(), start, steps=4, generator=generator(), until=lambda x: x[:, 0] >= 5, stop=False)
    assert on.hits.tolist() == [2, -1, 0, 0]
    assert on.x[:, 0].tolist() == [7, 4, 13, 9]
    assert on.states is None


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (lambda x: (x[:, 0] >= 5).long(), r"a tensor \(4,\) of torch.int64 of 4 chains; must be a tensor of one True"),
        (lambda x: (x[:, 0] >= 5).double(), "of torch.float64"),
        (lambda x: x >= 5, r"a tensor \(4, 1\) of torch.bool"),
        (lambda x: (x >= 5).any(), r"a tensor \(\) of torch.bool"),
        (lambda x: bool((x >= 5).any()), "until: says True of 4 chains"),
    ],
    ids=["0 and 1", "fractions", "a column", "one for all", "no tensor"],
)
def test_until_says_true_or_false_of_every_chain(until, message):
    with pytest.raises(ArgumentError, match=message):
        run_chains(Clock(), torch.tensor([[3], [0], [9], [5]]), steps=4, generator=generator(), until=until)


def test_the_start_is_left_alone_and_seeds_decide():
    law = random_ising(4)
    sampler, start = k_gibbs(law, 2), law.states.clone()
    one, two = (run_chains(sampler, start, steps=5, generator=generator(3)).x for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(start, law.states)
    assert not torch.equal(one, start)


def test_a_seed_does_for_a_generator():
    law = random_ising(4)
    one, two = (run_chains(k_gibbs(law, 2), law.states, steps=5, generator=g).x for g in (3, generator(3)))
    assert torch.equal(one, two)
    with pytest.raises(ArgumentError, match="generator"):
        run_chains(k_gibbs(law, 2), law.states, steps=5, generator="seed")


def test_hitting_times_follow_the_matrix():
    law = random_ising(4)
    matrix, target = chains.transition(law, UniformSize(4, 2)), torch.zeros(16, dtype=torch.bool)
    target[-1] = True
    at, still = torch.zeros(16, dtype=torch.float64), []
    at[0] = 1
    for _ in range(12):
        still.append(float(at[target].sum()))
        at[target] = 0
        at = at @ matrix
    law_of_hits = torch.tensor([*still, 1 - sum(still)], dtype=torch.float64)
    found = run_chains(
        k_gibbs(law, 2),
        law.states[:1].expand(20_000, -1),
        steps=11,
        generator=generator(),
        until=lambda x: x.sum(1) == 4,
    )
    counts = torch.bincount(torch.where(found.hits < 0, 12, found.hits), minlength=13).double()
    assert float((counts / 20_000 - law_of_hits).abs().sum()) / 2 < 0.02


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[0, 2, 0, 0]], "x holds 2: a state has symbols from 0 to 1"),
        ([[0, -1, 0, 0]], "x holds -1"),
        ([[0, 1, 0]], "must be whole numbers, 4 to a state"),
        ([0, 1, 0, 0], "chain × position"),
        ([[0.0, 1.0, 0.0, 0.0]], "must be whole numbers"),
        ([[True, False, True, True]], "must be whole numbers"),
    ],
)
@pytest.mark.parametrize("sampler", [BlockDynamics(random_ising(4), UniformSize(4, 2)), Parallel(random_ising(4))])
def test_a_state_outside_is_refused(sampler, x, message):
    for call in (lambda x: sampler(x, generator()), lambda x: run_chains(sampler, x, steps=1, generator=generator())):
        with pytest.raises(ArgumentError, match=message) as caught:
            call(torch.tensor(x))
        assert "\n" not in str(caught.value)


def test_states_of_models():
    sampler = ModelBlocks(masked_network(), MASKS)
    for x, message in (([[0, 1, 3]], "x holds 3"), ([[0, 1]], "2 positions"), ([[0, 1, 2, 0]], "4 positions")):
        with pytest.raises(ArgumentError, match=message):
            sampler(torch.tensor(x), generator())
    with pytest.raises(ArgumentError, match="the model reads 3"):
        Parallel(ExactConditional(TERNARY))(torch.zeros(1, 4, dtype=torch.long), generator())


def test_a_state_from_which_nothing_is_possible():
    law = Table(((0.5, 0.0, 0.5), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)))
    with pytest.raises(ArgumentError, match="probability 0"):
        BlockDynamics(law, Blocks(2, ((1,), (0,)), (1 - 1e-12, 1e-12)))(torch.tensor([[1, 0]]), generator())
    with pytest.raises(ArgumentError, match="probability 0"):
        Parallel(law)(torch.tensor([[1, 1]]), generator())


def test_parts_that_do_not_go_together():
    with pytest.raises(ArgumentError, match="masks over 3 positions: the law has 4"):
        BlockDynamics(random_ising(4), MASKS)
    with pytest.raises(ArgumentError, match="masks over 2 positions: 3 may be drawn"):
        ModelBlocks(TERNARY, UniformSize(2, 1))
    with pytest.raises(ArgumentError, match="does not know why"):
        ModelBlocks(TERNARY, random_adaptive(3, [(0,), (1, 2)], symbols=3))
    with pytest.raises(ArgumentError, match="say how many"):
        k_gibbs(masked_network(), 2)
    with pytest.raises(ArgumentError, match="'independent'"):
        ModelBlocks(TERNARY, MASKS, within="independently")
    with pytest.raises(ArgumentError, match="free="):
        ModelBlocks(masked_network(), UniformSize(1, 1), free=torch.tensor([3]))(TERNARY.states, generator())
    with pytest.raises(ArgumentError, match="causal"):
        MaskedNetwork(Transformer(4, width=8, causal=True), mask=3)
    with pytest.raises(ArgumentError, match="mask=4"):
        MaskedNetwork(Transformer(4, width=8), mask=4)
    with pytest.raises(ArgumentError, match="vocab_size=None"):
        MaskedNetwork(lambda ids: ids, mask=0)
    with pytest.raises(ArgumentError, match="exact conditionals"):
        ExactConditional(object())
    with pytest.raises(ArgumentError, match="MaskedNetwork"):
        ModelBlocks(Transformer(4, width=8), MASKS)
