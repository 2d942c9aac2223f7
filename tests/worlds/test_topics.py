"""Topic worlds against their laws: enumeration, moments, and bounds on total variation."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.worlds import Batch, Expectation, TokenWorld, TopicModel, Vocab


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def within(counts, law, confidence=1e-9):
    """Whether counts agree with a law: TV of the empirical law ≤ ½√(K/n) + √(log(1/δ)/2n) but for probability δ."""
    counts, law = np.asarray(counts, dtype=float), np.asarray(law, dtype=float)
    total = counts.sum()
    distance = 0.5 * np.abs(counts / total - law).sum()
    return distance <= 0.5 * math.sqrt(len(law) / total) + math.sqrt(math.log(1 / confidence) / (2 * total))


@st.composite
def worlds(draw):
    topics, words = draw(st.integers(1, 80)), draw(st.integers(1, 6))
    least = draw(st.integers(1, 12))
    length = draw(st.sampled_from([least, (least, least + draw(st.integers(0, 5)))]))
    law = draw(st.sampled_from(["present", "dirichlet"]))
    value = draw(st.integers(1, topics)) if law == "present" else draw(st.floats(1e-3, 50.0))
    overlap = draw(st.floats(0.0, 1.0)) if topics > 1 else 0.0
    return TopicModel(topics, words, length=length, overlap=overlap, **{law: value})


# -- what always holds -----------------------------------------------------------------------------------------------


@given(world=worlds(), n=st.integers(1, 30), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=100)
def test_every_sample_is_well_formed(world, n, seed):
    batch = world.sample(n, rng(seed))
    x, mask, topic, shares = batch.x, batch.mask, batch.latents["topic"].long(), batch.latents["shares"].double()
    least, most = world.length if isinstance(world.length, tuple) else (world.length, world.length)
    assert x.shape == mask.shape == topic.shape == (n, most)
    assert x.dtype == torch.int64
    assert mask.dtype == torch.bool
    lengths = mask.sum(1)
    assert ((lengths >= least) & (lengths <= most)).all()
    assert (mask.long().diff(dim=1) <= 0).all()  # padding only at the end
    assert (x[~mask] == 0).all()
    assert ((x[mask] >= 1) & (x[mask] < world.vocab_size)).all()
    assert torch.allclose(shares.sum(1), torch.ones(n, dtype=torch.float64), atol=1e-5)
    assert (world.emissions[topic[mask], x[mask]] > 0).all()
    assert (shares.gather(1, topic)[mask] > 0).all()
    if world.present is not None:
        assert ((shares > 0).sum(1) == world.present).all()
        assert torch.allclose(shares[shares > 0], torch.tensor(1.0 / world.present, dtype=torch.float64))


@given(world=worlds())
@settings(deadline=None, max_examples=50)
def test_tables_agree_with_the_definition(world):
    T, v, extra = world.topics, world.words, round(world.overlap * world.words)
    owned = [{1 + t * v + w for w in range(v)} | {1 + ((t + 1) % T) * v + w for w in range(extra)} for t in range(T)]
    law = torch.zeros(T, T * v + 1, dtype=torch.float64)
    for t, members in enumerate(owned):
        law[t, list(members)] = 1.0 / len(members)
    assert torch.allclose(world.emissions, law)
    assert world.topic_of.tolist() == [-1] + [t for t in range(T) for _ in range(v)]
    assert len(world.vocab) == world.vocab_size == T * v + 1
    assert world.vocab.mask == 0
    if T * v <= 40:
        same = [[any(i in m and j in m for m in owned) for j in range(T * v + 1)] for i in range(T * v + 1)]
        assert world.same_topic.tolist() == same


@pytest.mark.parametrize("law", [dict(present=2), dict(dirichlet=0.1)])
def test_the_same_generator_state_gives_the_same_batch(law):
    world = TopicModel(5, 4, length=(3, 9), **law)
    first, second, other = world.sample(2500, rng(3)), world.sample(2500, rng(3)), world.sample(2500, rng(4))
    for a, b in ((first.x, second.x), (first.mask, second.mask), *zip(first.latents.values(), second.latents.values())):  # noqa: B905
        assert torch.equal(a, b)
    assert not torch.equal(first.x, other.x)
    generator = rng(3)
    world.sample(10, generator)
    assert not torch.equal(world.sample(2500, generator).x, first.x)


def test_the_number_of_threads_does_not_matter():
    world = TopicModel(5, 4, length=(3, 9), dirichlet=0.3)
    threads = torch.get_num_threads()
    try:
        drawn = []
        for number in (1, 4):
            torch.set_num_threads(number)
            drawn.append(world.sample(5000, rng(1)).x)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*drawn)


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    TopicModel(5, 4, dirichlet=0.1).sample(10, rng())
    assert torch.equal(before, torch.random.get_rng_state())


def test_no_documents():
    assert TopicModel(5, 4, length=7, dirichlet=0.1).sample(0, rng()).x.shape == (0, 7)


def test_it_is_a_token_world_and_decodes():
    world = TopicModel(2, 2, length=3, present=1)
    assert isinstance(world, TokenWorld)
    assert world.vocab.decode(torch.tensor([0, 1, 4])) == ["[MASK]", "t0w0", "t1w1"]


# -- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topics", "present"), [(5, 2), (6, 3), (4, 4), (7, 1)])
def test_topic_sets_are_uniform(topics, present):
    shares = TopicModel(topics, 2, length=2, present=present).sample(40_000, rng(1)).latents["shares"]
    seen = Counter(tuple(row.nonzero()[:, 0].tolist()) for row in shares)
    sets = list(itertools.combinations(range(topics), present))
    assert set(seen) <= set(sets)
    assert within([seen[s] for s in sets], np.full(len(sets), 1 / len(sets)))


@pytest.mark.parametrize("overlap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("topics", [4, 70])
def test_words_given_the_topic_set(overlap, topics):
    """P(word | set S) = (1/τ) Σ_{t∈S} emissions[t]; words of a document are independent given S."""
    world = TopicModel(topics, 3, length=2, present=2, overlap=overlap)
    batch = world.sample(60_000, rng(2))
    shares, x = batch.latents["shares"].double(), batch.x
    predicted = (shares @ world.emissions).mean(0)
    assert within(x.flatten().bincount(minlength=world.vocab_size), predicted)
    pairs = torch.zeros(world.vocab_size, world.vocab_size, dtype=torch.float64)
    for s in shares.unique(dim=0)[:6]:
        law = s @ world.emissions
        chosen = (shares == s).all(1)
        pairs = (x[chosen, 0] * world.vocab_size + x[chosen, 1]).bincount(minlength=world.vocab_size**2)
        assert within(pairs, torch.outer(law, law).flatten())


@pytest.mark.parametrize(("topics", "alpha"), [(3, 0.1), (10, 0.1), (10, 2.0), (64, 0.5), (65, 0.5), (200, 0.05)])
def test_topics_given_the_shares(topics, alpha):
    """Summed over documents, the counts of (home topic of word) follow the mean of the shares (both search paths)."""
    world = TopicModel(topics, 2, length=50, dirichlet=alpha)
    batch = world.sample(2000, rng(5))
    shares, topic = batch.latents["shares"].double(), batch.latents["topic"].long()
    assert torch.equal(world.topic_of[batch.x], topic)
    assert within(topic.flatten().bincount(minlength=topics), shares.mean(0))
    # Document by document: the expected squared distance between counts/N and shares is (1 − Σθ²)/N.
    counts = torch.zeros(2000, topics, dtype=torch.float64).scatter_add_(1, topic, torch.ones(topic.shape).double())
    distance = (counts / 50 - shares).square().sum(1).mean()
    expected = (1 - shares.square().sum(1)).mean() / 50
    assert float(distance) == pytest.approx(float(expected), rel=0.1)


@pytest.mark.parametrize(("topics", "alpha"), [(10, 0.1), (5, 1.0), (3, 5.0), (20, 0.02), (10, 0.001), (2, 0.005)])
def test_dirichlet_moments(topics, alpha):
    """E Σθ² = (α + 1)/(Tα + 1), E θ_t = 1/T: also where single gamma variables underflow."""
    shares = TopicModel(topics, 2, length=1, dirichlet=alpha).sample(20_000, rng(7)).latents["shares"].double()
    assert bool(shares.isfinite().all())
    squares = shares.square().sum(1)
    error = 5 * float(squares.std()) / math.sqrt(len(squares)) + 1e-6
    assert abs(float(squares.mean()) - (alpha + 1) / (topics * alpha + 1)) < error
    assert torch.allclose(
        shares.mean(0), torch.tensor(1 / topics, dtype=torch.float64), atol=5 * 0.5 / math.sqrt(20_000)
    )


def test_a_single_topic_has_all_the_share():
    shares = TopicModel(1, 3, length=2, dirichlet=0.1).sample(200_000, rng(0)).latents["shares"]
    assert bool((shares == 1).all())


def test_lengths_are_uniform():
    lengths = TopicModel(3, 2, length=(4, 9), present=1).sample(30_000, rng(0)).mask.sum(1)
    assert within(lengths.bincount(minlength=10)[4:], np.full(6, 1 / 6))


@pytest.mark.parametrize("overlap", [0.0, 0.4])
def test_the_infinite_limit_is_the_enumeration(overlap):
    world = TopicModel(5, 3, present=2, overlap=overlap)
    limit = world.infinite()
    T, v, extra = 5, 3, round(overlap * 3)
    rows = []
    for chosen in itertools.combinations(range(T), 2):
        law = np.zeros(T * v + 1)
        for t in chosen:
            owned = [1 + (t * v + k) % (T * v) for k in range(v + extra)]
            law[owned] += 1 / (2 * len(owned))
        rows.append(law)
    np.testing.assert_allclose(limit.batch.x.numpy(), np.array(rows), atol=1e-15)
    assert limit.weights.tolist() == pytest.approx([0.1] * 10)
    assert limit.batch.vocab == world.vocab


def test_long_documents_approach_the_infinite_limit():
    world = TopicModel(4, 2, length=20_000, present=2)
    batch = world.sample(12, rng(0))
    law = batch.latents["shares"].double() @ world.emissions
    for row, expected in zip(batch.x, law, strict=True):
        assert within(row.bincount(minlength=9), expected)


# -- what is refused -------------------------------------------------------------------------------------------------

GOOD = dict(topics=4, words=3, length=5, present=2)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (dict(topics=0), "topics=0"),
        (dict(topics=-1), "topics=-1"),
        (dict(topics=2.5), "topics=2.5"),
        (dict(topics=True), "topics=True"),
        (dict(topics="4"), "topics='4'"),
        (dict(words=0), "words=0"),
        (dict(words=-3), "words=-3"),
        (dict(length=0), "length=0"),
        (dict(length=-5), "length=-5"),
        (dict(length=(0, 4)), r"length\[0\]=0"),
        (dict(length=(5, 4)), r"length\[1\]=4"),
        (dict(length=(1, 2, 3)), "length"),
        (dict(length=(1.5, 3)), r"length\[0\]=1.5"),
        (dict(present=0), "present=0"),
        (dict(present=5), "present=5.*from 1 to 4"),
        (dict(present=None), "exactly one"),
        (dict(dirichlet=0.1), "exactly one"),
        (dict(present=None, dirichlet=0.0), "dirichlet=0"),
        (dict(present=None, dirichlet=-1.0), "dirichlet=-1"),
        (dict(present=None, dirichlet=math.nan), "dirichlet=nan"),
        (dict(present=None, dirichlet=math.inf), "dirichlet=inf"),
        (dict(overlap=-0.1), "overlap=-0.1"),
        (dict(overlap=1.5), "overlap=1.5"),
        (dict(topics=1, present=1, overlap=0.5), "overlap=0.5"),
    ],
)
def test_bad_worlds(change, named):
    with pytest.raises(ArgumentError, match=named) as caught:
        TopicModel(**{**GOOD, **change})
    assert "\n" not in str(caught.value)


def test_bad_numbers_of_documents():
    for n in (-1, 2.5, "3"):
        with pytest.raises(ArgumentError, match="n="):
            TopicModel(**GOOD).sample(n, rng())


def test_the_infinite_limit_needs_a_small_support():
    with pytest.raises(ArgumentError, match="present"):
        TopicModel(3, 2, dirichlet=0.1).infinite()
    with pytest.raises(ArgumentError, match="at most"):
        TopicModel(40, 2, present=20).infinite()


@pytest.mark.parametrize(
    "weights", [torch.tensor([0.5, 0.6]), torch.tensor([1.5, -0.5]), torch.ones(3) / 3, torch.tensor([math.nan, 1.0])]
)
def test_bad_expectations(weights):
    with pytest.raises(ArgumentError, match="weights"):
        Expectation(Batch(torch.zeros(2, 3)), weights)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_batches_slice_map_and_fold():
    given_ = Batch(torch.arange(6))
    batch = Batch(
        torch.arange(12).reshape(6, 2), torch.ones(6, 2).bool(), {"k": torch.arange(6)}, given_, Vocab(("a",))
    )
    part = batch[2:4]
    assert len(part) == 2
    assert part.x.tolist() == [[4, 5], [6, 7]]
    assert part.latents["k"].tolist() == part.given.x.tolist() == [2, 3]
    folded = batch.fold(3)
    assert folded.x.shape == (3, 2, 2)
    assert folded.given.x.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert folded.vocab is batch.vocab
    assert batch[torch.tensor([5, 0])].latents["k"].tolist() == [5, 0]
