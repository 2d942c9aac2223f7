"""Compiled models on disk: weights, the encoder's and the decoder's tables as tensors, the rest as JSON.

Shapes are read off the weights, and every number that is used as an index is looked at before it is: a file that was
damaged, or written by something else, is refused in one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.models import DeepMLP, PartialBlock, Transformer
from sandtable.models.files import load_model, misfit, save_model, weights
from sandtable.theory.automata.compile.assemble import attention, network
from sandtable.theory.automata.compile.compiled import Compiled
from sandtable.worlds.automata import Automaton, laws

KIND = "automaton"
TABLES = ("prefix", "tokens", "columns", "codes")
LAWS = {
    law.__name__: law for law in (laws.Uniform, laws.Bernoulli, laws.Writes, laws.Legal, laws.Counted, laws.Repeating)
}
_PLAIN = ("start", "length", "states", "tokens", "name", "shortest", "observe")


def save(compiled: Compiled, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a compiled model to one file, with all it takes to run and to verify it."""
    automaton, blocks = compiled.automaton, compiled.model.layers
    law = automaton.law
    if LAWS.get(type(law).__name__) is not type(law):
        raise ArgumentError(f"law={law!r}: cannot be written to a file; known are {', '.join(LAWS)}")
    facts = dict(
        automaton={name: getattr(automaton, name) for name in _PLAIN},
        law=[type(law).__name__, dict(vars(law))],
        length=compiled.length,
        method=compiled.method,
        digits=compiled.digits,
        hard=compiled.hard,
        bound={name: limit if math.isfinite(limit) else None for name, limit in compiled.bound.items()},
        facts=dict(compiled.facts),
        writes=[[block.config["attn_writes"], block.config["mlp_writes"]] for block in blocks],
    )
    tables = {f"tables.{name}": torch.tensor(getattr(compiled, name), dtype=torch.long) for name in TABLES}
    tensors = {**weights(compiled.model), **tables, "tables.delta": automaton.tensor()}
    return save_model(path, tensors, facts, kind=KIND, overwrite=overwrite)


def load(path: str | Path) -> Compiled:
    """The compiled model that `save` wrote, with the same weights to the last bit."""
    tensors, facts = load_model(path, kind=KIND, what="compiled automaton")
    try:
        return _compiled(tensors, facts)
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise misfit(path, error) from error


def _compiled(tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> Compiled:
    tables = {name: _integers(tensors.pop(f"tables.{name}"), name) for name in (*TABLES, "delta")}
    kind, fields = facts["law"]
    law = LAWS[one_of("law", kind, LAWS)](**_tuples(fields))
    given = _tuples({name: facts["automaton"][name] for name in _PLAIN})
    automaton = Automaton(_tuples(tables["delta"].tolist()), law=law, **given)
    model = _model(tensors, facts["writes"])
    compiled = Compiled(
        model,
        automaton,
        whole("length", facts["length"]),
        str(facts["method"]),
        **{name: _tuples(tables[name].tolist()) for name in TABLES},
        digits=tuple(whole("digits", size) for size in facts["digits"]),
        hard=_tuples(facts["hard"]),
        bound={name: math.inf if limit is None else float(limit) for name, limit in facts["bound"].items()},
        facts=_tuples(facts["facts"]),
    )
    _require_whole(compiled, tables)
    return compiled


def _model(tensors: Mapping[str, Tensor], writes: Sequence[Sequence[Sequence[int]]]) -> Transformer:
    """The network that these weights are of: one block for every pair of coordinate lists in `writes`."""
    vocab, width = tensors["embed.W_E"].shape
    blocks = []
    for i, (attn_writes, mlp_writes) in enumerate(writes):
        heads, _, head_width = tensors[f"blocks.{i}.attn.W_V"].shape
        mlp = None
        if (first := tensors.get(f"blocks.{i}.mlp.W_0")) is not None:
            deep = sum(name.startswith(f"blocks.{i}.mlp.W_") for name in tensors)
            hidden = [tensors[f"blocks.{i}.mlp.W_{j}"].shape[1] for j in range(deep)]
            mlp = DeepMLP(first.shape[0], hidden[:-1], out_width=hidden[-1])
        attn = attention(width, heads=heads, head_width=head_width)
        blocks.append(PartialBlock(attn, mlp=mlp, attn_writes=attn_writes, mlp_writes=mlp_writes).double())
    longest, outputs = len(tensors["pos_embed.W_pos"]), tensors["unembed.W_U"].shape[1]
    model = network(blocks, vocab, width=width, outputs=outputs, longest=longest)
    model.load_state_dict(tensors)
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise ArgumentError("some weights are no numbers")
    return model.requires_grad_(False)


def _require_whole(compiled: Compiled, tables: Mapping[str, Tensor]) -> None:
    """Every table has a row for each start state, and leads to tokens, columns and states that there are."""
    automaton, model = compiled.automaton, compiled.model
    columns = {"tokens": automaton.n_tokens, "columns": len(compiled.digits), "codes": math.prod(compiled.digits)}
    limits = {"prefix": model.size, "tokens": model.size, "columns": model.outputs, "codes": automaton.n_states}
    for name, limit in limits.items():
        table = tables[name]
        if table.ndim != 2 or len(table) != automaton.n_states or columns.get(name, table.shape[1]) != table.shape[1]:
            raise ArgumentError(f"table {name} of shape {tuple(table.shape)}")
        if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < limit:
            raise ArgumentError(f"table {name}: numbers must be from 0 to {limit - 1}")
    positions = len(model.get_parameter("pos_embed.W_pos"))
    if compiled.length + compiled.pads > positions:
        raise ArgumentError(f"{compiled.length} inputs and {compiled.pads} pads, but {positions} positions")
    if [len(row) for row in compiled.hard] != [len(block.attn.W_V) for block in model.layers]:
        raise ArgumentError("hard: must name every head of every layer")


def _integers(table: Tensor, name: str) -> Tensor:
    if table.is_floating_point() or table.dtype == torch.bool:
        raise ArgumentError(f"table {name} of {table.dtype}")
    return table.long()


def _tuples(value: Any) -> Any:
    """Lists, as JSON has them, as the tuples that they were."""
    if isinstance(value, Mapping):
        return {name: _tuples(part) for name, part in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
