"""The parts of a Transformer besides attention: MLPs, norms, and the block that joins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.inputs import Bag, Documents
from sandtable.models.attention import Attention, Slots, Tap, inside, take

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out."""

    def __init__(self, width: int, hidden: int, *, activation: str = "gelu", biases: bool = True) -> None:
        super().__init__()
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


class LayerNorm(nn.Module):
    """(x − mean) / √(var + eps) · w + b over the last dimension."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.config = dict(width=width, eps=eps)
        self.eps = eps
        self.w = nn.Parameter(torch.ones(width))
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.w, self.b, self.eps)


class RMSNorm(nn.Module):
    """x / √(mean x² + eps) · w over the last dimension (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.config = dict(width=width, eps=eps)
        self.eps = eps
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.w, self.eps)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
MLPS: dict[str, type[MLP]] = {"plain": MLP, "gated": GatedMLP}


class Block(nn.Module):
    """One layer: attention, then an optional MLP, each with its own norm placement and residual.

    `norm` is None, "pre" (x + f(norm(x))) or "post" (norm(x + f(x))), `norm_kind` "layer" or "rms"; `residual=False`
    drops the x +.
    """

    def __init__(
        self,
        attn: Attention,
        *,
        mlp: MLP | None = None,
        norm: str | None = None,
        norm_kind: str = "layer",
        residual: bool = True,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        if norm is not None:
            one_of("norm", norm, ("pre", "post"))
        kind = NORMS[one_of("norm_kind", norm_kind, NORMS)]
        self.config = dict(norm=norm, norm_kind=norm_kind, residual=residual, eps=eps)
        self.norm, self.residual = norm, residual
        self.attn = attn
        self.mlp = mlp
        width, out = attn.config["width"], attn.config["out_width"]
        if residual and width != out:
            raise ArgumentError(
                f"residual=True: the attention reads width {width} and writes {out}; use residual=False"
            )
        if mlp is not None and mlp.config["width"] != out:
            raise ArgumentError(f"mlp of width {mlp.config['width']}: the attention before it writes width {out}")
        self.ln1 = None if norm is None else kind(width if norm == "pre" else out, eps=eps)
        self.ln2 = None if norm is None or mlp is None else kind(out, eps=eps)

    @property
    def reads_vectors(self) -> bool:
        """Whether one-hot inputs must be written out as vectors: a norm or a residual acts on them."""
        return self.residual or self.norm == "pre"

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap, rows: Tensor | None = None) -> Tensor:
        """The stream after this layer, at `rows` of each document or everywhere."""
        out = self.attn(self._before(x, self.ln1), mask, inside("attn", tap), rows)
        return self._finish(x if rows is None else take(x, rows), out, tap)

    def extend(self, x: Tensor, places: Tensor, slots: Slots, seen: Tensor | None, tap: Tap) -> Tensor:
        """The stream after this layer at the new tokens `x`, which stand at `places`."""
        out = self.attn.extend(self._before(x, self.ln1), places, slots, seen, inside("attn", tap))
        return self._finish(x, out, tap)

    def by_type(self, x: Tensor | None, table: Tensor | None, inputs: Bag | Documents, tap: Tap) -> Tensor:
        """The same row by row; `x` are the rows' own inputs, `table` those of every token type."""
        table, inner = self._before(table, self.ln1), self._before(x, self.ln1)
        return self._finish(x, self.attn.by_type(inner, table, inputs, inside("attn", tap)), tap)

    def _finish(self, x: Tensor | None, out: Tensor, tap: Tap) -> Tensor:
        x = self._join(x, tap("hook_attn_out", out), self.ln1)
        if self.mlp is not None:
            x = tap("hook_resid_mid", x)
            out = self.mlp(self._before(x, self.ln2), inside("mlp", tap))
            x = self._join(x, tap("hook_mlp_out", out), self.ln2)
        return tap("hook_resid_post", x)

    def _before(self, x: Any, norm: nn.Module | None) -> Any:
        return norm(x) if norm is not None and self.norm == "pre" and x is not None else x

    def _join(self, x: Tensor | None, out: Tensor, norm: nn.Module | None) -> Tensor:
        out = out if not self.residual or x is None else x + out
        return norm(out) if norm is not None and self.norm == "post" else out
