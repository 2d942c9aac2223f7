"""Online LDA against scikit-learn's variational steps, exact integrals and topics known by construction."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import scipy.stats
import torch

from sandtable.arguments import ArgumentError
from sandtable.bridges import lda
from sandtable.bridges.lda import Documents, Topics, exp_digamma, fit_topics, infer, stop_tokens


def world(*, topics=8, vocab=120, documents=1200, length=60, alpha=0.1, seed=0):
    """(P(word | topic), counts) of an LDA corpus with topics of Zipfian words."""
    random = np.random.default_rng(seed)
    zipf = 1 / np.arange(1, vocab + 1)
    truth = np.stack([random.permutation(zipf**1.2) for _ in range(topics)])
    truth /= truth.sum(1, keepdims=True)
    shares = random.dirichlet(np.full(topics, alpha), documents)
    lengths = random.integers(length // 2, 2 * length, documents)
    return truth, scipy.sparse.csr_matrix(random.multinomial(lengths, shares @ truth)).astype(np.float64)


def matched(found, truth):
    """Cosines of the best one-to-one match between two sets of topics."""
    cosine = (found / np.linalg.norm(found, axis=1, keepdims=True)) @ (
        truth / np.linalg.norm(truth, axis=1, keepdims=True)
    ).T
    return cosine[scipy.optimize.linear_sum_assignment(-cosine)]


# -- the variational steps -------------------------------------------------------------------------------------------


def test_exp_digamma_against_scipy():
    x = torch.logspace(-1.5, 7, 4000, dtype=torch.float64)
    expected = np.exp(scipy.special.digamma(x.numpy()))
    np.testing.assert_allclose(exp_digamma(x).numpy(), expected, rtol=2e-7)
    np.testing.assert_allclose(exp_digamma(x.float()).numpy(), expected, rtol=2e-5)
    assert exp_digamma(torch.tensor([1e-6, 1e-3, 0.01])).tolist() == [0, 0, 0]  # exp(−100) and less


def test_documents_products_against_dense_ones():
    _, counts = world(documents=30)
    bag, random = Documents.of(counts), torch.Generator().manual_seed(0)
    share, table = torch.rand(30, 5, generator=random), torch.rand(120, 5, generator=random)
    row, word = counts.tocsr().nonzero()
    dense = torch.from_numpy(counts.toarray()).float()
    torch.testing.assert_close(bag.dot(share, table), (share @ table.T)[row, word])
    torch.testing.assert_close(bag.gather(bag.count, table), dense @ table)
    torch.testing.assert_close(bag.scatter(bag.count, share), dense.T @ share)
    keep = torch.arange(30) % 3 == 0
    torch.testing.assert_close(bag[keep].gather(bag[keep].count, table), dense[keep] @ table)


@pytest.mark.parametrize("prior", [0.02, 0.5])
def test_inference_agrees_with_scikit_learn(prior):
    from sklearn.decomposition import LatentDirichletAllocation

    truth, counts = world(documents=150)
    model = LatentDirichletAllocation(
        8, doc_topic_prior=prior, max_doc_update_iter=1000, mean_change_tol=1e-7, random_state=0
    )
    model._init_latent_vars(120)
    model.components_ = truth * 2000 + 0.1
    expectation = scipy.special.digamma(model.components_)
    expectation -= scipy.special.digamma(model.components_.sum(1, keepdims=True))
    model.exp_dirichlet_component_ = np.exp(expectation)
    expected, statistics = model._e_step(counts, cal_sstats=True, random_init=False)
    table = torch.from_numpy(model.exp_dirichlet_component_.T).float().contiguous()
    gamma = infer(Documents.of(counts), table, prior, iterations=1000, tol=1e-6)
    np.testing.assert_allclose(gamma.numpy(), expected, atol=2e-2)
    assert np.abs(gamma.numpy() - expected).mean() < 1e-4
    weight = torch.from_numpy(model.components_.T).float().contiguous()
    evidence = lda._evidence(Documents.of(counts), weight, weight.sum(0), prior, 1000, 1e-6)
    np.testing.assert_allclose(evidence.T.numpy(), statistics, atol=0.02)
    assert float(evidence.sum()) == pytest.approx(counts.sum(), rel=1e-5)


def test_a_whole_online_fit_follows_scikit_learn(monkeypatch):
    """The same start and the same batches: the same topics, batch after batch."""
    from sklearn.decomposition import LatentDirichletAllocation

    _, counts = world(documents=200)
    order = []
    batches = lda._batches

    def recorded(*args):
        for rows in batches(*args):
            order.append(rows.copy())
            yield rows

    monkeypatch.setattr(lda, "_batches", recorded)
    settings = dict(iterations=500, tol=1e-6, batch_size=50, passes=2, offset=10.0, decay=0.7, seed=3)
    ours = fit_topics(counts, topics=5, **settings)
    model = LatentDirichletAllocation(
        5, learning_offset=10.0, learning_decay=0.7, total_samples=200, max_doc_update_iter=500, mean_change_tol=1e-7
    )
    seen = np.asarray(counts.sum(0))[0] > 0
    model._init_latent_vars(int(seen.sum()))
    model.components_ = np.random.default_rng(3).gamma(100.0, 0.01, (int(seen.sum()), 5)).T
    expectation = scipy.special.digamma(model.components_)
    expectation -= scipy.special.digamma(model.components_.sum(1, keepdims=True))
    model.exp_dirichlet_component_ = np.exp(expectation)
    e_step = model._e_step
    model._e_step = lambda rows, random_init, **rest: e_step(rows, random_init=False, **rest)  # both start at γ = 1
    for rows in order:
        model._em_step(rows.astype(np.float64), total_samples=200, batch_update=False)
    expected = model.components_ / model.components_.sum(1, keepdims=True)
    assert len(order) == 2 * 4
    assert matched(ours.word_given_topic.numpy()[:, seen], expected).min() > 0.999
    np.testing.assert_allclose(ours.word_given_topic.numpy()[:, seen], expected, atol=5e-3)


def test_bound_is_below_the_exact_likelihood_and_near_it():
    """Two topics: the likelihood of a document is a one-dimensional integral over the share of the first."""
    table = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.0, 0.2, 0.3, 0.5]])
    topics = Topics(table, torch.tensor([0.5, 0.5]), prior=0.7)
    counts = scipy.sparse.csr_matrix(np.array([[3, 1, 0, 1], [0, 2, 2, 2], [4, 0, 0, 0]]))
    grid, weight = np.polynomial.legendre.leggauss(300)
    angle = (grid + 1) * np.pi / 4  # θ = sin²: removes the singularities of the Dirichlet's ends
    theta = np.sin(angle) ** 2
    density = scipy.stats.beta(0.7, 0.7).pdf(theta) * 2 * np.sin(angle) * np.cos(angle) * np.pi / 4 * weight
    exact = 0.0
    for row in counts.toarray():
        mixed = theta[:, None] * table[0].numpy() + (1 - theta[:, None]) * table[1].numpy()
        exact += math.log(float((density * np.prod(mixed**row, 1)).sum()))
    exact /= counts.sum()
    found = topics.bound(counts)
    assert exact - 0.08 < found < exact


# -- known topics ----------------------------------------------------------------------------------------------------


def test_known_topics_are_recovered():
    truth, counts = world(documents=2500)
    found = fit_topics(counts, topics=8, passes=6, seed=0, batch_size=250)  # other seeds may end in other local optima
    assert matched(found.word_given_topic.numpy(), truth).min() > 0.9
    np.testing.assert_allclose(found.word_given_topic.sum(1).numpy(), 1, rtol=1e-5)
    assert float(found.share.sum()) == pytest.approx(1)
    # held-out words are explained nearly as well as by the truth, and better than by one topic for all
    held_out = world(documents=2800)[1][2500:]
    ideal = Topics(torch.from_numpy(truth).float(), found.share, 0.1).bound(held_out)
    unigram = np.asarray(counts.sum(0))[0] / counts.sum()
    single = (np.asarray(held_out.sum(0))[0] @ np.log(np.maximum(unigram, 1e-9))) / held_out.sum()
    assert ideal - 0.1 < found.bound(held_out) < ideal + 0.02
    assert found.bound(held_out) > single + 0.3


def test_mixtures_find_the_topic_of_a_pure_document():
    truth, _ = world()
    topics = Topics(torch.from_numpy(truth).float(), torch.full((8,), 1 / 8), prior=0.1)
    pure = np.stack([np.random.default_rng(k).multinomial(200, truth[k]) for k in range(8)])
    mixtures = topics.mixtures(scipy.sparse.csr_matrix(np.vstack([pure, np.zeros((1, 120))])))
    assert mixtures.argmax(1)[:8].tolist() == list(range(8))
    np.testing.assert_allclose(mixtures[8].numpy(), 1 / 8)


def test_same_seed_same_bits_on_any_number_of_threads():
    _, counts = world(documents=100)
    one, two, other = (
        fit_topics(counts, topics=4, passes=2, seed=seed, threads=threads) for seed, threads in [(0, 1), (0, 2), (1, 1)]
    )
    assert torch.equal(one.word_given_topic, two.word_given_topic)
    assert not torch.equal(one.word_given_topic, other.word_given_topic)


def test_a_stream_of_chunks_gives_the_same_kind_of_topics_and_every_document_counts_once_a_pass():
    truth, counts = world(documents=1000)
    read = []

    def stream():
        read.append(0)
        yield from (counts[first : first + 333] for first in range(0, 1000, 333))

    reports = []
    found = fit_topics(stream, topics=8, passes=4, batch_size=125, progress=lambda *now: reports.append(now))
    assert len(read) == 5
    assert np.median(matched(found.word_given_topic.numpy(), truth)) > 0.9
    assert reports[-1][:2] == (1000 * 4, 1000 * 4)
    assert all(speed > 0 for *_, speed in reports)


def test_stop_tokens_leave_before_the_fit_and_unseen_words_have_no_topic():
    _, counts = world(documents=300)
    dense = counts.toarray()
    dense[:, 5] = 0
    dense[7] = 0
    dense[7, 9] = 3  # a document of nothing but a stop token
    found = fit_topics(scipy.sparse.csr_matrix(dense), topics=4, passes=1, stop=[9, 11])
    assert not found.word_given_topic[:, [5, 9, 11]].any()
    assert found.word_given_topic[:, [0, 1, 2]].all()
    assert found.settings["documents"] == (np.delete(dense, [9, 11], 1).sum(1) > 0).sum() < 300


def test_saved_topics_come_back(tmp_path):
    _, counts = world(documents=100)
    found = fit_topics(counts, topics=3, passes=1)
    found.save(tmp_path / "topics.safetensors")
    again = Topics.load(tmp_path / "topics.safetensors")
    assert torch.equal(again.word_given_topic, found.word_given_topic)
    assert torch.equal(again.share, found.share)
    assert (again.prior, again.settings) == (found.prior, found.settings)
    (tmp_path / "broken").write_bytes(b"no topics")
    for name in ("broken", "absent"):
        with pytest.raises(ArgumentError, match="not a file of saved topics"):
            Topics.load(tmp_path / name)


def test_top_words_are_the_most_probable_ones():
    topics = Topics(torch.tensor([[0.1, 0.6, 0.3], [0.0, 0.0, 1.0]]), torch.tensor([0.5, 0.5]), prior=0.1)
    named = topics.top_words(["a", "b", "c"], 2)
    assert [[word for word, _ in row] for row in named] == [["b", "c"], ["c"]]
    assert named[0][0][1] == pytest.approx(0.6)


# -- stop tokens -----------------------------------------------------------------------------------------------------


def stops(words, **options):
    return {words[i] for i in stop_tokens(words, **options)}


def test_stop_tokens_of_wordpiece():
    keep = ["frog", "##ology", "1st", "café", "数", "##x2y"]
    drop = ["[PAD]", "[unused7]", "the", "The", "##s", "a", ".", "##12", "2024", "...", "’", "don", "##ing"[:3], "é"]
    assert stops(keep + drop) == set(drop)
    assert "frog" in stops(keep, special=[0])


def test_stop_tokens_of_byte_level_bpe():
    tokenizers = pytest.importorskip("tokenizers")
    encode = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    word = {text: encode(text)[0][0] for text in [" frog", " café", " the", " —", " 42", " x", "\n", " don", "izer"]}
    words = [*word.values(), "<s>", "<|endoftext|>"]
    dropped = stops(words)
    assert not dropped & {word[" frog"], word[" café"], word["izer"]}
    assert dropped == {word[t] for t in (" the", " —", " 42", " x", "\n", " don")} | {"<s>", "<|endoftext|>"}


def test_stop_tokens_of_sentencepiece():
    keep = ["▁frog", "ology", "▁Mozart"]
    drop = ["▁", "▁the", "▁s", "s", "▁12", "<0x0A>", "</s>", "▁—", "▁▁"]
    assert stops(keep + drop) == set(drop)


def test_tokens_of_most_documents_are_stop_tokens():
    counts = scipy.sparse.csr_matrix(np.array([[1, 0, 1], [2, 1, 0], [1, 0, 0], [1, 0, 0]]))
    words = ["general", "frog", "lizard"]
    assert stops(words, counts=counts, common=0.5) == {"general"}
    assert stops(words, counts=counts, common=0.24) == {"general", "frog", "lizard"}
    assert stops(words) == set()


# -- bad input -------------------------------------------------------------------------------------------------------

SMALL = world(documents=20)[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_topics(SMALL, topics=21), "topics=21: needs at least as many documents; only 20"),
        (lambda: fit_topics(SMALL, topics=1), "topics=1"),
        (lambda: fit_topics(SMALL, topics=2, passes=0), "passes=0"),
        (lambda: fit_topics(SMALL, topics=2, batch_size=0), "batch_size=0"),
        (lambda: fit_topics(SMALL, topics=2, decay=0.3), "decay=0.3"),
        (lambda: fit_topics(SMALL, topics=2, document_prior=0), "document_prior=0"),
        (lambda: fit_topics(SMALL, topics=2, threads=0), "threads=0"),
        (lambda: fit_topics(SMALL, topics=2, stop=range(120)), "stop tokens"),
        (lambda: fit_topics(SMALL, topics=2, stop=[120]), "0 to 119"),
        (lambda: fit_topics(-SMALL, topics=2), "≥ 0"),
        (lambda: fit_topics(SMALL * math.nan, topics=2), "finite"),
        (lambda: fit_topics(SMALL[:0], topics=2), "no documents"),
        (lambda: fit_topics(lambda: iter([]), topics=2), "no documents"),
        (lambda: fit_topics(itertools.repeat(SMALL, 3), topics=2), "read only once"),
        (lambda: stop_tokens(["a"], SMALL), "1 names for counts of 120"),
        (lambda: stop_tokens(["a"], common=0), "common=0"),
        (lambda: stop_tokens(["a"], special=[4]), "special=4"),
    ],
)
def test_bad_input_is_one_clear_line(call, message):
    with pytest.raises(ArgumentError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
