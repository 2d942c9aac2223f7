"""Statistics of the bracket claims, against the probes that compute the same on tensors."""

import numpy as np
import pytest
import torch

from sandtable.claims.dyck import attention, layers, nets, variation
from sandtable.claims.dyck.setting import variation as mean_variation
from sandtable.probes import dyck as probe


def drawn(models, rows=3, positions=5, seed=0):
    return torch.rand(models, rows, 1, positions, positions, generator=torch.Generator().manual_seed(seed)).double()


def test_variation_is_that_of_the_probe():
    seen = drawn(6)
    assert mean_variation(nets.flat(seen[:, :, 0].numpy())) == pytest.approx(float(probe.attention_variation(seen)))


def test_a_ratio_of_variations():
    first, second = drawn(5), 0.1 * drawn(7, seed=1)
    check = variation.over("ratio", *(nets.flat(seen[:, :, 0].numpy()) for seen in (first, second)), 2.0)
    expected = float(probe.attention_variation(first) / probe.attention_variation(second))
    assert np.exp(check.measured) == pytest.approx(expected)


def test_settings_against_seeds_pair_by_pair():
    groups = [drawn(4, seed=i)[:, :1, 0].flatten(1).numpy() + i for i in range(3)]
    units = np.concatenate([np.column_stack([np.full(4, float(i)), group]) for i, group in enumerate(groups)])
    between = [np.square(a - b).sum() for i, g in enumerate(groups) for h in groups[:i] for a in g for b in h]
    within = [np.square(g[i] - g[j]).sum() for g in groups for i in range(4) for j in range(i)]
    found = np.exp(attention._between_over_within(units))
    assert found == pytest.approx(np.mean(between) / np.mean(within))


def test_growth_from_layer_to_layer():
    lower, upper = (nets.flat(scale * drawn(8, seed=i)[:, :, 0].numpy()) for i, scale in enumerate((1.0, 3.0)))
    check = layers.grows("growth", lower[:, None], upper[:, None])
    assert np.exp(check.measured) == pytest.approx(mean_variation(upper) / mean_variation(lower))
    worst = layers.grows("growth", np.stack([lower, upper], 1), np.stack([upper, lower], 1))
    assert worst.measured == pytest.approx(-check.measured)
    both = np.stack([lower, upper], 1)
    assert np.exp([layers._least(both), layers._most(both)]) == pytest.approx(
        [mean_variation(lower), mean_variation(upper)]
    )


def test_variation_by_length_is_that_of_shorter_prefixes():
    patterns = drawn(5, rows=4, positions=7).tril()
    found = variation.by_length(patterns[:, :, 0].numpy())
    for size in (1, 4, 7):
        assert found[size - 1] == pytest.approx(float(probe.attention_variation(patterns[..., :size, :size])))
