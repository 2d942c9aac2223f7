"""Claims for a cluster: they write down what they compute, and kill their own process where a file says so."""

import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from sandtable.lab import Control, Evidence, Lab, Source, claim, exceeds
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import Recipe
from sandtable.worlds import TopicModel

WORLD = TopicModel(3, 2, length=(5, 8), present=1)
MODEL = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})


@dataclass(frozen=True)
class Settings:
    folder: str = "."
    least: float = -9.0


def die_once(folder: str, name: str) -> None:
    """SIGKILL for whoever is the first to find the file."""
    try:
        Path(folder, name).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def draws(lab: Lab, folder: str):
    begun = Path(folder, f"begun-{os.getpid()}")
    begun.write_text(" ".join(map(str, lab.seeds)))
    if 8 in lab.seeds:
        die_once(folder, "kill-measure")
    found = torch.stack([torch.randn(5, generator=lab.generator(seed, "draws")) for seed in lab.seeds])
    begun.rename(begun.with_name(f"done-{lab.seeds[0]}-{os.getpid()}"))
    return {"draws": found}


def loud(folder: str, params) -> torch.Tensor:
    die_once(folder, "kill-fit")
    return params["blocks.0.attn.W_V"].flatten(1).norm(dim=1)


SCALES = {"desk": Settings()}
SOURCE = Source("Toy & Toy", 2024, "theorem 2")


@claim(
    id="swarm/measured",
    statement="Draws are not too small.",
    source=SOURCE,
    scales=SCALES,
    controls=(Control("ask too much", {"least": 9.0}, ("draws",)),),
    seeds=20,
)
def measured(settings: Settings, lab: Lab) -> Evidence:
    found = lab.measure(draws, settings.folder)["draws"]
    return Evidence([exceeds("draws", found.mean(1), settings.least)])


@claim(
    id="swarm/trained",
    statement="Losses are not too small.",
    source=SOURCE,
    scales=SCALES,
    controls=(Control("ask too much", {"least": 9.0}, ("loss",)),),
    seeds=6,
)
def trained(settings: Settings, lab: Lab) -> Evidence:
    watch = {"size": partial(loud, settings.folder)}
    recipe = Recipe(MODEL, WORLD, MaskedLM(form="types"), steps=20, batch_size=4, chunk=3, watch=watch)
    return Evidence([exceeds("loss", lab.fit(recipe).losses[:, -1], settings.least)])
