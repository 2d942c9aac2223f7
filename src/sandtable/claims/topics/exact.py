"""Value matrices without training noise: masking, all optimal maps, the one that is picked, gradients at the start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from sandtable.claims.topics import exact_embedding, setting
from sandtable.claims.topics.exact_embedding import MASKINGS, SMALL, WORLDS
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exact, law
from sandtable.lab.figures import curves, heatmaps
from sandtable.models import Normal
from sandtable.objectives import MaskedLM
from sandtable.probes import topics as probe
from sandtable.theory import topics as theory
from sandtable.training import SGD, Recipe
from sandtable.worlds import BertMasking, TopicModel

PUBLISHED = TopicModel(topics=10, words=10, present=3)
"""The published size, with exactly three topics a document."""

LONG = TopicModel(topics=6, words=2, length=200, present=2)


# -- masking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Masked:
    world: TopicModel = LONG
    documents: int = 20_000
    predicted_random: bool = True


@claim(
    id="topics/masking-probabilities",
    statement=(
        "A masked document shows each word of a present topic with probability p₁ = a/(vτ) + p_m p_r/(vT), each other "
        "word with p₂ = p_m p_r/(vT) and [MASK] with p_m(1 − p_c − p_r), which sum to one."
    ),
    source=setting.source("Proposition 2.1.1 of the thesis"),
    scales={"smoke": Masked(documents=8000), "desk": Masked()},
    controls=(Control("no random words predicted", {"predicted_random": False}, ("shown words", "sum to one")),),
    seeds={"smoke": 1, "desk": 4},
)
def masking_probabilities(settings: Masked, lab: Lab) -> Evidence:
    counts = lab.measure(shown_words, settings.world, setting.MASKING, settings.documents)["counts"].sum(0)
    keep = settings.predicted_random
    predicted = shown_shares(settings.world, setting.MASKING, random_words=keep)
    sums = [shown_shares(world, masking, random_words=keep).sum() for world in WORLDS for masking in MASKINGS]
    return Evidence(
        [
            law("shown words", counts, predicted / predicted.sum(), within=0.003, unit="word"),
            exact("sum to one", sums, 1.0, atol=1e-12, unit="setting"),
        ],
        tables={
            "frequencies": Table(
                ["token", "measured", "predicted"],
                [
                    ["[MASK]" if i == 0 else f"word {i}", counts[i] / counts.sum(), p]
                    for i, p in enumerate(predicted.tolist())
                ],
            )
        },
        notes=["Topics are renumbered in every document so that its present ones come first."],
    )


def shown_shares(world: TopicModel, masking: BertMasking, *, random_words: bool) -> np.ndarray:
    """p_mask, then p₁ for the words of the present topics and p₂ for the rest, or both without random words."""
    c = theory.constants(world, masking)
    assert world.present is not None
    shares = np.full(world.vocab_size, c.p2)
    shares[1 : 1 + world.present * world.words] = c.p1
    shares -= 0.0 if random_words else c.p2
    shares[0] = c.p_mask
    return shares


def shown_words(lab: Lab, world: TopicModel, masking: BertMasking, documents: int) -> dict[str, np.ndarray]:
    """How often each token is seen in masked documents, topics renumbered so that the present ones come first."""
    objective = MaskedLM(masking.select, masking.keep, masking.random)
    rows = []
    for seed in lab.seeds:
        batch = world.sample(documents, lab.generator(seed, "documents"))
        shown = objective.draw(batch, lab.generator(seed, "masks"), 0)["inputs"].ids
        rank = batch.latents["shares"].argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        topic = world.topic_of[shown].clamp_min(0)
        renumbered = shown + (rank.gather(1, topic) - topic) * world.words
        rows.append(torch.where(shown == 0, shown, renumbered).flatten().bincount(minlength=world.vocab_size))
    return {"counts": torch.stack(rows).numpy()}


# -- the family of optimal maps --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    members: int = 20
    off: float = 0.0
    moved: str = "topic sum"
    documents: int | None = None
    rank: str = "T"


@claim(
    id="topics/optimal-maps",
    statement=(
        "Under uniform attention every map with the topic sums and [MASK] column of Lemma 1 attains the least squared "
        "loss 1 − 1/(τv), a map with one topic sum off by δ pays δ²E p̃², and each row has V − T free dimensions."
    ),
    source=setting.source("Lemma 1 (thesis 2.1.4)"),
    scales={"smoke": Family(), "desk": Family(members=100)},
    controls=(
        Control("one topic sum off by 0.1", {"off": 0.1}, ("members are optimal",)),
        Control("weight moved inside a topic", {"moved": "inside"}, ("perturbed maps pay",)),
        Control("one document only", {"documents": 1}, ("free dimensions of a row",)),
    ),
)
def optimal_maps(settings: Family, lab: Lab) -> Evidence:
    excess, costs, predicted, free, expected = [], [], [], [], []
    generator = lab.generator(lab.seeds[0], "members")
    for world in WORLDS:
        floor, shown = theory.optimal_loss(world), theory.visible_distribution(world, setting.MASKING)
        members = torch.stack(
            [theory.random_optimal_map(world, setting.MASKING, generator=generator) for _ in range(settings.members)]
        )
        members[:, 1, 1] += settings.off
        excess.append(theory.population_loss(world, setting.MASKING, members) - floor)
        moved = members.clone()
        moved[:, 1, 1] += 0.1 - settings.off
        moved[:, 1, 2] -= 0.1 * (settings.moved == "inside")
        costs.append(theory.population_loss(world, setting.MASKING, moved) - floor)
        predicted.append(0.01 * float(shown[:, 1].square().mean()) * torch.ones(settings.members))
        rank = int(torch.linalg.matrix_rank(shown[: settings.documents], rtol=1e-10))
        free.append(world.vocab_size - rank)
        expected.append(world.vocab_size - (world.topics if settings.rank == "T" else theory.printed.HESSIAN_RANK))
    return Evidence(
        [
            bounded("members are optimal", torch.cat(excess).abs(), 1e-12, unit="map"),
            exact("perturbed maps pay", torch.cat(costs), torch.cat(predicted), atol=1e-10, unit="map"),
            exact("free dimensions of a row", free, expected, unit="world"),
        ]
    )


# -- the one that L2 picks -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ridge:
    strengths: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
    masking: BertMasking = setting.MASKING
    keys: str = "all"
    penalty: str = "squared"


REFERENCE = {
    PUBLISHED: (0.0541908, -0.00758671, 0.108020, 3.53271),
    SMALL: (0.126689, -0.0189179, 0.366439, 2.25061),
}
"""[MASK] column, different topic, same topic and Frobenius norm at masking (0.15, 0.1, 0.1), to six digits."""


@claim(
    id="topics/value-matrix-limit",
    statement=(
        "As the L2 strength goes to zero the optimal value matrix tends to the unique matrix of Theorem 2, whose "
        "same-topic entries exceed different-topic ones by c₃/v; at every finite strength it has a closed form."
    ),
    source=setting.source("Theorem 2 (thesis 2.1.2)"),
    scales={"smoke": Ridge(), "desk": Ridge()},
    controls=(
        Control(
            "prediction with selected keys hidden",
            {"keys": "unselected"},
            ("ridge at 1e-8", "least-norm limit", "finite strengths"),
        ),
        Control("twice the masking", {"masking": BertMasking(0.3, 0.1, 0.1)}, ("reference numbers",)),
    ),
)
def value_matrix_limit(settings: Ridge, lab: Lab) -> Evidence:
    masking, keys = settings.masking, settings.keys
    nearly, limits, finite, entries = [], [], [], []
    gaps: dict[str, list[float]] = {"measured": [], "predicted": []}
    for world in REFERENCE:
        predicted, limit = theory.value_matrix_limit(world, masking, keys=keys), theory.numerical_ridge(world, masking)
        limits.append((limit - predicted).abs().max())
        nearly.append((theory.numerical_ridge(world, masking, l2=1e-8) - predicted).abs().max())
        for strength in settings.strengths:
            found = theory.numerical_ridge(world, masking, l2=strength)
            closed = _closed(world, settings, strength)
            finite.append((found - closed).abs().max())
            if world == SMALL:
                gaps["measured"].append(float(found[1, 2] - found[1, -1]))
                gaps["predicted"].append(float(closed[1, 2] - closed[1, -1]))
        entries.append([*(float(limit[place]) for place in ((1, 0), (1, -1), (1, 2))), float(limit.norm())])
    panels = {f"L2 {s:g}": theory.numerical_ridge(SMALL, masking, l2=s).numpy() for s in (1e-1, 1e-2, 1e-4)}
    panels["Theorem 2"] = theory.value_matrix_limit(SMALL, masking).numpy()
    return Evidence(
        [
            bounded("ridge at 1e-8", nearly, 1e-5, unit="world"),
            bounded("least-norm limit", limits, 1e-10, unit="world"),
            bounded("finite strengths", finite, 1e-9, unit="setting"),
            exact("reference numbers", entries, list(REFERENCE.values()), rtol=1e-5, unit="entry"),
        ],
        figures={
            "gap": lambda: curves(
                settings.strengths,
                {"same − different topic": gaps["measured"]},
                predictions={"same − different topic": gaps["predicted"]},
                xlabel="L2 strength",
                ylabel="gap",
                title="Less L2, nearer to c₃/v",
                log_x=True,
            ),
            "value matrices": lambda: heatmaps(panels, title="Optimal value matrices, [MASK] first"),
        },
    )


def _closed(world: TopicModel, settings: Ridge, strength: float) -> Tensor:
    if settings.penalty == "squared":
        return theory.ridge_value_matrix(world, settings.masking, l2=strength, keys=settings.keys)
    return theory.printed.unsquared_ridge_value_matrix(world, settings.masking, l2=strength)


# -- the same one without L2 -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    world: TopicModel = PUBLISHED
    lr: float = 40.0
    steps: int = 400
    first_start: float = 0.0
    remembers: bool = True


@claim(
    id="topics/implicit-bias",
    statement=(
        "Gradient descent from zero without any L2 ends at the matrix of Theorem 2; from a random start it ends there "
        "plus what the start had in the null space of the data."
    ),
    source=setting.source("Theorem 2 (thesis 2.1.2), without its penalty"),
    scales={"smoke": Descent(world=SMALL, lr=10.0, steps=120), "desk": Descent()},
    controls=(
        Control("random start in place of zero", {"first_start": 0.1}, ("from zero",)),
        Control("prediction that forgets the start", {"remembers": False}, ("from a random start",)),
    ),
    seeds={"smoke": 1, "desk": 3},
)
def implicit_bias(settings: Descent, lab: Lab) -> Evidence:
    world = settings.world
    limit = theory.value_matrix_limit(world, setting.MASKING)
    _, zero = _descend(settings, lab, settings.first_start)
    starts, ends = _descend(settings, lab, 0.1)
    predicted = torch.stack(
        [theory.stage_one_matrix(world, setting.MASKING, step=None, lr=settings.lr, start=start) for start in starts]
    )
    if not settings.remembers:
        predicted = limit.expand_as(predicted)
    panels = {
        "from zero": zero[0],
        "Theorem 2": limit,
        "from a random start": ends[0],
        "predicted from there": predicted[0],
    }
    return Evidence(
        [
            bounded("from zero", (zero - limit).abs(), 1e-9, unit="entry"),
            bounded("from a random start", (ends - predicted).abs(), 1e-9, unit="entry"),
        ],
        figures={"where descent ends": lambda: setting.matrices(world, panels, "Gradient descent without L2")},
    )


def _descend(settings: Descent, lab: Lab, std: float) -> tuple[Tensor, Tensor]:
    """Value matrices before and after gradient descent on the exact expectation over documents."""
    recipe = Recipe(
        setting.one_hot(settings.world, attention="uniform", initial=Normal(std)),
        settings.world.infinite(),
        MaskedLM(error="squared", form="documents"),
        steps=settings.steps,
        optimizer=SGD(settings.lr),
        snapshots=(0,),
        chunk=1,
        dtype="float64",
    )
    fit = lab.fit(recipe)
    return probe.value_matrix(fit.snapshot(0)), probe.value_matrix(fit.models)


# -- gradients at the start ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    sigmas: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1)
    documents: int = 40
    scaled: tuple[str, ...] = ("*",)
    output: bool = False


@claim(
    id="topics/gradient-scale-at-init",
    statement=(
        "With all matrices started at scale σ, the gradients of keys and queries shrink as σ² while that of the "
        "values does not shrink at all: values learn first."
    ),
    source=setting.source("Section 4, two-stage optimisation; exponents in closed form"),
    scales={"smoke": Gradients(), "desk": Gradients()},
    controls=(
        Control("keys and queries at scale one", {"scaled": ("*.W_V",)}, ("keys", "queries")),
        Control("an output matrix at scale σ too", {"output": True}, ("keys", "queries", "values")),
    ),
    seeds={"smoke": 8, "desk": 16},
)
def gradient_scale_at_init(settings: Gradients, lab: Lab) -> Evidence:
    found = lab.measure(gradient_norms, settings)
    log_sigma = np.log(settings.sigmas) - np.mean(np.log(settings.sigmas))
    slopes = {name: np.log(norms) @ log_sigma / (log_sigma @ log_sigma) for name, norms in found.items()}
    middle = len(settings.sigmas) // 2
    ratio = np.array(settings.sigmas) / settings.sigmas[middle]
    powers = {"keys": 2.0, "queries": 2.0, "values": 0.0}
    return Evidence(
        [
            agrees("keys", slopes["keys"], 2.0, within=0.1),
            agrees("queries", slopes["queries"], 2.0, within=0.1),
            agrees("values", slopes["values"], 0.0, within=0.1, shift_absolute=0.5),
        ],
        figures={
            "gradient norms": lambda: curves(
                settings.sigmas,
                found,
                predictions={name: found[name][:, middle].mean() * ratio**power for name, power in powers.items()},
                xlabel="scale σ of the initial weights",
                ylabel="norm of the gradient",
                title="Gradients at the start",
                log_x=True,
                log_y=True,
            )
        },
    )


def gradient_norms(lab: Lab, settings: Gradients) -> dict[str, np.ndarray]:
    """Norms of the cross-entropy gradients at weights σ·N(0, 1), one row per seed, one column per σ."""
    world, objective = setting.world(), MaskedLM(form="types")
    model = setting.one_hot(world, initial=Normal(1.0)).replace(output=settings.output)
    names = {"keys": "blocks.0.attn.W_K", "queries": "blocks.0.attn.W_Q", "values": "blocks.0.attn.W_V"}
    norms = {name: np.zeros((len(lab.seeds), len(settings.sigmas))) for name in names}
    for row, seed in enumerate(lab.seeds):
        batch = world.sample(settings.documents, lab.generator(seed, "documents"))
        example = objective.draw(batch, lab.generator(seed, "masks"), 0)
        model.initialise(lab.generator(seed, "weights"))
        unit = {name: value.detach() for name, value in model.named_parameters()}
        for column, sigma in enumerate(settings.sigmas):
            scaled = model.matching(*settings.scaled)
            params = {n: (value * sigma if n in scaled else value).requires_grad_() for n, value in unit.items()}
            value, _ = objective.loss(lambda params, inputs: functional_call(model, params, (inputs,)), params, example)
            found = torch.autograd.grad(value, [params[name] for name in names.values()])
            for name, gradient in zip(names, found, strict=True):
                norms[name][row, column] = float(gradient.norm())
    return norms


CLAIMS = (
    masking_probabilities,
    optimal_maps,
    value_matrix_limit,
    implicit_bias,
    gradient_scale_at_init,
    *exact_embedding.CLAIMS,
)
