"""In which order the layers of a BERT learn on real text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sandtable.bridges import corpus as corpora
from sandtable.bridges.pretraining import bert_like
from sandtable.bridges.tokens import TextWorld, TokenCorpus, prepare_tokens
from sandtable.claims.real.setting import source
from sandtable.lab import Control, Evidence, Lab, Table, claim, exceeds, passing
from sandtable.lab.figures import curves
from sandtable.objectives import MaskedLM
from sandtable.probes.dynamics import rotations, watch_norms, watch_values
from sandtable.probes.topics import time_to_fraction
from sandtable.training import Adam, SingleRecipe

EVERY = 10
"""Steps between records, and the lag of the published rotation."""


@dataclass(frozen=True)
class TwoStage:
    corpus: str = "builtin"
    vocab: int = 4096
    layers: int = 4
    heads: int = 4
    width: int = 64
    length: int = 32
    batch: int = 16
    steps: int = 400
    lr: float = 1e-3
    eps: float = 1e-6
    near_zero: float | None = 1e-3


@claim(
    id="real/two-stage-multilayer",
    statement=(
        "Of a BERT of four layers with keys, queries and values near zero, trained on text by BERT's own Adam "
        "(ε = 1e-6), every layer's value matrix has made half of its growth at least ten steps before keys and queries "
        "have made a tenth of theirs, and it still turns at the end."
    ),
    source=source("Figure 5 (thesis 2.9)"),
    scales={"desk": TwoStage(), "paper": TwoStage(vocab=8192, width=256, length=128, batch=64)},
    controls=(
        Control("plain Adam (ε = 1e-8)", {"eps": 1e-8}, ("keys wait", "queries wait")),
        Control("BERT's own initialisation", {"near_zero": None}, ("keys wait",)),
        Control("a thousandth of the learning rate", {"lr": 1e-6}, ("values turn",)),
    ),
    seeds={"desk": 24, "paper": 24},
)
def two_stage_multilayer(settings: TwoStage, lab: Lab) -> Evidence:
    place = lab.folder(prepare_tokens, settings.corpus, corpora.stamp(settings.corpus), vocab=settings.vocab)
    world = TextWorld(TokenCorpus.open(place / "tokens"), length=settings.length)
    model = bert_like(
        world.vocab,
        layers=settings.layers,
        heads=settings.heads,
        width=settings.width,
        longest=settings.length,
        attention_scale=settings.near_zero,
        attentions=True,
    )
    recipe = SingleRecipe(
        model,
        world,
        MaskedLM(),
        settings.steps,
        batch_size=settings.batch,
        optimizer=Adam(settings.lr, eps=settings.eps),
        watch=watch_norms(model) | watch_values(model),
        watch_every=EVERY,
    )
    fit = lab.fit(recipe)
    at, watched, layers = fit.watched_at, fit.watched, range(settings.layers)
    norms = {kind: torch.stack([watched[f"{i}.W_{kind}"] for i in layers], 1).double() for kind in "KQV"}
    times = {
        kind: torch.stack([time_to_fraction(norms[kind][:, i], at, goal) for i in layers], 1).clamp(max=settings.steps)
        for kind, goal in (("V", 0.5), ("K", 0.1), ("Q", 0.1))
    }
    turns = torch.stack([rotations(watched[f"{i}.values"], at, lag=EVERY)[1] for i in layers], 1)
    gaps = {kind: (times[kind] - times["V"]).amin(1).numpy() for kind in "KQ"}
    checks = [
        passing("keys wait", gaps["K"], above=EVERY, at_least=0.6),
        passing("queries wait", gaps["Q"], above=EVERY, at_least=0.6),
        exceeds("values turn", turns[:, :, -1].amin(1).numpy(), 0.001),
    ]
    told = [times["V"], times["K"], times["Q"], turns[:, :, 0], turns[:, :, -1]]
    rows = [[i, *(float(values[:, i].mean()) for values in told)] for i in layers]
    columns = ["layer", "W_V half", "W_K a tenth", "W_Q a tenth", "first rotation", "last rotation"]
    share = {kind: (values / values.amax(2, keepdim=True)).mean(1).numpy() for kind, values in norms.items()}
    return Evidence(
        checks,
        figures={
            "norms": lambda: curves(
                at,
                {f"‖W_{kind}‖": np.asarray(values) for kind, values in share.items()},
                xlabel="step",
                ylabel="norm over its largest",
                title="Four layers on text: values first",
            ),
            "rotation": lambda: curves(
                at[1:],
                {f"layer {i}": turns[:, i].numpy() for i in layers},
                xlabel="step",
                ylabel="rotation of W_V over 10 steps",
                title="Values turn, pause, and turn again",
                log_y=True,
            ),
        },
        tables={"steps, mean over seeds": Table(columns, rows)},
    )


CLAIMS = (two_stage_multilayer,)
