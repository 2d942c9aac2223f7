"""Nets trained on automata (Liu et al. 2023, section 4 and appendix B), and all that the claims measure on them.

GPT-like nets have pre-norm layers with biases, GELU and a linear head at every position; LSTMs PyTorch's layers. Arms
with the same seeds see the same data. Not stated in the paper and chosen here: a warm-up of `WARMUP` steps, then a
linear decay to a tenth of the learning rate; gradients clipped to norm 1; EMA after every step. `DESK` nets are small
enough for one CPU thread; `PAPER` nets have the published sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.arguments import one_of
from sandtable.claims.automata.tasks import task
from sandtable.lab import Lab
from sandtable.models import LSTM, Stack, Transformer
from sandtable.objectives import EveryState, RandomShift, RevealedStates, Scratchpad
from sandtable.probes import automata as probe
from sandtable.training import Adam, Fit, Linear, Recipe
from sandtable.worlds import Batch
from sandtable.worlds.automata import Automaton, Bernoulli, Counted

WARMUP = 100
CLIP = 1.0
EMA = 0.9
"""The published decay; 0.85 to 0.95 are said to be equivalent."""
SHIFT = 10
"""Training positions are shifted by up to so many lengths of a row: 400 for T = 40."""
FAR = 8
"""Longest rows, in lengths of a training row, that position vectors are made for."""
CHUNK = 8
ROWS = {"smoke": 100, "desk": 500, "paper": 2048}
LOOKS, LOOK_ROWS = 160, 64
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
        world, pad = self.world, one_of("supervision", self.supervision, SUPERVISION) == "scratchpad"
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
        )
        return _recipe(model, world, self)

    @property
    def objective(self) -> EveryState | RandomShift:
        if self.supervision == "scratchpad":
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


def _recipe(model: Transformer | LSTM, world: Automaton, net: Net) -> Recipe:
    # A scratchpad is not looked at in training: writing it takes as long as dozens of steps.
    look = None if _writes(net) else Look(model, world, probe.answers)
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
        chunk=CHUNK,
        watch={} if look is None else {"raw": look},
        watch_averaged={} if look is None else {"ema": look},
        watch_every=max(1, net.steps // LOOKS),
    )


@dataclass(frozen=True, eq=False)
class Look:
    """Accuracy of nets in training on rows that stay the same: a watch of `fit`."""

    model: Transformer | LSTM
    world: Automaton
    answer: probe.Answer

    @cached_property
    def batch(self) -> Batch:
        return self.world.sample(LOOK_ROWS, torch.Generator().manual_seed(0))

    def __call__(self, params: Mapping[str, Tensor]) -> Float[Tensor, " models"]:
        device = next(iter(params.values())).device
        said = self.answer(Stack(self.model, params).to(device), self.batch.x)
        return (said == self.batch.latents["label"]).double().mean((1, 2))


def train(lab: Lab, net: Net) -> Fit:
    return lab.fit(net.recipe())


def models(lab: Lab, net: Net) -> Stack:
    """The averaged weights, on the lab's device."""
    return train(lab, net).averaged.to(lab.device)


# -- measurements, one row per seed ----------------------------------------------------------------------------------


def _writes(net: Net) -> bool:
    return isinstance(net, GPT) and net.supervision == "scratchpad"


def _answer(net: Net) -> probe.Answer:
    return probe.write_states if _writes(net) else probe.answers


def accuracies(lab: Lab, net: Net, worlds: Sequence[Automaton]) -> dict[str, np.ndarray]:
    """Per seed and world, the accuracy over all positions, at the last position, and by position in the first world.

    "shuffled" is the first against the labels of another row. All nets are asked the same rows.
    """
    stack, rows = models(lab, net), ROWS[lab.scale]
    overall, last, first = [], [], {}
    for i, world in enumerate(worlds):
        batch = world.sample(rows, torch.Generator().manual_seed(i))
        said, label = _answer(net)(stack, batch.x), batch.latents["label"]
        right = (said == label).double()
        overall.append(right.mean((1, 2)))
        last.append(right[:, :, -1].mean(1))
        if i == 0:
            shuffled = (said == label.roll(1, 0)).double().mean((1, 2))
            first = {"by position": right.mean(1).numpy(), "shuffled": shuffled.numpy()}
    return {"overall": torch.stack(overall, 1).numpy(), "last": torch.stack(last, 1).numpy(), **first}


def in_distribution(lab: Lab, net: Net) -> dict[str, np.ndarray]:
    return accuracies(lab, net, [net.world])


def by_length(lab: Lab, net: Net, lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
    return accuracies(lab, net, [replace(net.world, length=length) for length in lengths])


def by_rate(lab: Lab, net: Net, rates: tuple[float, ...]) -> dict[str, np.ndarray]:
    """On bits that are 1 with each of these probabilities."""
    return accuracies(lab, net, [replace(net.world, law=Bernoulli(rate)) for rate in rates])


def by_count(lab: Lab, net: Net, counts: tuple[int, ...]) -> dict[str, np.ndarray]:
    """On bits with exactly so many ones."""
    return accuracies(lab, net, [replace(net.world, law=Counted(count)) for count in counts])


def by_pair(lab: Lab, net: Net) -> dict[str, np.ndarray]:
    """Accuracy on bits at every pair (position t, ones so far c), each asked on as many rows; NaN where c > t."""
    stack, rows, length = models(lab, net), ROWS[lab.scale] // 5, net.length
    found = torch.full((len(stack), length, length + 1), torch.nan, dtype=torch.float64)
    for t in range(1, length + 1):
        for c in range(t + 1):
            world = replace(net.world, length=t, law=Counted(c))
            batch = world.sample(rows, torch.Generator().manual_seed(t))
            right = _answer(net)(stack, batch.x)[..., -1] == batch.latents["label"][:, -1]
            found[:, t - 1, c] = right.double().mean(1)
    return {"accuracy": found.numpy()}


def curves(lab: Lab, net: Net) -> dict[str, np.ndarray]:
    """Accuracy over training, of the weights as they are ("raw") and of their moving averages ("ema")."""
    return {name: values.double().numpy() for name, values in train(lab, net).watched.items()}
