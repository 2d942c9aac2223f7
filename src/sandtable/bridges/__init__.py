"""The real world: text corpora, their tokens, and models of others."""

from sandtable.bridges import corpus, tokens

__all__ = ["corpus", "tokens"]
