"""The translation tasks against their laws: every target enumerated, every rule written again in plain Python."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from sandtable.arguments import ArgumentError
from sandtable.inputs import EOS, MASK, PAD, RESERVED
from sandtable.worlds import Batch, DialectTask, DropTask, FertilityTask, HasLogProb, TokenWorld, translation_task
from sandtable.worlds.translation import in_front, packed

SMALL = [
    DropTask(symbols=3, length=3, keep=0.6),
    DropTask(symbols=3, length=2, distilled=True, table_seed=1),
    DropTask(symbols=3, length=2, keep=1.0),
    FertilityTask(symbols=2, length=2),
    FertilityTask(symbols=2, length=2, distilled=True),
    DialectTask(symbols=3, length=2, dialects=3),
    DialectTask(symbols=3, length=2, dialects=2, distilled=True),
]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def renderings(task, source):
    """{target without ⟨eos⟩: probability}, from the words of the definition."""
    word = lambda letter, s: task.vocab.tokens.index(f"{letter}{s - RESERVED}")  # noqa: E731
    law = {}
    if isinstance(task, DropTask):
        for kept in itertools.product((False, True), repeat=len(source)):
            if task.distilled:
                p = float(all(k == bool(task.table[s - RESERVED]) for k, s in zip(kept, source, strict=True)))
            else:
                p = math.prod(task.keep if k else 1 - task.keep for k in kept)
            law[tuple(word("a", s) for k, s in zip(kept, source, strict=True) if k)] = p
    elif isinstance(task, FertilityTask):
        for two in itertools.product((False, True), repeat=len(source)):
            same = all(t == bool(task.table[s - RESERVED]) for t, s in zip(two, source, strict=True))
            pieces = [[word("b", s), word("c", s)] if t else [word("a", s)] for t, s in zip(two, source, strict=True)]
            law[tuple(itertools.chain(*pieces))] = float(same) if task.distilled else 0.5 ** len(source)
    else:
        for z in range(task.dialects):
            p = float(z == int(task.table[source[0] - RESERVED])) if task.distilled else 1 / task.dialects
            law[tuple(word(f"d{z}w", s) for s in source)] = p
    return {target: p for target, p in law.items() if p > 0}


def every_target(task, most=40_000):
    """All sequences of words up to one more than the longest target, each with ⟨eos⟩ behind."""
    words = range(RESERVED + task.symbols, len(task.vocab))
    for n in range(task.longest + 1):
        if len(words) ** n <= most:
            yield from itertools.product(words, repeat=n)


def sources(task):
    return list(itertools.permutations(range(RESERVED, RESERVED + task.symbols), task.length))


@pytest.mark.parametrize("task", SMALL, ids=repr)
def test_every_target_has_its_probability(task):
    targets = list(every_target(task))
    width = max(map(len, targets)) + 1
    x = torch.tensor([[*t, EOS] + [PAD] * (width - 1 - len(t)) for t in targets])
    for source in sources(task):
        law = renderings(task, source)
        found = task.log_prob_given(torch.tensor(source).expand(len(x), -1), x).exp()
        assert found.tolist() == pytest.approx([law.get(t, 0.0) for t in targets], abs=1e-12)
        assert float(found.sum()) == pytest.approx(1)
        assert task.valid(torch.tensor(source).expand(len(x), -1), x).tolist() == [t in law for t in targets]


@pytest.mark.parametrize("task", SMALL, ids=repr)
def test_samples_follow_the_law(task):
    n = 20_000
    batch = task.sample(n, rng(3))
    assert isinstance(task, TokenWorld)
    assert isinstance(task, HasLogProb)
    all_sources = sources(task)
    law, counts = {}, {}
    for source in all_sources:
        for target, p in renderings(task, source).items():
            law[source, target] = p / len(all_sources)
    for source, row, real in zip(batch.given.x.tolist(), batch.x.tolist(), batch.mask.sum(1).tolist(), strict=True):
        assert row[real - 1] == EOS
        assert not any(row[real:])
        key = tuple(source), tuple(row[: real - 1])
        counts[key] = counts.get(key, 0) + 1
    assert set(counts) <= set(law)
    distance = 0.5 * sum(abs(counts.get(key, 0) / n - p) for key, p in law.items())
    assert distance <= 0.5 * math.sqrt(len(law) / n) + math.sqrt(math.log(1e9) / (2 * n))
    few = batch[slice(0, 50)]
    rows = zip(few.given.x.tolist(), few.x.tolist(), few.mask.sum(1).tolist(), strict=True)
    exact = torch.tensor([law[tuple(source), tuple(row[: real - 1])] for source, row, real in rows])
    assert torch.allclose(task.log_prob(few).exp(), exact.double() * len(all_sources))


@some.composite
def tasks(draw):
    symbols = draw(some.integers(2, 30))
    common = dict(symbols=symbols, length=draw(some.integers(1, symbols)), distilled=draw(some.booleans()))
    common["table_seed"] = draw(some.integers(0, 5))
    return draw(
        some.sampled_from(
            [DropTask(**common, keep=0.4), FertilityTask(**common), DialectTask(**common, dialects=1 + symbols % 4)]
        )
    )


@given(task=tasks(), n=some.integers(1, 20), seed=some.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_every_sample_is_well_formed(task, n, seed):
    batch = task.sample(n, rng(seed))
    given_ = batch.given
    assert given_.x.shape == (n, task.length)
    assert batch.x.shape == batch.mask.shape == (n, task.longest)
    assert torch.equal(batch.latents["length"], batch.mask.sum(1))
    assert ((given_.x >= RESERVED) & (given_.x < RESERVED + task.symbols)).all()
    assert (given_.x.sort(1).values.diff(dim=1) > 0).all()
    assert bool(task.valid(given_.x, batch.x).all())
    again = task.sample(n, rng(seed))
    assert torch.equal(batch.x, again.x)
    if task.distilled:
        other = task.sample(n, rng(seed + 1))
        joined = torch.cat([other.given.x, given_.x])
        answers = dict(zip(map(tuple, joined.tolist()), torch.cat([other.x, batch.x]).tolist(), strict=True))
        assert all(answers[tuple(s)] == t for s, t in zip(given_.x.tolist(), batch.x.tolist(), strict=True))


@pytest.mark.parametrize("task", SMALL, ids=repr)
def test_what_is_no_target_is_refused(task):
    batch = task.sample(1, rng())
    source, target = batch.given.x, batch.x[batch.mask].tolist()
    # no ⟨eos⟩, two of them, something behind it, padding or a special token or a source symbol inside, nothing at all
    for wrong in (
        target[:-1] or [PAD],
        [*target, EOS],
        [*target, RESERVED + task.symbols],
        [PAD, *target],
        [MASK, *target],
        [RESERVED, *target],
        [len(task.vocab), *target],
        [PAD] * 3,
    ):
        assert not task.valid(source, torch.tensor([wrong])).any(), wrong
    assert task.valid(source, torch.tensor([[*target, PAD, PAD]])).all()


def test_one_dialect_throughout():
    task = DialectTask(symbols=3, length=2, dialects=2)
    word = lambda name: task.vocab.tokens.index(name)  # noqa: E731
    targets = [["d0w1", "d0w2"], ["d1w0", "d1w0"], ["d0w1", "d1w2"], ["d1w1"], []]
    x = torch.tensor([[*map(word, t), EOS] + [PAD] * (2 - len(t)) for t in targets])
    assert task.consistent(x).tolist() == [True, True, False, True, False]


def test_drawing_all_words_at_once_mixes_dialects():
    """M^(1 − N): the law of the docstring, by enumeration of independent words."""
    task = DialectTask(symbols=4, length=3, dialects=2)
    source = torch.tensor([4, 5, 6])
    draws = torch.tensor(list(itertools.product(range(2), repeat=3)))
    x, _ = packed(task.words(source - RESERVED, draws), torch.ones(8, 3, dtype=torch.bool))
    assert float(task.valid(source.expand(8, -1), x).double().mean()) == 2.0 ** (1 - 3)


def test_packing():
    tokens, present = torch.tensor([[7, 8, 9], [7, 8, 9]]), torch.tensor([[True, False, True], [False] * 3])
    x, mask = packed(tokens, present)
    assert x.tolist() == [[7, 9, EOS, PAD], [EOS, PAD, PAD, PAD]]
    assert mask.tolist() == [[True, True, True, False], [True, False, False, False]]
    assert in_front(present).tolist() == [[0, 2, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: translation_task("drip"), "task='drip': must be one of drop, fertility, dialect; did you mean 'drop'"),
        (lambda: translation_task("drop", kepp=0.5), "kepp: not a setting of the task 'drop'; did you mean 'keep'"),
        (lambda: DropTask(keep=2), "keep=2"),
        (lambda: DropTask(symbols=4, length=5), "length=5: must be a whole number from 1 to 4"),
        (lambda: DropTask(distilled="yes"), "distilled='yes': must be True or False"),
        (lambda: DialectTask(dialects=0), "dialects=0"),
        (lambda: FertilityTask(symbols=1), "symbols=1"),
        (lambda: DropTask().sample(0, rng()), "n=0"),
        (lambda: DropTask().valid(torch.zeros(2, 3).long(), torch.zeros(2, 4).long()), "8 symbols in a source"),
        (lambda: DropTask().log_prob(Batch(torch.zeros(2, 3).long())), "given=None"),
    ],
)
def test_bad_input_gets_one_line(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_tasks_by_name():
    assert translation_task("drop", keep=0.5) == DropTask(keep=0.5)
    assert translation_task("fertility", distilled=True).distilled
    assert translation_task("dialect") == DialectTask()
