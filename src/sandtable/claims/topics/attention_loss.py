"""The loss L(α, β) of topic-wise attention: its cases, its limits, and what its proof reaches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from sandtable.claims.topics import setting
from sandtable.lab import Control, Evidence, Lab, bounded, claim, exact
from sandtable.lab.figures import curves
from sandtable.models import Transformer
from sandtable.objectives import MaskedLM
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

VARIANTS = ("paper", "exact")
VALUES = ("block", "diagonal")
GRID = tuple(
    BertMasking(select, keep, keep) for select in (0.05, 0.15, 0.3, 0.45) for keep in (0.02, 0.1, 0.2, 0.4, 0.49)
)
"""Twenty masking laws that meet the theorems' assumption p_m < ½, 0 < p_c = p_r < ½."""

LARGEST = TopicModel(topics=10**9, words=12, present=30_000)
"""Limits are approached as 1/τ + τ/T: here to within one percent for every masking law of the grid."""

WORLDS = (TopicModel(4, 3, present=2), TopicModel(5, 2, present=1), TopicModel(3, 6, present=2))
MASKINGS = (setting.MASKING, BertMasking(0.3, 0.2, 0.05), BertMasking(0.45, 0.02, 0.4))


# -- the closed form and its limit -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClosedForm:
    points: int = 6
    enumerated: tuple[str, str] = VARIANTS
    network: str = "exact"


@claim(
    id="topics/attention-closed-form",
    statement=(
        "The case-by-case formulas of L(α, β) — block or diagonal value matrix, [MASK] keys left out or counted — "
        "equal the loss summed over all queries and words, and the last one that of a real network."
    ),
    source=setting.source("Propositions 2.1.2, 2.1.3 and the losses of Theorems 2.1.3, 2.1.5 of the thesis"),
    scales={"smoke": ClosedForm(), "desk": ClosedForm(points=25)},
    controls=(
        Control(
            "[MASK] keys the other way round",
            {"enumerated": ("exact", "paper"), "network": "paper"},
            tuple(f"{value}, {variant}" for value in VALUES for variant in (*VARIANTS, "network")),
        ),
    ),
)
def attention_closed_form(settings: ClosedForm, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "weights")
    deviations: dict[str, list[float]] = {}
    for world in WORLDS:
        for masking in MASKINGS:
            for weights in random_weights(settings.points, generator):
                for value in VALUES:
                    forms = {
                        variant: float(theory.attention_loss(world, masking, *weights, value=value, variant=variant))
                        for variant in VARIANTS
                    }
                    for variant, enumerated in zip(VARIANTS, settings.enumerated, strict=True):
                        found = theory.attention_loss_by_enumeration(
                            world, masking, *weights, value=value, variant=enumerated
                        )
                        deviations.setdefault(f"{value}, {variant}", []).append(abs(found / forms[variant] - 1))
                    measured = network_loss(world, masking, *weights, value=value)
                    deviations.setdefault(f"{value}, network", []).append(abs(measured / forms[settings.network] - 1))
    return Evidence([bounded(name, found, 1e-12, unit="setting") for name, found in deviations.items()])


def random_weights(points: int, generator: torch.Generator) -> list[tuple[float, float]]:
    """Pairs (α, β) spread over five decades."""
    drawn = torch.empty(points, 2, dtype=torch.float64).uniform_(-4, 8, generator=generator).exp()
    return [(float(alpha), float(beta)) for alpha, beta in drawn]


def network_loss(world: TopicModel, masking: BertMasking, alpha: float, beta: float, *, value: str) -> float:
    """Loss at selected positions that show a word, of a one-hot softmax network with these topic-wise weights."""
    objective = MaskedLM(masking.select, masking.keep, masking.random, error="squared", form="types")
    matrix = theory.diagonal_value_matrix if value == "diagonal" else theory.value_matrix_limit
    model = topic_wise_network(world, alpha, beta, matrix(world, masking))
    loss, _ = objective.loss(
        lambda params, inputs: functional_call(model, params, (inputs,)),
        dict(model.named_parameters()),
        objective.expect(world.infinite()),
    )
    return loss.item() - theory.masked_query_loss(world, masking)


def topic_wise_network(world: TopicModel, alpha: float, beta: float, value: Tensor) -> Transformer:
    """W^K = I and W^Q = √d·S, so that attention has weight β for the own word, α for its topic and 1 for the rest."""
    model = setting.one_hot(world).double()
    scores = theory.score_matrix(world, alpha, beta) * world.vocab_size**0.5
    model.set("blocks.0.attn.W_K", torch.eye(world.vocab_size).double()[None])
    model.set("blocks.0.attn.W_Q", scores.mT[None])
    return model.set("blocks.0.attn.W_V", value.mT[None])


@dataclass(frozen=True)
class Asymptotic:
    present: tuple[int, ...] = (100, 1000, 10_000)
    block: str = "corrected"
    absent: bool = True


@claim(
    id="topics/attention-asymptotic",
    statement=(
        "As T and τ grow with τ = o(T), L tends to p_c[(1−x)² + (v−1)x²] + p_r + p_r v y² for block and to its "
        "analogue for diagonal value matrices, uniformly in the weights, with error below 1/τ + τ/T."
    ),
    source=setting.source("Equations 2.26 to 2.29 (corrected) and 2.36 of the thesis"),
    scales={"smoke": Asymptotic(), "desk": Asymptotic()},
    controls=(
        Control("a factor v lost", {"block": "printed"}, ("block", "reference number")),
        Control("absent topics give nothing", {"absent": False}, ("diagonal",)),
    ),
)
def attention_asymptotic(settings: Asymptotic, lab: Lab) -> Evidence:
    weights, law = np.geomspace(1e-2, 1e12, 57), setting.MASKING
    block = (
        theory.asymptotic_block_loss
        if settings.block == "corrected"
        else theory.printed.asymptotic_block_loss_without_v
    )
    errors: dict[str, list[float]] = {"block": [], "diagonal": []}
    for tau in settings.present:
        world, slack = TopicModel(tau**2, 12, present=tau), 2.0 / tau
        full = theory.attention_loss(world, law, weights, weights)
        errors["block"].append(np.abs(block(world, law, weights) - full).max() / slack)
        pair = weights[:, None], weights[None, :]
        limit = theory.asymptotic_diagonal_loss(world, law, *pair)
        if not settings.absent:
            limit = limit - _absent_part(world, law, *pair)
        full = theory.attention_loss(world, law, *pair, value="diagonal")
        errors["diagonal"].append(np.abs(limit - full).max() / slack)
    far = TopicModel(10**8, 12, present=5000)
    numbers = [float(theory.attention_loss(far, law, 1e12, 1e12)), float(block(far, law, 1e12))]
    middle = TopicModel(10**6, 12, present=1000)
    lines = {"full formula": theory.attention_loss(middle, law, weights, weights)}
    return Evidence(
        [
            *(bounded(value, found, 1.0, unit="world") for value, found in errors.items()),
            exact("reference number", numbers, 0.2028776, atol=6e-8, unit="number"),
        ],
        figures={
            "loss": lambda: curves(
                weights,
                lines,
                predictions={
                    "corrected limit": theory.asymptotic_block_loss(middle, law, weights),
                    "printed limit": theory.printed.asymptotic_block_loss_without_v(middle, law, weights),
                },
                xlabel="mean weight γ inside the topic",
                ylabel="loss",
                title="Block value matrix, τ = 1000, T = 10⁶",
                log_x=True,
            )
        },
        notes=["Shown for block and diagonal is the largest error in units of 1/τ + τ/T."],
    )


def _absent_part(world: TopicModel, masking: BertMasking, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """What queries of absent topics add to the asymptotic loss of the diagonal value matrix."""
    c, v = theory.constants(world, masking), world.words
    share = c.c3 / (beta + (v - 1) * alpha + (c.a / c.noise + 1.0) * v * world.topics)
    return masking.random * share**2 * (beta**2 + (v - 1) * alpha**2)


# -- what the sources print otherwise --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    points: int = 6
    denominators: str = "own"


@claim(
    id="topics/attention-shares",
    statement=(
        "A query whose topic is present pays p₁β/z₁, p₁α/z₁, p₁/z₁ and p₂/z₁ to its own word, its topic, other "
        "present and absent topics; one whose topic is absent pays p₂β/z₂, p₂α/z₂, p₁/z₂ and p₂/z₂, its own mass in "
        "z₂ being p₂vγ."
    ),
    source=setting.source("Propositions 2.1.2 and 2.1.3 of the thesis"),
    scales={"smoke": Shares(), "desk": Shares(points=25)},
    controls=(
        Control("normalisers exchanged", {"denominators": "exchanged"}, ("topic of the query present", "topic absent")),
        Control("own mass p₁vγ in z₂", {"denominators": "printed"}, ("topic absent",)),
    ),
)
def attention_shares(settings: Shares, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "weights")
    present, absent = [], []
    for world in WORLDS:
        for masking in MASKINGS:
            for weights in random_weights(settings.points, generator):
                seen = theory.visible_distribution(world, masking)[0, 1:]
                mass = seen[:, None] * theory.score_matrix(world, *weights).exp()[1:, 1:]
                error = (mass / mass.sum(0) - predicted_shares(world, masking, *weights, settings.denominators)).abs()
                here = world.topic_of[1:] < (world.present or 0)
                present.append(error[:, here].max())
                absent.append(error[:, ~here].max())
    return Evidence(
        [
            bounded("topic of the query present", present, 1e-12, unit="setting"),
            bounded("topic absent", absent, 1e-12, unit="setting"),
        ]
    )


def predicted_shares(world: TopicModel, masking: BertMasking, alpha: float, beta: float, denominators: str) -> Tensor:
    """Attention from query j to word i, by cases, in a document of the first τ topics; [MASK] keys are left out."""
    c, tau, v = theory.constants(world, masking), world.present or 0, world.words
    gamma = float(theory.mean_weight(world, alpha, beta))
    z_present = v * (c.p1 * (gamma + tau - 1) + c.p2 * (c.topics - tau))
    z_absent = v * (c.p2 * (gamma + c.topics - tau - 1) + c.p1 * tau)
    if denominators == "exchanged":
        z_present, z_absent = z_absent, z_present
    elif denominators == "printed":
        z_absent = c.p2 * gamma / float(theory.printed.absent_topic_share_over_p1(world, masking, gamma))
    present = (world.topic_of[1:] < tau).double()
    word, total = (absent + (here - absent) * present for here, absent in ((c.p1, c.p2), (z_present, z_absent)))
    return word[:, None] * theory.score_matrix(world, alpha, beta).exp()[1:, 1:] / total


@dataclass(frozen=True)
class Flat:
    variant: str = "exact"
    weight: float = 1.0


@claim(
    id="topics/attention-uniform-reproduced",
    statement=(
        "With [MASK] keys counted, L at α = β = 1 is the loss of uniform attention, (p_c + p_r)(1 − 1/(τv)), for both "
        "value matrices."
    ),
    source=setting.source("Assumption 2 and the losses of Theorems 2.1.3, 2.1.5 of the thesis, [MASK] keys counted"),
    scales={"smoke": Flat(), "desk": Flat()},
    controls=(
        Control("[MASK] keys left out", {"variant": "paper"}, ("closed form",)),
        Control("α = β = 2", {"weight": 2.0}, ("closed form", "network")),
    ),
)
def attention_uniform_reproduced(settings: Flat, lab: Lab) -> Evidence:
    weights = settings.weight, settings.weight
    formulas, networks, uniform = [], [], []
    for world in WORLDS:
        for masking in MASKINGS:
            for value in VALUES:
                formulas.append(
                    float(theory.attention_loss(world, masking, *weights, value=value, variant=settings.variant))
                )
                networks.append(network_loss(world, masking, *weights, value=value))
                uniform.append((masking.keep + masking.random) * theory.optimal_loss(world))
    return Evidence(
        [
            exact("closed form", formulas, uniform, rtol=1e-12, unit="setting"),
            exact("network", networks, uniform, rtol=1e-12, unit="setting"),
        ]
    )


@dataclass(frozen=True)
class Normalised:
    over: str = "keys"
    alpha: float = 3.0
    beta: float = 8.0


@claim(
    id="topics/attention-normalised",
    statement=(
        "Attention is normalised over keys: the weights that a query pays sum to one, and a softmax network pays "
        "exactly those of its score table."
    ),
    source=setting.source("Definition of the model, softmax over columns"),
    scales={"smoke": Normalised(), "desk": Normalised()},
    controls=(Control("normalised over queries", {"over": "queries"}, ("weights of a query", "network")),),
)
def attention_normalised(settings: Normalised, lab: Lab) -> Evidence:
    world, weights = WORLDS[0], (settings.alpha, settings.beta)
    document = world.sample(1, lab.generator(lab.seeds[0], "document")).x
    scores = theory.score_matrix(world, *weights)[document[0]][:, document[0]]
    attention = scores.softmax(dim=0) if settings.over == "keys" else theory.printed.row_softmax(scores)
    model = topic_wise_network(world, *weights, torch.eye(world.vocab_size).double())
    with torch.no_grad():
        _, found = model(document, want=("blocks.0.attn.hook_pattern",))
    pattern = found["blocks.0.attn.hook_pattern"][0, 0].mT
    return Evidence(
        [
            exact("weights of a query", attention.sum(0), 1.0, atol=1e-12, unit="query"),
            bounded("network", (pattern - attention).abs(), 1e-12, unit="pair"),
        ]
    )


@dataclass(frozen=True)
class Proof:
    world: TopicModel = LARGEST
    constant: str = "proved"
    witness: str = "√(τT)"


@claim(
    id="topics/attention-proof-constant",
    statement=(
        "Up to γ = c₅(τ−1) the loss stays above p_c(1 − c₄(2−c₄)/(v(2+c₄)))² + p_r, which γ = √(τT) beats; so the "
        "proof of Theorem 3 reaches λ₁ = c₅ = (a + p_m p_r)(2a − 1)/(2a)."
    ),
    source=setting.source("Proof of Theorem 3 (thesis 2.1.3)"),
    scales={"smoke": Proof(), "desk": Proof()},
    controls=(
        Control("constant of the statement", {"constant": "stated"}, ("loss below the interval",)),
        Control("uniform attention as witness", {"witness": "1"}, ("witness",)),
    ),
)
def attention_proof_constant(settings: Proof, lab: Lab) -> Evidence:
    world, tau, v = settings.world, settings.world.present or 1, settings.world.words
    inside, beaten = [], []
    for masking in GRID:
        c4 = theory.constants(world, masking).c3
        landmark = masking.keep * (1 - c4 * (2 - c4) / (v * (2 + c4))) ** 2 + masking.random
        gammas = np.linspace(0.01, 1.0, 100) * getattr(theory.block_constants(masking), settings.constant) * (tau - 1)
        inside.append(landmark / theory.attention_loss(world, masking, gammas, gammas).min())
        gamma = (tau * world.topics) ** 0.5 if settings.witness == "√(τT)" else 1.0
        beaten.append(float(theory.attention_loss(world, masking, gamma, gamma)) / landmark)
    return Evidence(
        [
            bounded("loss below the interval", inside, 1.0, unit="masking law"),
            bounded("witness", beaten, 1.0, unit="masking law"),
        ],
        notes=["Shown are ratios of the landmark to the least loss, and of the witness to the landmark."],
    )


CLAIMS = (
    attention_closed_form,
    attention_asymptotic,
    attention_shares,
    attention_uniform_reproduced,
    attention_normalised,
    attention_proof_constant,
)
