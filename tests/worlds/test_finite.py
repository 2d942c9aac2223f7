"""Laws over Ω^N against sums written out state by state."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.worlds import AdaptiveBlocks, CliqueIsing, Ising, Mixture, Table, UniformSize
from sandtable.worlds.finite import (
    MOST_STATES,
    all_states,
    conditional_log_probs,
    invert,
    marginals,
    over_hidden,
    places,
    state_count,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def law(length=3, symbols=2, seed=0):
    return Table.random(length, generator(seed), symbols=symbols)


WIDE, ROW = CliqueIsing(64, 32, 0.1), torch.zeros(1, 64, dtype=torch.long)


def brute(world):
    """{state: probability}, from the nested table."""
    out = {}
    for state in product(range(world.symbols), repeat=world.length):
        value = world.table
        for symbol in state:
            value = value[symbol]
        out[state] = value
    return out


def given_visible(p, x, block):
    """{completion: p(x_K | x_−K)} by summing over states that agree outside the block."""
    agree = {s: q for s, q in p.items() if all(s[i] == x[i] for i in range(len(x)) if i not in block)}
    total = sum(agree.values())
    return {tuple(s[i] for i in block): q / total for s, q in agree.items()}


SIZES = pytest.mark.parametrize(("length", "symbols"), [(1, 2), (3, 2), (2, 3), (4, 3)])


@SIZES
def test_states_are_listed_in_the_order_of_their_codes(length, symbols):
    states = all_states(symbols, length)
    assert [tuple(s) for s in states.tolist()] == list(product(range(symbols), repeat=length))
    world = law(length, symbols)
    assert world.codes(states).tolist() == list(range(symbols**length))
    assert world.probs.tolist() == pytest.approx(list(brute(world).values()))
    assert world.log_prob(states).exp().tolist() == pytest.approx(list(brute(world).values()))


@SIZES
def test_block_conditionals(length, symbols):
    world = law(length, symbols, seed=1)
    p = brute(world)
    for code in range(1, 2**length):
        block = [i for i in range(length) if code >> i & 1][::-1]
        found = world.block_conditional(world.states, block)
        for x, row in zip(world.states.tolist(), found.tolist(), strict=True):
            expected = given_visible(p, x, block)
            inner = list(product(range(symbols), repeat=len(block)))
            assert row == pytest.approx([expected[c] for c in inner])


def test_block_conditionals_given_which_block_was_chosen():
    world = law(3, 2, seed=2)
    blocks = ((0,), (1, 2), (0, 2))
    table = torch.rand(8, 3, generator=generator(3)).double()
    masks = AdaptiveBlocks(3, blocks, tuple(map(tuple, (table / table.sum(1, keepdim=True)).tolist())))
    for index, block in enumerate(blocks):
        joint = {s: q * masks.table[i][index] for i, (s, q) in enumerate(brute(world).items())}
        found = world.block_conditional(world.states, list(block), masks)
        for x, row in zip(world.states.tolist(), found.tolist(), strict=True):
            expected = given_visible(joint, x, block)
            assert row == pytest.approx([expected[c] for c in product(range(2), repeat=len(block))])
    plain = UniformSize(3, 2)
    same = world.block_conditional(world.states, [0, 2], plain)
    assert torch.allclose(same, world.block_conditional(world.states, [0, 2]))
    with pytest.raises(ArgumentError, match="not a block of this mask law"):
        world.block_conditional(world.states, [0], plain)


@SIZES
def test_position_conditionals_under_every_mask(length, symbols):
    world, p = law(length, symbols, seed=4), brute(law(length, symbols, seed=4))
    patterns = torch.randint(2, (world.states.shape[0], length), generator=generator(5)).bool()
    found = world.conditional(world.states, patterns)
    for x, mask, rows in zip(world.states.tolist(), patterns.tolist(), found, strict=True):
        block = [i for i in range(length) if mask[i]]
        joint = given_visible(p, x, block)
        for i in range(length):
            expected = [float(a == x[i]) for a in range(symbols)]
            if mask[i]:
                expected = [sum(q for c, q in joint.items() if c[block.index(i)] == a) for a in range(symbols)]
            assert rows[i].tolist() == pytest.approx(expected)


@SIZES
def test_log_conditionals_of_all_states(length, symbols):
    world = law(length, symbols, seed=6)
    p = brute(world)
    for code in range(2**length):
        block = [i for i in range(length) if code >> i & 1]
        hidden = torch.tensor([i in block for i in range(length)])
        found = conditional_log_probs(world.log_probs + 3.0, hidden, symbols).exp()
        expected = [given_visible(p, s, block)[tuple(s[i] for i in block)] for s in p]
        assert found.tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(2, 3), st.integers(0, 1000))
def test_marginals_of_a_family_are_those_of_its_blocks(length, symbols, seed):
    values = torch.randn(symbols**length, 2, generator=generator(seed)).double()
    family = torch.rand(5, length, generator=generator(seed + 1)) < 0.5
    found = dict(marginals(values, family, symbols))
    assert sorted(found) == list(range(5))
    for block, sums in found.items():
        assert torch.allclose(sums, over_hidden(values, family[block], symbols))
        inside = family[block].nonzero()[:, 0].tolist()
        expected = {}
        for s, row in zip(product(range(symbols), repeat=length), values.tolist(), strict=True):
            seen = tuple(a for i, a in enumerate(s) if i not in inside)
            expected[seen] = [u + v for u, v in zip(expected.get(seen, [0, 0]), row, strict=True)]
        assert torch.allclose(sums, torch.tensor(list(expected.values())).double())


def test_next_symbols_multiply_to_the_law():
    world = law(3, 3, seed=7)
    total = torch.ones(27, dtype=torch.float64)
    for i in range(3):
        ahead = world.next_token_probs(world.states[:, :i])
        total *= ahead.gather(1, world.states[:, i : i + 1])[:, 0]
    assert torch.allclose(total, world.probs)
    with pytest.raises(ArgumentError, match="prefix of 3 symbols"):
        world.next_token_probs(world.states)
    with pytest.raises(ArgumentError, match="x holds 3"):
        world.next_token_probs(torch.tensor([[3]]))
    with pytest.raises(ArgumentError, match="no state of positive probability"):
        Table([[0.0, 0.0], [0.4, 0.6]]).next_token_probs(torch.tensor([[0]]))


@pytest.mark.parametrize(
    "world",
    [
        law(3, 2, seed=8),
        law(2, 3, seed=9),
        Table([[0.0, 0.5], [0.5, 0.0]]),
        Mixture((law(3, 2, seed=1), law(3, 2, seed=2)), (0.3, 0.7)),
    ],
    ids=["2^3", "3^2", "with zeros", "mixture"],
)
def test_samples_follow_the_enumerated_law(world):
    n = 200_000
    batch = world.sample(n, generator(10))
    counts = torch.bincount(world.codes(batch.x), minlength=len(world.probs)).double()
    assert not bool(counts[world.probs == 0].any())
    # E TV ≤ ½ √(states/n); McDiarmid adds √(ln(1/δ)/(2n)), δ = 1e-9.
    bound = math.sqrt(len(world.probs) / n) / 2 + math.sqrt(math.log(1e9) / (2 * n))
    assert float((counts / n - world.probs).abs().sum()) / 2 < bound
    assert batch.mask.all()
    assert len(batch.vocab) == world.symbols


def test_inversion_never_lands_on_a_step_of_weight_zero():
    ladder = torch.tensor([0.0, 0.5, 0.5, 1.0, 1.0], dtype=torch.float64)
    u = torch.tensor([0.0, 0.25, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    assert invert(ladder, u).tolist() == [1, 1, 3, 3]
    assert invert(ladder.repeat(2, 1), u.view(2, 2)).tolist() == [[1, 1], [3, 3]]


def test_a_mixture_is_the_weighted_sum():
    a, b = law(3, 2, seed=1), Ising((0.1, 0.2, 0.3), ((0, 1, 0), (1, 0, 2), (0, 2, 0)))
    assert torch.allclose(Mixture((a, b), (0.25, 0.75)).probs, 0.25 * a.probs + 0.75 * b.probs)


def test_the_law_as_an_expectation():
    world = law(3, 2)
    expectation = world.expectation
    assert torch.equal(expectation.weights, world.probs)
    assert torch.equal(expectation.batch.x, world.states)


def test_how_many_states():
    assert state_count(2, 20) == MOST_STATES
    assert places(3, 0).tolist() == []
    with pytest.raises(ArgumentError, match=r"length=21: 2\^21 = 2,097,152 states .* at most 1,048,576"):
        state_count(2, 21)
    with pytest.raises(ArgumentError, match=r"2\^30 = 1,073,741,824 states are too many to enumerate"):
        _ = Ising((0.0,) * 30, ((0.0,) * 30,) * 30).probs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table([[0.5, 0.5], [0.2, 0.0]]), "table with sum 1.2"),
        (lambda: Table([[0.5, 0.7], [-0.2, 0.0]]), "non-negative"),
        (lambda: Table([[0.5, math.nan], [0.2, 0.0]]), "table with sum nan"),
        (lambda: Table([[0.5, 0.5], [0.0]]), "nested sequences"),
        (lambda: Table([[0.5, 0.5]]), r"table of shape \(1, 2\)"),
        (lambda: Table("law"), "nested sequences"),
        (lambda: Table(1.0), "table of shape"),
        (lambda: Mixture((law(), law()), (0.5, 0.6)), "of sum 1.1"),
        (lambda: Mixture((law(), law()), (1.0,)), "one for each of 2 laws"),
        (lambda: Mixture((law(), law(2)), (0.5, 0.5)), r"laws over 2\^3, 2\^2 states"),
        (lambda: Mixture((), ()), "at least one"),
        (lambda: Mixture((3,), (1.0,)), "must be laws"),
        (lambda: law().sample(-1, generator()), "n=-1"),
        (lambda: law().log_prob(torch.tensor([[0, 1, 2]])), "x holds 2: a state has symbols from 0 to 1"),
        (lambda: law().log_prob(torch.tensor([[0, -1, 1]])), "x holds -1"),
        (lambda: law().log_prob(torch.tensor([[0, 1]])), "x of shape .* 3 to a state"),
        (lambda: law().log_prob(torch.tensor([[0.0, 1.0, 1.0]])), "whole numbers"),
        (lambda: law().codes([0, 1, 1]), "x of shape list"),
        (lambda: law().block_conditional(law().states, []), "at least one position"),
        (lambda: law().block_conditional(law().states, [0, 0]), "each once"),
        (lambda: law().block_conditional(law().states, [3]), "block=3"),
        (lambda: law().conditional(law().states, torch.ones(8, 2).bool()), "mask of shape"),
        (lambda: Table([[0.0, 0.0], [0.4, 0.6]]).block_conditional(torch.tensor([[0, 0]]), [1]), "probability 0"),
        (lambda: WIDE.block_conditional(ROW, range(40)), r"block of 40 positions: 2\^40 = 1,099,511,627,776 compl"),
        (lambda: WIDE.conditional(ROW, ROW == 0), r"block of 64 positions: 2\^64 completions are too many"),
        (lambda: WIDE.codes(ROW), r"length=64: 2\^64 states are too many for codes"),
        (lambda: WIDE.block_conditional(ROW, [0], UniformSize(2, 1)), "masks over 2 positions: the law has 64"),
        (lambda: law().block_conditional(torch.zeros(3).long(), [0]), r"x of shape \(3,\): must be rows of 3 symbols"),
        (lambda: law().conditional(torch.zeros(3).long(), torch.zeros(3).bool()), "must be rows of 3 symbols"),
    ],
)
def test_mistakes_are_one_clear_line(make, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
