"""Blocks of data are drawn on the device they are trained on: "meta", which holds no numbers, refuses all others."""

import pytest
from torch.utils._pytree import tree_leaves

from sandtable.objectives import NextBracket
from sandtable.training.streams import Supply, stream
from sandtable.worlds import DyckPrefixes, DyckWords


@pytest.mark.parametrize(
    ("world", "objective"),
    [
        (DyckPrefixes(length=6), NextBracket()),
        (DyckWords(longest=6), NextBracket(reads="symbols")),
        (DyckWords(longest=6), NextBracket(reads="symbols", contrast=0.3)),
    ],
    ids=["prefixes", "words", "contrast"],
)
def test_a_block_stays_where_it_is_drawn(world, objective):
    pairs = [(stream("data", seed), stream("noise", seed)) for seed in range(3)]
    block = Supply(world, objective, 4).draw_each(0, 5, pairs, "meta")
    assert {leaf.device.type for leaf in tree_leaves(block)} == {"meta"}
    assert {leaf.shape[:2] for leaf in tree_leaves(block)} == {(5, 3)}
