"""From a program of named coordinates to an ordinary Transformer with every weight set, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.models import Block, DeepMLP, PartialBlock, SoftmaxAttention, Transformer
from sandtable.theory.automata.compile.networks import Net, affine, beside, passing, then
from sandtable.theory.automata.compile.program import Form, Head, Layer, Part, Program


def assemble(program: Program) -> Transformer:
    """The Transformer of a program: W_E, W_pos, heads without 1/√k, ReLU MLPs, W_U that shows the outputs."""
    place = {name: i for i, name in enumerate(stream(program))}
    needed = _needed_after(program)
    blocks = [_block(layer, place, after) for layer, after in zip(program.layers, needed, strict=True)]
    model = network(blocks, program.vocab, width=len(place), outputs=len(program.outputs), longest=program.longest)
    model.set("embed.W_E", _columns(program.tokens, place, program.vocab))
    model.set("pos_embed.W_pos", _columns(program.positions, place, program.longest))
    shown = torch.zeros(len(place), len(program.outputs), dtype=torch.float64)
    for column, form in enumerate(program.outputs):
        for name, weight in form.items():
            shown[place[name], column] = weight
    model.set("unembed.W_U", shown)
    return model.requires_grad_(False)


def network(blocks: Sequence[Block], vocab: int, *, width: int, outputs: int, longest: int) -> Transformer:
    """What every compiled network is around its blocks, in float64 and with all weights 0."""
    return Transformer(
        vocab,
        width=width,
        tied=False,
        outputs=outputs,
        causal=True,
        positions="learned",
        longest=longest,
        blocks=blocks,
    ).double()


def attention(width: int, *, heads: int, head_width: int) -> SoftmaxAttention:
    """Softmax heads without 1/√k."""
    return SoftmaxAttention(width, heads=heads, head_width=head_width, out_width=width, causal=True, scale=1.0).double()


def stream(program: Program) -> list[str]:
    """The coordinates of the residual stream: what tokens and positions show, and what layers write, if any is read."""
    read = {name for form in program.outputs for name in form}.union(*map(_read, program.layers))
    names = dict.fromkeys(name for name in (*program.tokens, *program.positions) if name in read)
    for layer, after in zip(program.layers, _needed_after(program), strict=True):
        names |= dict.fromkeys(name for head in layer.heads for name in head.writes)
        names |= dict.fromkeys(name for name in _written(layer) if name in after)
    return list(names)


def _needed_after(program: Program) -> list[set[str]]:
    """The coordinates that anything behind each layer reads."""
    needed: list[set[str]] = [{name for form in program.outputs for name in form}]
    for layer in reversed(program.layers[1:]):
        needed.append(needed[-1] | _read(layer))
    return needed[::-1]


def _read(layer: Layer) -> set[str]:
    names = {name for head in layer.heads for form in (*head.queries, *head.keys, *head.values) for name in form}
    return names | {name for parts in layer.stages for part in parts for form in part.reads for name in form}


def _written(layer: Layer) -> list[str]:
    return list(dict.fromkeys(name for parts in layer.stages for part in parts for name in part.writes))


# -- one layer -------------------------------------------------------------------------------------------------------


def _block(layer: Layer, place: dict[str, int], after: set[str]) -> PartialBlock:
    width = len(place)
    key_width = max(max(len(head.queries), len(head.values)) for head in layer.heads)
    attn = attention(width, heads=len(layer.heads), head_width=key_width)
    assert attn.W_O is not None
    with torch.no_grad():
        for i, head in enumerate(layer.heads):
            _set_head(attn, i, head, place)
    heads_write = {place[name] for head in layer.heads for name in head.writes}
    writes = [name for name in _written(layer) if name in after]
    mlp = None
    if writes:
        whole = _chain(layer.stages, list(place), writes)
        wide = torch.zeros(len(writes), width, dtype=torch.float64)
        for i, name in enumerate(writes):
            wide[i, place[name]] = 1.0
        mlp = deep(then(whole, affine(wide)))
    block = PartialBlock(
        attn, mlp=mlp, attn_writes=sorted(heads_write), mlp_writes=sorted(place[name] for name in writes)
    )
    return block.double()


def _set_head(attn: SoftmaxAttention, i: int, head: Head, place: dict[str, int]) -> None:
    for matrix, forms in ((attn.W_Q, head.queries), (attn.W_K, head.keys), (attn.W_V, head.values)):
        for column, form in enumerate(forms):
            for name, weight in form.items():
                matrix[i, place[name], column] = weight
    assert attn.W_O is not None
    for row, name in enumerate(head.writes):
        attn.W_O[i, row, place[name]] = 1.0


def _chain(stages: Sequence[Sequence[Part]], names: list[str], writes: list[str]) -> Net:
    """All stages as one network from the stream to `writes`."""
    live = names
    whole: Net | None = None
    for i, parts in enumerate(stages):
        written = dict.fromkeys(name for part in parts for name in part.writes)
        later = {name for rest in stages[i + 1 :] for part in rest for form in part.reads for name in form}
        produced_later = {name for rest in stages[i + 1 :] for part in rest for name in part.writes}
        wanted = later | (set(writes) - produced_later)
        carried = [name for name in live if name in wanted and name not in written]
        if i + 1 == len(stages):
            carried = [name for name in carried if name in writes]
        step = _stage(parts, live, [*written], carried)
        whole = step if whole is None else then(whole, step)
        live = [*written, *carried]
    assert whole is not None
    order = torch.zeros(len(live), len(writes), dtype=torch.float64)
    for column, name in enumerate(writes):
        order[live.index(name), column] = 1.0
    return then(whole, affine(order))


def _stage(parts: Sequence[Part], live: list[str], written: list[str], carried: list[str]) -> Net:
    """Parts side by side: the forms they read, the networks, and the sums of what they write."""
    nets = [part.net for part in parts] + ([passing(len(carried))] if carried else [])
    forms = [form for part in parts for form in part.reads] + [{name: 1.0} for name in carried]
    sums = torch.zeros(sum(n.writes for n in nets), len(written) + len(carried), dtype=torch.float64)
    row = 0
    for part in parts:
        for name in part.writes:
            sums[row, written.index(name)] += 1.0
            row += 1
    for i in range(len(carried)):
        sums[row + i, len(written) + i] = 1.0
    return then(then(affine(_forms(forms, live)), beside(nets)), affine(sums))


def _forms(forms: Iterable[Form], live: list[str]) -> Float[Tensor, "live form"]:
    forms, place = list(forms), {name: i for i, name in enumerate(live)}
    matrix = torch.zeros(len(live), len(forms), dtype=torch.float64)
    for column, form in enumerate(forms):
        for name, weight in form.items():
            matrix[place[name], column] = weight
    return matrix


def deep(whole: Net) -> DeepMLP:
    """The network as a module."""
    made = DeepMLP(whole.reads, [w.shape[1] for w in whole.weights[:-1]], out_width=whole.writes).double()
    with torch.no_grad():
        for i, (weight, bias) in enumerate(zip(whole.weights, whole.biases, strict=True)):
            getattr(made, f"W_{i}").copy_(weight)
            getattr(made, f"b_{i}").copy_(bias)
    return made


def _columns(parts: Mapping[str, Sequence[float]], place: dict[str, int], rows: int) -> Float[Tensor, "row width"]:
    filled = torch.zeros(rows, len(place), dtype=torch.float64)
    for name, values in parts.items():
        if name in place:
            filled[:, place[name]] = torch.as_tensor(values, dtype=torch.float64)
    return filled
