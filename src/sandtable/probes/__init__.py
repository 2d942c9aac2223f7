"""Measurements on models: blocks, attention, norms and rotations; topics in real text; classifiers."""

from sandtable.probes import classifier, dyck, dynamics, text_topics, topic_words, topics, translation

__all__ = ["classifier", "dyck", "dynamics", "text_topics", "topic_words", "topics", "translation"]
