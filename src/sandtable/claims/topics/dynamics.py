"""In which order a one-layer model learns, and how far the picture survives topics that share words."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sandtable.claims.topics import setting
from sandtable.lab import Control, Evidence, Lab, claim, exceeds, orders, passing
from sandtable.lab.figures import curves, strips
from sandtable.models import FanIn, Normal
from sandtable.objectives import MaskedLM
from sandtable.probes import topics as probe
from sandtable.training import SGD, Adam, Recipe

LEAST_STEP = 0.8
"""A step between kinds of pairs, in spreads of unrelated entries, counts where Cohen (1988) calls an effect large."""
NAMES = {key: f"blocks.0.attn.W_{key}" for key in "VKQ"}


@dataclass(frozen=True)
class TwoStage:
    steps: int = 1000
    optimizer: str = "SGD"
    lr: float = 30.0
    initial: str = "near zero"


@claim(
    id="topics/two-stage",
    statement=(
        "From near-zero initialisation on the squared loss, SGD grows the value matrix to nine tenths of its final "
        "norm before keys and queries have made a tenth of theirs; the value matrix keeps turning afterwards."
    ),
    source=setting.source("Figure 4 (thesis 2.4)"),
    scales={"desk": TwoStage(), "paper": TwoStage()},
    controls=(
        Control("default initialisation", {"initial": "default"}, ("values before keys", "values before queries")),
        Control(
            "plain Adam",
            {"optimizer": "Adam", "lr": 0.003},
            ("values before keys", "values before queries"),
        ),
        Control("a hundredth of the learning rate", {"lr": 0.3}, ("the value matrix still turns",)),
    ),
    seeds={"desk": 16, "paper": 16},
)
def two_stage(settings: TwoStage, lab: Lab) -> Evidence:
    law = setting.world()
    steps = settings.steps
    optimizer = SGD(settings.lr) if settings.optimizer == "SGD" else Adam(settings.lr)
    recipe = Recipe(
        setting.one_hot(law, initial=Normal(0.01) if settings.initial == "near zero" else FanIn()),
        law,
        MaskedLM(error="squared", form="types"),
        steps=steps,
        batch_size=40,
        optimizer=optimizer,
        watch={key: probe.norm_of(name) for key, name in NAMES.items()},
        watch_every=10,
        snapshots=(steps - 10, steps),
    )
    fit = lab.fit(recipe)
    at, norms = fit.watched_at, {key: value.double() for key, value in fit.watched.items()}
    ready = probe.time_to_fraction(norms["V"], at, 0.9)
    checks = [
        passing(
            f"values before {word}",
            (probe.time_to_fraction(norms[key], at, 0.1) - ready).nan_to_num(nan=-1.0, posinf=steps, neginf=-steps),
            above=0.0,
            at_least=0.6,
        )
        for key, word in (("K", "keys"), ("Q", "queries"))
    ]
    turned = probe.rotation(fit.snapshot(steps - 10)[NAMES["V"]], fit.snapshot(steps)[NAMES["V"]])
    checks.append(exceeds("the value matrix still turns", turned, 0.001))
    return Evidence(
        checks,
        figures={
            "norms": lambda: curves(
                at,
                {f"‖W_{key}‖": values.numpy() for key, values in norms.items()},
                xlabel="step",
                ylabel="Frobenius norm",
                title="Values first, then keys and queries",
            )
        },
    )


# -- topics that share words -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    overlap: float = 0.3
    steps: int = 2000
    labels: str = "true"


@claim(
    id="topics/overlap-robustness",
    statement=(
        "When each topic also uses three tenths of its neighbour's words, the value matrix still orders word pairs: "
        "same home topic above pairs that share a topic only through the borrowed words, above pairs that share none."
    ),
    source=setting.source("Section 2, remark on disjoint topics"),
    scales={"desk": Overlap(), "paper": Overlap(steps=10_000)},
    controls=(
        Control(
            "shuffled topic labels",
            {"labels": "shuffled"},
            tuple(f"{what}: {error}" for error in ("squared", "cross-entropy") for what in ("home over shared",
                  "shared over none", "contrast")),
        ),
        Control("topics without overlap", {"overlap": 0.0}, ("shared over none: squared",)),
    ),
    seeds={"desk": 8, "paper": 16},
)  # fmt: skip
def overlap_robustness(settings: Overlap, lab: Lab) -> Evidence:
    law = setting.world(overlap=settings.overlap)
    kinds = _pair_kinds(settings.labels)
    checks, groups = [], {}
    for error, optimizer in (("squared", SGD(1.0)), ("cross-entropy", Adam(0.01))):
        recipe = Recipe(
            setting.one_hot(law, attention="uniform", initial=Normal(1e-3)),
            law,
            MaskedLM(error=error, form="documents"),
            steps=settings.steps,
            batch_size=40,
            optimizer=optimizer,
        )
        matrices = probe.value_matrix(lab.fit(recipe).models).double()
        home, shared, none = (matrices[:, kind].mean(1).numpy() for kind in kinds)
        spread = matrices[:, kinds[2]].std(1).numpy()
        checks += [
            orders(f"home over shared: {error}", home / spread, shared / spread, margin=LEAST_STEP),
            orders(f"shared over none: {error}", shared / spread, none / spread, margin=LEAST_STEP),
            exceeds(f"contrast: {error}", (home - none) / spread, setting.CONTRAST),
        ]
        if error == "squared":
            groups = {"same home topic": home, "share borrowed words": shared, "share no topic": none}
    return Evidence(
        checks,
        figures={"entries": lambda: strips(groups, xlabel="mean entry of W^V", title="Topics that share words")},
    )


def _pair_kinds(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pairs of different words: same home topic, a topic in common only through borrowing, none in common."""
    law = setting.world(overlap=0.3)
    order = torch.arange(law.vocab_size)
    if kind == "shuffled":
        shuffled = torch.randperm(law.vocab_size - 1, generator=torch.Generator().manual_seed(0))
        order = torch.cat([order[:1], 1 + shuffled])
    topic = law.topic_of
    word = topic >= 0
    different = (word[:, None] & word[None, :]) & ~torch.eye(law.vocab_size, dtype=torch.bool)
    home = (topic[:, None] == topic[None, :]) & different
    shared = law.same_topic & different & ~home
    none = different & ~home & ~shared
    home, shared, none = (kind[order][:, order] for kind in (home, shared, none))
    return home, shared, none


CLAIMS = (two_stage, overlap_robustness)
