"""How large a compiled Transformer is, and how large the theorem allows it to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandtable.models import DeepMLP, SoftmaxAttention, Transformer

MEASURED = ("depth", "width", "heads", "head_width", "mlp_width", "norm")
"""What theorems bound."""


@dataclass(frozen=True)
class Sizes:
    """T, layers L, width d, heads H and their width k, MLP widths, the largest |weight|, gates and wires."""

    length: int
    positions: int
    """With the padding."""
    depth: int
    width: int
    heads: int
    head_width: int
    mlp_widths: tuple[tuple[int, ...], ...]
    """Hidden widths of every layer's MLP."""
    norm: float
    parameters: int

    @property
    def mlp_width(self) -> int:
        return max((width for widths in self.mlp_widths for width in widths), default=0)

    @property
    def attention_width(self) -> int:
        """max(d, H·k)."""
        return max(self.width, self.heads * self.head_width)

    @property
    def gates(self) -> int:
        """T·L·w with w the larger of attention width and MLP width."""
        return self.positions * self.depth * max(self.attention_width, self.mlp_width)

    @property
    def wires(self) -> int:
        """T·L·w²."""
        return self.gates * max(self.attention_width, self.mlp_width)

    def over(self, bound: Mapping[str, float]) -> dict[str, float]:
        """Size over bound for everything that `bound` names; at most 1 where it is kept."""
        return {name: float(getattr(self, name)) / limit for name, limit in bound.items()}


def sizes(model: Transformer, *, length: int, positions: int) -> Sizes:
    """The sizes of a model for T = `length` inputs at so many `positions`."""
    attentions = [block.attn for block in model.layers]
    widths = [block.mlp.config["hidden"] if isinstance(block.mlp, DeepMLP) else () for block in model.layers]
    heads = [(attn.W_V.shape[0], attn.W_V.shape[2]) for attn in attentions if isinstance(attn, SoftmaxAttention)]
    return Sizes(
        length=length,
        positions=positions,
        depth=len(model.layers),
        width=model.width,
        heads=max(count for count, _ in heads),
        head_width=max(width for _, width in heads),
        mlp_widths=tuple(tuple(hidden) for hidden in widths),
        norm=max(float(parameter.abs().max()) for parameter in model.parameters() if parameter.numel()),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
