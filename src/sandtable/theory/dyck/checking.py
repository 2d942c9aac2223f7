"""A model beside the exact law: on every prefix up to a length, and on long random ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sandtable.arguments import ArgumentError, instance, typed, whole
from sandtable.worlds.dyck import DyckPrefixes

TOKENS = 40_000
"""Tokens of a batch; long rows also stay under this many entries of an attention pattern, in thousands."""


EXACT = 1e-6
"""Errors above this are not rounding."""


@dataclass(frozen=True)
class Checked:
    """The largest error |model − law| over all prefixes of at most so many brackets, and over long random ones."""

    prefixes: int
    """Different prefixes that were enumerated."""
    error: float
    """The largest on these, and on the beginnings of `world.reference`, which opens every type up to the full depth."""
    long_error: float
    """The same on random prefixes, at every position; 0 where none were asked for."""


MOST_LONGEST = 64
"""Far more prefixes than can be enumerated, however few types there are."""


@torch.no_grad()
def errors(
    model: nn.Module, world: DyckPrefixes, rows: Int[Tensor, "batch position"]
) -> Float[Tensor, "batch position"]:
    """max over brackets of |model − law| after every position."""
    check_vocabulary(model, world)
    size = rows.shape[1]
    step = max(1, min(TOKENS // size, 1000 * TOKENS // size**2))
    law = world.next_token_law(rows)[..., : 2 * world.types]
    return torch.cat([(model(part) - law[i : i + len(part)]).abs().amax(-1) for i, part in _parts(rows, step)])


@typed
def check(
    model: nn.Module, world: DyckPrefixes, *, longest: int = 8, long: int = 500, rows: int = 4, seed: int = 0
) -> Checked:
    """Compare at every prefix of at most `longest` brackets, and at `rows` random ones of `long` brackets (0: none).

    A causal model answers for all beginnings of a row at once, so the prefixes of `longest` brackets suffice. Where
    these are too short to reach the full depth, `world.reference` does.
    """
    instance("world", world, DyckPrefixes, "a DyckPrefixes: built models know the law of prefixes")
    enumerated = replace(world, length=whole("longest", longest, most=MOST_LONGEST)).support().batch.x
    error = max(float(errors(model, world, some).max()) for some in (enumerated, world.reference[None]))
    count = sum(world.count_prefixes(n) for n in range(longest + 1))
    far = 0.0
    if whole("long", long, least=0):
        drawn = replace(world, length=long).sample(whole("rows", rows), torch.Generator().manual_seed(seed)).x
        far = float(errors(model, world, drawn).max())
    return Checked(count, error, far)


def check_vocabulary(model: nn.Module, world: DyckPrefixes) -> None:
    """An `ArgumentError` where the model does not read the world's tokens or write its brackets."""
    size, outputs = getattr(model, "size", None), getattr(model, "outputs", None)
    if size != len(world.vocab) or outputs != 2 * world.types:
        raise ArgumentError(
            f"a model that reads {size} tokens and writes {outputs} scores: {world.types} types of brackets have "
            f"{len(world.vocab)} tokens, {2 * world.types} of them brackets"
        )


def _parts(rows: Tensor, step: int) -> list[tuple[int, Tensor]]:
    return [(i, rows[i : i + step]) for i in range(0, len(rows), step)]
