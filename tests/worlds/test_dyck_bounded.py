"""Bounded Dyck prefixes and words: laws, counts, samples and latents against a stack in plain Python."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sandtable
from sandtable.arguments import ArgumentError
from sandtable.worlds import Batch, DyckPrefixes, DyckWords, HasLogProb, HasNextToken, Recogniser, TokenWorld

PRODUCTS = [(2, 4, 0.5, 8), (3, 2, 0.3, 7), (2, 1, 0.4, 6), (1, 3, 0.6, 9)]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def prefixes_of(k, depth, q, length):
    return DyckPrefixes(types=k, depth=depth, q=q, length=length)


# -- the languages, written out --------------------------------------------------------------------------------------


def following(stack, k, depth, q):
    """(token, probability) of what may come next in a prefix."""
    opens = 1.0 if not stack else 0.0 if len(stack) == depth else q
    found = [(t, opens / k) for t in range(k)] if opens else []
    return found + ([(k + stack[-1], 1 - opens)] if opens < 1 else [])


def step(stack, token, k):
    return [*stack, token] if token < k else stack[:-1]


def prefix_law(k, depth, q, length):
    """Every string of `length` brackets that begins a word, with its probability."""
    found: dict[tuple[int, ...], tuple[list[int], float]] = {(): ([], 1.0)}
    for _ in range(length):
        found = {
            (*word, token): (step(stack, token, k), p * share)
            for word, (stack, p) in found.items()
            for token, share in following(stack, k, depth, q)
        }
    return {word: p for word, (_, p) in found.items()}


def word_law(world):
    """Every complete word with its probability: all are generated with the stop rule, then those that fit are kept."""
    k, found = world.types, {}

    def go(word, stack, p):
        if word and not stack:
            if world.length is not None:
                if len(word) == world.length:
                    found[word] = p
            elif len(word) >= world.shortest:
                found[word] = p * world.stop
            p *= 1 - world.stop if len(word) >= world.shortest else 1.0
        if p and len(word) < (world.length or world.longest):
            for token, share in following(stack, k, world.depth, world.q):
                go((*word, token), step(stack, token, k), p * share)

    go((), [], 1.0)
    total = math.fsum(found.values())
    return {word: p / total for word, p in found.items() if p}


def beginnings(law):
    """Probability of every beginning, of the empty one on."""
    found = Counter()
    for word, p in law.items():
        for end in range(len(word) + 1):
            found[word[:end]] += p
    return found


def stack_of(row, k, depth):
    """The open brackets (position, type) after a row, or None where it is no beginning of a word."""
    stack = []
    for i, token in enumerate(row):
        if token < k:
            stack.append((i, token))
        elif token >= 2 * k or not stack or stack.pop()[1] != token - k:
            return None
        if len(stack) > depth:
            return None
    return stack


def close_to(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    assert all(found[word] == pytest.approx(expected[word], **(tolerance or {"rel": 1e-12})) for word in found)


def distance_bound(cells, n):
    """Total variation of n draws to their law stays below this but for one time in 10⁹."""
    return 0.5 * math.sqrt(cells / n) + math.sqrt(math.log(1e9) / (2 * n))


def total_variation(counts, law):
    n = sum(counts.values())
    assert counts.keys() <= law.keys()
    return 0.5 * sum(abs(counts[word] / n - p) for word, p in law.items())


# -- prefixes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*PRODUCTS, (1, 1, 0.2, 5), (3, 3, 0.9, 5)])
def test_the_support_is_the_process(size):
    world, expected = prefixes_of(*size), prefix_law(*size)
    support = world.support()
    assert (support.batch.x[:, 0] == world.bos).all()
    assert support.batch.mask is not None
    assert support.batch.mask.all()
    rows = [tuple(row) for row in support.batch.x[:, 1:].tolist()]
    assert len(set(rows)) == len(rows) == world.count_prefixes(world.length)
    close_to(dict(zip(rows, support.weights.tolist(), strict=True)), expected)
    log_prob = world.log_prob(support.batch).tolist()
    close_to(dict(zip(rows, log_prob, strict=True)), {word: math.log(p) for word, p in expected.items()})


@pytest.mark.parametrize("size", PRODUCTS)
def test_the_printed_product_is_the_law(size):
    k, depth, q, length = size
    world, law = prefixes_of(*size), prefix_law(*size)
    weight = world.weight(torch.tensor([[world.bos, *word] for word in law]))
    assert float(weight.sum()) == pytest.approx(1.0, abs=1e-12)
    for word, found in zip(law, weight.tolist(), strict=True):
        product, height = 1.0, 0
        for token in word:
            height += 1 if token < k else -1
            if token < k:
                product *= 1 / k if height == 1 else q / k
            elif height < depth - 1:
                product *= 1 - q
        assert found == pytest.approx(product, rel=1e-12)
        assert found == pytest.approx(law[word], rel=1e-12)
    off = torch.tensor([[world.bos, *[0] * (depth + 1)], [world.bos, k, *[0] * depth]])
    assert world.weight(off).tolist() == [0.0, 0.0]
    rows = torch.tensor([[world.bos, *word] for word in law])
    begun = Batch(x=rows, mask=(torch.arange(length + 1) < 4).expand(len(rows), -1))
    expected = prefix_law(k, depth, q, 3)
    assert world.weight(begun).tolist() == pytest.approx([expected[word[:3]] for word in law], rel=1e-12)


@pytest.mark.parametrize("size", PRODUCTS)
def test_next_tokens_of_prefixes(size):
    k, depth, q, length = size
    world = prefixes_of(*size)
    words = [word for n in range(length) for word in prefix_law(k, depth, q, n)]
    expected = torch.zeros(len(words), 2 * k + 2, dtype=torch.float64)
    for row, word in zip(expected, words, strict=True):
        stack = [kind for _, kind in stack_of(word, k, depth) or []]
        for token, share in following(stack, k, depth, q):
            row[token] = share
    padded = torch.tensor([[world.bos, *word, *[k] * (length - len(word))] for word in words])  # never read
    lengths = torch.tensor([len(word) + 1 for word in words])
    law = world.next_token_law(padded)[torch.arange(len(words)), lengths - 1]
    assert torch.allclose(law, expected, atol=1e-15)
    assert torch.equal(world.next_token_probs(padded, lengths), law)
    assert torch.equal(world.next_token_probs(padded[:, :1]), world.next_token_law(padded[:, :1])[:, 0])
    empty = world.next_token_probs(torch.zeros(2, 0, dtype=torch.long))
    assert empty.tolist() == [[float(token == world.bos) for token in range(2 * k + 2)]] * 2


def test_counts_are_the_published_ones():
    world = DyckPrefixes(types=2, depth=4)
    assert [world.count_prefixes(n) for n in (0, 2, 4, 6, 8, 28)] == [1, 6, 48, 312, 1920, 117_546_221_568]
    words = {2: 2, 4: 8, 6: 40, 8: 224, 26: 2_176_786_432, 28: 13_060_702_208}
    assert {n: world.count_words(n) for n in words} == words
    assert DyckWords().count_words(7) == 0


@pytest.mark.parametrize(("k", "depth"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (3, 4)])
def test_counts_by_enumeration(k, depth):
    world = DyckPrefixes(types=k, depth=depth)
    for n in range(7):
        stacks = [stack_of(row, k, depth) for row in itertools.product(range(2 * k), repeat=n)]
        assert world.count_prefixes(n) == sum(stack is not None for stack in stacks)
        assert world.count_words(n) == sum(stack == [] for stack in stacks)


@pytest.mark.parametrize("size", PRODUCTS)
def test_depth_marginals(size):
    k, depth, q, length = size
    found = prefixes_of(*size).depth_marginals()
    assert found.shape == (length + 1, depth + 1)
    for n in range(length + 1):
        expected = [0.0] * (depth + 1)
        for word, p in prefix_law(k, depth, q, n).items():
            expected[sum(1 if token < k else -1 for token in word)] += p
        assert found[n].tolist() == pytest.approx(expected, abs=1e-12)
    assert torch.equal(prefixes_of(*size).depth_marginals(3), found[:4])


# -- words -----------------------------------------------------------------------------------------------------------

WORDS = [
    DyckWords(longest=8),
    DyckWords(types=1, depth=3, q=0.7, longest=11, shortest=5, stop=0.2),
    DyckWords(types=3, depth=2, q=0.3, longest=6, shortest=4, stop=0.8),
    DyckWords(depth=1, q=0.4, longest=7, stop=0.3),
    DyckWords(depth=2, longest=8, stop=1.0),
    DyckWords(length=8),
    DyckWords(length=6, stop=0.0, q=0.3),
    DyckWords(types=1, depth=3, q=0.6, length=12, stop=0.9, shortest=7),
    DyckWords(types=3, depth=2, length=6, stop=1.0, q=0.8),
    DyckWords(length=4, shortest=4, stop=1.0, depth=1),
]


def row_of(word, world):
    """⟨bos⟩ w ⟨eos⟩ and ⟨eos⟩ as padding."""
    return [world.bos, *word, *[world.eos] * (world.most + 1 - len(word))]


@pytest.mark.parametrize("world", WORDS, ids=str)
def test_the_support_is_the_conditioned_process(world):
    expected, support = word_law(world), world.support()
    rows = {tuple(row_of(word, world)): p for word, p in expected.items()}
    found = [tuple(row) for row in support.batch.x.tolist()]
    assert len(set(found)) == len(found)
    close_to(dict(zip(found, support.weights.tolist(), strict=True)), rows)
    assert support.batch.mask is not None
    assert support.batch.mask.sum(1).tolist() == [row.index(world.eos) + 1 for row in found]
    assert torch.allclose(world.log_prob(support.batch).exp(), support.weights)
    # ⟨eos⟩ follows ⟨eos⟩, so that padding that counts costs nothing
    assert torch.allclose(world.log_prob(support.batch.x).exp(), support.weights)


@pytest.mark.parametrize("world", WORDS, ids=str)
def test_next_tokens_of_words(world):
    law, k = word_law(world), world.types
    begun = beginnings(law)
    words = list(begun)
    padded = torch.tensor([[world.bos, *word, *[0] * (world.most - len(word))] for word in words])
    lengths = torch.tensor([len(word) + 1 for word in words])
    found = world.next_token_probs(padded, lengths)
    assert torch.equal(found, world.next_token_law(padded)[torch.arange(len(words)), lengths - 1])
    for word, row in zip(words, found.tolist(), strict=True):
        expected = [begun[(*word, token)] / begun[word] for token in range(2 * k)]
        assert row == pytest.approx([*expected, 0.0, law.get(word, 0.0) / begun[word]], abs=1e-12)
    chances = world.log_prob(Batch(x=padded, mask=torch.arange(world.most + 1) < lengths[:, None])).exp()
    assert chances.tolist() == pytest.approx([begun[word] for word in words], rel=1e-12)
    assert world.accepts(padded, lengths).all()


def test_with_stop_0_words_of_one_length_are_prefixes_that_end_empty():
    world = DyckWords(length=8, stop=0.0, q=0.3)
    ended = {word: p for word, p in prefix_law(2, 4, 0.3, 8).items() if not stack_of(word, 2, 4)}
    total = sum(ended.values())
    support = world.support()
    rows = map(tuple, support.batch.x[:, 1:-1].tolist())
    close_to(
        dict(zip(rows, support.weights.tolist(), strict=True)), {word: p / total for word, p in ended.items()}, rel=1e-9
    )


def test_long_words_of_one_length_do_not_underflow():
    """That none of some 2000 returns to depth 0 stops has a chance far below the smallest number there is."""
    world = DyckWords(types=1, depth=200, q=0.02, length=4000, stop=0.9)
    batch = world.sample(3, rng())
    assert all(stack_of(row, 1, 200) == [] for row in batch.x[:, 1:-1].tolist())
    assert world.log_prob(batch).isfinite().all()


# -- samples ---------------------------------------------------------------------------------------------------------

SMALL = [
    prefixes_of(2, 4, 0.5, 6),
    prefixes_of(3, 2, 0.3, 4),
    prefixes_of(1, 3, 0.8, 9),
    prefixes_of(2, 1, 0.4, 5),
    DyckWords(longest=6),
    DyckWords(types=3, depth=2, q=0.7, longest=5, stop=0.2),
    DyckWords(types=1, depth=3, q=0.3, longest=10, shortest=4, stop=0.9),
    DyckWords(depth=2, q=0.3, length=6),
    DyckWords(depth=3, length=6, stop=0.0),
]


@pytest.mark.parametrize("world", SMALL, ids=str)
def test_samples_follow_the_law(world):
    n = 50_000
    batch = world.sample(n, rng(1))
    if isinstance(world, DyckPrefixes):
        law = prefix_law(world.types, world.depth, world.q, world.length)
    else:
        law = {tuple(row_of(word, world)[1:]): p for word, p in word_law(world).items()}
    counts = Counter(map(tuple, batch.x[:, 1:].tolist()))
    assert total_variation(counts, law) <= distance_bound(len(law), n)


def test_depths_of_long_samples_follow_their_marginals():
    world, n = DyckPrefixes(types=2, depth=4, q=0.4, length=60), 20_000
    depths = world.sample(n, rng(2)).latents["depth"]
    chances = [1.0, 0.0, 0.0, 0.0, 0.0]
    for i in range(61):
        counts = torch.bincount(depths[:, i], minlength=5) / n
        assert 0.5 * sum(abs(a - b) for a, b in zip(counts.tolist(), chances, strict=True)) <= distance_bound(5, n)
        up = [chances[d] * (1.0, 0.4, 0.4, 0.4, 0.0)[d] for d in range(5)]
        chances = [(up[d - 1] if d else 0.0) + (chances[d + 1] - up[d + 1] if d < 4 else 0.0) for d in range(5)]


@pytest.mark.parametrize("stop", [0.5, 0.1])
def test_lengths_of_default_words(stop):
    """Mass that stops at every return to depth 0, step by step, conditioned on 28 brackets at most."""
    world, n = DyckWords(stop=stop), 20_000
    at, ends = [1.0, 0.0, 0.0, 0.0, 0.0], {}
    for i in range(1, 29):
        up = [at[d] * (1.0, 0.5, 0.5, 0.5, 0.0)[d] for d in range(5)]
        at = [(up[d - 1] if d else 0.0) + (at[d + 1] - up[d + 1] if d < 4 else 0.0) for d in range(5)]
        ends[i], at[0] = stop * at[0], (1 - stop) * at[0]
    total = sum(ends.values())
    batch = world.sample(n, rng(3))
    assert batch.mask is not None
    lengths = Counter((batch.mask.sum(1) - 2).tolist())
    law = {i: p / total for i, p in ends.items() if p}
    assert total_variation(lengths, law) <= distance_bound(len(law), n)


LARGE = [
    DyckPrefixes(),
    DyckPrefixes(types=5, depth=3, q=0.7, length=50),
    DyckPrefixes(types=1, depth=1, length=9),
    DyckWords(),
    DyckWords(types=3, depth=8, q=0.6, longest=40, stop=0.1),
    DyckWords(length=30, q=0.8),
]


@pytest.mark.parametrize("world", LARGE, ids=str)
def test_latents_are_the_stack(world):
    k, depth = world.types, world.depth
    batch = world.sample(150, rng(4))
    assert batch.mask is not None
    assert batch.vocab == world.vocab
    assert torch.equal(world.sample(150, rng(4)).x, batch.x)
    assert torch.equal(world.symbols(batch.x), batch.latents["symbol"])
    latents = {name: value.tolist() for name, value in batch.latents.items()}
    assert latents.keys() == {"depth", "top", "opener", "symbol"}
    for r, row in enumerate(batch.x.tolist()):
        stack, ended = [], False
        for i, token in enumerate(row):
            assert bool(batch.mask[r, i]) == (not ended)
            height, symbol = len(stack), 2 * k * depth
            if i == 0 or token == world.eos:
                assert (token == world.bos) == (i == 0)
                assert not stack
                ended = token == world.eos
            elif token < k:
                stack.append((i, token))
                symbol = token * depth + height
            else:
                assert stack.pop()[1] == token - k
                symbol = k * depth + (token - k) * depth + height - 1
            assert not (ended and token != world.eos)
            assert len(stack) <= depth
            where, kind = stack[-1] if stack else (-1, -1)
            found = [latents[name][r][i] for name in ("depth", "top", "opener", "symbol")]
            assert found == [len(stack), kind, where, symbol]
        assert ended == isinstance(world, DyckWords)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("world", [DyckPrefixes(), DyckWords(), DyckWords(types=3, length=12)])
def test_drawing_for_several_is_drawing_one_by_one(world, device):
    together = world.sample_each(9, [rng(1), rng(2), rng(3)], device)
    alone = [world.sample(9, rng(seed)) for seed in (1, 2, 3)]
    assert torch.equal(together.x.cpu(), torch.cat([batch.x for batch in alone]))
    assert torch.equal(together.mask.cpu(), torch.cat([batch.mask for batch in alone]))
    for name, latent in together.latents.items():
        assert torch.equal(latent.cpu(), torch.cat([batch.latents[name] for batch in alone])), name
    assert world.sample_each(9, [], device).x.shape == (0, together.x.shape[1])


def test_no_rows_and_other_sizes():
    assert DyckPrefixes().sample(0, rng()).x.shape == (0, 29)
    assert DyckWords().sample(0, rng()).x.shape == (0, 30)
    assert DyckWords(length=6).sample(2, rng()).x.shape == (2, 8)


# -- symbols, the reference prefix, text -----------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "depth"), [(1, 1), (1, 4), (2, 1), (2, 4), (3, 2), (5, 3)])
def test_every_bracket_at_every_depth_has_a_symbol_of_its_own(k, depth):
    world = DyckPrefixes(types=k, depth=depth)
    symbols = world.symbols(world.reference[None])[0].tolist()
    assert symbols[0] == 2 * k * depth == world.symbol_count - 1
    assert sorted(symbols[1:]) == list(range(2 * k * depth))
    assert world.accepts(world.reference[None]).all()


def test_a_symbol_is_type_and_depth_of_the_pair():
    world, seen = DyckPrefixes(types=2, depth=3, length=7), {}
    x = world.support().batch.x
    for row, symbols in zip(x.tolist(), world.symbols(x).tolist(), strict=True):
        height = 0
        for token, symbol in zip(row[1:], symbols[1:], strict=True):
            pair = height + 1 if token < 2 else height
            height += 1 if token < 2 else -1
            assert seen.setdefault((token, pair), symbol) == symbol
    assert len(set(seen.values())) == len(seen) == 12


def test_the_reference_prefix():
    row = DyckPrefixes().reference
    assert "".join(DyckPrefixes().vocab.decode(row)[1:]) == "[[[[]]]](((())))"
    assert torch.equal(row, DyckPrefixes().word("[[[[]]]](((())))"))
    assert torch.equal(DyckWords(length=16).reference, row)


def test_text():
    world = DyckPrefixes()
    assert world.prefix("[ ( )").tolist() == [4, 0, 1, 3]
    assert world.prefix("").tolist() == [4]
    assert world.word("[()]").tolist() == [4, 0, 1, 3, 2]
    assert DyckWords(types=4).prefix("<{[(").tolist() == [8, 3, 2, 0, 1]
    assert DyckPrefixes(types=6).word("5< 0< >0 >5").tolist() == [12, 5, 0, 6, 11]


def test_the_protocols():
    for world in (DyckPrefixes(), DyckWords()):
        assert all(isinstance(world, p) for p in (TokenWorld, HasLogProb, HasNextToken, Recogniser))
        assert (world.bos, world.eos, len(world.vocab)) == (4, 5, 6)
        assert hash(world) == hash(type(world)())
    assert sandtable.worlds.DyckPrefixes is DyckPrefixes


# -- properties ------------------------------------------------------------------------------------------------------

sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.floats(0.02, 0.98))


@given(size=sizes, length=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_samples_of_any_prefix_law(size, length, seed):
    k, depth, q = size
    world = prefixes_of(k, depth, q, length)
    batch = world.sample(4, rng(seed))
    chances = []
    for row in batch.x[:, 1:].tolist():
        chance, stack = 0.0, []
        for token in row:
            chance += math.log(dict(following(stack, k, depth, q))[token])
            stack = step(stack, token, k)
        chances.append(chance)
    assert world.log_prob(batch).tolist() == pytest.approx(chances, rel=1e-9, abs=1e-9)
    assert world.weight(batch).log().tolist() == pytest.approx(chances, rel=1e-9, abs=1e-9)
    text = " ".join(world.vocab.decode(batch.x[0, 1:]))
    assert torch.equal(world.prefix(text), batch.x[0])


@given(
    rows=st.lists(st.lists(st.integers(0, 5), min_size=7, max_size=7), min_size=1, max_size=12), cut=st.integers(0, 8)
)
@settings(deadline=None, max_examples=60)
def test_any_row_of_tokens(rows, cut):
    """Next-token laws are laws whatever was read; what is accepted is what a stack accepts."""
    world = DyckPrefixes(types=2, depth=2)
    x = torch.tensor([[world.bos, *row] for row in rows])
    assert torch.allclose(world.next_token_law(x).sum(-1), torch.ones(x.shape, dtype=torch.float64))
    lengths = (torch.arange(len(x)) + cut) % 9
    expected = [stack_of(row[1:n], 2, 2) is not None for row, n in zip(x.tolist(), lengths.tolist(), strict=True)]
    assert world.accepts(x, lengths).tolist() == expected


@given(
    size=sizes,
    longest=st.integers(2, 20),
    stop=st.floats(0.01, 1.0),
    shortest=st.integers(2, 6),
    fixed=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=40)
def test_samples_of_any_word_law(size, longest, stop, shortest, fixed, seed):
    k, depth, q = size
    limits = dict(length=2 * longest, stop=stop / 2) if fixed else dict(longest=longest + 6, stop=stop)
    world = DyckWords(types=k, depth=depth, q=q, shortest=min(shortest, 2 * longest), **limits)
    batch = world.sample(4, rng(seed))
    assert batch.mask is not None
    assert world.log_prob(batch).isfinite().all()
    for row, real in zip(batch.x.tolist(), batch.mask.sum(1).tolist(), strict=True):
        word = row[1 : real - 1]
        assert stack_of(word, k, depth) == []
        assert row[real - 1 :] == [world.eos] * (len(row) - real + 1)
        assert len(word) == 2 * longest if fixed else world.shortest <= len(word) <= world.longest


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DyckPrefixes, DyckWords])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(depth=0), "depth=0"),
        (dict(depth=2.5), "depth=2.5"),
        (dict(types=0), "types=0"),
        (dict(types="two"), "types='two'"),
        (dict(q=0.0), "q=0"),
        (dict(q=1.0), "q=1: must be a probability strictly between 0 and 1"),
        (dict(q=-0.1), "q=-0.1"),
        (dict(q=1.5), "q=1.5"),
        (dict(q=math.nan), "q=nan"),
    ],
)
def test_bad_parameters_are_one_line(kind, wrong, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        kind(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DyckPrefixes(length=0), "length=0"),
        (lambda: DyckPrefixes().support(), "length=28: has 117546221568 prefixes"),
        (lambda: DyckPrefixes().count_prefixes(-1), "length=-1"),
        (lambda: DyckPrefixes().depth_marginals(-1), "length=-1"),
        (lambda: DyckPrefixes().sample(-1, rng()), "n=-1"),
        (lambda: DyckWords(length=7), "length=7: must be even"),
        (lambda: DyckWords(length=0), "length=0"),
        (lambda: DyckWords(length=4, shortest=6), "shortest=6: must be at most length=4"),
        (lambda: DyckWords(longest=1), "longest=1"),
        (lambda: DyckWords(longest=5, shortest=5), "shortest=5: no even length"),
        (lambda: DyckWords(shortest=0), "shortest=0"),
        (lambda: DyckWords(stop=0.0), "stop=0: no word would ever end"),
        (lambda: DyckWords(stop=1.2), "stop=1.2"),
        (lambda: DyckWords(depth=1, stop=1.0, length=4), "length=4, stop=1: no word of depth at most 1 ends so"),
        (lambda: DyckWords(length=28).support(), "has 13060702208 words"),
        (lambda: DyckPrefixes().prefix("[)"), r"unbalanced, '\)' at position 2 closes nothing"),
        (lambda: DyckPrefixes().prefix("]"), "unbalanced"),
        (lambda: DyckPrefixes().word("[()"), "unbalanced, 1 brackets are left open"),
        (lambda: DyckPrefixes().prefix("[[[[]]]]((((())))"), "too deep at position 13, at most 4"),
        (lambda: DyckPrefixes().prefix("[{}]"), r"'\{' is no bracket of this world, which has \[ \( \] \)"),
        (lambda: DyckPrefixes(types=6).prefix("0<5<"), "is no bracket of this world"),
        (lambda: DyckPrefixes().next_token_law(torch.tensor([[4, 0, 6]])), "token 6: 2 types of brackets"),
        (lambda: DyckPrefixes().log_prob(torch.tensor([[4, -1]])), "token -1"),
        (lambda: DyckPrefixes().weight(torch.tensor([[4, 7]])), "token 7"),
        (lambda: DyckPrefixes().symbols(torch.tensor([[4, 0, 0, 0, 0, 0]])), "deeper than 4"),
        (lambda: DyckPrefixes().symbols(torch.tensor([[4, 3]])), "closed on an empty stack"),
        (lambda: DyckPrefixes().next_token_law(torch.tensor([4, 0])), r"tokens of shape \(2,\)"),
        (lambda: DyckPrefixes().accepts(torch.zeros(1, 3)), "float32: must be batch × position token ids"),
        (lambda: DyckPrefixes().accepts(torch.zeros(1, 2).long(), torch.tensor([3])), r"lengths=\[3\]"),
        (lambda: DyckPrefixes().log_prob("[]"), r"tokens='\[\]': must be a tensor, .* `prefix` of a world reads text"),
        (lambda: DyckPrefixes().accepts("[]"), r"tokens='\[\]'"),
        (lambda: DyckWords().next_token_law([[4, 0]]), r"tokens=\[\[4, 0\]\]: must be a tensor"),
        (lambda: DyckPrefixes().log_prob(torch.tensor([4, 0])), r"tokens of shape \(2,\)"),
        (lambda: DyckPrefixes(length=10**9).sample(10, rng()), r"n × tokens=\(10, 1000000000\): asks for .* GiB"),
        (lambda: DyckPrefixes(length=10**9).depth_marginals(), "length=1000000000: must be a whole number from 0 to"),
        (
            lambda: DyckPrefixes().log_prob(DyckPrefixes(types=3).sample(2, rng())),
            r"a batch in another vocabulary, of 8 tokens: this world's is \[ \( \] \) <bos> <eos>",
        ),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
