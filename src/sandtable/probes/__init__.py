"""Measurements on models: blocks, attention, norms and rotations; topics in real text."""

from sandtable.probes import dynamics, text_topics, topic_words, topics

__all__ = ["dynamics", "text_topics", "topic_words", "topics"]
