"""Any model against any automaton: on every input where there are few enough, otherwise on random and nasty ones.

Besides the answers, a compiled network is asked how far its outputs are from whole numbers, how hard its heads look,
and how large it is beside the theorem's bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, one_of, typed, whole
from sandtable.models import Stack
from sandtable.theory.automata.compile import Compiled, Sizes
from sandtable.worlds.automata import Automaton
from sandtable.worlds.automata.fixtures import as_automaton

EXHAUSTIVE = 1_000_000
"""Most inputs that are all tried."""
BLOCK = 1 << 16
"""Inputs that are made and judged together."""
MODULE_ROWS = 1024
"""Inputs that go through a network that is not compiled at once."""
HARDNESS_ROWS = 512
"""Inputs of every start state on which attention is looked at."""
MOST_NASTY = 2_000
Simulates = Callable[[Int[Tensor, "row position"]], Int[Tensor, "row position"]]


@dataclass(frozen=True)
class Verified:
    """What came out: exact where `wrong` is 0."""

    length: int
    exhaustive: bool
    """All |Σ|^T inputs were tried, from every start state."""
    inputs: int
    """Different (start state, input) pairs, or drawn ones."""
    wrong: int
    """Pairs with at least one wrong state, or label where labels are asked."""
    tokens_wrong: int
    first_wrong: tuple[int, tuple[int, ...]] | None = None
    """Start state and input of the first wrong answer."""
    residual: float | None = None
    """The largest |output − nearest integer|; a compiled network is safe below 1/2."""
    softness: dict[tuple[int, int], float] = field(default_factory=dict)
    """By (layer, head), for heads that should look at one position: the largest ‖α − e_argmax‖₁."""
    sizes: Sizes | None = None
    over_bound: dict[str, float] = field(default_factory=dict)
    """Sizes over the theorem's bounds."""

    @property
    def exact(self) -> bool:
        return self.wrong == 0

    @property
    def accuracy(self) -> float:
        """The share of right states among all positions."""
        return 1 - self.tokens_wrong / (self.inputs * self.length)

    @property
    def softest(self) -> float:
        """The largest of `softness`, 0 where no head is hard."""
        return max(self.softness.values(), default=0.0)


@typed
def verify(
    model: Compiled | nn.Module | Simulates,
    automaton: Automaton | str | None = None,
    *,
    length: int | None = None,
    of: str = "state",
    samples: int = 100,
    seed: int = 0,
) -> Verified:
    """Compare a model's states with the automaton's for inputs of `length` tokens.

    The model may be compiled, a module whose outputs at every position score the states, or a function from inputs to
    states; only a compiled one is tried from every start state. With `of="label"` labels φ(q_t) are compared, and a
    module or function gives labels. Where |Σ|^T ≤ 10⁶ all inputs are tried; otherwise `samples` uniform ones, as many
    from the automaton's own law, and all of `nasty`.
    """
    one_of("of", of, ("state", "label"))
    if automaton is None:
        if not isinstance(model, Compiled):
            raise ArgumentError("automaton=None: only a compiled model knows what it was compiled from")
        automaton = model.automaton
    automaton = as_automaton(automaton)
    if length is None:
        length = model.length if isinstance(model, Compiled) else automaton.length
    length = whole("length", length)
    whole("samples", samples)
    _require_fit(model, automaton, length, of)
    exhaustive = automaton.n_tokens**length <= EXHAUSTIVE
    count = _Count(length)
    some = None
    for rows in _all(automaton, length) if exhaustive else [_drawn(automaton, length, samples, seed)]:
        some = rows if some is None else some
        for part in rows.split(model.batch(length) if isinstance(model, Compiled) else MODULE_ROWS):
            for start, found, residual in _answers(model, part, automaton, of):
                states = automaton.simulate(part, start)
                count.add(start, part, automaton.labels(states) if of == "label" else states, found, residual)
    assert some is not None
    facts: dict[str, Any] = {}
    if isinstance(model, Compiled):
        size = model.sizes
        facts = dict(
            residual=count.residual,
            softness=softness(model, some[torch.linspace(0, len(some) - 1, min(len(some), HARDNESS_ROWS)).long()]),
            sizes=size,
            over_bound=size.over(model.bound),
        )
    return Verified(
        length=length,
        exhaustive=exhaustive,
        inputs=count.inputs,
        wrong=count.wrong,
        tokens_wrong=count.tokens,
        first_wrong=count.first,
        **facts,
    )


@torch.no_grad()
def softness(model: Compiled, rows: Int[Tensor, "row position"]) -> dict[tuple[int, int], float]:
    """For every head that should look at one position, the largest ‖α − e_argmax‖₁ = 2(1 − max α)."""
    names = {layer: f"blocks.{layer}.attn.hook_pattern" for layer, heads in enumerate(model.hard) if any(heads)}
    found: dict[tuple[int, int], float] = {}
    if not names:  # a model that is asked for no activations answers with its outputs alone
        return found
    for start, *_ in model.kin(range(model.automaton.n_states)):
        for part in rows.split(model.batch(rows.shape[1])):
            seen = model.model(model.encode(part, start), want=tuple(names.values()))[1]
            for layer, name in names.items():
                largest = seen[name].amax(-1).amin((0, 2))
                for head, hard in enumerate(model.hard[layer]):
                    if hard:
                        soft = max(0.0, 2 * (1 - float(largest[head])))
                        found[layer, head] = max(found.get((layer, head), 0.0), soft)
    return found


@typed
def nasty(automaton: Automaton | str, length: int) -> Int[Tensor, "row position"]:
    """Constant inputs, one other token at each position, alternating pairs, a run of one token then one of another."""
    tokens, place = as_automaton(automaton).n_tokens, torch.arange(whole("length", length))
    rows = [torch.arange(tokens)[:, None].expand(-1, length)]
    for a, b in _spread(list(permutations(range(tokens), 2)), -(-4 * MOST_NASTY // length)):
        single = torch.full((length, length), a).fill_diagonal_(b)
        switched = torch.where(place < place[:, None], a, b)
        alternating = torch.where(place % 2 == 0, a, b)[None]
        rows += [alternating, single, switched]
    found = torch.cat(rows).unique(dim=0)
    return found[_spread(range(len(found)), MOST_NASTY)]


def _spread(some: Sequence[Any], most: int) -> list[Any]:
    """All of them, or every so many-th where there are more."""
    return [some[int(i)] for i in torch.linspace(0, len(some) - 1, min(most, len(some))).round()]


def _all(automaton: Automaton, length: int) -> Iterator[Int[Tensor, "row position"]]:
    """Every input, block by block, in lexicographic order."""
    tokens = automaton.n_tokens
    place = tokens ** torch.arange(length - 1, -1, -1)
    for numbers in torch.arange(tokens**length).split(BLOCK):
        yield numbers[:, None] // place % tokens


def _drawn(automaton: Automaton, length: int, samples: int, seed: int) -> Int[Tensor, "row position"]:
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.randint(automaton.n_tokens, (samples, length), generator=generator)
    return torch.cat([uniform, automaton.law.draw(automaton, samples, length, generator), nasty(automaton, length)])


def _answers(
    model: Any, rows: Int[Tensor, "row position"], automaton: Automaton, of: str
) -> Iterator[tuple[int, Int[Tensor, "row position"], float]]:
    """(start state, a model's states or labels, how far from whole numbers it was)."""
    if isinstance(model, Compiled):
        for start, states, residual in model.simulate_from(rows, range(automaton.n_states)):
            yield start, automaton.labels(states) if of == "label" else states, residual
    elif isinstance(model, nn.Module):
        yield automaton.start, _likeliest(model, rows), 0.0
    else:
        yield automaton.start, _as_rows(model(rows)), 0.0


def _as_rows(found: Any) -> Tensor:
    """What a function returned, which may be lists or an array."""
    try:
        return torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(
            f"answers of type {type(found).__name__}: must be a tensor of one number per token"
        ) from None


@torch.no_grad()
def _likeliest(model: nn.Module, rows: Int[Tensor, "row position"]) -> Int[Tensor, "row position"]:
    """The state that a network scores highest at every position, without dropout."""
    was, weight = model.training, next(model.parameters(), None)
    model.eval()
    try:
        return model(rows if weight is None else rows.to(weight.device)).argmax(-1)
    finally:
        model.train(was)


def _require_fit(model: Any, automaton: Automaton, length: int, of: str) -> None:
    if isinstance(model, Compiled):
        known = model.automaton
        if (known.n_states, known.n_tokens) != (automaton.n_states, automaton.n_tokens):
            raise ArgumentError(
                f"a model for {known.n_states} states and {known.n_tokens} tokens: the automaton has "
                f"{automaton.n_states} and {automaton.n_tokens}"
            )
        if length > model.length:
            raise ArgumentError(f"length={length}: the model was compiled for at most length={model.length}")
        return
    if isinstance(model, Stack):
        raise ArgumentError(f"model: a stack of {len(model)} models; one is verified at a time, give model[i]")
    if not callable(model):
        raise ArgumentError(f"model={model!r}: must be compiled, a module, or a function from inputs to states")
    reads, names = getattr(model, "size", None), getattr(model, "outputs", None)
    if reads is not None and reads < automaton.n_tokens:
        raise ArgumentError(f"a model that reads {reads} tokens: the automaton has {automaton.n_tokens}")
    wanted = automaton.n_states if of == "state" else automaton.n_labels
    if names is not None and names < wanted:
        advice = '; of="label" compares labels' if names == automaton.n_labels else ""
        raise ArgumentError(f"a model that scores {names} {of}s: the automaton has {wanted}{advice}")


@dataclass
class _Count:
    length: int
    inputs: int = 0
    wrong: int = 0
    tokens: int = 0
    residual: float = 0.0
    first: tuple[int, tuple[int, ...]] | None = None

    def add(self, start: int, rows: Tensor, right: Tensor, found: Tensor, residual: float) -> None:
        if found.shape != right.shape:
            raise ArgumentError(f"answers of shape {tuple(found.shape)}: must be {tuple(right.shape)}, one per token")
        errors = found.cpu() != right
        bad = errors.any(1)
        self.inputs += len(rows)
        self.wrong += int(bad.sum())
        self.tokens += int(errors.sum())
        self.residual = max(self.residual, residual)
        if self.first is None and bool(bad.any()):
            self.first = start, tuple(rows[int(bad.int().argmax())].tolist())
