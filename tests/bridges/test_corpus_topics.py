"""From a corpus and a model to the published tables: known topics, planted and random models."""

import json

import numpy as np
import pytest
import torch
import transformers

from sandtable.arguments import ArgumentError
from sandtable.bridges import tokens, topics
from sandtable.bridges.readers import read
from sandtable.probes.text_topics import attention_topics, embedding_topics, pair_attention
from sandtable.probes.topic_words import shuffled

TOPICS = {
    "sea": ["ship", "sail", "harbour", "wave", "tide", "anchor", "captain", "storm", "island", "fisher"],
    "kitchen": ["bread", "butter", "oven", "flour", "sugar", "recipe", "spoon", "pepper", "onion", "garlic"],
    "law": ["court", "judge", "lawyer", "verdict", "trial", "witness", "appeal", "statute", "crime", "jury"],
}
CHOICES = ((0.02, False), (0.05, False), (0.05, True))


def texts(n=300, seed=0):
    """Documents of 20 to 60 words, nine of ten from one topic."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    made = []
    for i in range(n):
        size = rng.integers(20, 61)
        which = np.where(rng.random(size) < 0.9, i % 3, rng.integers(3, size=size))
        made.append(" ".join(TOPICS[names[k]][rng.integers(10)] for k in which))
    return made


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.train_tokenizer(texts(), vocab=200, framed=False)


@pytest.fixture(scope="module")
def found(tokenizer, tmp_path_factory):
    made = tokens.tokenize(texts(), tokenizer, folder=tmp_path_factory.mktemp("tokens"))
    return topics.find_topics(made, topics=3, passes=10, common=1.0)


def bert(size, planted=None, seed=0):
    """A tiny BERT; `planted` names the topic of every token, which then moves its embedding, keys and queries."""
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=80,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.BertModel(config).eval()
        if planted is not None:
            directions = torch.randn(4, 32)
            with torch.no_grad():
                table = model.get_input_embeddings().weight
                table += 0.1 * directions[planted]
                for layer in model.encoder.layer:
                    for part in (layer.attention.self.query, layer.attention.self.key):
                        part.weight.copy_(torch.eye(32))
    return model


def planted_topics(found):
    name = {word: k for k, words in enumerate(TOPICS.values()) for word in words}
    return torch.tensor([name.get(word, 3) for word in found.tokens.words])


def test_topics_of_known_documents_are_found(found):
    owner = {word: name for name, words in TOPICS.items() for word in words}
    kept = found.words(0.05)
    assert int(kept.sizes.min()) >= 8
    for topic in range(3):
        names = {owner.get(found.tokens.words[i]) for i in kept.member[:, topic].nonzero()[:, 0].tolist()}
        assert len(names) == 1
    assert not found.stop & set(kept.words.tolist())
    groups = found.clearest()
    assert all(len({owner[found.tokens.words[i]] for i in group}) == 1 for group in groups)


def test_one_pass_gives_what_each_measurement_gives_alone(found):
    model = read(bert(found.tokens.vocab_size, planted_topics(found)))
    got = topics.study(model, found, choices=CHOICES, pair_thresholds=(0.05,), documents=40, longest=30, resamples=50)
    chosen = found.tokens.some(40, 0)
    assert got.documents == len(set(chosen)) == 40
    for threshold, overlap in CHOICES:
        cell, words = got.cells[threshold, overlap], found.words(threshold, overlap=overlap)
        stream = model.attentions(found.tokens.batches(30, 16, chosen))
        alone = attention_topics(stream, words)
        torch.testing.assert_close(cell.attention.same, alone.same)
        torch.testing.assert_close(cell.attention.different, alone.different)
        assert torch.equal(cell.attention.histograms, alone.histograms)
        rng = torch.Generator().manual_seed(5)
        assert cell.embeddings.cosine.auc == embedding_topics(model.embeddings, words, generator=rng).cosine.auc
    sets, rng = got.pairs[0.05].sets, torch.Generator().manual_seed(5)
    alone = pair_attention(model.attentions(found.tokens.batches(30, 16, chosen)), sets, generator=rng)
    assert got.pairs[0.05].attention.means == alone.means
    sums, number = got.pairs[0.05].attention.by_document[topics.SAME].sum(0)
    assert float(sums / number) == pytest.approx(alone.means[topics.SAME])


def test_planted_topics_are_seen_and_random_ones_are_not(found):
    options = dict(choices=((0.05, False),), pair_thresholds=(), documents=200, resamples=300)
    model = read(bert(found.tokens.vocab_size, planted_topics(found)))
    cell = topics.study(model, found, **options).cells[0.05, False]
    assert [topics.verdict(contrast) for contrast in cell.contrasts.values()] == ["yes"] * 3
    assert all(contrast.auc > 0.8 for contrast in cell.contrasts.values())
    blind = topics.study(model.random(1), found, **options)
    assert "yes" not in [topics.verdict(contrast) for contrast in blind.cells[0.05, False].contrasts.values()]
    (row,) = topics.rows([blind])
    assert row["cosine"]["ratio"] is None  # noise over noise
    assert row["attention"]["ratio"] == pytest.approx(1, abs=0.02)
    json.dumps(row, allow_nan=False)
    mixed = lambda words: shuffled(words, torch.Generator().manual_seed(0))  # noqa: E731
    dealt = topics.study(model, found, **options, relabel=mixed).cells[0.05, False]
    assert abs(dealt.embeddings.cosine.auc - 0.5) < 0.15 < cell.embeddings.cosine.auc - 0.5


def test_shuffling_keeps_the_sizes_of_topics_and_the_words(found):
    words = found.words(0.05, overlap=True)
    dealt = shuffled(words, torch.Generator().manual_seed(0))
    assert torch.equal(dealt.words, words.words)
    assert torch.equal(dealt.sizes, words.sizes)
    assert not torch.equal(dealt.member, words.member)


def test_saved_and_found_again(found, tmp_path):
    found.save(tmp_path)
    again = topics.CorpusTopics.load(tmp_path, found.tokens)
    assert torch.equal(again.topics.word_given_topic, found.topics.word_given_topic)
    assert again.stop == found.stop
    torch.testing.assert_close(again.coherence.npmi, found.coherence.npmi.float())
    other = tokens.tokenize(texts(30, seed=1), tokens.train_tokenizer(texts(30), vocab=100))
    with pytest.raises(ArgumentError, match="topics of another corpus"):
        topics.CorpusTopics.load(tmp_path, other)
    with pytest.raises(ArgumentError, match="holds no saved topics"):
        topics.CorpusTopics.load(tmp_path / "nowhere", found.tokens)


def test_words_are_found_however_a_tokenizer_marks_them(found):
    class Marked:
        words = ("ship", "Ġship", "Ġsail", "▁wave")

    marked = topics.CorpusTopics(Marked(), found.topics, found.stop, found.coherence)  # type: ignore[arg-type]
    assert marked.ids(["ship", "sail", "wave"]) == [1, 2, 3]
    with pytest.raises(ArgumentError, match="words: 'shipp' is not in the vocabulary as one token; did you mean"):
        found.ids(["shipp"])


def test_documents_are_chosen_and_sorted_by_length(found):
    chosen = found.tokens.some(50, seed=3)
    lengths = np.diff(found.tokens.offsets)[chosen]
    assert len(set(chosen)) == 50
    assert (np.diff(lengths) >= 0).all()
    assert chosen == found.tokens.some(50, seed=3) != found.tokens.some(50, seed=4)
    batches = list(found.tokens.batches(20, 7, chosen))
    rows = [row[real].tolist() for ids, mask in batches for row, real in zip(ids, mask, strict=True)]
    assert rows == [found.tokens.document(i)[:20].tolist() for i in chosen]
    with pytest.raises(ArgumentError, match="documents=300"):
        list(found.tokens.batches(20, 7, [300]))


def test_fewer_documents_than_topics(tokenizer):
    few = tokens.tokenize(texts(5), tokenizer)
    with pytest.raises(ArgumentError, match="topics=8: needs at least as many documents, the corpus has 5"):
        topics.find_topics(few, topics=8)


def test_the_frame_of_a_model_leaves_room(found, tokenizer):
    model = bert(found.tokens.vocab_size)
    framed = tokens.train_tokenizer(texts(), vocab=200)
    reader = read(model, framed)
    assert reader.frame_size == 2
    assert read(model, tokenizer).frame_size == 0
    options = dict(choices=((0.05, False),), pair_thresholds=(), documents=20, resamples=10)
    topics.study(reader, found, **options, longest=500, special=True)  # cut to the 80 positions less the frame
    with pytest.raises(ArgumentError, match="do not belong together"):
        reader.check_vocabulary(10_000)
