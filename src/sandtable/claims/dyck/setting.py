"""What the claims on brackets share: the source, the world, answers from counts of symbols, pictures of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from sandtable.lab import Source
from sandtable.lab.figures import PALETTE, heatmaps
from sandtable.models import Transformer
from sandtable.models.attention import silent
from sandtable.probes.dyck.balance import Tokenwise
from sandtable.probes.dyck.pumping import attended
from sandtable.theory import dyck as theory
from sandtable.worlds import DyckPrefixes

TYPES, DEPTH = 2, 4
SIZE: dict[str, Any] = dict(types=TYPES, depth=DEPTH)
PAIRS = TYPES * DEPTH
WORLD = DyckPrefixes(**SIZE)
PATTERN = "blocks.1.attn.hook_pattern"


def wen(where: str) -> Source:
    return Source("Wen, Li, Liu & Risteski", 2023, where)


def layer_of(model: Transformer) -> Tokenwise:
    """The second layer of a built model as scores and values of symbols."""
    return Tokenwise(*theory.second_layer(model, **SIZE))


def answers(
    model: Transformer, layer: Tokenwise, counts: Float[Tensor, "row n"], query: int
) -> Float[Tensor, "row brackets"]:
    """What a built model would say after symbols counted so, the last of them `query`, with this second layer."""
    x = attended(layer, counts, query)
    x[:, query] += 1.0
    unembedding = model.unembed.W_U
    assert unembedding is not None
    return model.layers[1].mlp(x, silent) @ unembedding  # pyright: ignore[reportOptionalCall]


def pattern(model: Transformer, row: Int[Tensor, " position"]) -> Float[Tensor, "query key"]:
    """Whom the second layer attends to along one row."""
    return model(row[None], want=(PATTERN,))[1][PATTERN][0, 0]


def variation(patterns: np.ndarray) -> float:
    """The mean over pairs of models of ‖A − A'‖²: 2n/(n−1) times the mean square about the mean pattern."""
    n = max(len(patterns), 2)
    return float(2 * n / (n - 1) * np.square(patterns - patterns.mean(0)).sum(1).mean())


def attention_maps(patterns: dict[str, np.ndarray], *, title: str) -> Figure:
    """Attention on the reference prefix, the last open bracket boxed for closers that leave one."""
    row = WORLD.reference
    names = ["⟨bos⟩", *WORLD.vocab.decode(row[1:])]
    figure = heatmaps(
        patterns, limit=1.0, rows=names, columns=["^", *names[1:]], title=title, xlabel="key", ylabel="query"
    )
    trace = WORLD.brackets.trace(row[None])
    boxed = (WORLD.brackets.closes(row) & (trace.opener[0] >= 0)).nonzero()[:, 0].tolist()
    for axes in figure.axes[: len(patterns)]:
        for query in boxed:
            corner = (float(trace.opener[0, query]) - 0.5, query - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, ec=PALETTE[2], lw=1.3))
    return figure
