"""A block whose residual stream carries only some of its coordinates past attention and MLP."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sandtable.arguments import typed, whole
from sandtable.models.attention import Attention, Tap, inside
from sandtable.models.blocks import Block, DeepMLP


@typed
class PartialBlock(Block):
    """y = k ⊙ x + attn(x), then m ⊙ y + mlp(y): the residuals k and m leave out the coordinates that are overwritten.

    `attn_writes` and `mlp_writes` are those coordinates: what stood there before is dropped, as in constructions where
    a residual is "restricted to some coordinates".
    """

    def __init__(
        self,
        attn: Attention,
        *,
        mlp: DeepMLP | None = None,
        attn_writes: Sequence[int] = (),
        mlp_writes: Sequence[int] = (),
    ) -> None:
        super().__init__(attn, mlp=mlp)
        self.config |= dict(attn_writes=tuple(attn_writes), mlp_writes=tuple(mlp_writes))
        for name, overwritten in (("attn_kept", attn_writes), ("mlp_kept", mlp_writes)):
            kept = torch.ones(self.out_width)
            for coordinate in overwritten:
                kept[whole(name.replace("kept", "writes"), coordinate, least=0, most=self.out_width - 1)] = 0.0
            self.register_buffer(name, kept, persistent=False)

    def _finish(self, x: Tensor | None, out: Tensor, tap: Tap) -> Tensor:
        out = tap("hook_attn_out", out)
        x = out if x is None else x * self.get_buffer("attn_kept") + out
        if self.mlp is not None:
            x = tap("hook_resid_mid", x)
            x = x * self.get_buffer("mlp_kept") + tap("hook_mlp_out", self.mlp(x, inside("mlp", tap)))
        return tap("hook_resid_post", x)
