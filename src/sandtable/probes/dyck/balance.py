"""Balance of a layer that reads (type, depth) symbols: does what a matched pair writes cancel, for every query?

U(key → query) = exp(score[key, query]) · value[key], values without their mean, is what a key adds to the unnormalised
attention output at a query. Wen, Li, Liu & Risteski 2023 (Theorems 2.2.1 and 2.2.2) show that a model which is right at
every length needs U(opener) + U(closer) = 0 for every pair and every closer that leaves an open bracket behind.
Indices follow the corrected statement: d is the pair depth of the query, a closer, from 2 to D; d′ that of the pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.models import Stack

CONVENTIONS = ("mean", "release")


@dataclass(frozen=True)
class Tokenwise:
    """What attention does between symbols alone: scores of every key for every query, and the mean-free values.

    Symbols are numbered as in the worlds: openers (type, pair depth), then closers, then ⟨bos⟩; n = 2kD + 1. Models, if
    there are many, come in front.
    """

    scores: Float[Tensor, "... key query"]
    values: Float[Tensor, "... key width"]

    def __post_init__(self) -> None:
        n = self.scores.shape[-1]
        if self.scores.shape[:-1] != self.values.shape[:-1] or self.scores.shape[-2] != n:
            raise ArgumentError(
                f"scores {tuple(self.scores.shape)}, values {tuple(self.values.shape)}: must be (…, n, n) and (…, n, m)"
            )


@typed
def tokenwise(models: Stack | nn.Module, *, layer: int = 0) -> Tokenwise:
    """Scores and values of a one-head layer without positions, read off at every symbol of the model's vocabulary.

    Scale and biases are folded in: with a constant 1 appended to every embedding they are part of W_K, W_Q and W_V, and
    since attention sums to one, b_O belongs to every value. Only the first layer reads symbols and nothing else.
    """
    stack = models if isinstance(models, Stack) else Stack.of(models)
    template: Any = stack.template
    if layer != 0 or len(template.layers) < 1:
        raise ArgumentError(f"layer={layer}: only layer 0 sees nothing but the symbol itself")
    attn = template.layers[0].attn
    if template.pos_embed is not None or attn.W_V.shape[0] != 1 or type(attn).__name__ not in _PLAIN:
        raise ArgumentError("models: need one head of softmax or uniform attention in layer 0, and no positions")
    prefix = "blocks.0.attn"
    device = next(iter(stack.params.values())).device
    symbols = torch.arange(template.size, device=device)[:, None]
    softmax = type(attn).__name__ == "SoftmaxAttention"
    names = [f"{prefix}.hook_{name}" for name in ("v", *(("q", "k") if softmax else ()))]
    _, found = stack(symbols, want=names)
    values, *rest = (found[name][:, :, 0, 0].double() for name in names)  # models symbol head
    if attn.W_O is not None:
        values = values @ stack[f"{prefix}.W_O"][:, 0].double()
    if attn.b_O is not None:
        values = values + stack[f"{prefix}.b_O"][:, None].double()
    if softmax:
        queries, keys = rest
        scores = keys @ (attn.scale * queries).transpose(-1, -2)
    else:
        scores = values.new_zeros(*values.shape[:-1], values.shape[-2])
    values = values - values.mean(-1, keepdim=True)
    return Tokenwise(scores, values) if isinstance(models, Stack) else Tokenwise(scores[0], values[0])


_PLAIN = ("SoftmaxAttention", "UniformAttention")


def pair_sums(layer: Tokenwise, *, types: int, depth: int) -> Float[Tensor, "... query pair width"]:
    """S_{d,d′,i,j} = U(opener(i,d′) → closer(j,d)) + U(closer(i,d′) → closer(j,d)), each query on a scale of its own.

    Queries are (j, d) with d = 2 … D fastest, pairs (i, d′) with d′ = 1 … D fastest. The largest score of a query is
    taken off before the exponential: ratios to `least_outputs` do not change.
    """
    written, _ = _contributions(layer, types, depth)
    pairs = types * depth
    return written[..., :pairs, :] + written[..., pairs : 2 * pairs, :]


@typed
def least_outputs(layer: Tokenwise, *, types: int, depth: int, changed: bool = True) -> Float[Tensor, "... query"]:
    """P_{d,j} on the scale of `pair_sums`: the least norm of the output at the end of t ⊕ (a pair of type j).

    t runs over all strings of d − 1 openers. With `changed`, the last opener differs from that of the overall least.
    """
    if changed:
        whole("types", types, least=2)
    written, queries = _contributions(layer, types, depth)
    found = []
    for place, (j, d) in enumerate(queries):
        at = written[..., place, :, :]
        opener = at[..., : types * depth, :].unflatten(-2, (types, depth))
        total = at[..., -1, :] + opener[..., j, d - 1, :] + at[..., types * depth + j * depth + d - 1, :]
        total = total[..., None, :]  # … strings width
        for c in range(d - 1):  # the opener at pair depth c + 1 becomes the fastest index
            total = (total[..., :, None, :] + opener[..., None, :, c, :]).flatten(-3, -2)
        norms = total.norm(dim=-1).unflatten(-1, (-1, types))  # … earlier last
        least = norms.amin(-2)  # the best string for every last opener
        order = least.sort(dim=-1).values
        found.append(order[..., 1] if changed else order[..., 0])
    return torch.stack(found, dim=-1)


def balance_violation(layer: Tokenwise, *, types: int, depth: int, convention: str = "mean") -> Float[Tensor, " ..."]:
    """β = mean over (d, d′, i, j) of ‖S_{d,d′,i,j}‖ / P_{d,j}: 0 exactly when the layer is balanced.

    "release" is the published code's: per query the largest ‖S‖ over the least output of any string, then the mean.
    """
    one_of("convention", convention, CONVENTIONS)
    sums = pair_sums(layer, types=types, depth=depth).norm(dim=-1)
    floor = least_outputs(layer, types=types, depth=depth, changed=convention == "mean")
    if convention == "release":
        return (sums.amax(-1) / floor).mean(-1)
    return (sums / floor[..., None]).mean((-2, -1))


def bilinear_residual(layer: Tokenwise, *, types: int, depth: int) -> Float[Tensor, " ..."]:
    """‖ΔE ᵀ W_Kᵀ W_Q ΔC‖_F: how much score(opener) − score(closer) of a pair depends on the closer that asks.

    ΔE are the kD pair differences, ΔC an orthonormal basis of the k(D − 1) − 1 differences of closers; 0 is the balance
    condition (2.47), which says nothing about values, and holds by itself where no two closers ask (D = 1, or one type
    to depth two).
    """
    _check(layer, types, depth)
    pairs = types * depth
    columns = [pairs + j * depth + d - 1 for j, d in _queries(types, depth)]
    gap = layer.scores[..., :pairs, :][..., columns] - layer.scores[..., pairs : 2 * pairs, :][..., columns]
    return (gap - gap.mean(-1, keepdim=True)).norm(dim=(-2, -1))


def antiparallelism(layer: Tokenwise, *, types: int, depth: int) -> Float[Tensor, "... type depth"]:
    """The cosine between the mean-free values of opener and closer of every pair; −1 under balance."""
    _check(layer, types, depth)
    pairs = types * depth
    opener, closer = layer.values[..., :pairs, :], layer.values[..., pairs : 2 * pairs, :]
    return torch.cosine_similarity(opener, closer, dim=-1).unflatten(-1, (types, depth))


def _queries(types: int, depth: int) -> list[tuple[int, int]]:
    """(type, pair depth) of the closers that leave an open bracket behind."""
    return [(j, d) for j in range(types) for d in range(2, depth + 1)]


def _check(layer: Tokenwise, types: int, depth: int) -> None:
    whole("types", types)
    whole("depth", depth)
    n = layer.scores.shape[-1]
    if n != 2 * types * depth + 1:
        raise ArgumentError(
            f"scores of {n} symbols: types={types}, depth={depth} make 2kD + 1 = {2 * types * depth + 1}"
        )


def _contributions(
    layer: Tokenwise, types: int, depth: int
) -> tuple[Float[Tensor, "... query key width"], list[tuple[int, int]]]:
    """U(key → query) for the closers that leave an open bracket, over e to the largest score of the query."""
    _check(layer, types, whole("depth", depth, least=2))
    queries = _queries(types, depth)
    columns = [types * depth + j * depth + d - 1 for j, d in queries]
    scores = layer.scores[..., columns].transpose(-1, -2)
    weight = (scores - scores.amax(-1, keepdim=True)).exp()
    return weight[..., None] * layer.values[..., None, :, :], queries
