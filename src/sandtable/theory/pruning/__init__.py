"""Pruning random Transformers to any small target, weight by weight, through subset sums (Wen et al. 2023)."""

from sandtable.theory.pruning import bounds
from sandtable.theory.pruning.layers import KeyedAttention, distance, norm12, random_network, random_target, stream
from sandtable.theory.pruning.linear import PrunedMap, prune_linear, prune_relu
from sandtable.theory.pruning.multiplex import multiplexer
from sandtable.theory.pruning.subset_sum import expected_residual, nearest_subsets
from sandtable.theory.pruning.transformer import Pruned, prune, sizes

__all__ = [
    "KeyedAttention",
    "Pruned",
    "PrunedMap",
    "bounds",
    "distance",
    "expected_residual",
    "multiplexer",
    "nearest_subsets",
    "norm12",
    "prune",
    "prune_linear",
    "prune_relu",
    "random_network",
    "random_target",
    "sizes",
    "stream",
]
