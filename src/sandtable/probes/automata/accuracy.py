"""How often a model names the right state: by position, by the number of ones, by their rate, by length.

A model answers in one pass (`answers`) or writes its states into its own input as it goes (`write_states`); every
function here takes either as `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.models import Cache, Stack, Transformer
from sandtable.worlds.automata import Automaton, Bernoulli, Counted, InputLaw

ROWS = 2048
"""The paper's number of sequences in an evaluation."""
AT_ONCE = 2**18
"""Tokens of all models together that are read at once."""
Answer = Callable[[Stack | nn.Module, Int[Tensor, "rows position"]], Int[Tensor, "models rows position"]]
"""The label that every model names after every token."""


# -- answering -------------------------------------------------------------------------------------------------------


def answers(models: Stack | nn.Module, x: Int[Tensor, "rows position"]) -> Int[Tensor, "models rows position"]:
    """The likeliest label at every position, all positions in one pass; on the CPU, wherever the models are."""
    stack = _stacked(models)
    device = next(iter(stack.params.values())).device
    rows = max(1, AT_ONCE // (len(stack) * x.shape[1]))
    return torch.cat([stack(part.to(device)).argmax(-1).cpu() for part in x.split(rows)], dim=1)


@torch.no_grad()
def write_states(models: Stack | nn.Module, x: Int[Tensor, "rows position"]) -> Int[Tensor, "models rows position"]:
    """States written one after another: at σ_t the model has read σ_1, q̂_1, …, σ_{t−1}, q̂_{t−1}, all q̂ its own.

    For models trained with `objectives.Scratchpad`: tokens |Σ| and above stand for the |Q| states it can name. All rows
    go on together, and what was read before is kept in a cache.
    """
    stack = _stacked(models)
    if not isinstance(stack.template, Transformer):
        raise ArgumentError(f"{type(stack.template).__name__}: only a Transformer goes on from what it has written")
    device = next(iter(stack.params.values())).device
    return torch.stack([_write(stack[i].to(device).eval(), x.to(device)).cpu() for i in range(len(stack))])


def _write(model: Transformer, x: Int[Tensor, "rows position"]) -> Int[Tensor, "rows position"]:
    tokens = model.size - model.outputs
    if tokens < 1 or int(x.max()) >= tokens:
        raise ArgumentError(
            f"a model over {model.size} tokens that names {model.outputs} states: it has no room for tokens to read"
        )
    rows, length = x.shape
    cache, states = Cache(model, rows, 2 * length), torch.empty_like(x)
    at = torch.zeros(rows, dtype=torch.long, device=x.device)
    for t in range(length):
        new = x[:, :1] if t == 0 else torch.stack([states[:, t - 1] + tokens, x[:, t]], 1)
        places = torch.arange(2 * t + 1 - new.shape[1], 2 * t + 1, device=x.device).expand_as(new)
        states[:, t] = model.extend(new, places, cache, at=at + new.shape[1] - 1).argmax(-1)
    return states


# -- accuracy --------------------------------------------------------------------------------------------------------


@typed
def correct(
    models: Stack | nn.Module,
    automaton: Automaton,
    *,
    rows: int = ROWS,
    generator: torch.Generator,
    answer: Answer = answers,
    of: str = "label",
) -> Bool[Tensor, "models rows position"]:
    """Where every model is right on fresh rows, the same for all; `of`: "label" or "state"."""
    one_of("of", of, ("label", "state"))
    batch = automaton.sample(whole("rows", rows), generator)
    return answer(models, batch.x) == batch.latents[of]


def accuracy_of_rows(
    correct: Bool[Tensor, "models rows position"],
) -> Float[Tensor, " models"]:
    """The share of rows that are right at all positions."""
    return correct.all(2).double().mean(1)


def accuracy_by_position(
    correct: Bool[Tensor, "models rows position"],
) -> Float[Tensor, "models position"]:
    return correct.double().mean(1)


@typed
def accuracy_by_length(
    models: Stack | nn.Module,
    automaton: Automaton,
    lengths: Sequence[int],
    *,
    rows: int = ROWS,
    generator: torch.Generator,
    answer: Answer = answers,
    of: str = "label",
) -> Float[Tensor, "models length"]:
    """Accuracy over all positions of rows of each length."""
    worlds = [replace(automaton, length=length) for length in lengths]
    return _each(worlds, models, rows=rows, generator=generator, answer=answer, of=of)


@typed
def accuracy_by_rate(
    models: Stack | nn.Module,
    automaton: Automaton,
    rates: Sequence[float],
    *,
    rows: int = ROWS,
    generator: torch.Generator,
    answer: Answer = answers,
    of: str = "label",
) -> Float[Tensor, "models rate"]:
    """Accuracy on independent bits that are 1 with each of these probabilities."""
    worlds = [_under(automaton, Bernoulli(rate)) for rate in rates]
    return _each(worlds, models, rows=rows, generator=generator, answer=answer, of=of)


@typed
def accuracy_by_count(
    models: Stack | nn.Module,
    automaton: Automaton,
    counts: Sequence[int],
    *,
    rows: int = ROWS,
    generator: torch.Generator,
    answer: Answer = answers,
    of: str = "label",
) -> Float[Tensor, "models count"]:
    """Accuracy on bits with exactly so many ones, anywhere."""
    worlds = [_under(automaton, Counted(count)) for count in counts]
    return _each(worlds, models, rows=rows, generator=generator, answer=answer, of=of)


def _under(automaton: Automaton, law: InputLaw) -> Automaton:
    return replace(automaton, law=law)


def _each(worlds: Sequence[Automaton], models: Stack | nn.Module, **options) -> Float[Tensor, "models world"]:
    if not worlds:
        raise ArgumentError("nothing to measure: give at least one length, rate or count")
    return torch.stack([correct(models, world, **options).double().mean((1, 2)) for world in worlds], dim=1)


def _stacked(models: Stack | nn.Module) -> Stack:
    return models if isinstance(models, Stack) else Stack.of(models)
