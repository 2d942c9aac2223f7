"""Any blocks of ours as plain ones: x + attention, x + MLP with one hidden layer, no norm and nothing overwritten.

Constructed models have deep MLPs, and residuals that leave out the coordinates that are written. Both unroll. A deep
MLP becomes several blocks, all but the first without attention, and what stands between two ReLUs waits in further
coordinates of the stream. A coordinate that is overwritten is taken away by ReLU units: x = ReLU(x) − ReLU(−x).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.bridges.heads import Heads, heads_of
from sandtable.models import MLP, Block, DeepMLP, GatedMLP, Transformer


@dataclass(frozen=True, eq=False)
class Plain:
    """x + attention, then x + ReLU(x W_in + b_in) W_out + b_out; without `heads` attention adds nothing."""

    heads: Heads | None
    W_in: Float[Tensor, "width hidden"]
    b_in: Float[Tensor, " hidden"]
    W_out: Float[Tensor, "hidden width"]
    b_out: Float[Tensor, " width"]


def unrolled(model: Transformer) -> tuple[list[Plain], int]:
    """Plain blocks that do in their first coordinates what the model's do, and the width of their stream."""
    for i, block in enumerate(model.layers):
        _check(block, f"blocks.{i}", model.width)
    layers, clean = [], ~_embedded(model)
    for i, block in enumerate(model.layers):
        layers.append(_Layer(block, heads_of(block.attn, f"blocks.{i}.attn"), clean))
        clean = layers[-1].clean_after
    width = model.width + max(layer.further for layer in layers)
    return [plain for layer in layers for plain in layer.unroll(width)], width


def _check(block: Block, at: str, width: int) -> None:
    mlp = block.mlp
    if any(place is not None for place in block.norms):
        raise ArgumentError(f"{at}: norm={block.norms!r} together with deep MLPs or overwriting has no counterpart")
    if isinstance(mlp, GatedMLP) or (mlp is not None and mlp.config["activation"] != "relu"):
        raise ArgumentError(f"{at}.mlp: only plain ReLU MLPs unroll, this one has no counterpart")
    if {block.attn.config["width"], block.attn.config["out_width"], block.out_width} != {width}:
        raise ArgumentError(f"{at}: reads or writes another width than the stream's {width}, which has no counterpart")


def _embedded(model: Transformer) -> Bool[Tensor, " width"]:
    """The coordinates that tokens or positions put anything into."""
    if model.embed is None:
        return torch.ones(model.width, dtype=torch.bool)
    used = model.embed.W_E.ne(0).any(0)
    return used if model.pos_embed is None else used | model.pos_embed(model.longest or 1).ne(0).any(0)


class _Layer:
    """A block on its way. `clean` are the coordinates known to hold nothing before it.

    Between attention and MLP the block's stream is y. Coordinates that attention overwrites wait `aside`, in further
    coordinates, unless there is nothing to overwrite.
    """

    def __init__(self, block: Block, heads: Heads, clean: Bool[Tensor, " width"]) -> None:
        self.heads, self.size = heads, len(clean)
        self.maps = _affine_maps(block.mlp)
        kept_by_attn = _kept(block, "attn_kept", block.residuals[0])
        self.kept_by_mlp = _kept(block, "mlp_kept", block.residuals[1]) | (not self.maps)
        self.aside = (~kept_by_attn & ~clean).nonzero().flatten()
        self.further = max([len(self.aside), *(len(bias) for _, bias in self.maps[1:-1])])
        self.empty = clean & ~(heads.W_O.ne(0).any(0).any(0) | heads.b_O.ne(0))  # of y
        self.clean_after = self.empty
        if self.maps:
            weight, bias = self.maps[-1]
            self.clean_after = self.empty & ~(weight.ne(0).any(0) | bias.ne(0))

    def unroll(self, width: int) -> list[Plain]:
        first, *rest = self._blocks(width)
        moves = self._moves(width)
        W_in, b_in = torch.cat([first.W_in, *(m[0] for m in moves)], 1), F.pad(first.b_in, (0, 2 * len(moves)))
        W_out = torch.cat([first.W_out, *(m[1] for m in moves)])
        return [Plain(self._heads_aside(width), W_in, b_in, W_out, first.b_out), *rest]

    def _blocks(self, width: int) -> list[Plain]:
        """The MLP, one block for each of its ReLUs; the stream does not yet lose anything."""
        none = self.heads.W_V.new_zeros
        if not self.maps:
            return [Plain(None, none(width, 0), none(0), none(0, width), none(width))]
        (weight, bias), *later = self.maps
        reads = none(width, len(bias))
        reads[self._place_of_y()] = weight
        if not later:  # an affine map: both signs of it, and their difference
            eye = torch.eye(len(bias), dtype=weight.dtype)
            later = [(torch.cat([eye, -eye]), none(len(bias)))]
            reads, bias = torch.cat([reads, -reads], 1), torch.cat([bias, -bias])
        blocks = []
        for i, (weight, shift) in enumerate(later):
            hidden = len(weight)
            target = slice(0, self.size) if i + 1 == len(later) else slice(self.size, self.size + len(shift))
            writes, after = none(hidden, width), none(width)
            writes[:, target], after[target] = weight, shift
            if i:  # reads what waits further on, and takes it away
                here = torch.eye(width, dtype=weight.dtype)[self.size : self.size + hidden]
                reads, bias = torch.cat([here, -here]).T, none(2 * hidden)
                writes = torch.cat([writes - here, here])
            blocks.append(Plain(None, reads, bias, writes, after))
        return blocks

    def _heads_aside(self, width: int) -> Heads:
        """The heads of the wider stream, which write aside what they overwrite."""
        more = width - self.size
        q, k, v = (F.pad(weight, (0, 0, 0, more)) for weight in self.heads[:3])
        place, out, bias = self._place_of_y(), self.heads.W_O, self.heads.b_O
        wide_out, wide_bias = out.new_zeros(*out.shape[:2], width), bias.new_zeros(width)
        wide_out[..., place], wide_bias[place] = out, bias
        return self.heads._replace(W_Q=q, W_K=k, W_V=v, W_O=wide_out, b_O=wide_bias)

    def _place_of_y(self) -> Int[Tensor, " coordinate"]:
        """Which coordinate of the wider stream holds each of y."""
        place = torch.arange(self.size)
        place[self.aside] = self.size + torch.arange(len(self.aside))
        return place

    def _moves(self, width: int) -> list[tuple[Float[Tensor, "width 2"], Float[Tensor, "2 width"]]]:
        """Two ReLU units for everything that goes: the stream then holds what the block keeps of y, and no more."""
        targets: dict[int, dict[int, float]] = {}
        for i, place in enumerate(self._place_of_y().tolist()):
            if place != i:  # what was overwritten goes, and y leaves its place aside
                targets[i] = {i: -1.0}
                targets[place] = {place: -1.0, i: 1.0} if self.kept_by_mlp[i] else {place: -1.0}
            elif not self.kept_by_mlp[i] and not self.empty[i]:
                targets[i] = {i: -1.0}
        moves = []
        for source, effect in targets.items():
            reads, writes = self.heads.W_V.new_zeros(width, 2), self.heads.W_V.new_zeros(2, width)
            reads[source] = torch.tensor([1.0, -1.0])
            for target, factor in effect.items():
                writes[:, target] = torch.tensor([factor, -factor])
            moves.append((reads, writes))
        return moves


def _kept(block: Block, name: str, residual: bool) -> Bool[Tensor, " width"]:
    kept: Any = getattr(block, name, None)
    return torch.full((block.out_width,), residual) if kept is None else kept.ne(0)


def _affine_maps(mlp: MLP | DeepMLP | None) -> list[tuple[Tensor, Tensor]]:
    """(W, b) of every layer of an MLP."""
    if mlp is None:
        return []
    pairs: list[Any] = [(mlp.W_in, mlp.b_in), (mlp.W_out, mlp.b_out)] if isinstance(mlp, MLP) else [
        (getattr(mlp, f"W_{i}"), getattr(mlp, f"b_{i}")) for i in range(mlp.depth)
    ]  # fmt: skip
    return [(w.detach(), w.new_zeros(w.shape[1]) if b is None else b.detach()) for w, b in pairs]
