"""Nets trained on brackets (Wen, Li, Liu & Risteski 2023, section 2.2.3), and all that the claims measure on them.

Two families: a frozen table of (type, depth) symbols under one trained layer, and Transformers that read tokens. Arms
with the same seeds see the same data. Training rows are complete words of fewer than 28 brackets, which end with
probability 1/2 whenever nothing is open, or prefixes of 28; the loss is taken where a closer follows. Layer norms have
no floor: with PyTorch's 1e-5 they fade the sum over a long prefix, which shows at the lengths asked here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.arguments import one_of
from sandtable.lab import Check, Lab, passing
from sandtable.models import Stack, Transformer
from sandtable.objectives import NextBracket
from sandtable.probes import dyck as probe
from sandtable.theory import dyck as theory
from sandtable.theory.dyck.baselines import random_variation
from sandtable.training import Adam, Cosine, Recipe
from sandtable.worlds import Batch, DyckPrefixes, DyckWords

ACCURATE = 0.97
"""Published: all models that are shown close at least so many brackets rightly."""
MOST = 0.5
"""The share of seeds, at least, of which something is claimed: "most"."""
SEEDS = {"desk": 16, "paper": 40}
POSITIONS = {"no positions": None, "linear positions": "linear"}
EPS = 1e-12
BATCH = 100
CHUNK = {"desk": 8, "paper": 40}
"""Nets trained in one stack: a CPU thread gains nothing beyond eight, a GPU takes all at once."""
LONG_ROWS = 40
"""Prefixes of 400 to 500 brackets on which length generalisation is asked."""
TEST_ROWS = 500
SENTENCES = 40
SENTENCE = 19
"""Brackets of the sentences on which the layers of deeper nets are compared (Table 2.6)."""


@dataclass(frozen=True)
class World:
    """What is trained on."""

    data: str = "words"
    types: int = 2
    depth: int = 4

    @property
    def law(self) -> DyckWords | DyckPrefixes:
        if one_of("data", self.data, ("words", "prefixes")) == "words":
            return DyckWords(types=self.types, depth=self.depth, longest=26)
        return DyckPrefixes(types=self.types, depth=self.depth, length=28)

    @property
    def prefixes(self) -> DyckPrefixes:
        return DyckPrefixes(types=self.types, depth=self.depth)


@dataclass(frozen=True)
class Minimal:
    """A table of symbols under one trained layer; `contrast` weighs the balance regulariser."""

    world: World = World()
    embedding: str = "E1"
    form: str = "theory"
    width: int = 50
    lr: float = 1e-2
    contrast: float = 0.0
    steps: int = 600

    def recipe(self) -> Recipe:
        size: dict[str, Any] = dict(types=self.world.types, depth=self.world.depth)
        model = theory.minimal_first_layer(
            **size, embedding=self.embedding, form=self.form, width=self.width, hidden=self.width, eps=EPS
        )
        objective = NextBracket(reads="symbols", contrast=self.contrast, **size)
        return _recipe(model, self.world, objective, self.lr, self.steps)


@dataclass(frozen=True)
class Deep:
    """A Transformer that reads tokens: "pre" norms as in GPT, or "inner" ones, x + LN(f(x)), as in the theory."""

    world: World = World()
    layers: int = 2
    width: int = 50
    norm: str = "pre"
    positions: str | None = None
    attention: str = "softmax"
    lr: float = 3e-3
    steps: int = 1500

    def recipe(self) -> Recipe:
        model = Transformer(
            len(self.world.law.vocab),
            layers=self.layers,
            width=self.width,
            mlp=self.width,
            norm=self.norm,
            attention=self.attention,
            positions=self.positions,
            longest=600 if self.positions else None,
            causal=True,
            tied=False,
            outputs=2 * self.world.types,
            biases=True,
            head_bias=True,
            eps=EPS,
        )
        objective = NextBracket(types=self.world.types, depth=self.world.depth)
        return _recipe(model, self.world, objective, self.lr, self.steps)


Net = Minimal | Deep


def _recipe(model: Transformer, world: World, objective: NextBracket, lr: float, steps: int) -> Recipe:
    return Recipe(model, world.law, objective, steps, batch_size=BATCH, optimizer=Adam(lr), schedule=Cosine(0))


def train(lab: Lab, recipe: Recipe) -> Stack:
    """The recipe's models on the lab's seeds, in stacks of the size that suits the scale."""
    return lab.fit(replace(recipe, chunk=CHUNK.get(lab.scale, 8))).models


# -- measurements, one row per seed ----------------------------------------------------------------------------------


def _models(lab: Lab, net: Net) -> tuple[Stack, str]:
    return train(lab, net.recipe()), "symbols" if isinstance(net, Minimal) else "tokens"


def _rows(world: DyckWords | DyckPrefixes, count: int, purpose: str) -> Batch:
    """Rows to measure on, the same for all models: what differs between seeds is then the model alone."""
    return world.sample(count, torch.Generator().manual_seed(int.from_bytes(purpose.encode()[:7], "big")))


def accuracy(lab: Lab, net: Net) -> dict[str, np.ndarray]:
    """Share of brackets closed rightly: at trained lengths, and at 400 to 500 (also by the strict measure)."""
    models, reads = _models(lab, net)
    law, prefixes = net.world.law, net.world.prefixes
    test = _rows(law, TEST_ROWS, "test")
    far = probe.long_prefixes(prefixes, LONG_ROWS, torch.Generator().manual_seed(400))
    return {
        "near": probe.closing_accuracy(models, test, law, reads=reads).numpy(),
        "far": probe.closing_accuracy(models, far, prefixes, reads=reads).numpy(),
        "far strict": probe.closing_accuracy(models, far, prefixes, reads=reads, strict=0.8).numpy(),
    }


def balance(lab: Lab, net: Minimal) -> dict[str, np.ndarray]:
    """Balance violation in both conventions, bilinear residual, mean cosine of opener and closer values."""
    models, _ = _models(lab, net)
    size: dict[str, Any] = dict(types=net.world.types, depth=net.world.depth)
    layer = probe.tokenwise(models)
    return {
        "violation": probe.balance_violation(layer, **size).numpy(),
        "release": probe.balance_violation(layer, **size, convention="release").numpy(),
        "residual": probe.bilinear_residual(layer, **size).numpy(),
        "cosine": probe.antiparallelism(layer, **size).mean((-2, -1)).numpy(),
    }


def patterns(lab: Lab, net: Net, rows: str = "reference") -> dict[str, np.ndarray]:
    """Attention of every layer, by its number: on `[[[[]]]](((())))`, or on fixed random sentences or prefixes."""
    models, reads = _models(lab, net)
    world = net.world.prefixes
    x = world.reference[None]
    if rows != "reference":
        length = {"sentences": SENTENCE, "prefixes": world.length}[rows]
        x = _rows(DyckPrefixes(types=world.types, depth=world.depth, length=length), SENTENCES, rows).x
    layers = len(models.template.layers)  # pyright: ignore[reportArgumentType]
    found = {str(i): probe.patterns(models, x, world, layer=i, reads=reads) for i in range(layers)}
    return {name: seen[:, :, 0].float().numpy() for name, seen in found.items()}


def likeness(lab: Lab, net: Net) -> dict[str, np.ndarray]:
    """How much the last layer looks like a stack: attention to the last open bracket, and how often that is most."""
    models, reads = _models(lab, net)
    law = net.world.law
    layer = len(models.template.layers) - 1  # pyright: ignore[reportArgumentType]
    found = probe.stack_likeness(models, _rows(law, 200, "closers"), law, layer=layer, reads=reads)
    return {name: value[:, 0].numpy() for name, value in found._asdict().items()}


# -- statistics over models ------------------------------------------------------------------------------------------


def flat(patterns: np.ndarray) -> np.ndarray:
    """A vector per model, scaled so that squared distances are means over rows."""
    return patterns.reshape(len(patterns), -1) / patterns.shape[1] ** 0.5


def accurate(name: str, values: np.ndarray, least: float = ACCURATE) -> Check:
    """Most seeds close more than that share of brackets rightly."""
    return passing(name, values, above=least, at_least=MOST)


def baseline(world: World) -> float:
    """What independent random patterns on the reference prefix differ by."""
    return random_variation(len(world.prefixes.reference))
