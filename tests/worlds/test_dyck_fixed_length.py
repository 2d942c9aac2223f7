"""Fixed-length Dyck: its stack, its law and its parser against plain Python on enumerated strings."""

import itertools
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtable.arguments import ArgumentError
from sandtable.worlds import FixedLengthDyck, HasLogProb, HasNextToken, Recogniser, TokenWorld
from sandtable.worlds.dyck import Brackets, DyckError

BOS, EOS = 4, 5


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def process(world):
    """Every string with its probability, by the generative process written out."""
    found = {}

    def go(word, stack, probability):
        left = world.length - len(word)
        if not left:
            found[tuple(word)] = probability
            return
        opens = 1.0 if not stack else 0.0 if len(stack) in (left, world.max_depth) else world.q
        for kind, share in ((0, world.p), (1, 1 - world.p)):
            if opens:
                go([*word, kind], [*stack, kind], probability * opens * share)
        if opens < 1:
            go([*word, 2 + stack[-1]], stack[:-1], probability * (1 - opens))

    go([], [], 1.0)
    return found


def parse(world, row):
    """Position and kind of the first error of ⟨bos⟩ w_1 …, token by token."""
    stack = []
    for i, token in enumerate(row):
        if (token == BOS) != (i == 0):
            return i, DyckError.START_INCORRECT
        if i == 0:
            continue
        if i > world.length + 1 or (token == EOS) != (i == world.length + 1):
            return i, DyckError.END_INCORRECT
        if token in (0, 1):
            stack.append(token)
            if world.max_depth is not None and len(stack) > world.max_depth:
                return i, DyckError.MAX_STACK_DEPTH_EXCEEDED
            if len(stack) > world.length - i:
                return i, DyckError.STACK_DEPTH_EXCEEDS_REMAINING_LENGTH
        elif token in (2, 3):
            if not stack:
                return i, DyckError.STACK_UNDERFLOW
            if stack.pop() != token - 2:
                return i, DyckError.INCORRECT_CLOSING_BRACKET
    return -1, DyckError.NONE


WORLDS = [
    FixedLengthDyck(2),
    FixedLengthDyck(6),
    FixedLengthDyck(8, p=0.7, q=0.3),
    FixedLengthDyck(8, p=0.4, q=0.8, max_depth=2),
    FixedLengthDyck(6, max_depth=1),
]


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_the_support_is_the_process(world):
    expected, support = process(world), world.support()
    words = {tuple(row[1:-1].tolist()): float(w) for row, w in zip(support.batch.x, support.weights, strict=True)}
    assert words.keys() == expected.keys()
    assert all(words[word] == pytest.approx(expected[word], rel=1e-12) for word in words)
    assert float(support.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert (support.batch.x[:, 0] == BOS).all()
    assert (support.batch.x[:, -1] == EOS).all()


def test_there_are_224_strings_of_length_8():
    assert len(FixedLengthDyck(8).support().batch) == 224


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_probabilities_of_prefixes_and_next_tokens(world):
    strings = process(world)
    prefixes = Counter()
    for word, probability in strings.items():
        for end in range(world.length + 1):
            prefixes[word[:end]] += probability
    rows = [(BOS, *prefix) for prefix in prefixes]
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.tensor([[*row, *[3] * (world.longest - len(row))] for row in rows])  # padding must not be read
    law = world.next_token_probs(padded, lengths)
    assert torch.allclose(law.sum(1), torch.ones(len(rows), dtype=torch.float64))
    for row, probs in zip(rows, law.tolist(), strict=True):
        prefix = row[1:]
        for token in range(4):
            expected = prefixes[(*prefix, token)] / prefixes[prefix]
            assert probs[token] == pytest.approx(expected, abs=1e-12)
        assert probs[EOS] == (len(prefix) == world.length)
    for end in range(1, world.longest):
        some = [row for row in rows if len(row) == end]
        scores = world.log_prob(torch.tensor(some)).exp()
        assert scores.tolist() == pytest.approx([prefixes[row[1:]] for row in some], rel=1e-12)
        assert torch.allclose(world.closed_form(torch.tensor(some)).exp(), scores, rtol=1e-12)
        assert torch.equal(world.next_token_probs(torch.tensor(some)), law[lengths == end])
    assert world.accepts(padded, lengths).all()
    assert world.next_token_probs(torch.zeros(3, 0, dtype=torch.long))[:, BOS].eq(1).all()


@pytest.mark.parametrize("world", [FixedLengthDyck(4), FixedLengthDyck(4, max_depth=1), FixedLengthDyck(2)], ids=str)
def test_the_parser_on_every_row_of_tokens(world):
    """All rows over the six tokens up to one token too long, wherever they end."""
    for size in range(1, world.longest + 1 if world.length == 4 else 6):
        rows = torch.tensor(list(itertools.product(range(6), repeat=size)))
        found = world.first_error(rows)
        expected = [parse(world, row) for row in rows.tolist()]
        assert found.position.tolist() == [position for position, _ in expected]
        assert found.kind.tolist() == [kind for _, kind in expected]
        assert torch.equal(world.accepts(rows), found.kind == 0)
        assert torch.equal(world.log_prob(rows).isfinite(), found.kind == 0)
        assert torch.equal(world.valid(rows), (found.kind == 0) & (size > world.length))


@given(
    rows=st.lists(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 3, 5]), min_size=9, max_size=9), min_size=1, max_size=20),
    cut=st.integers(0, 10),
    max_depth=st.sampled_from([None, 2, 3]),
)
@settings(deadline=None, max_examples=60)
def test_the_parser_on_ragged_rows(rows, cut, max_depth):
    world = FixedLengthDyck(8, max_depth=max_depth)
    tokens = torch.tensor([[BOS, *row] for row in rows])
    lengths = (torch.arange(len(rows)) * 3 + cut) % 11
    found = world.first_error(tokens, lengths)
    expected = [parse(world, row[:length]) for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


def test_every_prefix_without_error_can_be_completed():
    """Completable means: some string of the support begins so. All bracket rows up to length 6."""
    world = FixedLengthDyck(6, max_depth=2)
    strings = process(world)
    begins = {word[:end] for word in strings for end in range(world.length + 1)}
    for size in range(world.length + 1):
        rows = list(itertools.product(range(4), repeat=size))
        accepted = world.accepts(torch.tensor([[BOS, *row] for row in rows]))
        assert accepted.tolist() == [row in begins for row in rows]


@given(rows=st.lists(st.lists(st.integers(0, 7), min_size=12, max_size=12), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_the_stack_of_any_row(rows):
    """Three types, tokens 6 and 7 are no brackets; a wrong closer pops, one on an empty stack does nothing."""
    trace = Brackets(3).trace(torch.tensor(rows))
    for r, row in enumerate(rows):
        stack = []
        for i, token in enumerate(row):
            match, wrong = -1, False
            if token < 3:
                stack.append(i)
            elif token < 6 and stack:
                match = stack.pop()
                wrong = row[match] != token - 3
            top = stack[-1] if stack else -1
            state = (len(stack), top, row[top] if stack else -1, match, wrong)
            assert tuple(part[r, i].item() for part in trace) == state


def test_samples_follow_the_law():
    world, n = FixedLengthDyck(6, p=0.3, q=0.6), 60_000
    expected = process(world)
    batch = world.sample(n, rng(1))
    counts = Counter(tuple(row) for row in batch.x[:, 1:-1].tolist())
    assert counts.keys() <= expected.keys()
    distance = 0.5 * sum(abs(counts[word] / n - probability) for word, probability in expected.items())
    assert distance <= 0.5 * math.sqrt(len(expected) / n) + math.sqrt(math.log(1e9) / (2 * n))


@pytest.mark.parametrize("max_depth", [None, 3])
def test_samples_are_valid_and_latents_are_the_stack(max_depth):
    world = FixedLengthDyck(20, max_depth=max_depth)
    batch = world.sample(500, rng(2))
    assert batch.mask is not None
    assert batch.mask.all()
    assert all(parse(world, row) == (-1, 0) for row in batch.x.tolist())
    trace = world.brackets.trace(batch.x)
    assert torch.equal(trace.depth, batch.latents["depth"])
    assert torch.equal(trace.top, batch.latents["top"])
    assert torch.equal(world.sample(500, rng(2)).x, batch.x)


def test_prompts_are_beginnings_of_strings_with_other_brackets():
    world = FixedLengthDyck()
    prompts = world.prompts(4000, rng(3))
    sizes = Counter(len(prompt) - 1 for prompt in prompts)
    assert sizes.keys() == set(range(25, 32))
    assert all(abs(count - 4000 / 7) < 120 for count in sizes.values())
    assert all(parse(world, prompt.tolist()) == (-1, 0) for prompt in prompts[:300])
    opened = torch.cat(prompts)
    share = float((opened == 0).sum() / ((opened == 0) | (opened == 1)).sum())
    assert share == pytest.approx(0.8, abs=0.02)
    assert {len(prompt) for prompt in world.prompts(20, rng(), lengths=(0, 0))} == {1}


@pytest.mark.parametrize(("length", "total"), [(4, 0.375), (6, 0.3125), (8, 35 / 128)])
def test_the_printed_weights_do_not_sum_to_one(length, total):
    """Every one of the D/2 closes is charged 1 − q = 1/2, whether forced or not."""
    world = FixedLengthDyck(length)
    weights = world.closed_form(world.support().batch, printed=True).exp()
    assert float(weights.sum()) == pytest.approx(total, rel=1e-12)
    expected = 0.0
    for word in process(world):
        depth, weight = 0, 1.0
        for token in word:
            depth += 1 if token < 2 else -1
            weight *= ((0.2, 0.8)[token] * (1.0 if depth == 1 else 0.5)) if token < 2 else 0.5
        expected += weight
    assert float(weights.sum()) == pytest.approx(expected, rel=1e-12)
    assert world.closed_form(torch.tensor([[BOS, 2, 0, 2, 0, 2, EOS]]), printed=True).item() == -math.inf


def test_the_protocols():
    world = FixedLengthDyck(4)
    for protocol in (TokenWorld, HasLogProb, HasNextToken, Recogniser):
        assert isinstance(world, protocol)
    assert world.vocab.decode(torch.tensor([4, 0, 1, 3, 2, 5])) == ["<bos>", "[", "(", ")", "]", "<eos>"]
    assert (world.bos, world.eos, world.longest) == (4, 5, 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FixedLengthDyck(7), "length=7: must be even"),
        (lambda: FixedLengthDyck(0), "length=0"),
        (lambda: FixedLengthDyck(p=1.0), "p=1: must be a probability strictly between"),
        (lambda: FixedLengthDyck(q=0.0), "q=0"),
        (lambda: FixedLengthDyck(max_depth=0), "max_depth=0"),
        (lambda: FixedLengthDyck().support(), "length=32: has"),
        (lambda: FixedLengthDyck().prompts(3, rng(), lengths=(9, 33)), r"lengths\[1\]=33"),
        (lambda: FixedLengthDyck().prompts(3, rng(), lengths=5), "lengths=5: must be a pair"),
        (lambda: FixedLengthDyck().accepts(torch.zeros(3)), "tokens of shape"),
        (lambda: FixedLengthDyck().accepts(torch.zeros(1, 2).long(), torch.tensor([3])), r"lengths=\[3\]"),
    ],
)
def test_mistakes_are_one_line(call, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
