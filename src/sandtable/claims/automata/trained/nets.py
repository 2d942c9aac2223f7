"""Nets trained on automata (Liu et al. 2023, section 4 and appendix B).

GPT-like nets have pre-norm layers with biases, GELU and a linear head at every position; LSTMs PyTorch's layers. Arms
with the same seeds see the same data. Not stated in the paper and chosen here: a warm-up of `WARMUP` steps, then a
linear decay to a tenth of the learning rate; gradients clipped to norm 1; EMA after every step; linear positions
(i / T)·W for training rows of T tokens, W trained from N(0, 0.02²) as embeddings are. `DESK` nets are small
enough for one CPU thread; `PAPER` nets have the published sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import one_of
from sandtable.claims.automata.trained.tasks import task
from sandtable.lab import Lab
from sandtable.models import LSTM, Stack, Transformer
from sandtable.objectives import EveryState, RandomShift, RevealedStates, Scratchpad
from sandtable.probes import automata as probe
from sandtable.training import Adam, Fit, Linear, Recipe
from sandtable.worlds import Batch
from sandtable.worlds.automata import Automaton

WARMUP = 100
CLIP = 1.0
EMA = 0.9
"""The published decay; 0.85 to 0.95 are said to be equivalent."""
SHIFT = 10
"""Training positions are shifted by up to so many lengths of a row: 400 for T = 40."""
FAR = 8
"""Longest rows, in lengths of a training row, that position vectors are made for."""
CHUNK = {"desk": 8, "paper": 16}
"""Nets trained in one stack: a GPU takes more at once."""
LOOKS, LOOK_ROWS = 120, 64
"""How often a net is looked at in training, for curves, and on how many rows, always the same."""
SUPERVISION = ("states", "shifted", "scratchpad")


@dataclass(frozen=True)
class Size:
    """Widths and training of one family of nets."""

    width: int
    heads: int
    mlp: int
    batch: int
    lr: float
    weight_decay: float = 1e-4


DESK = Size(width=32, heads=4, mlp=64, batch=16, lr=2e-3)
QUICK = replace(DESK, lr=3e-3)
"""For what is learned without trouble."""
PAPER = Size(width=512, heads=8, mlp=512, batch=16, lr=1e-4)
DESK_LSTM = Size(width=16, heads=1, mlp=32, batch=32, lr=1e-2, weight_decay=1e-9)
PAPER_LSTM = Size(width=64, heads=1, mlp=128, batch=64, lr=3e-3, weight_decay=1e-9)


@dataclass(frozen=True)
class GPT:
    """A GPT-like net on one task. `supervision`: "states" at every position, "shifted" the same with random shifts of
    positions, "scratchpad" states written between tokens; `reveal`: the share of labels that is known."""

    task: str = "C2"
    length: int = 14
    layers: int = 2
    size: Size = DESK
    steps: int = 4500
    positions: str | None = "sinusoidal"
    supervision: str = "states"
    reveal: float = 1.0

    @property
    def world(self) -> Automaton:
        return task(self.task, self.length)

    def recipe(self) -> Recipe:
        one_of("supervision", self.supervision, SUPERVISION)
        world, pad = self.world, self.writes
        longest = None if self.positions in (None, "alibi") else (FAR * (1 + pad) + SHIFT) * self.length
        model = Transformer(
            world.n_tokens + (world.n_states if pad else 0),
            layers=self.layers,
            heads=self.size.heads,
            width=self.size.width,
            mlp=self.size.mlp,
            norm="pre",
            causal=True,
            tied=False,
            outputs=world.n_states if pad else world.n_labels,
            biases=True,
            head_bias=True,
            positions=self.positions,
            longest=longest,
            position_unit=self.length if self.positions == "linear" else None,
        )
        return _recipe(model, world, self)

    @property
    def sequences(self) -> int:
        """Rows seen in training."""
        return self.steps * self.size.batch

    @property
    def writes(self) -> bool:
        return self.supervision == "scratchpad"

    @property
    def objective(self) -> EveryState | RandomShift:
        if self.writes:
            return Scratchpad(tokens=self.world.n_tokens)
        plain = EveryState() if self.reveal == 1.0 else RevealedStates(reveal=self.reveal)
        return RandomShift(plain, SHIFT * self.length) if self.supervision == "shifted" else plain


@dataclass(frozen=True)
class Recurrent:
    """An LSTM on one task; `size.width` is that of the embedding, `size.mlp` that of the state."""

    task: str = "C2"
    length: int = 14
    size: Size = DESK_LSTM
    steps: int = 300
    reveal: float = 1.0

    @property
    def world(self) -> Automaton:
        return task(self.task, self.length)

    def recipe(self) -> Recipe:
        world = self.world
        model = LSTM(world.n_tokens, width=self.size.width, hidden=self.size.mlp, outputs=world.n_labels)
        return _recipe(model, world, self)

    @property
    def objective(self) -> EveryState:
        return EveryState() if self.reveal == 1.0 else RevealedStates(reveal=self.reveal)


Net = GPT | Recurrent


@dataclass(frozen=True)
class Family:
    """GPTs, scratchpads and LSTMs of one size on one task."""

    task: str = "C2"
    length: int = 20
    layers: int = 2
    size: Size = QUICK
    steps: int = 6000
    lstm: Size = DESK_LSTM
    lstm_steps: int = 300
    pad_steps: int = 1000

    @property
    def gpt(self) -> GPT:
        return GPT(self.task, length=self.length, layers=self.layers, size=self.size, steps=self.steps)

    @property
    def shifted(self) -> GPT:
        return replace(self.gpt, supervision="shifted")

    @property
    def unplaced(self) -> GPT:
        """Without positions."""
        return replace(self.gpt, positions=None)

    @property
    def pad(self) -> GPT:
        """States written between tokens; the bias towards what is near takes the place of position vectors."""
        return replace(self.plain_pad, positions="alibi")

    @property
    def plain_pad(self) -> GPT:
        return replace(self.gpt, supervision="scratchpad", steps=self.pad_steps)

    @property
    def recurrent(self) -> Recurrent:
        return Recurrent(self.task, length=self.length, size=self.lstm, steps=self.lstm_steps)


PARITY = Family()
BRACKETS = Family("DYCK", length=14, steps=1500, lstm_steps=1500)
PAPER_PARITY = Family(
    length=40, layers=8, size=PAPER, steps=37_500, lstm=PAPER_LSTM, lstm_steps=10_000, pad_steps=10_000
)
PAPER_BRACKETS = replace(PAPER_PARITY, task="DYCK")


def _recipe(model: Transformer | LSTM, world: Automaton, net: Net) -> Recipe:
    # Only what answers in one pass and has a curve worth seeing: a scratchpad takes as long to write as dozens of
    # steps, and an LSTM is done after a few hundred.
    look = Look(model, world) if isinstance(net, GPT) and not net.writes else None
    return Recipe(
        model,
        world,
        net.objective,
        net.steps,
        batch_size=net.size.batch,
        optimizer=Adam(net.size.lr, weight_decay=net.size.weight_decay),
        schedule=Linear(WARMUP, 0.1),
        clip=CLIP,
        ema=EMA,
        watch={} if look is None else {"raw": look},
        watch_averaged={} if look is None else {"ema": look},
        watch_every=max(1, net.steps // LOOKS),
    )


@dataclass(frozen=True, eq=False)
class Look:
    """Accuracy of nets in training on rows that stay the same: a watch of `fit`."""

    model: Transformer | LSTM
    world: Automaton

    @cached_property
    def batch(self) -> Batch:
        return self.world.sample(LOOK_ROWS, torch.Generator().manual_seed(0))

    def __call__(self, params: Mapping[str, Tensor]) -> Float[Tensor, " models"]:
        device = next(iter(params.values())).device
        said = probe.answers(Stack(self.model, params).to(device), self.batch.x)
        return (said == self.batch.latents["label"]).double().mean((1, 2))


def train(lab: Lab, net: Net) -> Fit:
    return lab.fit(replace(net.recipe(), chunk=CHUNK.get(lab.scale, 8)))


def models(lab: Lab, net: Net) -> Stack:
    """The averaged weights, on the lab's device."""
    return train(lab, net).averaged.to(lab.device)
