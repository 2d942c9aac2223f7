"""Compiled networks side by side in one, and the state read from all of their answers (Lemma 17).

Widths, heads and MLPs add up, depth is that of the deepest. Each network needs pads of its own in front of the inputs,
so all but the one with the most are made for inputs that begin with tokens that keep, as many as it has pads more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, product
from math import prod

import torch

from sandtable.arguments import ArgumentError
from sandtable.models import Block, DeepMLP, PartialBlock
from sandtable.theory.automata.compile.assemble import attention, deep, network
from sandtable.theory.automata.compile.compiled import Compiled
from sandtable.theory.automata.compile.factors import Partition, quotient
from sandtable.theory.automata.compile.networks import Net, affine, beside, then
from sandtable.worlds.automata import Automaton

MOST_CODES = 1_000_000
Make = Callable[[Automaton, int], Compiled]


def side_by_side(automaton: Automaton, length: int, partitions: Sequence[Partition], make: Make) -> Compiled:
    """One network from those that `make` gives for the quotients by congruences that tell all states together."""
    parts = [make(quotient(automaton, blocks), length) for blocks in partitions]
    pads = max(part.pads for part in parts)
    parts = [
        part if part.pads == pads else make(part.automaton, length + pads - part.pads) for part in parts
    ]  # how many pads a network has does not depend on the length
    states = range(automaton.n_states)
    digits = tuple(digit for part in parts for digit in part.digits)
    if automaton.n_states * prod(digits) > MOST_CODES:
        raise ArgumentError(f"{prod(digits):,} codes for {automaton.n_states:,} states: too many to read")
    vocab: dict[tuple[int, ...], int] = {}
    tokens, prefix = [], []
    for q in states:
        firsts = [blocks[q] for blocks in partitions]
        before = [_padded(part, block, pads) for part, block in zip(parts, firsts, strict=True)]
        read = [part.tokens[block][:-1] for part, block in zip(parts, firsts, strict=True)]
        prefix.append([vocab.setdefault(column, len(vocab)) for column in zip(*before, strict=True)])
        tokens.append([vocab.setdefault(column, len(vocab)) for column in zip(*read, strict=True)])
    model = network(
        [_block(parts, layer) for layer in range(max(part.sizes.depth for part in parts))],
        len(vocab),
        width=sum(part.model.width for part in parts),
        outputs=sum(part.model.outputs for part in parts),
        longest=pads + length,
    )
    embedded = [part.model.get_parameter("embed.W_E") for part in parts]
    spelled = zip(*vocab, strict=True)
    model.set("embed.W_E", torch.cat([W[list(kinds)] for W, kinds in zip(embedded, spelled, strict=True)], 1))
    model.set("pos_embed.W_pos", torch.cat([part.model.get_parameter("pos_embed.W_pos") for part in parts], 1))
    model.set("unembed.W_U", torch.block_diag(*(part.model.get_parameter("unembed.W_U") for part in parts)))
    return Compiled(
        model.requires_grad_(False),
        automaton,
        length,
        "product",
        prefix=tuple(map(tuple, prefix)),
        tokens=tuple(map(tuple, tokens)),
        columns=tuple(_columns(parts, [blocks[q] for blocks in partitions]) for q in states),
        digits=digits,
        codes=tuple(_codes(parts, partitions, q) for q in states),
        hard=tuple(
            tuple(hard for part in parts if layer < len(part.hard) for hard in part.hard[layer])
            for layer in range(len(model.layers))
        ),
        bound=_bound([part.bound for part in parts]),
        facts=dict(
            factors=tuple(part.method for part in parts), states=tuple(part.automaton.n_states for part in parts)
        ),
    )


def _padded(part: Compiled, block: int, pads: int) -> list[int]:
    """A network's own pads, then tokens that keep."""
    return [*part.prefix[block], *[part.tokens[block][-1]] * (pads - part.pads)]


def _columns(parts: Sequence[Compiled], firsts: Sequence[int]) -> tuple[int, ...]:
    """Where the outputs stand from which each network's answer is read."""
    offsets = accumulate((part.model.outputs for part in parts), initial=0)
    return tuple(
        offset + column for part, q, offset in zip(parts, firsts, offsets, strict=False) for column in part.columns[q]
    )


def _codes(parts: Sequence[Compiled], partitions: Sequence[Partition], start: int) -> tuple[int, ...]:
    """The state that has the blocks that the networks tell; where there is none, which is never told, any."""
    named = {blocks: q for q, blocks in enumerate(zip(*partitions, strict=True))}
    answers = [part.codes[blocks[start]] for part, blocks in zip(parts, partitions, strict=True)]
    return tuple(named.get(blocks, start) for blocks in product(*answers))


def _block(parts: Sequence[Compiled], layer: int) -> Block:
    """The layer of all networks that have so many, each on its own coordinates."""
    width, head_width = sum(part.model.width for part in parts), 1
    offsets = list(accumulate((part.model.width for part in parts), initial=0))
    heads, nets, reads, attn_writes, mlp_writes = [], [], [], [], []
    for part, offset in zip(parts, offsets, strict=False):
        if layer >= part.sizes.depth:
            continue
        own = part.model.layers[layer]
        weights = {name: own.attn.get_parameter(name).detach() for name in ("W_Q", "W_K", "W_V", "W_O")}
        heads += [(offset, {name: W[i] for name, W in weights.items()}) for i in range(len(weights["W_V"]))]
        head_width = max(head_width, weights["W_V"].shape[2])
        attn_writes += [offset + i for i in _overwritten(own, "attn_kept")]
        if own.mlp is not None:
            writes = _overwritten(own, "mlp_kept")
            nets.append(_net(own.mlp, writes))
            reads += range(offset, offset + part.model.width)
            mlp_writes += [offset + i for i in writes]
    attn = attention(width, heads=len(heads), head_width=head_width)
    assert attn.W_O is not None
    with torch.no_grad():
        for i, (offset, weights) in enumerate(heads):
            rows, columns = (
                slice(start, start + size) for start, size in zip((offset, 0), weights["W_V"].shape, strict=True)
            )
            for name in ("W_Q", "W_K", "W_V"):
                attn.get_parameter(name)[i, rows, columns] = weights[name]
            attn.W_O[i, columns, rows] = weights["W_O"]
    return PartialBlock(
        attn,
        mlp=_placed(beside(nets), width, reads, mlp_writes) if nets else None,
        attn_writes=attn_writes,
        mlp_writes=mlp_writes,
    ).double()


def _overwritten(block: Block, kept: str) -> list[int]:
    """The coordinates that a block does not carry past its attention, or its MLP."""
    return (block.get_buffer(kept) == 0).nonzero()[:, 0].tolist()


def _net(mlp: torch.nn.Module, writes: Sequence[int]) -> Net:
    """An MLP as a network to the coordinates that it writes."""
    assert isinstance(mlp, DeepMLP)
    weights = [W.detach() for name, W in mlp.named_parameters() if name.startswith("W_")]
    biases = [b.detach() for name, b in mlp.named_parameters() if name.startswith("b_")]
    return Net((*weights[:-1], weights[-1][:, writes]), (*biases[:-1], biases[-1][list(writes)]))


def _placed(net: Net, width: int, reads: Sequence[int], writes: Sequence[int]) -> DeepMLP:
    """The network between the coordinates of the stream that it reads and writes."""
    eye = torch.eye(width, dtype=torch.float64)
    return deep(then(then(affine(eye[:, list(reads)]), net), affine(eye[list(writes)])))


def _bound(bounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Lemma 17: the depth and norm of the deepest and the largest, sums of widths and heads."""
    how = dict(depth=max, width=sum, heads=sum, head_width=max, mlp_width=sum, norm=max)
    return {
        name: add(bound[name] for bound in bounds) for name, add in how.items() if all(name in one for one in bounds)
    }
