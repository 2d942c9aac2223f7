"""The parts of a Transformer besides attention: MLPs, norms, and the block that joins them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, number, one_of, typed, whole
from sandtable.inputs import Bag, Documents
from sandtable.models.attention import Attention, Slots, Tap, inside, silent, take

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


@typed
class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out."""

    def __init__(self, width: int, hidden: int, *, activation: str = "gelu", biases: bool = True) -> None:
        super().__init__()
        whole("width", width)
        whole("hidden", hidden)
        self.config = dict(width=width, hidden=hidden, activation=activation, biases=biases)
        self.activation = ACTIVATIONS[one_of("activation", activation, ACTIVATIONS)]
        self.W_in = nn.Parameter(torch.zeros(width, hidden))
        self.b_in = nn.Parameter(torch.zeros(hidden)) if biases else None
        self.W_out = nn.Parameter(torch.zeros(hidden, width))
        self.b_out = nn.Parameter(torch.zeros(width)) if biases else None

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        hidden = x @ self.W_in
        hidden = hidden if self.b_in is None else hidden + self.b_in
        out = tap("hook_post", self.activation(tap("hook_pre", hidden))) @ self.W_out
        return out if self.b_out is None else out + self.b_out


@typed
class GatedMLP(MLP):
    """(act(x W_gate + b_gate) ⊙ (x W_in + b_in)) W_out + b_out: SwiGLU of Shazeer (2020) when act is SiLU."""

    def __init__(self, width: int, hidden: int, *, activation: str = "silu", biases: bool = True) -> None:
        super().__init__(width, hidden, activation=activation, biases=biases)
        self.W_gate = nn.Parameter(torch.zeros(width, hidden))
        self.b_gate = nn.Parameter(torch.zeros(hidden)) if biases else None

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        gate, hidden = x @ self.W_gate, x @ self.W_in
        gate = tap("hook_pre", gate if self.b_gate is None else gate + self.b_gate)
        hidden = tap("hook_pre_linear", hidden if self.b_in is None else hidden + self.b_in)
        out = tap("hook_post", self.activation(gate) * hidden) @ self.W_out
        return out if self.b_out is None else out + self.b_out


@typed
class DeepMLP(nn.Module):
    """act(… act(x W_0 + b_0) … ) W_n + b_n with hidden layers of any widths, from width `width` to `out_width`.

    What the constructions of the theory need: look-up tables and products of indicators are three or four layers deep.
    """

    def __init__(
        self,
        width: int,
        hidden: Sequence[int],
        *,
        out_width: int | None = None,
        activation: str = "relu",
        biases: bool = True,
    ) -> None:
        super().__init__()
        out_width = width if out_width is None else whole("out_width", out_width)
        widths = [whole("width", width), *(whole("hidden", size) for size in hidden), out_width]
        self.config: dict[str, Any] = dict(
            width=width, hidden=tuple(hidden), out_width=out_width, activation=activation, biases=biases
        )
        self.out_width = out_width
        self.activation = ACTIVATIONS[one_of("activation", activation, ACTIVATIONS)]
        self.depth = len(widths) - 1
        for i, (before, after) in enumerate(pairwise(widths)):
            self.register_parameter(f"W_{i}", nn.Parameter(torch.zeros(before, after)))
            self.register_parameter(f"b_{i}", nn.Parameter(torch.zeros(after)) if biases else None)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        for i in range(self.depth):
            x = x if i == 0 else tap(f"hook_post_{i - 1}", self.activation(x))
            weight, bias = getattr(self, f"W_{i}"), getattr(self, f"b_{i}")
            x = x @ weight if bias is None else x @ weight + bias
        return x


@typed
class LayerNorm(nn.Module):
    """(x − mean) / √(var + eps) · w + b over the last dimension."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), eps=number("eps", eps, least=0.0))
        self.eps = eps
        self.w = nn.Parameter(torch.ones(width))
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)


@typed
class RMSNorm(nn.Module):
    """x / √(mean x² + eps) · w over the last dimension (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), eps=number("eps", eps, least=0.0))
        self.eps = eps
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.w, self.eps)


class UnitNorm(nn.Module):
    """Px / max(‖Px‖, eps) with P = I − 11ᵀ/d: the layer norm of the theory, of norm at most 1 and without parameters.

    With eps = 0 it does not depend on the scale of x, and gives 0 for vectors along 1.
    """

    def __init__(self, width: int, *, eps: float = 0.0) -> None:
        super().__init__()
        self.config = dict(width=whole("width", width), eps=number("eps", eps, least=0.0))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        square = centred.square().sum(-1, keepdim=True)
        least = max(self.eps**2, torch.finfo(x.dtype).tiny)  # a root of zero has no gradient
        return centred / square.clamp_min(least).sqrt()


Norm = LayerNorm | RMSNorm | UnitNorm
NORMS: dict[str, type[LayerNorm] | type[RMSNorm] | type[UnitNorm]] = {
    "layer": LayerNorm,
    "rms": RMSNorm,
    "unit": UnitNorm,
}
PLACES = ("pre", "post", "inner")
MLPS: dict[str, type[MLP]] = {"plain": MLP, "gated": GatedMLP}


class Block(nn.Module):
    """One layer: attention, then an optional MLP, each with its own norm placement and residual.

    `norm` is None, "pre" (x + f(norm(x))), "post" (norm(x + f(x))) or "inner" (x + norm(f(x))); `norm_kind` is "layer",
    "rms" or "unit"; `residual=False` drops the x +. Either may be a pair, for attention and MLP: ("inner", None) with
    (True, False) is the layer mlp(norm(attn(x)) + x).
    """

    def __init__(
        self,
        attn: Attention,
        *,
        mlp: MLP | DeepMLP | None = None,
        norm: str | Sequence[str | None] | None = None,
        norm_kind: str = "layer",
        residual: bool | Sequence[bool] = True,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        kind = NORMS[one_of("norm_kind", norm_kind, NORMS)]
        self.config = dict(norm=norm, norm_kind=norm_kind, residual=residual, eps=eps)
        self.norms: tuple[str | None, str | None] = _pair("norm", norm)
        self.residuals: tuple[bool, bool] = _pair("residual", residual)
        for place in self.norms:
            if place is not None:
                one_of("norm", place, PLACES)
        self.attn = attn
        self.mlp = mlp
        width, middle = attn.config["width"], attn.config["out_width"]
        out = middle if isinstance(mlp, MLP) or mlp is None else mlp.out_width
        self.out_width: int = out
        if mlp is not None and mlp.config["width"] != middle:
            raise ArgumentError(f"mlp of width {mlp.config['width']}: the attention before it writes width {middle}")
        parts = zip(("attention", "mlp"), self.residuals, (width, middle), (middle, out), strict=True)
        for part, residual, reads, writes in parts:
            if residual and reads != writes:
                raise ArgumentError(
                    f"residual=True: the {part} reads width {reads} and writes {writes}; use residual=False"
                )
        before, after = self.norms
        self.ln1 = None if before is None else kind(width if before == "pre" else middle, eps=eps)
        self.ln2 = None if after is None or mlp is None else kind(middle if after == "pre" else out, eps=eps)

    @property
    def reads_vectors(self) -> bool:
        """Whether one-hot inputs must be written out as vectors: a norm or a residual acts on them."""
        return self.residuals[0] or self.norms[0] == "pre"

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap, rows: Tensor | None = None) -> Tensor:
        """The stream after this layer, at `rows` of each document or everywhere."""
        out = self.attn(self._before(x, tap), mask, inside("attn", tap), rows)
        return self._finish(x if rows is None else take(x, rows), out, tap)

    def extend(self, x: Tensor, places: Tensor, slots: Slots, seen: Tensor | None, tap: Tap) -> Tensor:
        """The stream after this layer at the new tokens `x`, which stand at `places`."""
        out = self.attn.extend(self._before(x, tap), places, slots, seen, inside("attn", tap))
        return self._finish(x, out, tap)

    def by_type(self, x: Tensor | None, table: Tensor | None, inputs: Bag | Documents, tap: Tap) -> Tensor:
        """The same row by row; `x` are the rows' own inputs, `table` those of every token type."""
        table, inner = self._before(table, silent), self._before(x, tap)
        return self._finish(x, self.attn.by_type(inner, table, inputs, inside("attn", tap)), tap)

    def _before(self, x: Any, tap: Tap) -> Any:
        """What attention reads."""
        if self.ln1 is None or self.norms[0] != "pre" or x is None:
            return x
        return tap("ln1.hook_normalized", self.ln1(x))

    def _finish(self, x: Tensor | None, out: Tensor, tap: Tap) -> Tensor:
        x = _join(x, tap("hook_attn_out", out), self.ln1, self.norms[0], self.residuals[0])
        if self.mlp is not None:
            x = tap("hook_resid_mid", x)
            inner = x
            if self.ln2 is not None and self.norms[1] == "pre":
                inner = tap("ln2.hook_normalized", self.ln2(x))
            out = tap("hook_mlp_out", self.mlp(inner, inside("mlp", tap)))
            x = _join(x, out, self.ln2, self.norms[1], self.residuals[1])
        return tap("hook_resid_post", x)


def _join(x: Tensor | None, out: Tensor, norm: nn.Module | None, place: str | None, residual: bool) -> Tensor:
    out = norm(out) if norm is not None and place == "inner" else out
    out = out if not residual or x is None else x + out
    return norm(out) if norm is not None and place == "post" else out


def _pair(name: str, value: Any) -> Any:
    """One value for attention and MLP, or a pair of them."""
    if value is None or isinstance(value, str | bool):
        return value, value
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentError(f"{name}={value!r}: must be one value, or a pair (for attention, for the MLP)")
    return tuple(value)
