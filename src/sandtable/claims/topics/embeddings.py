"""Trained embeddings: topics in the dot products, and what it costs to learn nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sandtable.claims.topics import setting
from sandtable.lab import Control, Evidence, Lab, agrees, below, claim, exceeds, orders
from sandtable.lab.figures import strips
from sandtable.models import Transformer
from sandtable.objectives import MaskedLM
from sandtable.probes import topics as probe
from sandtable.theory import topics as theory
from sandtable.training import SGD, Adam, Optimizer, Recipe

WIDTH = 100
_BLOCK_CHECKS = tuple(
    f"{what}: {arm}"
    for arm in ("squared, SGD", "cross-entropy, SGD", "cross-entropy, Adam")
    for what in ("five standard errors", "gap")
)


@dataclass(frozen=True)
class Everything:
    adam_steps: int = 1500
    squared_sgd_steps: int = 3000
    entropy_sgd_steps: int = 4000
    labels: str = "true"


def everything(error: str, optimizer: Optimizer, *, steps: int) -> Recipe:
    """Embedding, values, keys and queries all trained."""
    law = setting.world()
    return Recipe(
        setting.with_embedding(law, width=WIDTH),
        law,
        MaskedLM(error=error, form="types"),
        steps=steps,
        batch_size=40,
        optimizer=optimizer,
    )


def _recipes(settings: Everything) -> dict[str, Recipe]:
    return {
        "squared, SGD": everything("squared", SGD(0.1), steps=settings.squared_sgd_steps),
        "squared, Adam": everything("squared", Adam(0.01), steps=settings.adam_steps),
        "cross-entropy, SGD": everything("cross-entropy", SGD(0.1), steps=settings.entropy_sgd_steps),
        "cross-entropy, Adam": everything("cross-entropy", Adam(0.01), steps=settings.adam_steps),
    }


@claim(
    id="topics/embeddings-joint",
    statement=(
        "With everything trained, embeddings of different words of one topic have larger dot products than those of "
        "different topics; the squared loss with Adam tends to the diagonal special case instead."
    ),
    source=setting.source("Figure 1 (thesis 2.1)"),
    scales={"desk": Everything(), "paper": Everything(6000, 12_000, 16_000)},
    controls=(
        Control("shuffled topic labels", {"labels": "shuffled"}, _BLOCK_CHECKS),
        Control(
            "untrained model",
            {"adam_steps": 0, "squared_sgd_steps": 0, "entropy_sgd_steps": 0},
            (*(name for name in _BLOCK_CHECKS if name.startswith("gap")), "diagonal: squared, Adam"),
        ),
    ),
    seeds={"desk": 8, "paper": 16},
)
def embeddings_joint(settings: Everything, lab: Lab) -> Evidence:
    law = setting.world()
    fits = {name: lab.fit(recipe) for name, recipe in _recipes(settings).items()}
    topics = setting.labels(law, settings.labels)
    found = {name: probe.blocks(probe.gram(fit.models), law, topics) for name, fit in fits.items()}
    words, inside = law.topics * law.words, law.words - 1
    pairs = 1 / (words * inside) + 1 / (words * (words - law.words))
    checks = []
    for name, blocks in found.items():
        if name == "squared, Adam":
            # It tends to the diagonal member of the optimal family: a word's own product stands out, more than twice
            # the WIDTH · 0.05² that it starts from.
            own = (blocks.diagonal - 5 * blocks.different.abs()).numpy()
            checks.append(exceeds("diagonal: squared, Adam", own, 2 * WIDTH * setting.EMBEDDING_STD**2))
            continue
        error = blocks.different_std * np.sqrt(pairs)
        score = ((blocks.same_other - blocks.different) / error).numpy()
        checks.append(exceeds(f"five standard errors: {name}", score, 5.0))
        checks.append(exceeds(f"gap: {name}", blocks.gap.numpy(), 0.1 if name.startswith("squared") else 1.0))
    panels = {name: probe.gram(fit.models)[0] for name, fit in fits.items()}
    return Evidence(
        checks,
        figures={"embedding products": lambda: setting.matrices(law, panels, "W_Eᵀ W_E, everything trained")},
        tables={"gap": setting.arm_rows(lab, {n: b.gap.numpy() for n, b in found.items()})},
    )


# -- the embedding alone ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alone:
    steps: int = 1500
    alone_steps: int | None = None
    labels: str = "true"


def embedding_alone(error: str, optimizer: Optimizer, *, steps: int) -> Recipe:
    """Uniform attention, identity values, the theorem's bias: only the embedding is trained."""
    law = setting.world()
    model = Transformer(
        law.vocab,
        width=WIDTH,
        attention="uniform",
        output=False,
        residual=False,
        head_bias=True,
        initial=setting.with_embedding(law, width=WIDTH).config["initial"],
    )
    model.set("blocks.0.attn.W_V", torch.eye(WIDTH)[None], freeze=True)
    model.set("unembed.b_U", theory.prediction_bias(law, setting.MASKING), freeze=True)
    objective = MaskedLM(error=error, form="documents")
    return Recipe(model, law, objective, steps=steps, batch_size=40, optimizer=optimizer)


@claim(
    id="topics/embedding-only-costs-little",
    statement=(
        "Training the embedding alone, with uniform attention and identity values, gives the block pattern with the "
        "predicted gap and, after 1500 steps, costs less than 5 % of the loss of training everything."
    ),
    source=setting.source("Section 3, remark on freezing all but the embedding"),
    scales={"desk": Alone(), "paper": Alone()},
    controls=(
        Control(
            "embedding left untrained",
            {"alone_steps": 0},
            ("relative cost: squared", "relative cost: cross-entropy", "gap: squared, SGD", "gap: squared, Adam"),
        ),
        Control("shuffled topic labels", {"labels": "shuffled"}, ("gap: squared, SGD", "gap: squared, Adam")),
    ),
    seeds={"desk": 8, "paper": 16},
)
def embedding_only_costs_little(settings: Alone, lab: Lab) -> Evidence:
    law = setting.world()
    steps = settings.steps if settings.alone_steps is None else settings.alone_steps
    topics = setting.labels(law, settings.labels)
    predicted = theory.constants(law, setting.MASKING).c3 / law.words
    checks, losses = [], {}
    for error in ("squared", "cross-entropy"):
        alone = lab.measure(setting.fresh_loss, embedding_alone(error, Adam(0.01), steps=steps))["loss"]
        full = lab.measure(setting.fresh_loss, everything(error, Adam(0.01), steps=settings.steps))["loss"]
        losses |= {f"{error}, embedding only": alone, f"{error}, everything": full}
        checks.append(below(f"relative cost: {error}", (alone - full) / full, 0.05))
    for name, optimizer in (("SGD", SGD(1.0)), ("Adam", Adam(0.01))):
        fit = lab.fit(embedding_alone("squared", optimizer, steps=steps))
        gap = probe.blocks(probe.gram(fit.models), law, topics).gap.numpy()
        checks.append(agrees(f"gap: squared, {name}", gap, predicted, relative=0.1))
    return Evidence(
        checks,
        figures={"losses": lambda: strips(losses, xlabel="loss on fresh documents", title="The embedding alone")},
        tables={"losses": setting.arm_rows(lab, losses)},
    )


# -- frozen attention ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrozenAttention:
    steps: int = 2000
    frozen_steps: int | None = None
    joint_steps: int | None = None


@claim(
    id="topics/frozen-attention-costs-little",
    statement=(
        "At equal short training, keeping attention uniform costs something, but less than 0.15 nats of cross-entropy, "
        "against training attention as well."
    ),
    source=setting.source("Section 4, remark on freezing attention"),
    scales={"desk": FrozenAttention()},
    controls=(
        Control("frozen model barely trained", {"frozen_steps": 200}, ("costs less than 0.15",)),
        Control("joint model barely trained", {"joint_steps": 200}, ("costs something",)),
    ),
    seeds=8,
)
def frozen_attention_costs_little(settings: FrozenAttention, lab: Lab) -> Evidence:
    law = setting.world()
    arms = {
        "values only": ("uniform", "documents", settings.frozen_steps),
        "values, keys and queries": ("softmax", "types", settings.joint_steps),
    }
    losses = {}
    for name, (attention, form, steps) in arms.items():
        recipe = Recipe(
            setting.one_hot(law, attention=attention),
            law,
            MaskedLM(form=form),
            steps=settings.steps if steps is None else steps,
            batch_size=40,
            optimizer=Adam(0.01),
        )
        losses[name] = lab.measure(setting.fresh_loss, recipe)["loss"]
    frozen, joint = losses.values()
    return Evidence(
        [
            orders("costs something", frozen, joint),
            below("costs less than 0.15", frozen - joint, 0.15),
        ],
        figures={"losses": lambda: strips(losses, xlabel="cross-entropy on fresh documents", title="Frozen attention")},
        tables={"losses": setting.arm_rows(lab, losses)},
    )


CLAIMS = (embeddings_joint, embedding_only_costs_little, frozen_attention_costs_little)
