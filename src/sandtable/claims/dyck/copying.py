"""Copying brackets needs no attention; heads that look as if they meant something are there all the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sandtable.claims.dyck.nets import BATCH, MOST, SEEDS, World, accurate, train
from sandtable.claims.dyck.setting import wen
from sandtable.lab import Control, Evidence, Lab, Table, claim, passing
from sandtable.lab.figures import heatmaps
from sandtable.models import Normal, Transformer
from sandtable.objectives import Copying
from sandtable.probes import dyck as probe
from sandtable.training import Adam, Cosine, Recipe

LAW = World().law
COPIES = 0.96
KEPT = 0.02
"""Loss of copying accuracy below which a head counts as not needed."""
STRIKING = 2.0
"""Attention to a class of brackets over its frequency, or its inverse, from which a head looks as if it meant it."""
CLASSES = ("openers", "closers", *LAW.vocab.tokens[: LAW.bos], "start", "current")
NAMED = len(CLASSES) - 2
"""Classes of brackets; the start and the current position come after them."""
TEST_ROWS = 200


@dataclass(frozen=True)
class Heads:
    layers: int = 4
    heads: int = 2
    width: int = 48
    initial: float = 0.2
    steps: int = 300
    lr: float = 3e-3
    looked_at: tuple[int, ...] = (1, 2, 3)


def recipe(layers: int, heads: int, width: int, initial: float, steps: int, lr: float) -> Recipe:
    model = Transformer(
        LAW.vocab,
        layers=layers,
        heads=heads,
        width=width,
        mlp=width,
        norm="pre",
        tied=False,
        biases=True,
        head_bias=True,
        initial={"*.W_*": Normal(initial)},
    )
    return Recipe(model, LAW, Copying(), steps, batch_size=BATCH, optimizer=Adam(lr), schedule=Cosine(0))


def copied(
    lab: Lab, layers: int, heads: int, width: int, initial: float, steps: int, lr: float
) -> dict[str, np.ndarray]:
    """Accuracy; per (layer, head), attention over frequency of every class, and the cost of uniform attention."""
    models = train(lab, recipe(layers, heads, width, initial, steps, lr))
    batch = LAW.sample(TEST_ROWS, torch.Generator().manual_seed(0))
    accuracy = probe.copying_accuracy(models, batch, LAW)
    deviation, cost = [], []
    for layer in range(layers):
        mass = probe.class_mass(models, batch, LAW, layer=layer)
        deviation.append(mass.deviation[..., [mass.index(name) for name in CLASSES]])
        edits = [probe.ablate("uniform", models, batch, LAW, layer=layer, head=head) for head in range(heads)]
        cost.append(torch.stack([accuracy - probe.copying_accuracy(models, batch, LAW, edits=e) for e in edits], 1))
    return {
        "accuracy": accuracy.numpy(),
        "deviation": torch.stack(deviation, dim=1).numpy(),
        "cost": torch.stack(cost, dim=1).numpy(),
    }


def _strength(found: dict[str, np.ndarray]) -> np.ndarray:
    """How far each head is, at most, from attending to a kind of bracket as often as it comes: a factor ≥ 1."""
    return np.exp(np.abs(np.log(np.maximum(found["deviation"][..., :NAMED], 1e-9)))).max(-1)


@claim(
    id="dyck/copying-heads",
    statement=(
        "Transformers trained to copy brackets, from initial weights of standard deviation 0.2, have heads that single "
        "out, or avoid, a kind of bracket (twice its frequency, or half of it) although they are not needed: with "
        "uniform attention in their place copying loses less than two points."
    ),
    source=wen("Figures 2.19–2.21"),
    scales={"desk": Heads(), "paper": Heads(steps=1000)},
    controls=(
        Control("untrained", {"steps": 0}, ("accuracy, four layers", "accuracy, one layer", "striking and not needed")),
        Control("first layers, which are needed", {"looked_at": (0,)}, ("striking and not needed",)),
        Control("small initial weights", {"initial": 0.02}, ("striking and not needed",)),
    ),
    seeds=SEEDS,
)
def copying(settings: Heads, lab: Lab) -> Evidence:
    how = (settings.width, settings.initial, settings.steps, settings.lr)
    deep = lab.measure(copied, settings.layers, settings.heads, *how)
    single = lab.measure(copied, 1, 1, *how)
    looked = list(settings.looked_at)
    strength = _strength(deep)
    copies = deep["accuracy"] > COPIES
    striking = np.where((deep["cost"] < KEPT) & copies[:, None, None], strength, 0.0)[:, looked].max((1, 2))
    rows = []
    for found, name in ((deep, f"{settings.layers} layers"), (single, "one layer")):
        strong = _strength(found)
        for layer, head in np.ndindex(*strong.shape[1:]):
            parts = found["deviation"][:, layer, head]
            rows.append(
                [
                    name,
                    layer + 1,
                    head + 1,
                    float(found["cost"][:, layer, head].mean()),
                    float((strong[:, layer, head] > STRIKING).mean()),
                    *(float(np.median(parts[:, place])) for place in (0, 1)),
                    float((parts[:, -1] > STRIKING).mean()),
                ]
            )
    return Evidence(
        [
            accurate("accuracy, four layers", deep["accuracy"], COPIES),
            accurate("accuracy, one layer", single["accuracy"], 0.9),
            passing("striking and not needed", striking, above=STRIKING, at_least=MOST),
        ],
        figures={
            "one model": lambda: heatmaps(
                {f"layer {i + 1}": np.log2(np.maximum(deep["deviation"][0, i], 1e-3)) for i in range(settings.layers)},
                limit=3.0,
                rows=[f"head {h + 1}" for h in range(settings.heads)],
                columns=["open", "close", *CLASSES[2:NAMED], "^", "own"],
                title="Whom the heads of a copying net attend to (log₂ of attention over frequency)",
            )
        },
        tables={
            "heads": Table(
                [
                    "net",
                    "layer",
                    "head",
                    "cost of uniform attention",
                    "striking in so many seeds",
                    "attention to openers over their frequency",
                    "to closers",
                    "own position ≥ 2×",
                ],
                rows,
            )
        },
        notes=[
            "Only nets that copy count. Their patterns are largely those of the initial weights: training to copy does "
            "not ask for any attention. From weights of 0.02, GPT's own, attention stays nearly uniform, and nothing "
            "strikes."
        ],
    )


CLAIMS = (copying,)
