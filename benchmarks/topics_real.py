"""Topics in real text: speed of the attention-ratio pass and of online LDA, and their memory.

    python benchmarks/topics_real.py [attention] [lda] [memory] [--documents 10000] [--topics 100] [--passes 6]

- attention: tokens per second of `attention_topics` against a loop over pairs of positions.
- lda: online LDA against gensim's single-core one and scikit-learn's on the same corpus, with the same topics, passes,
  batches and priors, offset 10 and decay 0.7. Each keeps its own tolerance for documents: 0.001 for gensim and
  scikit-learn; 0.01 here, and 0.001 in the row "sandtable, tight". Quality is the held-out bound on the log-likelihood
  per word, computed in the same way for every fit, and coherence. Needs gensim (`uv run --group bench`).
- memory: a corpus of 10 million tokens on disk, streamed through tokens and LDA; peak memory of the process before and
  after.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse import csr_matrix

from sandtable.bridges.lda import Topics, default_batch, fit_topics
from sandtable.bridges.readers import read
from sandtable.bridges.tokens import TokenCorpus, tokenize
from sandtable.probes.text_topics import Attended, attention_topics
from sandtable.probes.topic_words import TopicWords, coherence

VOCAB, TOPICS, LENGTH, DOCUMENTS, BATCH = 5000, 100, 128, 256, 16  # of the attention benchmark


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Least seconds of several runs: the machine may be busy with other things."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def loop(batch: Attended, topic: list[int], heads_at_once: bool) -> np.ndarray:
    """Mean same-topic and different-topic attention of a batch as it is usually written: pair by pair.

    With `heads_at_once` all layers and heads of a pair are added in one numpy operation, otherwise one by one.
    """
    pattern = batch.pattern.numpy()
    layers, heads = pattern.shape[0], pattern.shape[2]
    sums, counts = np.zeros((2, layers, heads)), np.zeros((2, 1, 1))
    for d in range(len(batch.ids)):
        words = batch.ids[d][batch.mask[d]].tolist()
        for i, query in enumerate(words):
            for j, key in enumerate(words):
                if query != key and topic[query] >= 0 and topic[key] >= 0:
                    kind = int(topic[query] != topic[key])
                    counts[kind] += 1
                    if heads_at_once:
                        sums[kind] += pattern[:, d, :, i, j] * (len(words) / 100)
                        continue
                    for layer in range(layers):
                        for head in range(heads):
                            sums[kind, layer, head] += pattern[layer, d, head, i, j] * (len(words) / 100)
    return sums / counts


def attention_speed() -> dict[str, Any]:
    """A BERT of 4 layers and 4 heads on documents of 128 tokens; half of the vocabulary is kept by some topic."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCAB, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    reader = read(BertModel(config).eval())
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCAB, (DOCUMENTS, LENGTH), generator=generator)
    batches = [(part, torch.ones_like(part, dtype=torch.bool)) for part in ids.split(BATCH)]
    topic = torch.where(torch.arange(VOCAB) % 2 == 0, torch.arange(VOCAB) // 2 % TOPICS, -1)
    words = TopicWords(topic[:, None] == torch.arange(TOPICS))
    attended = list(reader.attentions(batches))
    tokens = ids.numel()
    ours = seconds(lambda: attention_topics(attended, words))
    both = seconds(lambda: attention_topics(reader.attentions(batches), words), 2)
    labels, one = topic.tolist(), attended[0]
    by_pair = seconds(lambda: loop(one, labels, True), 1) * len(batches)
    by_head = seconds(lambda: loop(one, labels, False), 1) * len(batches)
    measured = attention_topics([one], words)
    np.testing.assert_allclose(loop(one, labels, True), np.stack([measured.same, measured.different]), rtol=1e-4)
    return {
        "tokens/s, measurement": tokens / ours,
        "tokens/s, measurement and the model's forward": tokens / both,
        "tokens/s, loop over pairs, layers and heads": tokens / by_head,
        "tokens/s, loop over pairs, all heads at once": tokens / by_pair,
        "measurement against the loop": by_head / ours,
        "measurement against the loop, all heads at once": by_pair / ours,
    }


def zipfian_corpus(documents: int, *, topics: int = 100, vocab: int = 20_000, length: int = 80, seed: int = 0) -> Any:
    """Counts of an LDA corpus: topics of Zipfian words, a few topics per document, lengths from a wide law."""
    random = np.random.default_rng(seed)
    edges = np.cumsum(1 / np.arange(1, vocab + 1) ** 1.1)
    words = np.stack([random.permutation(vocab) for _ in range(topics)])
    lengths = np.maximum(5, random.lognormal(np.log(length), 0.8, documents).astype(int))
    owner = np.repeat(np.arange(documents), lengths)
    shares = random.dirichlet(np.full(topics, 0.03), documents).cumsum(1)
    topic = np.minimum((shares[owner] < random.random((len(owner), 1))).sum(1), topics - 1)
    word = words[topic, np.searchsorted(edges / edges[-1], random.random(len(owner)))]
    return csr_matrix((np.ones(len(word), dtype=np.float32), (owner, word)), shape=(documents, vocab))


def lda_speed(
    counts: Any = None, *, documents: int = 10_000, topics: int = 100, passes: int = 6, threads: int = 1
) -> dict[str, dict[str, float]]:
    """Seconds, ratio to gensim, held-out bound and coherence of every way to fit; the last tenth is held out."""
    counts = zipfian_corpus(documents, topics=topics) if counts is None else scipy.sparse.csr_matrix(counts)
    counts = counts[np.random.default_rng(0).permutation(counts.shape[0])]
    cut = counts.shape[0] * 9 // 10
    train, held_out = counts[:cut], counts[cut:]
    batch = default_batch(cut)

    def ours(tol: float = 0.01) -> np.ndarray:
        fitted = fit_topics(train, topics=topics, passes=passes, batch_size=batch, tol=tol, threads=threads)
        return fitted.word_given_topic.numpy()

    def gensim_online() -> np.ndarray:
        from gensim.models import LdaModel

        names = {i: str(i) for i in range(train.shape[1])}
        model = LdaModel(
            bags, topics, names, chunksize=batch, passes=passes, offset=10.0, decay=0.7, eval_every=0, random_state=0
        )
        return model.get_topics()

    def scikit_learn() -> np.ndarray:
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(topics, batch_size=batch, total_samples=cut, random_state=0)
        for _ in range(passes):
            model.partial_fit(train)
        return model.components_ / model.components_.sum(1, keepdims=True)

    bags = [
        list(zip(train.indices[a:b].tolist(), train.data[a:b].tolist(), strict=True))
        for a, b in zip(train.indptr[:-1], train.indptr[1:], strict=True)
    ]
    ways: dict[str, Callable[[], np.ndarray]] = {
        "gensim": gensim_online,
        "scikit-learn": scikit_learn,
        "sandtable": ours,
        "sandtable, tight": lambda: ours(tol=0.001),
    }
    out: dict[str, dict[str, float]] = {}
    print(f"{cut} documents, {train.sum():,.0f} tokens, {topics} topics, {passes} passes, batches of {batch}")
    known = np.asarray(train.sum(0))[0] > 0
    for name, fit in ways.items():
        began = time.monotonic()
        table = torch.from_numpy(fit() * known).float()
        seconds = time.monotonic() - began
        fitted = Topics(table / table.sum(1, keepdim=True), torch.full((topics,), 1 / topics), prior=1 / topics)
        first = out.get("gensim", {}).get("seconds", seconds)
        out[name] = dict(
            seconds=seconds,
            ratio=first / seconds,
            tokens_per_second=float(train.sum()) * passes / seconds,
            bound=fitted.bound(held_out),
            npmi=float(coherence(fitted.word_given_topic, train).npmi.mean()),
        )
        print(
            f"{name:16}  {seconds:7.1f} s  {out[name]['tokens_per_second']:10,.0f} tokens/s  {out[name]['ratio']:5.1f}×"
            f"  held-out bound {out[name]['bound']:.3f} nats/word  NPMI {out[name]['npmi']:.3f}",
            flush=True,
        )
    return out


def memory(tokens: int = 10_000_000, topics: int = 100, passes: int = 1) -> dict[str, float]:
    """Peak resident memory in MB of tokenizing and fitting a corpus that is never in memory as a whole."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab, length = 20_000, 200
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocab)} | {"[UNK]": vocab}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    random = np.random.default_rng(0)

    def documents() -> Any:
        for _ in range(tokens // length):
            yield " ".join(f"w{word}" for word in random.zipf(1.2, length) % vocab)

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before, began = peak(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        corpus = tokenize(documents(), tokenizer, folder=folder)
        read_back = TokenCorpus.open(folder)
        tokenized, seconds = peak(), time.monotonic() - began
        began = time.monotonic()
        fit_topics(read_back, topics=topics, passes=passes)
        fitted = peak()
    return {
        "tokens": float(len(corpus.ids)),
        "MB before": before,
        "MB after tokenizing": tokenized,
        "MB after LDA": fitted,
        "seconds, tokenizing": seconds,
        "seconds, LDA, one pass": time.monotonic() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="attention, lda, memory (default: all three)")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1, help="for sandtable's LDA; the others use one core")
    parser.add_argument("--counts", help="an npz file of scipy's save_npz to use instead of the synthetic corpus")
    options = parser.parse_args()
    parts = options.parts or ["memory", "attention", "lda"]
    if unknown := set(parts) - {"memory", "attention", "lda"}:
        parser.error(f"unknown part {unknown.pop()!r}: attention, lda or memory")
    for name, part in (("memory", memory), ("attention", attention_speed)):
        if name in parts:
            for what, value in part().items():
                print(f"{what:50s} {value:14,.1f}", flush=True)
    if "lda" in parts:
        counts = scipy.sparse.load_npz(options.counts) if options.counts else None
        lda_speed(
            counts, documents=options.documents, topics=options.topics, passes=options.passes, threads=options.threads
        )


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
