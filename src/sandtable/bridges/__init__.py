"""The real world: text corpora, their tokens and topics, and models of others."""

from sandtable.bridges import corpus, huggingface, lda, parallel, pretraining, readers, tokens, topics

__all__ = ["corpus", "huggingface", "lda", "parallel", "pretraining", "readers", "tokens", "topics"]
