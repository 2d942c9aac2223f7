"""Parts of T5-like layers: relative-position biases, and attention between any queries, keys and values."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.models.attention import Tap, project


@typed
class RelativeBias(nn.Module):
    """A trained number per head and bucket of the distance j − i, added to the score of key j for query i.

    Half of the buckets hold one distance each, the others grow like its logarithm up to `furthest` (Raffel et al.
    2020). Without a future (`causal`) all buckets are for the past.
    """

    def __init__(self, heads: int, *, buckets: int = 32, furthest: int = 128, causal: bool = False) -> None:
        super().__init__()
        whole("buckets", buckets, least=4)
        if buckets % 4:
            raise ArgumentError(f"buckets={buckets}: must be a multiple of 4")
        whole("heads", heads)
        if whole("furthest", furthest) <= buckets:
            raise ArgumentError(f"furthest={furthest}: must be larger than buckets={buckets}")
        self.config = dict(heads=heads, buckets=buckets, furthest=furthest, causal=causal)
        self.W_B = nn.Parameter(torch.zeros(buckets, heads))

    def bucket(self, distance: Int[Tensor, ...]) -> Int[Tensor, ...]:
        """The bucket of key position minus query position."""
        buckets, furthest = self.config["buckets"], self.config["furthest"]
        offset = torch.zeros_like(distance)
        if self.config["causal"]:
            distance = (-distance).clamp(min=0)
        else:
            buckets //= 2
            offset = (distance > 0) * buckets
            distance = distance.abs()
        single = buckets // 2
        log = (distance.clamp(min=1).float() / single).log() / math.log(furthest / single)
        far = (single + (log * (buckets - single)).long()).clamp(max=buckets - 1)
        return offset + torch.where(distance < single, distance, far)

    def forward(
        self, queries: Int[Tensor, "... query"], keys: Int[Tensor, "... key"]
    ) -> Float[Tensor, "... heads query key"]:
        """The biases between tokens at these positions."""
        distance = keys[..., None, :] - queries[..., :, None]
        return F.embedding(self.bucket(distance), self.W_B).movedim(-1, -3)


@typed
class MultiHead(nn.Module):
    """out = Σ_h softmax(q W_Q[h] · k W_K[h] + bias) v W_V[h] W_O[h]: no biases of its own, and scores are not scaled.

    Queries, keys and values may come from different places: tokens, positions, the other side of a translation.
    """

    def __init__(self, width: int, *, heads: int, head_width: int) -> None:
        super().__init__()
        sizes = dict(width=width, heads=heads, head_width=head_width)
        self.config = {name: whole(name, size) for name, size in sizes.items()}
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.zeros(heads, width, head_width)) for _ in range(3))
        self.W_O = nn.Parameter(torch.zeros(heads, head_width, width))

    def keys(self, x: Float[Tensor, "... key width"]) -> Float[Tensor, "... key heads head"]:
        return project(x, self.W_K)

    def values(self, x: Float[Tensor, "... key width"]) -> Float[Tensor, "... key heads head"]:
        return project(x, self.W_V)

    def pattern(
        self,
        query: Float[Tensor, "... query width"],
        keys: Float[Tensor, "... key heads head"],
        bias: Float[Tensor, "... heads query key"] | None,
        tap: Tap,
    ) -> Float[Tensor, "... heads query key"]:
        """How much each query attends to the projected keys; a `bias` of −∞ hides one."""
        scores = torch.einsum("...qhe,...khe->...hqk", project(query, self.W_Q), keys)
        return tap("hook_pattern", (scores if bias is None else scores + bias).softmax(-1))

    def mix(
        self, pattern: Float[Tensor, "... heads query key"], values: Float[Tensor, "batch key heads head"]
    ) -> Float[Tensor, "batch query width"]:
        """The projected values, weighed by the pattern."""
        mixed = torch.einsum("...hqk,...khe->...qhe", pattern, values)
        return mixed.flatten(-2) @ self.W_O.flatten(0, 1)
