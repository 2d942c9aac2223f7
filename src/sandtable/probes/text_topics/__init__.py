"""Same-topic against different-topic words of real text: embeddings, attention, chosen pairs, with their intervals.

Source of the measurements: Li, Li and Risteski (2023), "How do Transformers learn topic structure".
"""

from sandtable.probes.text_topics.attention import Attended, AttentionTally, AttentionTopics, attention_topics
from sandtable.probes.text_topics.contrast import Contrast, interval
from sandtable.probes.text_topics.embeddings import EmbeddingTopics, embedding_topics, similarity_matrix
from sandtable.probes.text_topics.pairs import PairMeans, PairTally, pair_attention, pair_cosines

__all__ = [
    "Attended",
    "AttentionTally",
    "AttentionTopics",
    "Contrast",
    "EmbeddingTopics",
    "PairMeans",
    "PairTally",
    "attention_topics",
    "embedding_topics",
    "interval",
    "pair_attention",
    "pair_cosines",
    "similarity_matrix",
]
