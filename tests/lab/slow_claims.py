"""A claim whose training takes two seconds, however fast the machine is."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from sandtable.lab import Claim, Evidence, Source, bounded
from sandtable.models import Normal, Transformer
from sandtable.objectives import MaskedLM
from sandtable.training import Adam, Recipe
from sandtable.worlds import TopicModel

WORLD = TopicModel(2, 2, length=(3, 4), present=1)


@dataclass(frozen=True)
class Sleepy(MaskedLM):
    def loss(self, apply, params, example):
        Path(os.environ["SANDTABLE_HOME"], f"stepping-{os.getpid()}").touch()
        time.sleep(0.01)
        return super().loss(apply, params, example)


@dataclass(frozen=True)
class Settings:
    rate: float = 0.01
    steps: int = 200


def measure(settings, lab):
    model = Transformer(WORLD.vocab, embedding="one-hot", residual=False, initial={"*": Normal(0.3)})
    objective = Sleepy(form="types")
    recipe = Recipe(model, WORLD, objective, settings.steps, batch_size=2, optimizer=Adam(settings.rate), chunk=1)
    return Evidence([bounded("loss", lab.fit(recipe).losses[:, -1], 0.0)])


CLAIMS = tuple(
    Claim(
        id=f"slow/{name}",
        statement="Losses are at most zero.",
        source=Source("Toy & Toy", 2024, "theorem 2"),
        scales={"desk": Settings(rate)},
        measure=measure,
        expected="refuted",
        erratum="Losses are positive.",
        corrected="slow/first",
        seeds=1,
    )
    for name, rate in (("first", 0.01), ("second", 0.02))
)
