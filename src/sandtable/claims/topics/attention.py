"""Trained attention: more of it within topics, and what a frozen value matrix makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sandtable.claims.topics import setting
from sandtable.claims.topics.values import joint_recipe
from sandtable.lab import Control, Evidence, Lab, Table, agrees, below, claim, exceeds, orders
from sandtable.lab.figures import comparison, strips
from sandtable.models import Normal
from sandtable.objectives import MaskedLM
from sandtable.probes import topics as probe
from sandtable.theory import topics as theory
from sandtable.training import SGD, Adam, Drops, Fit, Recipe, stream
from sandtable.worlds import TopicModel

RATES = (0.003, 0.01, 0.03)
LEAST_RATIO = 1.4
"""The smallest same-topic to different-topic ratio of the published table is 1.41."""
LEAST_GAMMA = 1.39
"""The smallest γ that follows from the published table."""


SHUFFLES = 8


def averages(fit: Fit, law: TopicModel, kind: str = "true", documents: int = 200) -> probe.AttentionAverages:
    """Average attention on the same unmasked documents for every model; shuffled labels are averaged over shuffles."""
    found = [
        probe.attention_averages(
            fit.models,
            law,
            stream("attention documents", 0),
            documents=documents,
            labels=setting.labels(law, kind, order=order),
        )
        for order in range(SHUFFLES if kind == "shuffled" else 1)
    ]

    def mean(what: str) -> Tensor:
        return torch.stack([getattr(a, what) for a in found]).mean(0)

    return probe.AttentionAverages(mean("same_word"), mean("same_topic"), mean("different_topic"), words=law.words)


def average_table(found: dict[str, probe.AttentionAverages]) -> Table:
    rows = [
        [name, *(float(v.mean()) for v in (a.same_word, a.same_topic, a.different_topic, a.alpha, a.beta, a.gamma))]
        for name, a in found.items()
    ]
    return Table(["setting", "same word", "same topic", "different topic", "α", "β", "γ"], rows)


# -- table 2.1 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    steps: int = 2000
    labels: str = "true"
    trained: bool = True
    sgd_rates: tuple[float, ...] = ()


@claim(
    id="topics/attention-trained",
    statement=(
        "Trained jointly with cross-entropy, attention to other words of the same topic is at least 1.4 times that to "
        "words of different topics, at every learning rate of the published table."
    ),
    source=setting.source("Table 3 (thesis 2.1)"),
    scales={"desk": Trained(), "paper": Trained(steps=10_000, sgd_rates=RATES)},
    controls=(
        Control(
            "untrained model",
            {"trained": False},
            tuple(f"{what}, Adam {rate}" for rate in RATES for what in ("ratio", "γ")),
        ),
        Control("shuffled topic labels", {"labels": "shuffled"}, tuple(f"ratio, Adam {rate}" for rate in RATES)),
    ),
    seeds={"desk": 8, "paper": 16},
)
def attention_trained(settings: Trained, lab: Lab) -> Evidence:
    law = setting.world()
    steps = settings.steps if settings.trained else 0
    checks, found = [], {}
    for rate in RATES:
        a = averages(lab.fit(joint_recipe("cross-entropy", Adam(rate), steps=steps)), law, settings.labels)
        found[f"Adam {rate}"] = a
        checks.append(exceeds(f"ratio, Adam {rate}", a.alpha.numpy(), LEAST_RATIO))
        checks.append(exceeds(f"γ, Adam {rate}", a.gamma.numpy(), LEAST_GAMMA))
    adam = dict(found)
    for rate in settings.sgd_rates:  # reported, not judged: the published runs at these rates partly failed
        recipe = replace(
            joint_recipe("cross-entropy", SGD(rate), steps=steps),
            model=setting.one_hot(law, embedding_norm=True).freeze("ln_embed.*"),
        )
        found[f"SGD {rate}, normalised input"] = averages(lab.fit(recipe), law, settings.labels)
    printed = {f"{row.optimizer.title()} {row.lr}": row for row in theory.printed.ATTENTION_TABLE}
    return Evidence(
        checks,
        figures={
            "ratios": lambda: strips(
                {name: a.alpha.numpy() for name, a in adam.items()},
                predictions={n: printed[n].same_topic / printed[n].different_topic for n in adam},
                xlabel="same topic / different topic (dashed: published)",
                title="Attention stays within topics",
            )
        },
        tables={"averages": average_table(found)},
    )


# -- the absolute values of table 2.1 --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Printed:
    steps: int = 2000
    labels: str = "shifted"
    trained: bool = True


PRINTED_WITHIN = 0.15
"""Twice the spread of the published same-topic averages over learning rates."""
PRINTED_SHIFT = 0.35
"""What must be told apart is the reading of the labels: true ones put the different-topic average 55 % lower."""


@claim(
    id="topics/attention-published-values",
    statement=(
        "The published same-topic and different-topic averages of attention appear when selected positions are hidden "
        "as keys and topic labels are shifted by the four special token ids; with true labels the ratio doubles."
    ),
    source=setting.source("Table 3 (thesis 2.1), read against the public code"),
    scales={"desk": Printed(), "paper": Printed(steps=10_000)},
    controls=(
        Control("true topic labels", {"labels": "true"}, ("different topic over published", "ratio")),
        Control("untrained model", {"trained": False}, ("same topic over published",)),
    ),
    seeds=16,
)
def attention_published_values(settings: Printed, lab: Lab) -> Evidence:
    law = setting.world()
    found, same, different, ratio = {}, [], [], []
    rows = {row.lr: row for row in theory.printed.ATTENTION_TABLE if row.optimizer == "adam"}
    for rate in RATES:
        recipe = Recipe(
            setting.one_hot(law),
            law,
            MaskedLM(form="types", hide_selected=True),
            steps=settings.steps if settings.trained else 0,
            batch_size=40,
            optimizer=Adam(rate),
        )
        fit = lab.fit(recipe)
        a = averages(fit, law, settings.labels)
        found |= {f"Adam {rate}, {settings.labels} labels": a, f"Adam {rate}, true labels": averages(fit, law)}
        same.append(a.same_topic.numpy() / rows[rate].same_topic)
        different.append(a.different_topic.numpy() / rows[rate].different_topic)
        ratio.append(a.alpha.numpy())
    # A seed's average over the three learning rates is one unit: rates of one seed share their data.
    checks = [
        agrees(f"{what} topic over published", np.mean(v, axis=0), 1.0, relative=PRINTED_WITHIN, shift=PRINTED_SHIFT)
        for what, v in (("same", same), ("different", different))
    ]
    checks.append(below("ratio", np.mean(ratio, axis=0), 2.0))
    return Evidence(
        checks,
        figures={
            "ratios": lambda: strips(
                {name: a.alpha.numpy() for name, a in found.items()},
                predictions={name: _printed_ratio(rows, name) for name in found},
                xlabel="same topic / different topic (dashed: published)",
                title="Which labels give the published table",
            )
        },
        tables={"averages": average_table(found)},
        notes=["The printed same-word column is not met under either reading: see the table and the published rows."],
    )


def _printed_ratio(rows: Mapping[float, Any], name: str) -> float:
    row = rows[float(name.split(",")[0].removeprefix("Adam "))]
    return row.same_topic / row.different_topic


# -- table 2.2: stage two with a frozen value matrix -----------------------------------------------------------------


@dataclass(frozen=True)
class StageTwo:
    steps: int = 3600
    diagonal_value: str = "diagonal"
    block_value: str = "block"
    trained: bool = True


def stage_two(law: TopicModel, value: str, steps: int) -> Recipe:
    """Keys and queries trained on the squared loss with the value matrix frozen at a stage-1 optimum."""
    weights = {"block": theory.value_matrix_limit, "diagonal": theory.diagonal_value_matrix}[value](
        law, setting.MASKING
    )
    model = setting.one_hot(law, initial=Normal(0.05)).set("blocks.0.attn.W_V", weights.T[None], freeze=True)
    return Recipe(
        model,
        law,
        MaskedLM(error="squared", form="types"),
        steps=steps,
        batch_size=60,
        optimizer=Adam(0.01),
        schedule=Drops((2 / 3,), by=0.2),
    )


@claim(
    id="topics/attention-frozen-stage-two",
    statement=(
        "With the value matrix frozen at its block optimum, trained attention has the predicted mean weight γ* on the "
        "topic; frozen at the diagonal optimum it moves to the word itself and away from its topic."
    ),
    source=setting.source("Table 2.2 of the thesis; Theorem 3 and thesis 2.1.5"),
    scales={"desk": StageTwo(), "paper": StageTwo(steps=14_400)},
    controls=(
        Control(
            "value matrices exchanged",
            {"diagonal_value": "block", "block_value": "diagonal"},
            (
                "diagonal: other topics over own topic",
                "block: γ as predicted",
                "block: topic over 2 × other topics",
            ),
        ),
        Control(
            "untrained keys and queries",
            {"trained": False},
            ("diagonal: word over 5 × other topics", "block: topic over 2 × other topics", "block: γ as predicted"),
        ),
    ),
    seeds={"desk": 8, "paper": 16},
)  # fmt: skip
def attention_frozen_stage_two(settings: StageTwo, lab: Lab) -> Evidence:
    steps = settings.steps if settings.trained else 0
    found = {}
    law = TopicModel(topics=10, words=10, length=(100, 150), present=3)
    predicted = theory.optimal_gamma(law, setting.MASKING, variant="exact")
    for name, value in (("diagonal", settings.diagonal_value), ("block", settings.block_value)):
        found[name] = averages(lab.fit(stage_two(law, value, steps)), law)
    diagonal, block = found["diagonal"], found["block"]
    checks = [
        exceeds("diagonal: word over 5 × other topics", diagonal.beta.numpy(), 5.0),
        orders("diagonal: other topics over own topic", diagonal.different_topic.numpy(), diagonal.same_topic.numpy()),
        exceeds("block: topic over 2 × other topics", block.alpha.numpy(), 2.0),
        agrees("block: γ as predicted", block.gamma.numpy(), predicted.alpha, relative=0.1),
    ]
    rows = [
        (f"{name}: {what}", float(v.mean()), float(v.min()), float(v.max()), None)
        for name, a in found.items()
        for what, v in (("same word", a.same_word), ("same topic", a.same_topic), ("other topic", a.different_topic))
    ]
    return Evidence(
        checks,
        figures={
            "attention": lambda: comparison(
                rows, xlabel="average attention (range over seeds)", title="Stage two", log_x=True
            )
        },
        tables={"averages": average_table(found)},
        notes=[
            "Published (diagonal regime): same word 0.0916, same topic 0.00185, different topic 0.00256.",
            "With the block optimum only γ is identified: in long runs α and β drift apart while γ stays.",
        ],
    )


# -- figure 2.10 -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Long:
    steps: int = 30_000
    l2: float = 1e-4


def long_recipe(steps: int, l2: float) -> Recipe:
    return joint_recipe("cross-entropy", Adam(0.03), steps=steps, l2=l2, l2_on=("blocks.0.attn.W_V",))


@claim(
    id="topics/diagonal-without-l2",
    statement=(
        "Trained long without L2, jointly trained value matrices leave the uniform blocks for a diagonal pattern "
        "(diagonal at least twice the rest of its block); with L2 on the value matrix they stay blocks."
    ),
    source=setting.source("Figure 2.10 of the thesis"),
    scales={"desk": Long(), "paper": Long()},
    controls=(
        Control("short training", {"steps": 1000}, ("diagonal without L2",)),
        Control("no L2 in either arm", {"l2": 0.0}, ("blocks with L2",)),
    ),
    seeds=16,
)
def diagonal_without_l2(settings: Long, lab: Lab) -> Evidence:
    law = setting.world()
    fits = {f"L2 {l2:g}": lab.fit(long_recipe(settings.steps, l2)) for l2 in (0.0, settings.l2)}
    free, held = (setting.value_blocks(fit, law, "true") for fit in (fits["L2 0"], fits[f"L2 {settings.l2:g}"]))
    offset_free = {
        f"{name}, without column offsets": _ratio(setting.value_blocks(fit, law, "true", centred=True))
        for name, fit in fits.items()
    }
    return Evidence(
        [
            exceeds("diagonal without L2", _ratio(free), 2.0),
            below("blocks with L2", _ratio(held), 1.5),
        ],
        figures={
            "diagonal over block": lambda: strips(
                {"without L2": _ratio(free), f"L2 {settings.l2:g}": _ratio(held)},
                predictions=2.0,
                xlabel="diagonal / rest of its block (dashed: diagonal)",
                title="Long training",
            )
        },
        tables={"diagonal over block": setting.arm_rows(lab, offset_free)},
        notes=[
            "Judged on the matrices as they are, which is what the published figure shows. Cross-entropy cannot see "
            "column offsets; without them the diagonal stands out less (see the table)."
        ],
    )


def _ratio(blocks: probe.Blocks) -> np.ndarray:
    return (blocks.diagonal / blocks.same_other).numpy()


CLAIMS = (attention_trained, attention_published_values, attention_frozen_stage_two, diagonal_without_l2)
