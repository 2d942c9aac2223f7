"""What one step of a parallel decoder can do: any positive product kernel, and nothing else.

A parallel decoder draws every position on its own from its logits, P(τ → τ') = Π_j π_j(τ'_j | τ). Two blocks suffice
for any positive table π.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from scipy.special import entr
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed
from sandtable.models import MLP, Block, SoftmaxAttention, Transformer
from sandtable.worlds.finite import all_states, state_count

MOST_UNITS = 2**16
"""Hidden units of the second block: N · |Ω|^N."""


def product_kernel(table: Float[Tensor, "states position symbol"]) -> Transformer:
    """The two-block Transformer with softmax(logits at position j, input τ) = table[τ, j], in float64.

    Stream: token one-hot e, position one-hot p, pairs u, gathered pairs g, output. Block 1 writes u_{ia} = ReLU(e_a +
    p_i − 1), "here is position i with token a". Block 2 averages u over positions and multiplies by N, so that
    g_{ia} = 1[τ_i = a] everywhere; unit (s, j) is ReLU(Σ_i g_{i, s_i} + p_j − N) = 1 just where the input is s and the
    position j, and writes log π_j(· | s).
    """
    table = torch.as_tensor(table, dtype=torch.float64)
    if table.ndim != 3:
        raise ArgumentError(f"table of shape {tuple(table.shape)}: must be state × position × symbol")
    states, n, size = table.shape
    if states != state_count(size, n):
        raise ArgumentError(f"table with {states} rows: must be one for each of {size}^{n} states")
    if not bool((table > 0).all()) or not bool(((table.sum(-1) - 1).abs() < 1e-9).all()):
        raise ArgumentError("table: must be positive and sum to 1 over symbols; a softmax never gives 0")
    units = n * states
    if units > MOST_UNITS:
        raise ArgumentError(f"table: needs {units:,} hidden units, at most {MOST_UNITS:,}")
    pairs = n * size
    e, p, u = 0, size, size + n
    g, out = u + pairs, u + 2 * pairs
    width = out + size
    first, second = (
        Block(
            SoftmaxAttention(width, heads=1, head_width=pairs, biases=False),
            mlp=MLP(width, hidden, activation="relu", biases=True),
            norm=None,
        )
        for hidden in (pairs, units)
    )
    model = Transformer(size, width=width, tied=False, positions="learned", longest=n, blocks=[first, second]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        assert model.embed is not None
        assert model.unembed.W_U is not None
        model.embed.W_E[:, e : e + size] = torch.eye(size)
        model.get_parameter("pos_embed.W_pos")[:, p : p + n] = torch.eye(n)
        _write_pairs(first, n, size, e, p, u)
        _gather(second, n, u, g, pairs)
        _look_up(second, table, p, g, out)
        model.unembed.W_U[out:] = torch.eye(size)
    return model.requires_grad_(False)


def _write_pairs(block: Block, n: int, size: int, e: int, p: int, u: int) -> None:
    mlp = block.mlp
    assert isinstance(mlp, MLP)
    assert mlp.b_in is not None
    for i in range(n):
        for a in range(size):
            unit = i * size + a
            mlp.W_in[e + a, unit] = mlp.W_in[p + i, unit] = 1.0
            mlp.W_out[unit, u + unit] = 1.0
    mlp.b_in.sub_(1.0)


def _gather(block: Block, n: int, u: int, g: int, pairs: int) -> None:
    """W_Q = W_K = 0: attention 1/N everywhere."""
    assert block.attn.W_O is not None
    block.attn.W_V[0, u : u + pairs] = n * torch.eye(pairs)
    block.attn.W_O[0, :, g : g + pairs] = torch.eye(pairs)


def _look_up(block: Block, table: Tensor, p: int, g: int, out: int) -> None:
    states, n, size = table.shape
    mlp = block.mlp
    assert isinstance(mlp, MLP)
    assert mlp.b_in is not None
    inputs = torch.nn.functional.one_hot(all_states(size, n), size).double().flatten(1)
    mlp.W_in[g : g + n * size] = inputs.T.repeat_interleave(n, 1)
    mlp.W_in[p : p + n] = torch.eye(n).double().repeat(1, states)
    mlp.b_in.sub_(float(n))
    mlp.W_out[:, out:] = table.log().reshape(states * n, size)


def two_spin_correlation(coupling: float) -> float:
    """Total correlation of two spins without fields, ln 2 − H(½(1 + tanh J)): no product law is nearer in KL."""
    together = (1 + math.tanh(number("coupling", coupling))) / 2
    return math.log(2) - float(entr(together) + entr(1 - together))


def two_spin_distance(coupling: float) -> float:
    """The least total variation between two spins without fields and a product law, √(1 + tanh |J|) − 1.

    With a = p(++) = ¼(1 + tanh J) the nearest product has both spins up with probability √a: it gives ++ exactly a, and
    what −− lacks, 2√a − 1, it gives to +− and −+. As J grows this tends to √2 − 1.
    """
    return math.sqrt(1 + math.tanh(abs(number("coupling", coupling)))) - 1


@typed
def kernel_of(model: Transformer, *, length: int, symbols: int) -> Float[Tensor, "states states"]:
    """P(τ → τ') = Π_j softmax(logits_j(τ))[τ'_j] of any model that reads `length` tokens."""
    states = all_states(symbols, length)
    size = getattr(model, "size", symbols)
    if symbols > size:
        raise ArgumentError(f"symbols={symbols}: this model reads {size}")
    with torch.no_grad():
        step = model(states)[..., :symbols].double().softmax(-1)
    p = torch.ones(len(states), 1, dtype=torch.float64)
    for site in step.unbind(1):
        p = (p[:, :, None] * site[:, None, :]).flatten(1)
    return p
