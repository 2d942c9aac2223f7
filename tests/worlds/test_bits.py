"""Random bits and the data made of them: the same by numpy, by tensors, alone or for many generators at once."""

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

from sandtable.objectives import MaskedLM, masked_lm
from sandtable.training.streams import Supply, stream
from sandtable.worlds import TopicModel
from sandtable.worlds.base import SamplesEach
from sandtable.worlds.bits import bulk_generator, numpy_bits, random_bits, row_seeds, tensor_bits
from sandtable.worlds.topics import _Plan, _Writer

FORMS = ("positions", "types", "documents")


def seeds(n, seed=0):
    return row_seeds(n, bulk_generator(torch.Generator().manual_seed(seed)))


def same(a, b):
    assert a.dtype == b.dtype
    assert torch.equal(a, b)


def splitmix64(state, count):
    """The published algorithm, in Python's whole numbers."""
    out, wrap = [], 2**64 - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & wrap
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & wrap
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & wrap
        out.append(z ^ (z >> 31))
    return out


def test_the_bits_are_splitmix64():
    # First outputs of the reference implementation for state 1234567.
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    start = np.array([1234567, -1, 0, 2**63 - 1, -(2**63)], dtype=np.int64)
    expected = [splitmix64(int(s) % 2**64, 7) for s in start]
    assert numpy_bits(start, 7).view(np.uint64).tolist() == expected


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (1, 1), (7, 150), (1000, 75), (2, 70_000)])
def test_numpy_and_tensors_agree(shape):
    start = seeds(shape[0])
    by_numpy = torch.from_numpy(numpy_bits(start, shape[1]))
    assert by_numpy.shape == shape
    same(by_numpy, tensor_bits(torch.from_numpy(start), shape[1]))
    same(by_numpy, random_bits(torch.from_numpy(start), shape[1]))


def test_every_bit_is_fair_and_independent_of_its_neighbours():
    bits = numpy_bits(seeds(2000), 100)
    ones = np.stack([(bits >> k) & 1 for k in range(64)]).astype(float)
    n = bits.size
    assert np.abs(ones.mean((1, 2)) - 0.5).max() < 5 * 0.5 / n**0.5
    signs = (2 * ones - 1).reshape(64, -1)
    assert np.abs(signs @ signs.T / n - np.eye(64)).max() < 6 / n**0.5
    rows, columns = 2 * ones[:, 1:] - 1, 2 * ones[:, :-1] - 1
    assert np.abs((rows * columns).mean((1, 2))).max() < 5 / n**0.5
    across = (2 * ones[:, :, 1:] - 1) * (2 * ones[:, :, :-1] - 1)
    assert np.abs(across.mean((1, 2))).max() < 5 / n**0.5


@pytest.mark.parametrize(("topics", "words"), [(1, 3), (10, 3), (64, 3), (65, 3), (130, 3), (2, 65_535), (3, 70_000)])
@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_words_by_numpy_and_by_tensors(topics, words, overlap):
    world = TopicModel(topics, words, length=(5, 9), dirichlet=0.2, overlap=overlap if topics > 1 else 0.0)
    n, rng = 1100, np.random.default_rng(0)
    edges = np.sort(rng.integers(-(2**30), 2**30 + 1, (n, topics - 1), dtype=np.int32), axis=1)
    lengths = rng.integers(5, 10, n, dtype=np.int32)
    x, topic = np.empty((n, 9), np.int64), np.empty((n, 9), np.int8 if topics <= 64 else np.int32)
    real = np.empty((n, 9), np.bool_)
    tensors = [torch.from_numpy(a.copy()) for a in (x, topic, edges, np.arange(9) < lengths[:, None])]
    _Writer(world)(_Plan(seeds(n), lengths, np.empty((n, topics)), edges), x, topic, real)
    world._write(*tensors, tensor_bits(torch.from_numpy(seeds(n)), 5))
    same(torch.from_numpy(real), tensors[3])
    same(torch.from_numpy(x), tensors[0])
    same(torch.from_numpy(topic), tensors[1])


@pytest.mark.parametrize("law", [dict(present=2), dict(dirichlet=0.1)])
@pytest.mark.parametrize("n", [0, 3, 2500])
def test_many_generators_are_one_after_another(law, n):
    world = TopicModel(5, 4, length=(3, 9), **law)
    assert isinstance(world, SamplesEach)
    together, alone = ([stream("data", i) for i in range(3)] for _ in range(2))
    batch = world.sample_each(n, together)
    parts = [world.sample(n, g) for g in alone]
    same(batch.x, torch.cat([p.x for p in parts]))
    same(batch.mask, torch.cat([p.mask for p in parts]))
    for name, value in batch.latents.items():
        same(value, torch.cat([p.latents[name] for p in parts]))
    for a, b in zip(together, alone, strict=True):
        assert torch.equal(a.get_state(), b.get_state())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hide", [False, True])
def test_masks_by_numpy_and_by_tensors(form, hide, monkeypatch):
    batch = TopicModel(5, 4, length=(2, 9), dirichlet=0.1).sample(600, stream("data", 0)).fold(5)
    objective = MaskedLM(form=form, hide_selected=hide)
    here = objective.draw_block(batch, stream("noise", 0), range(5))
    monkeypatch.setattr(masked_lm, "random_bits", tensor_bits)
    tree_map(same, here, objective.draw_block(batch, stream("noise", 0), range(5)))


@pytest.mark.parametrize("form", FORMS)
def test_a_supply_for_many_is_the_supplies_of_each(form):
    supply = Supply(TopicModel(5, 4, length=(3, 20), dirichlet=0.1), MaskedLM(form=form), 6)
    pairs = [[(stream("data", i), stream("noise", 7 + i)) for i in range(3)] for _ in range(2)]
    together = supply.draw_each(8, 4, pairs[0], "cpu")
    alone = [supply.draw(8, 4, *pair) for pair in pairs[1]]
    tree_map(lambda a, *b: same(a, torch.stack(b, dim=1)), together, *alone)


def test_what_cannot_be_drawn_together():
    class Plain:
        def sample(self, n, generator):
            return TopicModel(5, 4, dirichlet=0.1).sample(n, generator)

    pairs = [(stream("data", 0), stream("noise", 0))]
    assert Supply(Plain(), MaskedLM(), 6).draw_each(0, 4, pairs, "cpu") is None
