"""Attention in plain tensor operations, so that it vectorises over models; names and shapes follow TransformerLens."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, number, typed, whole
from sandtable.inputs import Bag, Documents
from sandtable.models.positions import Rotary

Slots = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stores the keys and values of new tokens at their places, and gives those of all tokens so far."""

Tap = Callable[[str, Tensor], Tensor]
FEW_ROWS = 64


def silent(name: str, tensor: Tensor) -> Tensor:
    """The tap when nobody wants an activation."""
    return tensor


def inside(prefix: str, tap: Tap) -> Tap:
    """`tap` for a part of that name."""
    return tap if tap is silent else lambda name, tensor: tap(f"{prefix}.{name}", tensor)


def project(x: Tensor, weight: Float[Tensor, "heads width head"]) -> Float[Tensor, "... position heads head"]:
    """x @ weight for every head. Integer `x` stands for its one-hot rows: the product is then a look-up."""
    heads, width, head = weight.shape
    if x.is_floating_point() and x.numel() <= FEW_ROWS * width:
        # Head by head: one product for all heads would first copy the weights, which costs more than a few rows do.
        out = torch.bmm(x.reshape(1, -1, width).expand(heads, -1, -1), weight)
        return out.transpose(0, 1).unflatten(0, x.shape[:-1])
    if x.is_floating_point():
        return torch.einsum("...d,hde->...he", x, weight)
    table = weight.permute(1, 0, 2).reshape(width, heads * head)
    return F.embedding(x, table).unflatten(-1, (heads, head))


def take(x: Tensor, rows: Int[Tensor, "batch row"]) -> Tensor:
    """The rows of each document: of vectors "batch position width", or of token ids "batch position"."""
    if not x.is_floating_point():
        return x.gather(-1, rows)
    return x.gather(-2, rows[..., None].expand(*rows.shape, x.shape[-1]))


def project_types(table: Tensor | None, weight: Float[Tensor, "heads width head"]) -> Tensor:
    """Every type's projection, "heads vocab head"; no `table` means one-hot types, whose projection is the weight."""
    return weight if table is None else torch.einsum("vd,hde->hve", table, weight)


@typed
class Attention(nn.Module):
    """Values and output map, shared by all attentions: out = Σ_h A_h (x W_V[h] + b_V[h]) W_O[h] + b_O.

    `output=False` leaves out W_O (one head as wide as the model): the single-matrix form of the theory.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        head_width: int | None = None,
        out_width: int | None = None,
        causal: bool = False,
        biases: bool = False,
        output: bool = True,
    ) -> None:
        super().__init__()
        whole("width", width)
        whole("heads", heads)
        out_width = width if out_width is None else whole("out_width", out_width)
        if head_width is None:
            if output and width % heads:
                raise ArgumentError(f"heads={heads}: must divide the width {width}, or give head_width")
            head_width = width // heads if output else out_width
        whole("head_width", head_width)
        if not output and (heads != 1 or head_width != out_width):
            raise ArgumentError(
                f"output=False with heads={heads}, head_width={head_width}: needs one head of width {out_width}"
            )
        self.config = dict(
            width=width,
            heads=heads,
            head_width=head_width,
            out_width=out_width,
            causal=causal,
            biases=biases,
            output=output,
        )
        self.causal = causal
        self.W_V = nn.Parameter(torch.zeros(heads, width, head_width))
        self.b_V = nn.Parameter(torch.zeros(heads, head_width)) if biases else None
        self.W_O = nn.Parameter(torch.zeros(heads, head_width, out_width)) if output else None
        self.b_O = nn.Parameter(torch.zeros(out_width)) if biases and output else None

    @property
    def key_width(self) -> int:
        """How wide the keys of one head are."""
        return self.W_V.shape[2]

    def keys(
        self, x: Tensor, places: Int[Tensor, "batch position"] | None, tap: Tap
    ) -> Float[Tensor, "batch position heads key"]:
        """What queries are compared with; `places` are the positions of `x`, None for 0, 1, 2, …"""
        raise NotImplementedError("a subclass says how attention is paid")

    def pattern(
        self,
        x: Tensor,
        places: Int[Tensor, "batch query"] | None,
        keys: Float[Tensor, "batch position heads key"],
        seen: Bool[Tensor, "... 1 query position"] | None,
        tap: Tap,
    ) -> Float[Tensor, "batch heads query position"]:
        """The attention that `x`, at `places`, pays to the keys that it has `seen`; it sums to one over them."""
        raise NotImplementedError("a subclass says how attention is paid")

    def pattern_by_type(
        self, x: Tensor | None, table: Tensor | None, counts: Float[Tensor, "row vocab"], tap: Tap
    ) -> Float[Tensor, "row heads vocab"]:
        """The attention of each row to each token type; rows sum to one over the types."""
        raise NotImplementedError("a subclass says how attention is paid")

    needs_query = True

    def forward(
        self, x: Tensor, mask: Tensor | None, tap: Tap, rows: Int[Tensor, "batch row"] | None = None
    ) -> Float[Tensor, "batch query out"]:
        keys, values = self.keys(x, None, tap), self.values(x, tap)
        seen = self.visible(keys.shape[-3], mask, rows, x.device)
        return self._attend(x if rows is None else take(x, rows), rows, keys, values, seen, tap)

    def extend(
        self,
        x: Tensor,
        places: Int[Tensor, "row new"],
        slots: Slots,
        seen: Bool[Tensor, "row 1 new slot"] | None,
        tap: Tap,
    ) -> Float[Tensor, "row new out"]:
        """What `forward` gives at the new tokens `x`, whose keys and values join those of the tokens before them."""
        keys, values = slots(places, self.keys(x, places, tap), self.values(x, tap))
        return self._attend(x, places, keys, values, seen, tap)

    def values(self, x: Tensor, tap: Tap) -> Float[Tensor, "batch position heads head"]:
        value = project(x, self.W_V)
        return tap("hook_v", value if self.b_V is None else value + self.b_V)

    def _attend(
        self, x: Tensor, places: Tensor | None, keys: Tensor, values: Tensor, seen: Tensor | None, tap: Tap
    ) -> Float[Tensor, "batch query out"]:
        pattern = tap("hook_pattern", self.pattern(x, places, keys, seen, tap))
        mixed = torch.einsum("...hqk,...khe->...qhe", pattern, values)
        return self._merge(tap("hook_z", mixed))

    def visible(
        self, positions: int, mask: Tensor | None, rows: Tensor | None, device: torch.device
    ) -> Bool[Tensor, "... 1 query key"] | None:
        """Which keys each query may see; None when it may see all."""
        seen = None if mask is None else mask[..., None, None, :]
        if self.causal:
            keys = torch.arange(positions, device=device)
            queries = keys if rows is None else rows[..., None, :]
            past = keys <= queries[..., None]
            seen = past if seen is None else seen & past
        return seen

    def by_type(
        self, x: Tensor | None, table: Tensor | None, inputs: Bag | Documents, tap: Tap
    ) -> Float[Tensor, "row out"]:
        """The same output row by row; `x` are the rows' own inputs, `table` those of every type."""
        spread = isinstance(inputs, Bag)
        counts = inputs.counts
        if spread and self.needs_query:
            counts = F.embedding(inputs.document, counts)
        pattern = tap("hook_pattern", self.pattern_by_type(x, table, counts, tap))
        mixed = torch.einsum("rhv,hve->rhe", pattern, project_types(table, self.W_V))
        if self.b_V is not None:
            mixed = mixed + self.b_V
        merged = self._merge(tap("hook_z", mixed))
        return F.embedding(inputs.document, merged) if spread and not self.needs_query else merged

    def _merge(self, mixed: Float[Tensor, "... heads head"]) -> Float[Tensor, "... out"]:
        if self.W_O is None:
            return mixed.squeeze(-2)
        out = mixed.flatten(-2) @ self.W_O.flatten(0, 1)
        return out if self.b_O is None else out + self.b_O


@typed
class SoftmaxAttention(Attention):
    """A = softmax over keys of scale · (x_q W_Q + b_Q)·(x_k W_K + b_K); `scale` is 1/√(head width) unless given."""

    def __init__(self, width: int, *, scale: float | None = None, **options) -> None:
        super().__init__(width, **options)
        heads, _, head_width = self.W_V.shape
        self.config |= dict(scale=scale)
        self.W_Q = nn.Parameter(torch.zeros(heads, width, head_width))
        self.W_K = nn.Parameter(torch.zeros(heads, width, head_width))
        self.b_Q = nn.Parameter(torch.zeros(heads, head_width)) if options.get("biases") else None
        self.b_K = nn.Parameter(torch.zeros(heads, head_width)) if options.get("biases") else None
        self.scale = 1.0 / math.sqrt(head_width) if scale is None else number("scale", scale)

    def keys(self, x: Tensor, places: Tensor | None, tap: Tap) -> Tensor:
        key = project(x, self.W_K)
        return tap("hook_k", key if self.b_K is None else key + self.b_K)

    def queries(self, x: Tensor, places: Tensor | None, tap: Tap) -> Float[Tensor, "batch query heads head"]:
        query = project(x, self.W_Q)
        return tap("hook_q", query if self.b_Q is None else query + self.b_Q)

    def pattern(self, x: Tensor, places: Tensor | None, keys: Tensor, seen: Tensor | None, tap: Tap) -> Tensor:
        scores = torch.einsum("...qhe,...khe->...hqk", self.queries(x, places, tap) * self.scale, keys)
        scores = self.biased(scores, places)
        if seen is not None:  # adding −∞ costs nothing in the backward pass, unlike filling
            scores = scores + torch.zeros((), dtype=scores.dtype, device=x.device).where(seen, -math.inf)
        return tap("hook_attn_scores", scores).softmax(-1)

    def biased(
        self, scores: Float[Tensor, "batch heads query position"], places: Int[Tensor, "batch query"] | None
    ) -> Float[Tensor, "batch heads query position"]:
        """The scores with what depends on positions alone added; queries stand at `places`, None for 0, 1, 2, …"""
        return scores

    def pattern_by_type(self, x: Tensor | None, table: Tensor | None, counts: Tensor, tap: Tap) -> Tensor:
        if x is None:
            raise ArgumentError("Documents inputs: softmax attention needs the visible token of every row; use Bag")
        query, key = project(x, self.W_Q), project_types(table, self.W_K)
        if self.b_Q is not None and self.b_K is not None:
            query, key = query + self.b_Q, key + self.b_K[:, None]
        scores = torch.einsum("rhe,hve->rhv", tap("hook_q", query) * self.scale, tap("hook_k", key))
        return tap("hook_attn_scores", scores + counts.log()[:, None, :]).softmax(-1)


@typed
class RotaryAttention(SoftmaxAttention):
    """Softmax attention whose queries and keys turn with their positions, up to `longest` of them."""

    def __init__(self, width: int, *, longest: int, base: float = 10000.0, **options) -> None:
        super().__init__(width, **options)
        self.config |= dict(longest=longest, base=base)
        self.rotary = Rotary(self.W_Q.shape[2], longest=longest, base=base)

    def keys(self, x: Tensor, places: Tensor | None, tap: Tap) -> Tensor:
        return tap("hook_rot_k", self.rotary(super().keys(x, places, tap), places))

    def queries(self, x: Tensor, places: Tensor | None, tap: Tap) -> Tensor:
        return tap("hook_rot_q", self.rotary(super().queries(x, places, tap), places))

    def pattern_by_type(self, x: Tensor | None, table: Tensor | None, counts: Tensor, tap: Tap) -> Tensor:
        raise ArgumentError("Bag inputs: counts have no positions that rotary attention could turn to")


@typed
class AlibiAttention(SoftmaxAttention):
    """Softmax attention with a bias for the recent past: −m_h · (i − j) is added to the score of key j for query i.

    The slopes of heads 1 … H are m_h = 2^(−8h/H) (Press et al. 2022); nothing else tells positions apart.
    """

    def __init__(self, width: int, **options) -> None:
        super().__init__(width, **options)
        heads = self.W_Q.shape[0]
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=torch.float64) / heads)
        self.register_buffer("slopes", slopes.float(), persistent=False)

    def biased(self, scores: Tensor, places: Tensor | None) -> Tensor:
        keys = torch.arange(scores.shape[-1], device=scores.device)
        queries = keys[: scores.shape[-2]] if places is None else places[..., None, :]
        distance = (queries[..., None] - keys).abs().to(scores.dtype)
        return scores - self.get_buffer("slopes").to(scores.dtype)[:, None, None] * distance

    def pattern_by_type(self, x: Tensor | None, table: Tensor | None, counts: Tensor, tap: Tap) -> Tensor:
        raise ArgumentError("Bag inputs: counts have no positions that a bias could depend on")


@typed
class UniformAttention(Attention):
    """Every visible key gets the same attention: what W_Q = W_K = 0 gives, without the two matrices; keys are empty."""

    needs_query = False

    @property
    def key_width(self) -> int:
        return 0

    def keys(self, x: Tensor, places: Tensor | None, tap: Tap) -> Tensor:
        shape = x.shape[:-1] if x.is_floating_point() else x.shape
        return self.W_V.new_zeros(*shape, self.W_V.shape[0], self.key_width)

    def pattern(self, x: Tensor, places: Tensor | None, keys: Tensor, seen: Tensor | None, tap: Tap) -> Tensor:
        *batch, queries = x.shape[:-1] if x.is_floating_point() else x.shape
        seen = torch.ones((), dtype=torch.bool, device=x.device) if seen is None else seen
        seen = seen.expand(*batch, self.W_V.shape[0], queries, keys.shape[-3]).to(self.W_V.dtype)
        return seen / seen.sum(-1, keepdim=True)

    def pattern_by_type(self, x: Tensor | None, table: Tensor | None, counts: Tensor, tap: Tap) -> Tensor:
        pattern = counts / counts.sum(-1, keepdim=True)
        return pattern[:, None, :].expand(-1, self.W_V.shape[0], -1)


ATTENTIONS: dict[str, type[Attention]] = {"softmax": SoftmaxAttention, "uniform": UniformAttention}
