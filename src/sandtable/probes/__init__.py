"""Measurements on models, never on how they were trained.

Blocks of matrices and attention by topic (`topics`, `text_topics`, `topic_words`), balance, depth and stacks (`dyck`),
states, boundary heads and curves (`automata`), dependence of words (`translation`), norms and rotations of layers
(`dynamics`), linear and MLP probes of hidden states (`classifier`). Most take a stack and give one number per model.
"""

from sandtable.probes import automata, classifier, dyck, dynamics, text_topics, topic_words, topics, translation

__all__ = ["automata", "classifier", "dyck", "dynamics", "text_topics", "topic_words", "topics", "translation"]
