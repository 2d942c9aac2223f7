"""The pumping test: does a layer still see the stack after many matched pairs? (Wen, Li, Liu & Risteski 2023, T 2.2.1)

Two prefixes differ in the type of the last open bracket alone. Put n copies of a matched pair in front of both: under
balance the pair cancels and the normalised attention outputs stay as far apart as they were; otherwise what the pairs
leave behind grows with n, and the two draw together like 1/n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, typed, whole
from sandtable.models.blocks import UnitNorm
from sandtable.probes.dyck.balance import Tokenwise
from sandtable.worlds.dyck import BoundedDyck


@typed
def pumped_counts(
    copies: Sequence[int], *, types: int, depth: int, pair: tuple[int, int] = (0, 1), stack: Sequence[int] = (0,)
) -> Float[Tensor, "copies n"]:
    """How often each symbol is in p_n ⊕ stack ⊕ (a pair of type 0).

    p_n is n pairs of type and depth `pair`, wrapped in brackets of the same type as that depth asks; `stack` are the
    types of the open brackets. Attention without positions sees no more of a prefix than this.
    """
    kind, level = pair
    whole("pair type", kind, least=0, most=types - 1)
    whole("pair depth", level, most=depth)
    if not 1 <= len(stack) < depth:
        raise ArgumentError(f"stack={tuple(stack)}: must hold 1 to {depth - 1} open brackets, so that a pair fits in")
    for n in copies:
        whole("copies", n, least=0)
    pairs = types * depth
    fixed = torch.zeros(2 * pairs + 1, dtype=torch.float64)
    fixed[-1] = 1.0
    for c in range(level - 1):
        fixed[[kind * depth + c, pairs + kind * depth + c]] += 1
    for c, opened in enumerate(stack):
        fixed[whole("stack type", opened, least=0, most=types - 1) * depth + c] += 1
    fixed[[len(stack), pairs + len(stack)]] += 1
    rows = fixed.repeat(len(copies), 1)
    pumped = [kind * depth + level - 1, pairs + kind * depth + level - 1]
    rows[:, pumped] += torch.tensor(copies, dtype=torch.float64)[:, None]
    return rows


@typed
def attended(
    layer: Tokenwise, counts: Float[Tensor, "row n"], query: int, *, own: Float[Tensor, " width"] | None = None
) -> Float[Tensor, "row width"]:
    """LN_0 of the attention output at `query` after symbols counted so; with `own`, LN_0(attention + own) instead."""
    scores = layer.scores[:, whole("query", query, least=0, most=layer.scores.shape[1] - 1)].double()
    weight = counts * (scores - scores.max()).exp()
    out = weight @ layer.values.double() / weight.sum(1, keepdim=True)
    return UnitNorm(out.shape[-1])(out if own is None else out + own)


@typed
def pumping_distance(
    layer: Tokenwise,
    copies: Sequence[int],
    *,
    types: int,
    depth: int,
    pair: tuple[int, int] = (0, 1),
    stacks: tuple[Sequence[int], Sequence[int]] = ((0,), (1,)),
    own: Float[Tensor, "n width"] | None = None,
) -> Float[Tensor, " copies"]:
    """‖LN(a(p_n ⊕ σ …)) − LN(a(p_n ⊕ σ' …))‖ for every n; `own` (a vector per symbol) puts the residual under LN."""
    symbols = 2 * whole("types", types) * whole("depth", depth) + 1
    if layer.scores.shape[-1] != symbols:
        raise ArgumentError(f"types={types}, depth={depth}: have {symbols} symbols, the layer {layer.scores.shape[-1]}")
    if len(stacks[0]) != len(stacks[1]):
        raise ArgumentError(f"stacks={stacks}: must leave equally many brackets open")
    query = types * depth + len(stacks[0])  # the closer of type 0 whose pair stands on the stack
    outputs = [
        attended(
            layer,
            pumped_counts(copies, types=types, depth=depth, pair=pair, stack=stack),
            query,
            own=None if own is None else own[query],
        )
        for stack in stacks
    ]
    return (outputs[0] - outputs[1]).norm(dim=1)


@typed
def pumped_rows(
    copies: int, *, types: int, depth: int, pair: tuple[int, int] = (0, 1), stack: Sequence[int] = (0,)
) -> Int[Tensor, " position"]:
    """The prefix that `pumped_counts` counts, as tokens after ⟨bos⟩."""
    pumped_counts([copies], types=types, depth=depth, pair=pair, stack=stack)
    kind, level = pair
    inner = [kind] * (level - 1) + [kind, types + kind] * whole("copies", copies, least=0)
    return torch.tensor([2 * types, *inner, *[types + kind] * (level - 1), *stack, 0, types])


@typed
@torch.no_grad()
def pumping_outputs(
    model: nn.Module,
    copies: Sequence[int],
    *,
    types: int,
    depth: int,
    pair: tuple[int, int] = (0, 1),
    stacks: tuple[Sequence[int], Sequence[int]] = ((0,), (1,)),
) -> Float[Tensor, " copies"]:
    """The same for a whole model that reads tokens: how far its answers after the two prefixes are apart."""
    BoundedDyck(types=types, depth=depth).require_reader(model)
    if not len(copies):
        raise ArgumentError("copies=(): needs at least one number")
    found = []
    for n in copies:
        rows = [pumped_rows(n, types=types, depth=depth, pair=pair, stack=stack) for stack in stacks]
        out = model(torch.stack(rows))[:, -1]
        found.append((out[0] - out[1]).norm())
    return torch.stack(found)


@typed
def log_slope(copies: Sequence[int], distances: Tensor) -> float:
    """The slope of log distance against log copies: 0 under balance, −1 without it."""
    if len(copies) < 2 or len(copies) != len(distances) or min(copies) < 1:
        raise ArgumentError(f"copies={tuple(copies)}: needs at least two numbers ≥ 1, one for each distance")
    return float(np.polyfit(np.log(copies), np.log(distances.double().numpy()), 1)[0])
