"""Topics of real text: speed of online LDA against gensim and scikit-learn, and what it costs in quality.

    python benchmarks/topics_real.py [--documents 10000] [--topics 100] [--passes 6] [--threads 1]

All fit the same corpus with the same topics, passes, batches and priors, offset 10 and decay 0.7. Each keeps its own
tolerance for documents: 0.001 for gensim and scikit-learn; 0.01 here, and 0.001 in the row "sandtable, tight". Quality
is the held-out bound on the log-likelihood per word, computed in the same way for every fit, and coherence.
Needs gensim.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse import csr_matrix

from sandtable.bridges.lda import Topics, default_batch, fit_topics
from sandtable.probes.topic_words import coherence


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
        fitted = fit_topics(train, topics=topics, passes=passes, batch=batch, tol=tol, threads=threads)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1, help="for sandtable; the others use one core")
    parser.add_argument("--counts", help="an npz file of scipy's save_npz to use instead of the synthetic corpus")
    options = parser.parse_args()
    counts = scipy.sparse.load_npz(options.counts) if options.counts else None
    lda_speed(
        counts, documents=options.documents, topics=options.topics, passes=options.passes, threads=options.threads
    )


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
