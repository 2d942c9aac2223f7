"""What the claims on masks and mixing compute, against quantities worked out another way."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from sandtable.claims.gmlm import conditioning, finite_sample, fits, instances, joint, masking, mixing
from sandtable.lab import Lab, Store
from sandtable.theory.gmlm import chains, fisher
from sandtable.theory.gmlm.tensorisation import conditional_kl
from sandtable.worlds import Ising, Table, UniformSize
from sandtable.worlds.finite import all_states


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def lab(tmp_path):
    return Lab(seeds=range(2), store=Store(tmp_path))


def test_the_law_of_an_instance_is_its_family_at_its_parameter():
    for instance in [*instances.random_instances(2, generator()), instances.WORSE, instances.clique(3, 0.3, free="J")]:
        assert torch.allclose(instance.family(instance.theta).softmax(0), instance.law.probs)
        size = float(instance.scores.abs().max())
        assert float((instance.law.probs @ instance.scores).abs().max()) < 1e-12 * size
        everything = fisher.fisher(instance.scores, instance.law)
        assert torch.linalg.matrix_rank(everything) == len(instance.theta)  # identified


def test_a_model_with_fixed_fields_is_an_ising_model():
    instance = instances.ising([0.1, 0.2, -0.3], [0.4, 0.5, 0.6], free="J")
    assert torch.allclose(instance.law.probs, Ising.of([0.1, 0.2, -0.3], [0.4, 0.5, 0.6]).probs)
    assert len(instance.theta) == 3


def test_mask_laws_of_the_claims():
    masks = instances.together_when_aligned(3)
    states = ["".join(map(str, x)) for x in masks_states(3).tolist()]
    probs = dict(zip(states, masks.probs(masks_states(3)).tolist(), strict=True))
    assert probs["111"] == pytest.approx([0.8, *[0.2 / 3] * 3])
    assert probs["101"] == pytest.approx([0, *[1 / 3] * 3])
    assert instances.every_block(3) == tuple(b for k in (1, 2, 3) for b in combinations(range(3), k))
    for law in instances.independent_masks(3, generator()):
        assert not law.adaptive
        assert float(law.probs(masks_states(3)[:1]).sum()) == pytest.approx(1.0)


def masks_states(n):
    return all_states(2, n)


def test_nested_blocks_hide_what_the_inner_ones_hide():
    inner, outer = masking._nested(4, generator(3))
    assert sum(outer.probabilities) == pytest.approx(1.0)
    # A position is hidden at least as often.
    seen = [(law.weights[:, None] * law.family).sum(0) for law in (inner, outer)]
    assert bool((seen[1] >= seen[0] - 1e-12).all())


def test_all_masks_at_once_by_sums():
    """The sandwich of the family in which k = 2 is worse than k = 1: the variance of its mean score over its slope²."""
    law, scores = instances.WORSE.law, instances.WORSE.scores
    for k in (1, 2):
        masks = UniformSize(3, k)
        each = fisher.masked_scores(instances.WORSE.family, instances.WORSE.theta, masks)[:, :, 0]
        mean = (masks.probs(law.states) * each).sum(1)
        slope = float((fisher.joint(law, masks) * each.square()).sum())
        expected = float((law.probs * mean.square()).sum()) / slope**2
        found = float(fisher.covariance_of_many(scores, law, masks))
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_printed_kernel_has_a_law_for_every_mask():
    law = Table.random(3, generator(1))
    masks = instances.adaptive_masks(3, generator(2))
    kernel = mixing.pair_kernel(law, masks)
    assert kernel.shape == (56, 56)
    assert torch.allclose(kernel.sum(1), torch.ones(56).double())
    assert int((torch.linalg.eigvals(kernel).real > 1 - 1e-9).sum()) == 19
    flat = fisher.joint(law, masks).T.flatten()
    assert torch.allclose(flat @ kernel, flat)


def test_the_worst_direction_is_a_generalised_eigenvalue():
    instance = instances.ising([0.3, -0.1, 0.2], [0.2, 0.4, -0.3])
    gamma, information = mixing.variance(instance, UniformSize(3, 1))
    values = np.linalg.eigvals(gamma.numpy() @ information.numpy())
    assert mixing.worst_direction(gamma, information) == pytest.approx(values.real.max())


def test_divergence_from_an_atom():
    e, t = 0.01, 0.5
    p = math.exp(-t) + (1 - math.exp(-t)) * e
    expected = (p * math.log(p / e) + (1 - p) * math.log((1 - p) / (1 - e))) / math.log(1 / e)
    assert joint._from_atom(e, t) == pytest.approx(expected)
    assert expected > math.exp(-2 * t)


def test_the_loss_of_a_law():
    q, r, masks = Table.random(3, generator(4)), Table.random(3, generator(5)), UniformSize(3, 2)
    entropy = chains.conditional_entropy(r, masks)
    assert float(joint._loss(q, masks, r.probs)) == pytest.approx(float(conditional_kl(r.probs, q, masks)) + entropy)


def test_what_the_condition_hides_and_shows():
    shown = conditioning.Example(shown="shown by K")
    assert conditioning._drawn(shown, conditioning.MASKS, 1) == pytest.approx(9 / 13)
    assert conditioning._drawn(shown, conditioning.MASKS, 0) == pytest.approx(2 / 3)


def test_errors_are_those_of_each_size(lab):
    found = fits.errors(lab, 0.3, 2000, 300, "one mask")
    assert found["error"].shape == (2, 300, 4)
    assert found["converged"].all()
    mean = found["error"].mean((0, 1)) * 2000
    assert mean == pytest.approx(fits._traces(0.3), rel=0.2)
    at_once = fits.errors(lab, 0.3, 2000, 300, "all masks")["error"].mean((0, 1)) * 2000
    assert at_once == pytest.approx(at_once.mean(), rel=0.01)


def test_every_estimator_has_the_covariance_of_its_masks():
    for name in fits.ESTIMATORS:
        gamma = fits._covariance(name, "its own")
        best = fits._covariance(name, "maximum likelihood")
        assert float(torch.linalg.eigvalsh(gamma - best)[0]) > -1e-9
        assert torch.allclose(fits._covariance(name, "half"), gamma / 2)


def test_entropy_of_frequencies():
    law = Table.random(2, generator(6))
    expected = chains.conditional_entropy(law, finite_sample.MASKS)
    assert finite_sample._entropy(law.probs.numpy()) == pytest.approx(expected)
    assert finite_sample._numbers(0.1) == pytest.approx(finite_sample.NUMBERS, rel=5e-6)
    assert max(finite_sample._changes(falls=True)) < 0
