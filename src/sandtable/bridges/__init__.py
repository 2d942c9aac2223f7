"""The real world: text corpora, their tokens and topics, models of others, and ours and our samples for others."""

from sandtable.bridges import (
    columns,
    corpus,
    huggingface,
    lda,
    parallel,
    pretraining,
    readers,
    tokens,
    topics,
    transformer_lens,
)

__all__ = [
    "columns",
    "corpus",
    "huggingface",
    "lda",
    "parallel",
    "pretraining",
    "readers",
    "tokens",
    "topics",
    "transformer_lens",
]
