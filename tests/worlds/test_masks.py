"""Mask laws: BERT's scheme, laws over blocks, and what is refused."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.worlds import AdaptiveBlocks, BertMasking, Blocks, UniformSize, UniformSubset
from sandtable.worlds.finite import all_states


def test_the_default_is_bert():
    law = BertMasking()
    assert (law.select, law.keep, law.random) == (0.15, 0.1, 0.1)
    assert law.hide == pytest.approx(0.8)


@given(select=st.floats(1e-3, 1.0), keep=st.floats(0.0, 1.0), share=st.floats(0.0, 1.0))
def test_shares_of_a_selected_position_sum_to_one(select, keep, share):
    law = BertMasking(select, keep, share * (1 - keep))
    assert law.keep + law.random + law.hide == pytest.approx(1.0)
    assert law.hide >= -1e-12


@pytest.mark.parametrize("name", ["select", "keep", "random"])
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf, "half", None, True])
def test_every_probability_is_checked(name, value):
    with pytest.raises(ArgumentError, match=name) as caught:
        BertMasking(**{name: value})
    assert "\n" not in str(caught.value)


def test_probabilities_that_sum_past_one():
    with pytest.raises(ArgumentError, match=r"keep \+ random = 1\.2"):
        BertMasking(0.15, 0.6, 0.6)


def test_a_law_that_never_selects():
    with pytest.raises(ArgumentError, match="select=0"):
        BertMasking(0.0)


# -- laws of which block is hidden -----------------------------------------------------------------------------------


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rule(x):
    """Hide the pair when it is aligned, mostly; single positions otherwise."""
    aligned = (x[:, 0] == x[:, 1]).double()[:, None]
    return torch.tensor([0.1, 0.2, 0.7]) * aligned + torch.tensor([0.5, 0.5, 0.0]) * (1 - aligned)


LAWS = {
    "k of N": UniformSize(5, 2),
    "all of N": UniformSize(3, 3),
    "subsets": UniformSubset(4, 0.3),
    "weighted": Blocks(4, ((0, 1), (2, 3), (1, 2)), (0.5, 0.3, 0.2)),
    "alike": Blocks(3, ((0,), (1, 2))),
    "adaptive": AdaptiveBlocks.of(2, ((0,), (1,), (0, 1)), rule),
}


def expected(name, row):
    """{block: probability} for one state, from the definition."""
    if name in ("k of N", "all of N"):
        n, k = LAWS[name].length, LAWS[name].k
        return {block: 1 / math.comb(n, k) for block in combinations(range(n), k)}
    if name == "subsets":
        every = [b for k in range(5) for b in combinations(range(4), k)]
        return {b: 0.3 ** len(b) * 0.7 ** (4 - len(b)) for b in every}
    if name == "adaptive":
        return dict(zip(((0,), (1,), (0, 1)), rule(torch.tensor([row]))[0].tolist(), strict=True))
    shares = (0.5, 0.3, 0.2) if name == "weighted" else (0.5, 0.5)
    return dict(zip(LAWS[name].blocks, shares, strict=True))


@pytest.mark.parametrize("name", LAWS)
def test_blocks_and_their_probabilities(name):
    law = LAWS[name]
    x = all_states(2, law.length)
    blocks = [tuple(row.nonzero()[:, 0].tolist()) for row in law.family]
    assert len(set(blocks)) == len(blocks)
    assert set().union(*blocks) == set(range(law.length))
    assert law.adaptive == (name == "adaptive")
    for row, probs in zip(x.tolist(), law.probs(x).tolist(), strict=True):
        assert dict(zip(blocks, probs, strict=True)) == pytest.approx(expected(name, row))
    for index, hidden in enumerate(law.family):
        assert law.index(hidden) == index
        assert torch.allclose(law.log_prob(x, hidden).exp(), law.probs(x)[:, index])


@pytest.mark.parametrize("name", LAWS)
def test_drawn_blocks_follow_the_law(name):
    law, n = LAWS[name], 100_000
    for row in all_states(2, law.length)[:: 2 ** (law.length - 1) - 1]:
        counts = torch.bincount(law.draw(row.expand(n, -1), generator(1)), minlength=len(law.family)).double()
        probs = law.probs(row[None])[0]
        assert not bool(counts[probs == 0].any())
        bound = math.sqrt(len(probs) / n) / 2 + math.sqrt(math.log(1e9) / (2 * n))
        assert float((counts / n - probs).abs().sum()) / 2 < bound


@pytest.mark.parametrize("name", LAWS)
def test_hidden_positions_follow_the_law(name):
    """Also where no block is looked up in a list."""
    law, n = LAWS[name], 100_000
    place = {tuple(row): i for i, row in enumerate(law.family.tolist())}
    for row in all_states(2, law.length)[:: 2 ** (law.length - 1) - 1]:
        rows, times = law.hide(row.expand(n, -1), generator(1)).unique(dim=0, return_counts=True)
        shares = torch.zeros(len(place), dtype=torch.float64)
        shares[[place[tuple(hidden)] for hidden in rows.tolist()]] = times.double() / n
        probs = law.probs(row[None])[0]
        assert not bool(shares[probs == 0].any())
        bound = math.sqrt(len(probs) / n) / 2 + math.sqrt(math.log(1e9) / (2 * n))
        assert float((shares - probs).abs().sum()) / 2 < bound
    assert law.most_hidden == int(law.family.sum(1).max())


def test_blocks_of_many_positions_are_drawn_without_a_list():
    """Of 64 positions: 8 of them, each as often as any other and as any pair; each by itself at a rate."""
    n, x = 40_000, torch.zeros(40_000, 64, dtype=torch.long)
    some = UniformSize(64, 8).hide(x, generator()).double()
    assert bool((some.sum(1) == 8).all())
    each = UniformSubset(64, 0.15).hide(x, generator()).double()
    for hidden, alone, both in ((some, 8 / 64, 8 * 7 / (64 * 63)), (each, 0.15, 0.15**2)):
        pairs = hidden.T @ hidden / n
        off = ~torch.eye(64, dtype=torch.bool)
        assert float((pairs.diagonal() - alone).abs().max()) < 6 * math.sqrt(alone / n)
        assert float((pairs[off] - both).abs().max()) < 6 * math.sqrt(both / n)


@pytest.mark.parametrize("law", [UniformSize(5, 2), UniformSubset(4, 0.3), Blocks(3, ((0,), (1, 2)))], ids=repr)
def test_blocks_are_hidden_where_the_sequences_are(law):
    x = torch.zeros(6, law.length, dtype=torch.long)
    assert law.hide(x.to("meta"), generator()).device.type == "meta"


def test_a_large_block_of_many_positions_is_listed_without_all_tuples():
    assert UniformSize(14, 13).family.sum(1).tolist() == [13] * 14


TWO = ((0,), (1,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Blocks(3, ((0, 1),)), "no block hides position 2; together they must cover 0 to 2"),
        (lambda: Blocks(2, ((0,), (1,)), (1.0, 0.0)), "no block hides position 1"),
        (lambda: Blocks(2, TWO, (0.5, 0.6)), "probabilities of sum 1.1"),
        (lambda: Blocks(2, TWO, (0.5,)), "must be 2 numbers"),
        (lambda: Blocks(2, TWO, (1.5, -0.5)), "probability=-0.5"),
        (lambda: Blocks(2, ((0, 0), (1,))), "each position once"),
        (lambda: Blocks(2, ((0, 1), (1, 0))), "differ from one another"),
        (lambda: Blocks(2, ((0,), (2,))), "position=2"),
        (lambda: UniformSize(4, 5), "k=5"),
        (lambda: UniformSize(4, 0), "k=0"),
        (lambda: UniformSize(40, 20).family, "137,846,528,820 blocks are too many to enumerate, at most 1,048,576"),
        (lambda: UniformSubset(40).family, "blocks are too many"),
        (lambda: UniformSubset(4, 0.0), "rate=0.0"),
        (lambda: UniformSize(4, 2).draw(torch.zeros(3, 5).long(), generator()), "rows of 4 positions"),
        (lambda: UniformSize(4, 2).hide(torch.zeros(3, 5).long(), generator()), "rows of 4 positions"),
        (lambda: Blocks(2, TWO).hide(torch.zeros(3, 5).long(), generator()), "rows of 2 positions"),
        (lambda: UniformSize(4, 2).index(torch.tensor([True, False, False, False])), "not a block"),
        (lambda: AdaptiveBlocks(2, TWO, ((0.5, 0.5),) * 3), "table of 3 rows: must be one for each of 4 states"),
        (lambda: AdaptiveBlocks(2, TWO, ((0.5, 0.6),) * 4), "probabilities of sum 1.1"),
        (lambda: AdaptiveBlocks(2, TWO, ((1.0, 0.0),) * 4), "no block hides position 1"),
        (lambda: AdaptiveBlocks.of(2, TWO, lambda x: [[0.5, 0.5]] * 4), "rule: gives a list"),
        (lambda: AdaptiveBlocks.of(2, TWO, lambda x: x.numpy() / 2), "rule: gives a ndarray"),
        (lambda: AdaptiveBlocks.of(2, TWO, lambda x: x[:, 0]), r"gives a tensor \(4,\); must be a tensor \(4, 2\)"),
        (lambda: AdaptiveBlocks.of(2, TWO, "aligned"), "rule='aligned': must be a function of states"),
        (lambda: LAWS["adaptive"].probs(torch.tensor([[0, 2]])), "symbols from 0 to 1"),
        (lambda: AdaptiveBlocks(30, ((0,),), ()), r"2\^30 = 1,073,741,824 states are too many"),
    ],
)
def test_mistakes_in_mask_laws_are_one_clear_line(make, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
