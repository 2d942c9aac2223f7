"""Measurements on topics of real text against loops over pairs, scikit-learn's AUC and simulated truths."""

import itertools
import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

from sandtable.arguments import ArgumentError
from sandtable.probes.text_topics import (
    Attended,
    attention_topics,
    embedding_topics,
    pair_attention,
    pair_cosines,
    similarity_matrix,
)
from sandtable.probes.text_topics.contrast import word_weights
from sandtable.probes.topic_words import TopicWords


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def topic_words(vocab=30, topics=4, overlap=True, seed=0):
    """Some words in one topic, some (with overlap) in two, some in none."""
    home = torch.randint(-1, topics, (vocab,), generator=rng(seed))
    member = home[:, None] == torch.arange(topics)
    if overlap:
        member[::5, 1] = member[::5].any(1)
    return TopicWords(member)


def documents(batch, longest, vocab, seed=0, layers=2, heads=3, causal=False):
    """A batch of mixed lengths with random attention: rows sum to one over the keys they see."""
    ids = torch.randint(vocab, (batch, longest), generator=rng(seed))
    lengths = torch.randint(1, longest + 1, (batch,), generator=rng(seed + 1))
    mask = torch.arange(longest) < lengths[:, None]
    scores = torch.randn(layers, batch, heads, longest, longest, generator=rng(seed + 2))
    seen = mask[:, None, None, :].expand(batch, 1, longest, longest)
    seen = seen.tril() if causal else seen
    return Attended(scores.masked_fill(~seen, -math.inf).softmax(-1), ids, mask, causal)


def uniform(ids, mask, causal=False):
    seen = mask[:, None, :].expand(-1, ids.shape[1], -1)
    seen = (seen.tril() if causal else seen).float()
    return Attended((seen / seen.sum(-1, keepdim=True))[None, :, None], ids, mask, causal)


def loop_over_pairs(batch, member, debias):
    """(same?, document, layer × head values) of every ordered pair, as the definition has it."""
    for d in range(len(batch.ids)):
        n = int(batch.mask[d].sum())
        for i, j in itertools.product(range(n), range(n)):
            a, b = int(batch.ids[d, i]), int(batch.ids[d, j])
            if a == b or (batch.causal and j > i) or not (member[a].any() and member[b].any()):
                continue
            factor = ((i + 1 if batch.causal else n) / 100) if debias else 1.0
            yield bool((member[a] & member[b]).any()), d, batch.pattern[:, d, :, i, j].double() * factor


# -- embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("centred", [False, True])
def test_embeddings_equal_a_loop_over_pairs(overlap, centred):
    words = topic_words(overlap=overlap)
    table = torch.randn(30, 6, generator=rng(1))
    vectors = table[words.words].double()
    vectors = vectors - vectors.mean(0) if centred else vectors
    kept = words.words.tolist()
    found = embedding_topics(table, words, generator=rng(), centred=centred, resamples=20, at_once=7)
    for name in ("cosine", "dot"):
        same, value = [], []
        for i, j in itertools.combinations(range(len(kept)), 2):
            scale = vectors[i].norm() * vectors[j].norm() if name == "cosine" else 1.0
            value.append(float(vectors[i] @ vectors[j] / scale))
            same.append(bool((words.member[kept[i]] & words.member[kept[j]]).any()))
        same, value = torch.tensor(same), torch.tensor(value, dtype=torch.float64)
        got = getattr(found, name)
        assert got.same == pytest.approx(value[same].mean().item(), abs=1e-7)
        assert got.different == pytest.approx(value[~same].mean().item(), abs=1e-7)
        assert got.auc == pytest.approx(roc_auc_score(same, value), abs=1e-9)
        assert (got.same_pairs, got.different_pairs) == (int(same.sum()), int((~same).sum()))


def test_draws_equal_the_words_redrawn_one_by_one():
    """Weights are how often words came up: means over pairs of the redrawn list, a word with itself left out."""
    words = topic_words(overlap=False, seed=3)
    table = torch.randn(30, 4, generator=rng(4))
    got = embedding_topics(table, words, generator=rng(5), resamples=3).dot
    member = words.member[words.words].float()
    weights = word_weights(member, 3, rng(5))
    assert torch.equal(member.T @ weights, member.sum(0)[:, None].expand(-1, 3))  # every topic keeps its size
    for r in range(3):
        drawn = [
            w for w, times in zip(words.words.tolist(), weights[:, r].int().tolist(), strict=True) for _ in range(times)
        ]
        kinds = {True: [], False: []}
        for a, b in itertools.combinations(drawn, 2):
            if a != b:
                kinds[bool((words.member[a] & words.member[b]).any())].append(float(table[a] @ table[b]))
        assert float(got.same_draws[r]) == pytest.approx(sum(kinds[True]) / len(kinds[True]), abs=1e-5)
        assert float(got.different_draws[r]) == pytest.approx(sum(kinds[False]) / len(kinds[False]), abs=1e-5)


def test_one_hot_embeddings_tie_everywhere():
    found = embedding_topics(torch.eye(30), topic_words(), generator=rng(), resamples=50).cosine
    assert (found.auc, found.same, found.different) == (0.5, 0.0, 0.0)
    assert math.isnan(found.ratio)
    assert not found.ratio_defined
    assert all(math.isnan(end) for end in found.interval("ratio"))


def test_ratio_is_undefined_when_its_denominator_may_be_zero():
    words = TopicWords(torch.arange(200)[:, None] // 20 == torch.arange(10))
    noise = torch.randn(200, 64, generator=rng(6))
    random = embedding_topics(noise, words, generator=rng()).cosine
    assert math.isnan(random.ratio)
    low, high = random.interval("auc")
    assert low < 0.5 < high
    shifted = embedding_topics(noise + 1, words, generator=rng()).cosine
    assert shifted.ratio == pytest.approx(shifted.same / shifted.different)
    assert shifted.interval("ratio")[0] < shifted.ratio < shifted.interval("ratio")[1]


def test_intervals_of_embeddings_cover_the_truth():
    """x = topic + noise: E⟨x, x'⟩ = |topic|² within a topic and 0 across, with topics fixed. 90 % intervals."""
    words = TopicWords(torch.arange(120)[:, None] // 30 == torch.arange(4))
    centres = torch.eye(4, 8)[torch.arange(120) // 30]
    hits = {"same": 0, "difference": 0, "auc": 0}
    truth = {"same": 1.0, "difference": 1.0}
    fresh = [centres + 1.5 * torch.randn(120, 8, generator=rng(1000 + s)) for s in range(40)]
    truth["auc"] = sum(embedding_topics(x, words, generator=rng(), resamples=0).dot.auc for x in fresh) / 40
    for seed in range(100):
        x = centres + 1.5 * torch.randn(120, 8, generator=rng(seed))
        found = embedding_topics(x, words, generator=rng(seed), resamples=200).dot
        for name in hits:
            low, high = found.interval(name, 0.9)
            hits[name] += low <= truth[name] <= high
    # P(Binomial(100, 0.9) < 80) = 0.1 %
    assert all(hit >= 80 for hit in hits.values()), hits


def test_similarity_matrix():
    table = torch.randn(10, 5, generator=rng())
    got = similarity_matrix(table, [7, 1, 3])
    expected = torch.nn.functional.cosine_similarity(table[[7, 1, 3]][:, None], table[[7, 1, 3]][None], dim=-1)
    torch.testing.assert_close(got, expected.double(), atol=1e-6, rtol=0)
    with pytest.raises(ArgumentError, match="token 10 is not in the vocabulary of 10"):
        similarity_matrix(table, [1, 10])


# -- attention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_a_loop_over_pairs(causal, debias):
    words = topic_words()
    batches = [documents(3, 9, 30, seed=s, causal=causal) for s in (0, 10, 20)]
    got = attention_topics(iter(batches), words, debias=debias, bins=4096)
    same_flags, averages = [], []
    offset = 0
    sums = torch.zeros(2, 9, 2, 3, dtype=torch.float64)
    counts = torch.zeros(2, 9, dtype=torch.long)
    for batch in batches:
        for same, d, value in loop_over_pairs(batch, words.member, debias):
            sums[int(not same), offset + d] += value
            counts[int(not same), offset + d] += 1
            same_flags.append(same)
            averages.append(float(value.mean()))
        offset += len(batch.ids)
    for kind, (s, c) in enumerate(((got.same_sums, got.same_counts), (got.different_sums, got.different_counts))):
        torch.testing.assert_close(s, sums[kind], atol=1e-6, rtol=1e-5)
        assert torch.equal(c, counts[kind])
    whole = got.contrast(generator=rng(), resamples=10)
    assert whole.auc == pytest.approx(roc_auc_score(same_flags, averages), abs=1e-4)
    mean = sums.mean((2, 3)).sum(1) / counts.sum(1)
    assert (whole.same, whole.different) == pytest.approx(tuple(mean.tolist()), rel=1e-5)
    torch.testing.assert_close(got.ratio.mean(), got.same.mean() / got.different.mean(), atol=0.2, rtol=0)


def test_coarse_bins_hardly_move_the_auc():
    words = topic_words(vocab=200)
    batches = [documents(8, 60, 200, seed=s, layers=1, heads=1) for s in range(0, 40, 10)]
    pairs = [pair for batch in batches for pair in loop_over_pairs(batch, words.member, True)]
    exact = roc_auc_score([same for same, _, _ in pairs], [float(value) for _, _, value in pairs])
    assert attention_topics(batches, words, bins=64).contrast(generator=rng(), resamples=0).auc == pytest.approx(
        exact, abs=1e-3
    )


@pytest.mark.parametrize("causal", [False, True])
def test_debiasing_makes_uniform_attention_exactly_fair(causal):
    """Long documents hold four topics, short ones one: without debiasing, same-topic pairs seem to attract."""
    words = TopicWords(torch.arange(40)[:, None] // 10 == torch.arange(4))
    short = torch.randint(10, (6, 80), generator=rng()) + 10 * torch.arange(6)[:, None] % 40
    long = torch.randint(40, (6, 80), generator=rng(1))
    ids = torch.cat([short, long])
    mask = torch.arange(80) < torch.tensor([10] * 6 + [80] * 6)[:, None]
    batch = uniform(ids, mask, causal)
    fair = attention_topics([batch], words).contrast(generator=rng(), resamples=100)
    assert fair.same == pytest.approx(0.01, rel=1e-5)
    assert fair.ratio == pytest.approx(1.0, rel=1e-5)
    assert fair.auc == 0.5
    raw = attention_topics([batch], words, debias=False)
    faked = raw.contrast(generator=rng(), resamples=100)
    assert faked.ratio > 1.2
    assert faked.auc > 0.51
    if not causal:
        # 1/10 between the words of short documents, all of one topic, and 1/80 everywhere else
        share = float(raw.same_counts[:6].sum() / raw.same_counts.sum())
        assert faked.ratio == pytest.approx(8 * share + (1 - share), rel=1e-5)
        assert faked.auc == pytest.approx(share + (1 - share) / 2)


def test_mean_over_seen_pairs_is_one_hundredth_for_any_attention():
    words = TopicWords(torch.ones(1000, 1, dtype=torch.bool))
    for causal in (False, True):
        batch = documents(5, 12, 1000, causal=causal)
        n = batch.mask.sum(1)
        scale = (torch.arange(12) + 1) if causal else n[:, None]
        debiased = batch.pattern * (scale.expand(5, 12) / 100)[None, :, None, :, None]
        seen = batch.mask[:, :, None] & batch.mask[:, None, :]
        seen = seen.tril() if causal else seen
        expected = torch.full(debiased.shape[:1] + debiased.shape[2:3], 0.01)
        torch.testing.assert_close((debiased * seen[None, :, None]).sum((1, 3, 4)) / seen.sum(), expected)
    with pytest.raises(ArgumentError, match="no document holds two different kept words of different topic"):
        attention_topics([batch], words)


def test_bootstrap_over_documents():
    """Documents differ in their advantage; the interval of the difference is that of a mean over documents."""
    words = TopicWords(torch.arange(20)[:, None] // 10 == torch.arange(2))
    hits = 0
    for seed in range(100):
        ids = torch.stack([torch.randperm(20, generator=rng(seed * 100 + d))[:12] for d in range(30)])
        mask = torch.ones_like(ids, dtype=torch.bool)
        gain = 0.3 + 0.3 * torch.randn(30, generator=rng(seed))
        same = ids[:, :, None] // 10 == ids[:, None, :] // 10
        # additive on equally many pairs of each row: no softmax, so that the truth is known
        pattern = 0.1 + (gain[:, None, None] * same)[None, :, None] / 12
        found = attention_topics([Attended(pattern, ids, mask)], words)
        low, high = found.difference_interval(generator=rng(seed), resamples=200, level=0.9)
        both = found.contrast(generator=rng(seed), resamples=200).interval("difference", 0.9)
        assert (float(low), float(high)) == pytest.approx(both, abs=1e-6)
        hits += both[0] <= 0.3 / 100 <= both[1]
    assert 78 <= hits <= 98


def test_attention_refuses_what_it_cannot_measure():
    batch = documents(2, 5, 30)
    with pytest.raises(ArgumentError, match="no documents"):
        attention_topics([], topic_words())
    with pytest.raises(ArgumentError, match=r"attention of shape .*2 documents"):
        attention_topics([batch._replace(pattern=batch.pattern[:, :1])], topic_words())
    with pytest.raises(ArgumentError, match="is not in the vocabulary of 10"):
        attention_topics([documents(4, 9, 30)], topic_words(vocab=10))
    with pytest.raises(ArgumentError, match="no same-topic pair"):
        embedding_topics(torch.eye(3), TopicWords(torch.eye(3, dtype=torch.bool)), generator=rng())
    with pytest.raises(ArgumentError, match="what='aux': must be one of"):
        attention_topics([documents(4, 9, 30)], topic_words()).contrast(generator=rng(), resamples=9).interval("aux")


def test_documents_without_tokens_are_left_out():
    batch = documents(4, 9, 30)
    pattern, mask = batch.pattern.clone(), batch.mask.clone()
    pattern[:, 2], mask[2] = math.nan, False
    some = torch.tensor([0, 1, 3])
    empty = batch._replace(mask=torch.zeros_like(mask))
    got = attention_topics([empty, Attended(pattern, batch.ids, mask)], topic_words())
    expected = attention_topics([Attended(batch.pattern[:, some], batch.ids[some], mask[some])], topic_words())
    torch.testing.assert_close(got.same_sums, expected.same_sums)


def test_batches_without_kept_words_count_as_documents_without_pairs():
    words = topic_words()
    nothing = int((~words.member.any(1)).nonzero()[0])
    batch = documents(4, 9, 30)
    other = batch._replace(ids=torch.full_like(batch.ids, nothing))
    got, alone = attention_topics([other, batch], words), attention_topics([batch], words)
    assert got.same_counts.tolist() == [0] * 4 + alone.same_counts.tolist()
    torch.testing.assert_close(got.difference, alone.difference)
    assert torch.equal(got.histograms[4:], alone.histograms)


# -- chosen pairs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_pair_attention_equals_a_loop(causal):
    sets = {"a": torch.tensor([[3, 1], [2, 5], [4, 0]]), "b": torch.tensor([[1, 2]])}
    batches = [documents(3, 10, 6, seed=s, causal=causal) for s in (0, 7)]
    got = pair_attention(batches, sets, generator=rng(), resamples=20)
    everything = torch.ones(6, 1, dtype=torch.bool)
    for name, pairs in sets.items():
        found = {tuple(sorted(pair)): [] for pair in pairs.tolist()}
        for batch in batches:
            for d in range(3):
                n = int(batch.mask[d].sum())
                for i, j in itertools.product(range(n), range(n)):
                    key = tuple(sorted((int(batch.ids[d, i]), int(batch.ids[d, j]))))
                    if key in found and not (causal and j > i):
                        factor = (i + 1 if causal else n) / 100
                        found[key].append(float(batch.pattern[:, d, :, i, j].mean()) * factor)
        every = [value for values in found.values() for value in values]
        assert got.means[name] == pytest.approx(sum(every) / len(every), rel=1e-5)
        each = [sum(found[tuple(sorted(p))]) / len(found[tuple(sorted(p))]) for p in pairs.tolist()]
        assert got.by_pair[name].tolist() == pytest.approx(each, rel=1e-5)
        assert got.interval(name)[0] <= got.means[name] <= got.interval(name)[1]
    # every pair of the vocabulary together is attention between different words
    pairs = torch.combinations(torch.arange(6), 2)
    values = [float(v.mean()) for batch in batches for _, _, v in loop_over_pairs(batch, everything, True)]
    whole = pair_attention(batches, {"all": pairs}, generator=rng(), resamples=0)
    assert whole.means["all"] == pytest.approx(sum(values) / len(values), rel=1e-5)


def test_pair_cosines():
    table = torch.randn(12, 5, generator=rng())
    sets = {"a": torch.tensor([[3, 1], [2, 11]]), "b": torch.tensor([[0, 2], [5, 6], [3, 2]])}
    got = pair_cosines(table, sets, generator=rng(), resamples=300)
    for name, pairs in sets.items():
        expected = torch.nn.functional.cosine_similarity(table[pairs[:, 0]], table[pairs[:, 1]])
        torch.testing.assert_close(got.by_pair[name].float(), expected, atol=1e-6, rtol=0)
        assert got.means[name] == pytest.approx(float(expected.mean()), abs=1e-6)
    low, high = got.difference_interval("a", "b")
    assert low <= got.means["a"] - got.means["b"] <= high


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[1, 1]], "two different words"),
        ([[1, 2], [2, 1]], "each pair once"),
        ([[1, 99]], "token 99 is not in the vocabulary of 12"),
        ([1, 2], "must be pairs × 2"),
    ],
)
def test_wrong_pairs(pairs, message):
    with pytest.raises(ArgumentError, match=message):
        pair_cosines(torch.eye(12), {"x": torch.tensor(pairs)}, generator=rng())


def test_pairs_that_never_occur():
    with pytest.raises(ArgumentError, match=r"sets\['x'\]: none of its pairs occurs"):
        pair_attention([documents(2, 5, 6)], {"x": torch.tensor([[7, 8]])}, generator=rng())
