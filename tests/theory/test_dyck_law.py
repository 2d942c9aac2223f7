"""Closed forms of the bracket law against enumeration, power iteration and drawn patterns."""

import itertools
import math

import numpy as np
import pytest
import torch

from sandtable.arguments import ArgumentError
from sandtable.theory import dyck
from sandtable.theory.dyck import baselines
from sandtable.worlds import DyckPrefixes, DyckWords

SIZES = [(2, 4, 0.5, 8), (3, 2, 0.3, 6), (2, 1, 0.4, 7), (1, 3, 0.6, 9), (2, 3, 0.8, 6)]


def world_of(k, depth, q, length=28):
    return DyckPrefixes(types=k, depth=depth, q=q, length=length)


def law_after(stack, k, depth, q):
    """Probabilities of all 2k brackets after a stack of types."""
    law = [0.0] * (2 * k)
    opens = 1.0 if not stack else 0.0 if len(stack) == depth else q
    law[:k] = [opens / k] * k
    if stack:
        law[k + stack[-1]] = 1 - opens
    return law


def enumerated(k, depth, q, length):
    """(stack, probability) of every prefix of 0, 1, …, `length` brackets."""
    levels = [[((), 1.0)]]
    for _ in range(length):
        following = []
        for stack, p in levels[-1]:
            for token, share in enumerate(law_after(stack, k, depth, q)):
                if share:
                    following.append(((*stack, token) if token < k else stack[:-1], p * share))
        levels.append(following)
    return levels


def chain(depth, q):
    """Transition matrix of the depth."""
    matrix = np.zeros((depth + 1, depth + 1))
    for d in range(depth + 1):
        opens = 1.0 if d == 0 else 0.0 if d == depth else q
        if d < depth:
            matrix[d, d + 1] = opens
        if d > 0:
            matrix[d, d - 1] = 1 - opens
    return matrix


@pytest.mark.parametrize(("depth", "q"), [(1, 0.3), (2, 0.5), (4, 0.5), (4, 0.2), (3, 0.9), (8, 0.6)])
def test_stationary_depths_by_power_iteration(depth, q):
    # Depths alternate between even and odd; the lazy chain has the same stationary law and no period.
    lazy = (np.eye(depth + 1) + chain(depth, q)) / 2
    expected = np.linalg.matrix_power(lazy, 2**16)[0]
    assert dyck.stationary_depths(world_of(2, depth, q)).tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_stationary_depths_at_one_half():
    """1/(2D) at both ends, 1/D between."""
    for depth in range(2, 7):
        inside = [1 / depth] * (depth - 1)
        expected = [1 / (2 * depth), *inside, 1 / (2 * depth)]
        assert dyck.stationary_depths(world_of(2, depth, 0.5)).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_bayes_loss_by_enumeration(size, loss):
    """Loss of the true law, averaged over the next bracket, the prefix before it and the position."""
    k, depth, q, length = size
    by_position, by_depth = [], {}
    for level in enumerated(k, depth, q, length - 1):
        total = 0.0
        for stack, p in level:
            law = law_after(stack, k, depth, q)
            here = 0.0
            for token, share in enumerate(law):
                truth = [float(other == token) for other in range(2 * k)]
                if loss == "squared":
                    here += share * sum((a - b) ** 2 for a, b in zip(law, truth, strict=True))
                elif share:
                    here -= share * math.log(share)
            total += p * here
            by_depth[len(stack)] = here
        by_position.append(total)
    world = world_of(*size)
    assert dyck.bayes_loss(world, loss) == pytest.approx(sum(by_position) / length, rel=1e-12)
    assert dyck.bayes_loss(world, loss, length=4) == pytest.approx(sum(by_position[:4]) / 4, rel=1e-12)
    expected = [by_depth[d] for d in range(depth + 1)]
    assert dyck.bayes_losses(world, loss).tolist() == pytest.approx(expected, abs=1e-12)


WORDS = [
    DyckWords(types=2, depth=2, q=0.3, longest=8, stop=0.3),
    DyckWords(types=1, depth=3, q=0.6, longest=9, shortest=4, stop=0.5),
    DyckWords(types=3, depth=1, longest=6, stop=0.2),
    DyckWords(types=2, depth=4, q=0.7, length=8, stop=0.0),
]


def begun_words(world):
    """P(word begins so and goes on) for every beginning, and the law of its next bracket, from the enumerated words.

    Weights are those of the sampler's rule, conditioned by dividing by their sum: no use is made of the world's laws.
    """
    k, lengths = world.types, {world.length} if world.length else set(range(world.shortest, world.longest + 1))
    words = {(): 1.0}
    ended = {}
    for read in range(world.most + 1):
        following = {}
        for word, p in words.items():
            stack = []
            for token in word:
                stack = [*stack, token] if token < k else stack[:-1]
            if not stack and read and read in lengths:
                rest = 1.0 if world.length else world.stop
                ended[word] = p * rest
                p *= 1 - world.stop
            for token, share in enumerate(law_after(stack, k, world.depth, world.q)):
                if share and read < world.most:
                    following[*word, token] = p * share
        words = following
    total, begun, then = sum(ended.values()), {}, {}
    for word, p in ended.items():
        for end, token in enumerate(word):
            begun[word[:end]] = begun.get(word[:end], 0.0) + p / total
            law = then.setdefault(word[:end], {})
            law[token] = law.get(token, 0.0) + p / total
    return ended, total, {word: (p, {t: x / p for t, x in then[word].items()}) for word, p in begun.items()}


@pytest.mark.parametrize("world", WORDS, ids=str)
@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_bayes_loss_of_words_by_enumeration(world, loss):
    _, _, begun = begun_words(world)
    total, count, first = 0.0, 0.0, [0.0, 0.0]
    losses = dyck.bayes_losses(world, loss)
    assert losses.shape == (world.most + 1, world.depth + 1)
    for word, (p, law) in begun.items():
        if loss == "squared":
            here = 1 - sum(share**2 for share in law.values())
        else:
            here = -sum(share * math.log(share) for share in law.values())
        depth = sum(1 if token < world.types else -1 for token in word)
        assert float(losses[len(word), depth]) == pytest.approx(here, abs=1e-12)
        total, count = total + p * here, count + p
        if len(word) < 4:
            first = [first[0] + p * here, first[1] + p]
    assert dyck.bayes_loss(world, loss) == pytest.approx(total / count, rel=1e-12)
    assert dyck.bayes_loss(world, loss, length=4) == pytest.approx(first[0] / first[1], rel=1e-12)
    assert dyck.bayes_loss(world, loss, length=1000) == dyck.bayes_loss(world, loss)


@pytest.mark.parametrize("world", WORDS, ids=str)
def test_depth_marginals_of_words_by_enumeration(world):
    ended, total, _ = begun_words(world)
    expected = np.zeros((world.most + 2, world.depth + 1))
    for word, p in ended.items():
        heights = np.cumsum([0, *(1 if token < world.types else -1 for token in word)])
        for read, depth in enumerate(heights):
            expected[read, depth] += p / total
    assert np.allclose(world.depth_marginals().numpy(), expected[:-1], atol=1e-12)
    assert np.allclose(world.depth_marginals(world.most + 1).numpy(), expected, atol=1e-12)


def test_the_law_of_words_loses_nothing_above_the_floor():
    """The cross-entropy of the true law on drawn words is the floor; a model of another law is above it."""
    world = DyckWords(longest=12, q=0.4, stop=0.3)
    batch = world.sample(20_000, torch.Generator().manual_seed(0))
    law = world.next_token_law(batch.x)[:, :-1, :4]
    given, bracket = law / law.sum(-1, keepdim=True), batch.x[:, 1:] < 4
    shares = given.gather(-1, batch.x[:, 1:, None].clamp(max=3))[..., 0]
    lost = -shares[bracket].log()
    assert float(lost.mean()) == pytest.approx(dyck.bayes_loss(world, "cross-entropy"), abs=0.01)


def test_the_numbers_for_two_types_and_depth_four():
    world = DyckPrefixes(types=2, depth=4, q=0.5)
    for length, squared, entropy in ((28, 0.54241, 0.87881), (8, 0.56641, 0.90434)):
        assert dyck.bayes_loss(world, length=length) == pytest.approx(squared, abs=5e-6)
        assert dyck.bayes_loss(world, "cross-entropy", length=length) == pytest.approx(entropy, abs=5e-6)
    assert dyck.stationary_bayes_loss(world) == pytest.approx(0.53125, abs=1e-12)
    assert dyck.stationary_bayes_loss(world, "cross-entropy") == pytest.approx(0.86643, abs=5e-6)


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
@pytest.mark.parametrize(("depth", "q"), [(1, 0.5), (4, 0.5), (3, 0.8)])
def test_losses_approach_the_stationary_one(loss, depth, q):
    """Σ_{i<N} (E f(d_i) − π f) = h(0) − E h(d_N) with (I − P) h = f − π f: the gap is at most (max h − min h)/N."""
    world = world_of(2, depth, q)
    limit, f = dyck.stationary_bayes_loss(world, loss), dyck.bayes_losses(world, loss).numpy()
    h = np.linalg.lstsq(np.eye(depth + 1) - chain(depth, q), f - limit, rcond=None)[0]
    assert np.allclose((np.eye(depth + 1) - chain(depth, q)) @ h, f - limit)  # solvable only with the true limit
    for length in (1, 7, 100, 2001):
        assert abs(dyck.bayes_loss(world, loss, length=length) - limit) <= np.ptp(h) / length + 1e-12


@pytest.mark.parametrize(("k", "depth", "q"), [(2, 4, 0.5), (3, 2, 0.3), (2, 3, 0.9)])
def test_distance_of_laws_that_differ_in_the_top(k, depth, q):
    world = world_of(k, depth, q)
    for below in itertools.product(range(k), repeat=depth - 2):
        laws = [law_after((*below, top), k, depth, q) for top in range(2)]
        gaps = [abs(a - b) for a, b in zip(*laws, strict=True)]
        assert dyck.top_distance(world, "l1") == pytest.approx(sum(gaps))
        assert dyck.top_distance(world, "l2") == pytest.approx(math.hypot(*gaps))
        assert dyck.top_distance(world, "tv") == pytest.approx(sum(gaps) / 2)
    assert dyck.top_distance(world) == pytest.approx(math.sqrt(2) * (1 - q))


def test_distance_of_laws_where_the_stack_is_full_at_once():
    laws = [law_after((top,), 2, 1, 0.3) for top in range(2)]
    expected = sum(abs(a - b) for a, b in zip(*laws, strict=True))
    assert dyck.top_distance(world_of(2, 1, 0.3), "l1") == expected == 2
    assert dyck.top_distance(world_of(2, 1, 0.3), "tv") == 1


@pytest.mark.parametrize("size", SIZES)
def test_no_prefix_is_less_likely(size):
    k, depth, q, length = size
    for n, level in enumerate(enumerated(k, depth, q, length)[1:], start=1):
        assert min(p for _, p in level) >= dyck.least_probability(world_of(*size), length=n)
    assert dyck.least_probability(world_of(*size)) == pytest.approx((q * (1 - q) / k**2) ** length)


def test_floors_are_what_an_exact_model_loses():
    """A built model on drawn rows, both losses, beside the closed forms."""
    world = DyckPrefixes(length=28)
    x = world.sample(4000, torch.Generator().manual_seed(0)).x
    out, target = dyck.build("random", seed=3)(x[:, :-1]), x[:, 1:]
    squared = (out - torch.nn.functional.one_hot(target, 4)).square().sum(-1).mean(1)
    entropy = -out.gather(-1, target[..., None])[..., 0].log().mean(1)
    for found, loss in ((squared, "squared"), (entropy, "cross-entropy")):
        error = 5 * float(found.std()) / math.sqrt(len(found))
        assert error < 0.01
        assert float(found.mean()) == pytest.approx(dyck.bayes_loss(world, loss), abs=error)


# -- baselines -------------------------------------------------------------------------------------------------------


def patterns(n, draw):
    """Causal patterns over n positions, query i with the weights that `draw(i)` gives (rows × i)."""
    rows = [np.pad(draw(i), ((0, 0), (0, n - i))) for i in range(1, n + 1)]
    return np.stack(rows, axis=1)


@pytest.mark.parametrize("positions", [1, 2, 15, 19])
def test_random_variation_by_drawing(positions):
    rng = np.random.default_rng(0)
    one, two = (patterns(positions, lambda i: rng.dirichlet(np.ones(i), size=8000)) for _ in range(2))
    found = ((one - two) ** 2).sum((1, 2))
    error = 5 * found.std() / math.sqrt(len(found)) + 1e-12
    assert abs(found.mean() - baselines.random_variation(positions)) < error
    # per row, E Σ (a − a')² = 2 (2/(i+1) − 1/i): moments of the flat Dirichlet law
    assert baselines.random_variation(positions) == pytest.approx(
        sum(4 / (i + 1) - 2 / i for i in range(1, positions + 1)), abs=1e-12
    )


@pytest.mark.parametrize("positions", [1, 2, 16])
def test_one_hot_variation_by_drawing(positions):
    rng = np.random.default_rng(1)
    one, two = (patterns(positions, lambda i: np.eye(i)[rng.integers(i, size=8000)]) for _ in range(2))
    found = ((one - two) ** 2).sum((1, 2))
    assert abs(found.mean() - baselines.one_hot_variation(positions)) < 5 * found.std() / math.sqrt(8000) + 1e-12
    # two rows over i keys miss each other with probability 1 − 1/i, and are then at squared distance 2
    assert baselines.one_hot_variation(positions) == pytest.approx(sum(2 - 2 / i for i in range(1, positions + 1)))


@pytest.mark.parametrize("positions", [1, 2, 3, 4])
def test_largest_variation_over_all_corners(positions):
    """The distance is convex in both patterns, so that corners — one key per row — attain its maximum."""
    corners = [
        patterns(positions, lambda i, keys=keys: np.eye(i)[[keys[i - 1]]])[0]
        for keys in itertools.product(*(range(i) for i in range(1, positions + 1)))
    ]
    found = max(((a - b) ** 2).sum() for a, b in itertools.product(corners, corners))
    assert baselines.largest_variation(positions) == found


def test_baselines_beside_the_published_numbers():
    table = {15: 2.886, 16: 2.997, 17: 3.101, 19: 3.295, 20: 3.386}
    assert {n: round(baselines.random_variation(n), 3) for n in table} == table
    assert round(baselines.one_hot_variation(16), 1) == 25.2
    assert round(baselines.one_hot_variation(19), 1) == 30.9
    assert (baselines.largest_variation(16), baselines.largest_variation(19)) == (30, 36)
    assert [baselines.harmonic(n) for n in (0, 1, 2, 4)] == pytest.approx([0, 1, 1.5, 25 / 12])


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dyck.bayes_loss(DyckPrefixes(), "square"), "loss='square': .*did you mean 'squared'"),
        (lambda: dyck.bayes_losses(DyckPrefixes(), "mse"), "loss='mse'"),
        (lambda: dyck.bayes_loss(DyckPrefixes(), length=0), "length=0"),
        (lambda: dyck.top_distance(DyckPrefixes(), "l3"), "norm='l3'"),
        (lambda: dyck.least_probability(DyckPrefixes(), length=0), "length=0"),
        (lambda: baselines.random_variation(0), "positions=0"),
        (lambda: dyck.stationary_depths(DyckWords()), "world=DyckWords.*must be a DyckPrefixes"),
        (lambda: dyck.stationary_bayes_loss(DyckWords()), "must be a DyckPrefixes"),
        (lambda: dyck.top_distance(DyckWords()), "must be a DyckPrefixes"),
        (lambda: dyck.least_probability(DyckWords(), length=3), "must be a DyckPrefixes"),
        (lambda: dyck.bayes_losses(4), "world=4: must be a DyckPrefixes or DyckWords"),
        (lambda: baselines.one_hot_variation(-1), "positions=-1"),
        (lambda: baselines.largest_variation(0), "positions=0"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
