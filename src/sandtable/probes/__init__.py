"""Measurements on models: blocks, attention, norms and rotations; topics in real text; classifiers."""

from sandtable.probes import automata, classifier, dyck, dynamics, text_topics, topic_words, topics, translation

__all__ = ["automata", "classifier", "dyck", "dynamics", "text_topics", "topic_words", "topics", "translation"]
