"""What the trained claims of the topic line share: the published world, models, labels and drawing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from sandtable.lab import Lab, Source, Table
from sandtable.lab.figures import heatmaps
from sandtable.models import FanIn, Initial, Normal, Transformer
from sandtable.probes import topics as probe
from sandtable.training import Fit, Recipe, evaluate
from sandtable.worlds import BertMasking, TopicModel

MASKING = BertMasking(select=0.15, keep=0.1, random=0.1)
EMBEDDING_STD = 0.05
LABELS = ("true", "shuffled", "shifted")
CONTRAST = 5.0
"""A block pattern counts when same- and different-topic means differ by five standard deviations of the latter."""


def source(where: str) -> Source:
    return Source("Li, Li & Risteski", 2023, where)


def world(*, overlap: float = 0.0) -> TopicModel:
    """The experiments' law: ten topics of ten words, 100 to 150 words a document, Dirichlet(0.1) shares."""
    return TopicModel(topics=10, words=10, length=(100, 150), dirichlet=0.1, overlap=overlap)


def one_hot(
    law: TopicModel, *, attention: str = "softmax", initial: Initial | None = None, embedding_norm: bool = False
) -> Transformer:
    """One layer, one head, one-hot embeddings, nothing else: f = W^V X̃ A(X̃).

    `embedding_norm` adds the layer norm of the public code, which scales the one-hot inputs up about tenfold.
    """
    return Transformer(
        law.vocab,
        embedding="one-hot",
        embedding_norm=embedding_norm,
        attention=attention,
        output=False,
        residual=False,
        initial={"*": initial or FanIn()},
    )


def with_embedding(law: TopicModel, *, width: int, attention: str = "softmax") -> Transformer:
    """The same with a trained embedding and a tied head: f = W_Eᵀ W^V W_E X̃ A."""
    return Transformer(
        law.vocab, width=width, attention=attention, output=False, residual=False, initial={"*": Normal(EMBEDDING_STD)}
    )


def labels(law: TopicModel, kind: str, *, order: int = 0) -> Tensor:
    """Topics of the tokens: true, shuffled over words, or shifted by the four special ids of the published code."""
    topic = law.topic_of.clone()
    if kind == "shuffled":
        mixed = torch.randperm(len(topic) - 1, generator=torch.Generator().manual_seed(order))
        topic[1:] = topic[1:][mixed]
    elif kind == "shifted":
        # Ids of words start at 4 there and are mapped to topics as if they started at 0: the first words of the
        # vocabulary keep id 4 … and the last four fall off the end.
        topic = torch.full_like(topic, -1)
        ids = torch.arange(len(topic) - 1) + 4
        inside = ids < law.topics * law.words
        topic[1:][inside] = (ids // law.words)[inside]
    elif kind != "true":
        raise ValueError(f"labels {kind!r}: one of {', '.join(LABELS)}")
    return topic


def value_blocks(fit: Fit, law: TopicModel, kind: str, *, centred: bool = False) -> probe.Blocks:
    """Block statistics of the trained value matrices; `centred` for cross-entropy, which cannot see column offsets."""
    matrices = probe.value_matrix(fit.models)
    return probe.blocks(probe.without_offsets(matrices) if centred else matrices, law, labels(law, kind))


def contrast(blocks: probe.Blocks) -> np.ndarray:
    return blocks.contrast.numpy()


def arm_rows(lab: Lab, columns: Mapping[str, np.ndarray]) -> Table:
    """Mean and spread over seeds of each named quantity."""
    rows = [[name, float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else 0.0] for name, v in columns.items()]
    return Table(["quantity", "mean", f"spread over {len(lab.seeds)} seeds"], rows)


def matrices(law: TopicModel, panels: Mapping[str, Tensor], title: str) -> Figure:
    """Word–word parts of one model's matrices, with lines between topics."""
    return heatmaps(
        {name: matrix[1:, 1:].numpy() for name, matrix in panels.items()}, block=law.words, title=title, shared=False
    )


def fresh_loss(lab: Lab, recipe: Recipe, batches: int = 100) -> dict[str, np.ndarray]:
    """Every trained model's loss on the same fresh documents."""
    fit = lab.fit(recipe)
    loss = evaluate(fit.models, recipe.source, recipe.objective, batches=batches, device=lab.device)
    return {"loss": loss.numpy()}
