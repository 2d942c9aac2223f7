"""Tokens per second of the attention-ratio pass, against a loop over pairs of positions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sandtable.bridges.readers import read
from sandtable.probes.text_topics import Attended, attention_topics
from sandtable.probes.topic_words import TopicWords

VOCAB, TOPICS, LENGTH, DOCUMENTS, BATCH = 5000, 100, 128, 256, 16


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


if __name__ == "__main__":
    for name, value in attention_speed().items():
        print(f"{name:50s} {value:12,.0f}")
