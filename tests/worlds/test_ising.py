"""Ising models against the sum over pairs written out, cliques against the general model."""

import math
from itertools import combinations

import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.cli import main
from sandtable.worlds import CliqueIsing, Ising
from sandtable.worlds.ising import spins

UNEVEN = CliqueIsing(7, 4, 0.3, (0.1, -0.4, 0.3, 0.2, 0.5, -0.1, 0.0))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def model(n=4, seed=0):
    g = generator(seed)
    return Ising.of(torch.randn(n, generator=g).double(), torch.randn(n * (n - 1) // 2, generator=g).double())


def test_every_unordered_pair_counts_once():
    world, weights = model(), []
    for x in world.states.tolist():
        s = [2 * a - 1 for a in x]
        energy = sum(h * a for h, a in zip(world.fields, s, strict=True))
        energy += sum(world.couplings[i][j] * s[i] * s[j] for i, j in combinations(range(4), 2))
        weights.append(math.exp(energy))
    assert world.probs.tolist() == pytest.approx([w / sum(weights) for w in weights])


def test_parameters_in_the_order_of_pairs():
    world = Ising.of([0.0, 0.0, 0.0], [0.1, 0.2, 0.3])
    assert world.couplings == ((0.0, 0.1, 0.2), (0.1, 0.0, 0.3), (0.2, 0.3, 0.0))


def test_one_site_is_a_logistic_of_its_neighbours():
    world = model(seed=3)
    s = spins(world.states)
    up = torch.sigmoid(2 * (world.h + s @ world.j))
    found = world.conditional(world.states.repeat_interleave(4, 0), torch.eye(4).bool().repeat(16, 1))
    assert torch.allclose(found[torch.arange(64), torch.arange(4).repeat(16), 1].view(16, 4), up)


def test_little_s_law_is_what_parallel_resampling_keeps():
    world = model(seed=4)
    s = spins(world.states)
    up = torch.sigmoid(2 * (world.h + s @ world.j))
    step = torch.stack([torch.where(y.bool(), up, 1 - up).prod(1) for y in world.states], 1)
    law = world.parallel_law()
    assert torch.allclose(law @ step, law)
    flow = law[:, None] * step
    assert torch.allclose(flow, flow.T)  # reversible
    two = Ising.of([0.0, 0.0], [0.7])
    assert torch.allclose(two.parallel_law(), torch.full((4,), 0.25).double())
    assert float((two.probs - 0.25).abs().sum()) / 2 == pytest.approx(math.tanh(0.7) / 2)


@pytest.mark.parametrize("world", [UNEVEN, CliqueIsing(5, 5, 0.7, 0.2), CliqueIsing(6, 2, 1.1)])
def test_a_clique_is_an_ising_model(world):
    assert torch.allclose(world.ising().log_probs, world.log_probs)
    assert torch.allclose(world.log_prob(world.states), world.log_probs)
    n = 200_000
    counts = torch.bincount(world.codes(world.sample(n, generator(1)).x), minlength=len(world.probs)).double()
    bound = math.sqrt(len(world.probs) / n) / 2 + math.sqrt(math.log(1e9) / (2 * n))
    assert float((counts / n - world.probs).abs().sum()) / 2 < bound


def test_a_clique_too_large_to_enumerate():
    world = CliqueIsing(64, 32, 0.02, 0.05)
    x = world.sample(20_000, generator(2)).x
    m = torch.arange(33) * 2.0 - 32
    log_up = torch.tensor([math.log(math.comb(32, u)) for u in range(33)]) + 0.05 * m + 0.02 * (m**2 - 32) / 2
    law = log_up.double().softmax(0)
    counts = torch.bincount(x[:, :32].sum(1), minlength=33).double() / 20_000
    assert float((counts - law).abs().sum()) / 2 < 0.05
    assert float(x[:, 32:].double().mean()) == pytest.approx(float(torch.sigmoid(torch.tensor(0.1))), abs=0.005)
    # Every state with u up is one of C(32, u) alike, times the spins outside.
    up, choose = x[:, :32].sum(1), torch.tensor([math.log(math.comb(32, u)) for u in range(33)])
    outside = 0.1 * x[:, 32:].sum(1) - 32 * math.log1p(math.exp(0.1))
    assert torch.allclose(world.log_prob(x), (law.log() - choose)[up] + outside, rtol=0, atol=1e-4)
    with pytest.raises(ArgumentError, match=r"2\^64 .* too many to enumerate, at most 1,048,576"):
        _ = world.probs


def test_conditionals_of_a_clique_too_large_to_enumerate():
    """A block given the rest is an Ising model of its own, with fields h_i + Σ_j visible J_ij s_j."""
    world = CliqueIsing(64, 32, 0.02, tuple(0.3 * math.sin(i) for i in range(64)))
    x = world.sample(20, torch.Generator().manual_seed(0)).x
    whole, block = world.ising(), [3, 40, 31, 5]
    seen = torch.ones(64, dtype=torch.bool).index_fill(0, torch.tensor(block), False)
    found = world.block_conditional(x, block)
    for row, probs in zip(x, found, strict=True):
        fields = whole.h[block] + whole.j[block][:, seen] @ spins(row[seen])
        small = Ising(tuple(fields.tolist()), tuple(map(tuple, whole.j[block][:, block].tolist())))
        torch.testing.assert_close(probs, small.probs)
    torch.testing.assert_close(whole.block_conditional(x, block), found)
    hidden = (~seen).expand(20, -1)
    single = world.conditional(x, hidden)
    torch.testing.assert_close(single[:, 40, 1], torch.sigmoid(2 * world.h[40]).expand(20))
    torch.testing.assert_close(single[:, 3, 1], found[:, 8:].sum(1))  # of four, the first position counts most
    torch.testing.assert_close(single[:, seen], torch.nn.functional.one_hot(x[:, seen]).double())


def test_completions_of_a_large_block_are_cut_into_pieces(monkeypatch):
    world = CliqueIsing(64, 32, 0.02, 0.1)
    x = world.sample(3, torch.Generator().manual_seed(0)).x
    whole = world.block_conditional(x, [0, 1, 40, 50])
    monkeypatch.setattr("sandtable.worlds.finite.MOST_ENTRIES", 3 * 64 * 5)
    torch.testing.assert_close(world.block_conditional(x, [0, 1, 40, 50]), whole)


def test_modes_and_what_a_clique_says_about_itself():
    world = CliqueIsing(3, 2, 0.5, (0.1, 0.2, -0.05))
    assert world.mode(torch.tensor([[1, 1, 0], [0, 0, 1], [1, 0, 1]])).tolist() == [1, -1, 0]
    assert world.clique_field == pytest.approx(0.3)
    assert world.slack == pytest.approx(0.15)
    assert (world.even, CliqueIsing(3, 2, 0.5, 0.1).even) == (False, True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Ising((0.0, 0.0), ((0.0, 1.0), (2.0, 0.0))),
            r"couplings\[1\]\[0\]=2: must equal couplings\[0\]\[1\]=1",
        ),
        (lambda: Ising((0.0, 0.0), ((1.0, 1.0), (1.0, 0.0))), r"couplings\[0\]\[0\]=1: a spin is not coupled"),
        (lambda: Ising((0.0, 0.0), ((0.0, 1.0),)), "must be 2 × 2"),
        (lambda: Ising((0.0, 0.0), 3.0), "couplings=3.0"),
        (lambda: Ising((), ()), "at least one"),
        (lambda: Ising(0.5, ()), "fields=0.5"),
        (lambda: Ising((math.nan,), ((0.0,),)), "field=nan"),
        (lambda: Ising.of([0.0, 0.0], [1.0, 2.0]), "2 numbers, must be one for each of 1 pairs"),
        (lambda: CliqueIsing(4, 5, 0.3), "clique=5"),
        (lambda: CliqueIsing(4, 1, 0.3), "clique=1"),
        (lambda: CliqueIsing(4, 2, 0.0), "coupling=0.0"),
        (lambda: CliqueIsing(4, 2, 0.1, (0.0, 0.1)), "one for each of 4 spins"),
        (lambda: UNEVEN.log_prob(torch.full((1, 7), 2)), "x holds 2"),
    ],
)
def test_mistakes_are_one_clear_line(make, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_command_line_shows_states(capsys):
    main_arguments = ["sample", "ising", "-n", "4", "--set", "size=5", "--set", "coupling=2.5"]
    with pytest.raises(SystemExit) as done:
        main(main_arguments)
    assert not done.value.code
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split()) for line in lines] == [5] * 4
    assert set("".join(lines)) <= set("+− ")
