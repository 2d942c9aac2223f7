"""What the claims measure on trained nets, one row per seed. Answers are those of the averaged weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from sandtable.claims.automata.trained.nets import GPT, Net, models, train
from sandtable.lab import Lab
from sandtable.probes import automata as probe
from sandtable.worlds.automata import Automaton, Bernoulli, Counted

ROWS = {"desk": 500, "paper": 2048}
"""Sequences in an evaluation: the paper's number, and fewer."""


def _answer(net: Net) -> probe.Answer:
    return probe.write_states if isinstance(net, GPT) and net.writes else probe.answers


def accuracies(lab: Lab, net: Net, worlds: Sequence[Automaton]) -> dict[str, np.ndarray]:
    """Per seed and world, the accuracy over all positions, at the last position, and of whole rows, right at all
    positions; and by position in the first world.

    "shuffled" is the first against the labels of another row. All nets are asked the same rows.
    """
    stack, rows = models(lab, net), ROWS[lab.scale]
    overall, last, whole, first = [], [], [], {}
    for i, world in enumerate(worlds):
        batch = world.sample(rows, torch.Generator().manual_seed(i))
        said, label = _answer(net)(stack, batch.x), batch.latents["label"]
        right = (said == label).double()
        whole.append(probe.accuracy_of_rows(said == label))
        overall.append(right.mean((1, 2)))
        last.append(right[:, :, -1].mean(1))
        if i == 0:
            shuffled = (said == label.roll(1, 0)).double().mean((1, 2))
            first = {"by position": right.mean(1).numpy(), "shuffled": shuffled.numpy()}
    stacked = {"overall": overall, "last": last, "rows": whole}
    return {name: torch.stack(values, 1).numpy() for name, values in stacked.items()} | first


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


def attention(lab: Lab, net: GPT, walls: tuple[int, int]) -> dict[str, np.ndarray]:
    """Per seed and head: how flat the first layer attends, and how much the last attends to where the walls were.

    "wall" is the attention of the last layer to the latest visit of the left or of the right wall, whichever is more,
    over that to a random position so far; "before" the attention to what lies before the latest visit of either.
    "other wall" and "other before" are the same for the visits of another row, "row" and "visits" one row's attention
    in the last layer and where it was at a wall, for figures.
    """
    stack, batch = models(lab, net), net.world.sample(ROWS[lab.scale] // 5, torch.Generator().manual_seed(0))
    states = batch.latents["state"]
    first, last = (probe.patterns(stack, batch.x, layer=layer) for layer in (0, net.layers - 1))
    found = {"flat": probe.entropy_ratio(first), "flat last": probe.entropy_ratio(last)}
    for name, seen in (("", states), ("other ", states.roll(1, 0))):
        visits = [probe.latest(seen, [wall]) for wall in walls]
        over = [probe.mass_on(last, at) / probe.random_mass(at) for at in visits]
        found[f"{name}wall"] = torch.maximum(*over)
        found[f"{name}before"] = probe.mass_before(last, probe.latest(seen, walls))
    found["row"] = last[:, 0]
    found["visits"] = states[0].expand(len(stack), -1)
    return {name: values.numpy() for name, values in found.items()}
