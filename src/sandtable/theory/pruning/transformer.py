"""A random Transformer pruned to a small target (thesis, Theorem 2.2.3), and to two with one layer in common.

Each layer of the target takes two layers of the network, and any others become the identity:
- the first of the two attends to nothing (W_V pruned to 0) and its MLP writes X ↦ [X, X W_V P D⁻¹ on m new
  coordinates], P = I − 11ᵀ/m;
- the second has W_V pruned to a diagonal D from those coordinates back to the first m, W_K and W_Q pruned to the
  target's products, and its MLP to the target's.
A mean-free vector padded with zeros has the same LN_C as before (Lemma 2.2.12), so nothing else is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.models import Block, DeepMLP, Transformer
from sandtable.theory.pruning.layers import KeyedAttention
from sandtable.theory.pruning.linear import prune_linear, prune_relu
from sandtable.theory.pruning.subset_sum import MOST

LEAST_DIAGONAL = 0.5
"""Of the entries that undo D⁻¹: the larger they are, the smaller the weights that must be reached before them."""
SLACK = 1e-9
"""Of spectral norms: matrices scaled to norm 1 exceed it by rounding."""


@dataclass(frozen=True)
class Pruned:
    """The masks by parameter name, the pruned network, and the worst distance of any weight from its subset's sum."""

    masks: dict[str, Bool[Tensor, ...]]
    model: Transformer
    residual: float


def sizes(target: Transformer, *, units: int = 24) -> dict[str, Any]:
    """Widths at which a random network nearly surely has `units` units of each sign for every weight of the target."""
    whole("units", units, most=MOST)
    width = target.width
    hidden = max(_matrix(block.mlp, "W_0").shape[1] for block in target.layers)
    # Twice the units, and a margin of more than four standard deviations for the split into signs.
    share = 2 * units + int(6 * (2 * units) ** 0.5)
    return dict(
        width=6 * width,
        key_width=2 * units * width,
        hidden=share * max(4 * width, hidden),
        layers=4 * len(target.layers),
    )


@typed
def prune(
    network: Transformer,
    target: Transformer,
    *,
    identity_layers: Sequence[int] | None = None,
    units: int = 24,
    select: str = "best",
    progress: Callable[[str], object] | None = None,
) -> Pruned:
    """Entrywise masks under which `network` computes `target` on inputs padded with zeros.

    `identity_layers` do nothing to what is computed, and their masks depend on the network and the target's width
    alone: two targets pruned with the same ones agree on every matrix there (Corollary 2.2.3). The last ones unless
    given. `units` and `select` say which products a weight may be a sum of (see `prune_linear`).
    """
    _check(network, target)
    idle = _idle(identity_layers, len(network.layers), 2 * len(target.layers))
    total, busy = len(network.layers), [i for i in range(len(network.layers)) if i not in idle]
    worker = _Worker(network, target.width, units, select)
    for i in range(total):
        if progress is not None:
            progress(f"pruning layer {i + 1}/{total}")
        before = sum(b < i for b in busy)
        # Inside a pair the new coordinates are alive as well, and an identity must carry them through.
        opened = worker.diagonal(busy[before]) if before % 2 else None
        if i in idle:
            worker.carry(i, None if opened is None else opened[0])
        elif before % 2 == 0:
            worker.spread(i, target.layers[before // 2], worker.diagonal(busy[before + 1]))
        else:
            worker.compute(i, target.layers[before // 2], worker.diagonal(i))
    model = copy.deepcopy(network)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.masked_fill_(~worker.masks[name], 0.0)
    return Pruned(worker.masks, model, worker.residual)


class _Worker:
    """Collects the masks of the network, layer by layer; every matrix acts as x @ W."""

    def __init__(self, network: Transformer, width: int, units: int, select: str) -> None:
        self.network, self.width = network, width
        self.options: dict[str, Any] = dict(units=units, select=select)
        self.masks = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in network.named_parameters()}
        self.residual = 0.0

    def diagonal(self, layer: int) -> tuple[Tensor, Tensor]:
        """Coordinates c_i beyond the first m and entries D_i = W_V[c_i, i], as large as can be together."""
        weight = self._weight(layer, "attn.W_V")[0]
        entries = weight[self.width :, : self.width]
        rows, columns = linear_sum_assignment(-entries.abs().numpy())
        inputs = torch.empty(self.width, dtype=torch.long)
        inputs[torch.as_tensor(columns)] = torch.as_tensor(rows) + self.width
        found = weight[inputs, torch.arange(self.width)]
        if float(found.abs().min()) < LEAST_DIAGONAL:
            raise ArgumentError(
                f"network of width {self.network.width}: too narrow, layer {layer} has no {self.width} entries of W_V "
                f"above {LEAST_DIAGONAL} in rows and columns of their own"
            )
        return inputs, found

    def carry(self, layer: int, more: Tensor | None) -> None:
        """The identity on the first m coordinates, and on `more` where they are alive."""
        alive = torch.arange(self.width)
        alive = alive if more is None else torch.cat([alive, more.sort().values])
        self._linear(layer, alive, alive, torch.eye(len(alive), dtype=torch.float64))

    def spread(self, layer: int, target: Block, diagonal: tuple[Tensor, Tensor]) -> None:
        """X ↦ [X, X W_V P D⁻¹]: what the next layer's diagonal turns into mean-free values."""
        inputs, entries = diagonal
        values = _matrix(target.attn, "W_V")[0]
        values = (values - values.mean(1, keepdim=True)) / entries
        first = torch.arange(self.width)
        both = torch.cat([torch.eye(self.width, dtype=torch.float64), values], dim=1)
        self._linear(layer, first, torch.cat([first, inputs]), both)

    def compute(self, layer: int, target: Block, diagonal: tuple[Tensor, Tensor]) -> None:
        """The target's attention and MLP on the first m coordinates."""
        name, first = f"blocks.{layer}", torch.arange(self.width)
        self.masks[f"{name}.attn.W_V"][0, diagonal[0], first] = True
        products = _matrix(target.attn, "W_K")[0] @ _matrix(target.attn, "W_Q")[0].mT
        keys, queries = (self._weight(layer, f"attn.{w}")[0][: self.width] for w in ("W_K", "W_Q"))
        done = prune_linear(keys, queries.mT, products, **self.options)
        self.masks[f"{name}.attn.W_K"][0, : self.width] = done.first
        self.masks[f"{name}.attn.W_Q"][0, : self.width] = done.second.mT
        self.residual = max(self.residual, done.residual)
        self._mlp(layer, first, first, _matrix(target.mlp, "W_0"), _matrix(target.mlp, "W_1"))

    def _linear(self, layer: int, inputs: Tensor, outputs: Tensor, matrix: Tensor) -> None:
        """xA = ReLU(x[A, −A])[I; −I] (Lemma 2.2.20)."""
        one = torch.eye(len(outputs), dtype=torch.float64)
        self._mlp(layer, inputs, outputs, torch.cat([matrix, -matrix], dim=1), torch.cat([one, -one]))

    def _mlp(
        self,
        layer: int,
        inputs: Tensor,
        outputs: Tensor,
        first: Float[Tensor, "input middle"],
        second: Float[Tensor, "middle output"],
    ) -> None:
        """The four-layer MLP as ReLU(x first) second, each matrix from two; `inputs`, `outputs` are coordinates."""
        middle = first.shape[1]
        w = [self._weight(layer, f"mlp.W_{i}") for i in range(4)]
        if w[1].shape[1] < middle:
            raise ArgumentError(f"network with hidden={w[1].shape[1]}: too narrow for {middle} units in the middle")
        lower = prune_relu(w[0][inputs], w[1][:, :middle], first, **self.options)
        upper = prune_relu(w[2][:middle], w[3][:, outputs], second, **self.options, positive=True)
        masks = [self.masks[f"blocks.{layer}.mlp.W_{i}"] for i in range(4)]
        masks[0][inputs], masks[1][:, :middle] = lower.first, lower.second
        masks[2][:middle], masks[3][:, outputs] = upper.first, upper.second
        self.residual = max(self.residual, lower.residual, upper.residual)

    def _weight(self, layer: int, name: str) -> Tensor:
        return self.network.get_parameter(f"blocks.{layer}.{name}").detach()


def _matrix(part: nn.Module | None, name: str) -> Tensor:
    assert part is not None
    return part.get_parameter(name).detach().double()


def _idle(chosen: Sequence[int] | None, total: int, needed: int) -> list[int]:
    """The identity layers as asked for, or those after the `needed` ones."""
    if total < needed:
        raise ArgumentError(f"network with {total} layers: a target of {needed // 2} takes at least {needed}")
    if chosen is None:
        return list(range(needed, total))
    idle = [whole("identity_layers", i, least=0, most=total - 1) for i in chosen]
    if len(idle) != total - needed or len(set(idle)) != len(idle):
        raise ArgumentError(
            f"identity_layers={idle}: must be {total - needed} different ones, so that {needed} of {total} remain"
        )
    return idle


def _check(network: Transformer, target: Transformer) -> None:
    for name, model, depth in (("network", network, 4), ("target", target, 2)):
        if not all(_fits(block, model.width, depth) for block in model.layers) or model.embed is not None:
            raise ArgumentError(
                f"{name}: must be layers g(LN_C(attention(X)) + X) with {depth}-layer ReLU MLPs without biases; "
                f"make it with random_{name}"
            )
    if network.width < 2 * target.width:
        raise ArgumentError(
            f"network of width {network.width}: too narrow, must be at least twice the target's ({target.width})"
        )
    kinds = {(block.config["eps"], block.attn.causal) for block in (*network.layers, *target.layers)}
    if len(kinds) > 1:
        raise ArgumentError("target: its eps (the C of LN_C) and causal must be those of the network, in every layer")
    for name, parameter in target.named_parameters():
        size = float(torch.linalg.matrix_norm(parameter.detach().double(), 2).max())
        if size > 1 + SLACK:
            raise ArgumentError(f"target: {name} has spectral norm {size:.4g}, must be ≤ 1")


def _fits(block: Block, width: int, depth: int) -> bool:
    """Whether a layer is g(LN_C(attention(X)) + X), its MLP `depth` layers deep."""
    if not isinstance(block.attn, KeyedAttention) or not isinstance(block.mlp, DeepMLP):
        return False
    form = (block.norms, block.residuals, block.config["norm_kind"])
    mlp = (block.mlp.depth, block.mlp.config["activation"], block.mlp.config["biases"], block.mlp.out_width)
    return form == (("inner", None), (True, False), "unit") and mlp == (depth, "relu", False, width)
