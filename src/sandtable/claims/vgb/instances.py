"""What the exact claims on VGB share: random trees, their rewards, and values that are off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from sandtable.decoding import Predicate, View, vgb
from sandtable.lab import Lab
from sandtable.theory import generation as theory

Shape = tuple[int, int]
"""Alphabet and horizon."""

SHAPES: tuple[Shape, ...] = ((2, 5), (3, 4), (5, 3))


class Instance(NamedTuple):
    """A random base law on a tree, a random reward τ at its leaves, and the true values V*."""

    tree: theory.Tree
    reward: np.ndarray
    values: np.ndarray
    target: np.ndarray

    @property
    def horizon(self) -> int:
        return self.tree.horizon

    def off(self, error: float, generator: torch.Generator) -> np.ndarray:
        """V̂ with V*/(1+ε) ≤ V̂ ≤ (1+ε)V* inside, exact at the leaves."""
        return theory.noised(self.values, self.tree, error=error, generator=generator)


def guide(tree: theory.Tree, values: np.ndarray) -> Predicate:
    """A verifier that looks values up."""

    def look(view: View) -> torch.Tensor:
        return torch.from_numpy(values[tree.locate(view.tokens, view.lengths)])

    return Predicate(look, is_value=True)


def walked(lab: Lab, shape: Shape, error: float, rows: int) -> dict[str, np.ndarray]:
    """The decoder on one instance of a shape: how often it stops at each leaf, and what every row costs."""
    item, values = guided(lab, shape, error)
    counts, steps, queries = [], [], []
    for seed in lab.seeds:
        made = vgb(
            item.tree,
            torch.zeros(rows, 0, dtype=torch.long),
            guide(item.tree, values),
            steps=1000 * item.horizon**2,
            max_tokens=item.horizon,
            generator=lab.generator(seed, "walks"),
        )
        counts.append(item.tree.counts(made.tokens, made.lengths))
        steps.append(made.steps.numpy())
        queries.append(made.queries.numpy())
    return {"counts": np.stack(counts), "steps": np.stack(steps), "queries": np.stack(queries)}


def guided(lab: Lab, shape: Shape, error: float) -> tuple[Instance, np.ndarray]:
    """The instance that `walked` walks on and its values, the same for every seed."""
    generator = lab.generator(0, f"walked {shape}")
    item = instance(*shape, generator)
    return item, item.off(error, generator)


def instances(lab: Lab, shapes: tuple[Shape, ...], count: int, *, ends: bool = False) -> Iterator[Instance]:
    """`count` instances of every shape; with `ends` token 0 ends a string early."""
    generator = lab.generator(lab.seeds[0], "trees")
    for vocab, horizon in shapes:
        for _ in range(count):
            yield instance(vocab, horizon, generator, ends=ends)


def instance(vocab: int, horizon: int, generator: torch.Generator, *, ends: bool = False) -> Instance:
    """Next-token laws uniform on the simplex, rewards uniform on [0.05, 1]."""

    def law(prefix: torch.Tensor) -> torch.Tensor:
        weights = torch.empty(len(prefix), vocab, dtype=torch.float64).exponential_(generator=generator)
        return weights / weights.sum(1, keepdim=True)

    tree = theory.Tree.of(law, horizon, vocab, eos=0 if ends else None)
    reward = 0.05 + 0.95 * torch.rand(len(tree.leaves), generator=generator, dtype=torch.float64).numpy()
    return Instance(tree, reward, tree.expect(reward), theory.restricted_law(tree, reward))
