"""Toy oracles against enumeration of every string, every subset and every prefix."""

import itertools
from collections import Counter

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.worlds import FixedLengthDyck, HiddenPrefix, Knapsack, OneZero, SlippingDyck, Slips, Trap, Zeros
from sandtable.worlds.base import HasLogProb, HasNextToken, Recogniser, TokenWorld
from sandtable.worlds.oracles import knapsack


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def strings(length):
    return list(itertools.product((0, 1), repeat=length))


WANTED = {
    "zeros": (Zeros(5), lambda s: sum(s) == 0),
    "one zero": (OneZero(5), lambda s: 0 in s),
    "trap": (Trap(5), lambda s: s[0] == 0 or sum(s) == 5),
    "hidden": (HiddenPrefix(5, (1, 0, 1, 1)), lambda s: sum(s) % 2 == 0),
    "knapsack": (Knapsack((3, 1, 4, 1, 5), 5), lambda s: 3 * s[0] + s[1] + 4 * s[2] + s[3] + 5 * s[4] == 5),
    "superincreasing": (Knapsack((1, 1, 2, 4, 9), 6), lambda s: s[0] + s[1] + 2 * s[2] + 4 * s[3] + 9 * s[4] == 6),
    "slips": (Slips(5, 0.2), lambda s: sum(s) == 0),
}
CASES = pytest.mark.parametrize(("world", "wanted"), WANTED.values(), ids=WANTED)


@CASES
def test_accepts_is_completability(world, wanted):
    """A prefix is accepted exactly if one of its completions is wanted."""
    members = [s for s in strings(5) if wanted(s)]
    for length in range(6):
        rows = strings(length)
        expected = [any(s[:length] == row for s in members) for row in rows]
        prefix = torch.tensor(rows, dtype=torch.long).reshape(len(rows), length)
        assert world.accepts(prefix).tolist() == expected
        assert world.valid(prefix).tolist() == [length == 5 and wanted(row) for row in rows]


@CASES
def test_the_law_is_a_law_and_samples_follow_it(world, wanted):
    rows = torch.tensor(strings(5))
    law = world.log_prob(rows).exp()
    assert law.sum().item() == pytest.approx(1, abs=1e-12)
    batch = world.sample(20_000, seeded())
    assert torch.equal(batch.latents["valid"], torch.tensor([wanted(tuple(row)) for row in batch.x.tolist()]))
    seen = Counter(map(tuple, batch.x.tolist()))
    frequencies = torch.tensor([seen[tuple(row)] / 20_000 for row in rows.tolist()])
    assert (frequencies - law).abs().sum().item() / 2 < 0.03


@CASES
def test_the_house_protocols(world, wanted):
    for protocol in (TokenWorld, HasNextToken, HasLogProb, Recogniser):
        assert isinstance(world, protocol)
    assert world.longest == world.length == 5
    assert world.sample(0, seeded()).x.shape == (0, 5)


@pytest.mark.parametrize("secret", strings(3))
def test_hidden_prefix_has_one_string_in_reach(secret):
    world = HiddenPrefix(4, secret)
    rows = torch.tensor(strings(4))
    reachable = [tuple(row) for row, p in zip(rows.tolist(), world.log_prob(rows).exp(), strict=True) if p > 0]
    assert len(reachable) == 8
    assert [s for s in reachable if sum(s) % 2 == 0] == [world.answer]
    for length in range(5):
        prefix = torch.tensor(strings(length), dtype=torch.long).reshape(2**length, length)
        expected = [row == world.answer[:length] for row in strings(length)]
        assert world.accepts_supported(prefix).tolist() == expected


def test_secrets_are_drawn_uniformly():
    drawn = Counter(HiddenPrefix.draw(3, generator).secret for generator in [seeded()] for _ in range(4000))
    assert len(drawn) == 4
    assert all(850 < count < 1150 for count in drawn.values())


@pytest.mark.parametrize("seed", range(8))
def test_knapsack_counts_by_enumeration(seed):
    world = Knapsack.arbitrary(9, seeded(seed), most=20)
    sums = Counter(sum(w for w, bit in zip(world.weights, s, strict=True) if bit) for s in strings(9))
    assert world.solutions == sums[world.target] > 0
    prefix = torch.tensor(strings(4))
    ends = [sum(w for w, bit in zip(world.weights[4:], s, strict=True) if bit) for s in strings(5)]
    heads = [sum(w for w, bit in zip(world.weights[:4], s, strict=True) if bit) for s in strings(4)]
    assert world.completions(prefix).tolist() == [sum(head + end == world.target for end in ends) for head in heads]


@pytest.mark.parametrize("seed", range(8))
def test_greedy_solves_superincreasing_weights(seed):
    """Every target, reachable or not, and the recogniser that needs no table against the one that does."""
    made = Knapsack.superincreasing(8, seeded(seed))
    assert made.is_superincreasing
    reachable = {sum(w for w, bit in zip(made.weights, s, strict=True) if bit) for s in strings(8)}
    rows = torch.tensor(strings(5))
    for target in range(sum(made.weights) + 2):
        world = Knapsack(made.weights, target)
        found = world.greedy()
        assert (found is not None) == (target in reachable)
        assert found is None or world.valid(torch.tensor([found])).item()
        if target % 7 == 0:
            assert torch.equal(world.accepts(rows), world.completions(rows) > 0)


def test_superincreasing_weights_need_no_table(monkeypatch):
    monkeypatch.setattr(knapsack, "_MOST_SUMS", 10_000)
    world = Knapsack.superincreasing(50, seeded())
    assert world.greedy() is not None
    assert world.accepts(torch.tensor([world.greedy()]))
    with pytest.raises(ArgumentError, match="no table"):
        _ = Knapsack(world.weights[::-1], world.target).tails


def test_low_density_weights_are_large():
    world = Knapsack.low_density(16, seeded(), density=0.5)
    assert world.density == pytest.approx(0.5, rel=0.1)
    assert world.solutions >= 1
    assert not world.is_superincreasing


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Zeros(0), "length=0"),
        (lambda: HiddenPrefix(4, (1, 0)), "length − 1 = 3 bits"),
        (lambda: HiddenPrefix(3, (1, 2)), "bits"),
        (lambda: Slips(4, 0.5), "below 1/2"),
        (lambda: Knapsack((), 3), "1 to 62"),
        (lambda: Knapsack((1, -2), 3), "weights=-2"),
        (lambda: Knapsack((2**61, 2**61), 3), "2\\^62"),
        (lambda: Knapsack((2, 1), 3).greedy(), "sum of those before"),
        (lambda: Knapsack.low_density(40, seeded(), density=0.5), "62-bit"),
        (lambda: Zeros(3).next_token_probs(torch.zeros(1, 3, dtype=torch.long)), "at most 2"),
        (lambda: Zeros(3).accepts(torch.zeros(1, 4, dtype=torch.long)), "at most 3"),
        (lambda: Zeros(3).accepts(torch.tensor([[0, 2]])), "other than 0 to 1"),
        (lambda: Zeros(3).accepts(torch.zeros(3)), "row × position"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_brackets_that_slip_by_hand():
    """Every string of four brackets, its probability multiplied up in plain Python."""
    world = SlippingDyck(FixedLengthDyck(length=4, p=0.3, q=0.6), slip=0.1, rise=0.2)
    right = {}
    for string in itertools.product(range(4), repeat=4):
        chance, stack = 1.0, []
        for i, token in enumerate(string):
            left = 4 - i
            opens = 1.0 if not stack else 0.0 if len(stack) == left else 0.6
            if token < 2:
                chance *= opens * (0.3 if token == 0 else 0.7)
                stack.append(token)
            elif not stack:
                chance = 0.0
                break
            else:
                slip = 0.1 + 0.2 * stack.count(0)
                chance *= (1 - opens) * (1 - slip if token - 2 == stack.pop() else slip)
        right[string] = chance
    rows = torch.tensor([[world.world.bos, *string, world.eos] for string in right])
    law = world.log_prob(rows).exp()
    assert law.tolist() == pytest.approx(list(right.values()))
    assert law.sum().item() == pytest.approx(1)
    assert torch.equal(world.accepts(rows), world.world.accepts(rows))
    total = float(law[world.valid(rows)].sum())
    batch = world.sample(20_000, seeded())
    assert abs(batch.latents["valid"].double().mean().item() - total) < 0.015


def test_without_slips_brackets_are_those_of_the_world():
    inner = FixedLengthDyck(length=8)
    batch = inner.sample(50, seeded())
    assert torch.allclose(SlippingDyck(inner, slip=0.0).log_prob(batch), inner.log_prob(batch))
