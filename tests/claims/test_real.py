"""The statistics of the claims on real text, against the probes and against counting."""

import numpy as np
import pytest
import torch
import transformers

from sandtable.bridges.readers import read
from sandtable.claims.real import published, setting
from sandtable.probes.text_topics import Attended, attention_topics, embedding_topics
from sandtable.probes.topic_words import TopicWords


def words(vocab=60, topics=5, seed=0):
    rng = np.random.default_rng(seed)
    topic = rng.integers(-1, topics, size=vocab)
    return TopicWords(torch.from_numpy(topic[:, None] == np.arange(topics)))


def arrays(kept, *tables):
    ids = kept.words
    return {
        "x: vectors": torch.stack([table[ids] for table in tables])[None].numpy(),
        "x: member": kept.member[ids][None].numpy(),
    }


@pytest.mark.parametrize("cosine", [True, False])
def test_auc_over_words_is_the_probes_and_its_jackknife_the_real_one(cosine):
    kept = words()
    generator = torch.Generator().manual_seed(1)
    table = setting.plant(torch.randn(60, 8, generator=generator), kept.member.float(), 0.7, generator)
    probe = embedding_topics(table, kept, generator=generator, resamples=0)
    fn = setting.word_auc(arrays(kept, table), "x", cosine=cosine)
    everyone = np.arange(len(kept.words))
    expected = (probe.cosine if cosine else probe.dot).auc
    assert fn(everyone[None])[0] == pytest.approx(expected, abs=1e-6)
    for i in (0, 7, 20):  # without a word: to first order the AUC of the others
        member = kept.member.clone()
        member[kept.words[i]] = False
        fewer = embedding_topics(table, TopicWords(member), generator=generator, resamples=0)
        real = (fewer.cosine if cosine else fewer.dot).auc
        assert fn(np.delete(everyone, i)[None])[0] - expected == pytest.approx(real - expected, abs=2e-3)


def test_models_and_shuffles_are_averaged():
    kept = words()
    tables = [torch.randn(60, 8, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    everyone = np.arange(len(kept.words))[None]
    one, other = (setting.word_auc(arrays(kept, table), "x")(everyone)[0] for table in tables)
    assert setting.word_auc(arrays(kept, *tables), "x")(everyone)[0] == pytest.approx((one + other) / 2)
    planted = setting.plant(tables[0], kept.member.float(), 3.0, torch.Generator().manual_seed(0))
    assert setting.word_auc(arrays(kept, planted), "x")(everyone)[0] > 0.9
    assert abs(setting.word_auc(arrays(kept, planted), "x", shuffles=20)(everyone)[0] - 0.5) < 0.05


def test_attention_over_documents_is_the_probes():
    kept, generator = words(), torch.Generator().manual_seed(0)
    ids = torch.randint(60, (12, 15), generator=generator)
    pattern = torch.rand(2, 12, 3, 15, 15, generator=generator).softmax(-1)
    found = attention_topics([Attended(pattern, ids, torch.ones_like(ids, dtype=torch.bool))], kept)
    contrast = found.contrast(generator=generator, resamples=0)
    assert setting.attention_auc(found.histograms.numpy().astype(float)) == pytest.approx(contrast.auc)
    sums = [part.mean((1, 2)) for part in (found.same_sums, found.different_sums)]
    rows = torch.stack([*sums, found.same_counts, found.different_counts], 1).numpy()
    assert setting.attention_ratio(rows) == pytest.approx(contrast.ratio)


def test_raised_attention_has_the_ratio_asked_for():
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    model, kept = read(transformers.BertModel(config).eval()), words()
    ids = torch.randint(60, (30, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.randint(4, 13, (30, 1), generator=torch.Generator().manual_seed(1))
    boosted = setting.Boosted(model, kept, 1.5)
    torch.testing.assert_close(
        boosted.attention(ids, mask).sum(-1)[:, mask.all(1)], torch.ones(2, int(mask.all(1).sum()), 2, 12)
    )
    plain, raised = (
        attention_topics(each.attentions([(ids, mask)]), kept).contrast(
            generator=torch.Generator().manual_seed(0), resamples=0
        )
        for each in (model, boosted)
    )
    assert plain.ratio_defined
    gain = (raised.same / raised.different) / (plain.same / plain.different)
    assert 1.35 < gain <= 1.5  # rows that see much of their topic pay part of it back, for they still sum to one
    assert raised.auc > 0.9 > plain.auc


def test_published_tables_are_whole():
    for table in (published.SEPARATE, published.OVERLAPPING):
        assert len(table) == 6
        assert all(len(row) == 3 and all(len(cell) == 3 for cell in row) for row in table.values())
    assert published.nearest_family("google/electra-small") == "ELECTRA"
    assert published.nearest_family("roberta-base") == "RoBERTa"
    assert published.nearest_family("my-model") == "BERT"
