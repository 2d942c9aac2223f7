"""The embedding without training noise: its optima at every width, the diagonal one, and the tied output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.func import functional_call

from sandtable.claims.topics import setting
from sandtable.inputs import Documents
from sandtable.lab import Control, Evidence, Lab, bounded, claim, exact
from sandtable.lab.figures import curves
from sandtable.models import Transformer
from sandtable.objectives import MaskedLM
from sandtable.theory import topics as theory
from sandtable.worlds import BertMasking, TopicModel

SMALL = TopicModel(topics=4, words=3, present=2)
WORLDS = tuple(
    TopicModel(topics=topics, words=words, present=present)
    for topics, words in ((2, 4), (4, 3), (6, 2))
    for present in range(1, topics)
)
"""Small worlds with every number of present topics for which documents differ."""

MASKINGS = (setting.MASKING, BertMasking(0.3, 0.2, 0.05), BertMasking(0.45, 0.02, 0.4))


@dataclass(frozen=True)
class Widths:
    world: TopicModel = SMALL
    widths: tuple[int, ...] = tuple(range(1, 14))
    wider: int = 0
    labels: str = "true"


@claim(
    id="topics/embedding-optimum",
    statement=(
        "Trained alone, an embedding of width d leaves the excess loss max(T − d, 0)·s and, from d = T on, sums of E "
        "over a word's own topic exceed those over any other by c₃."
    ),
    source=setting.source("Theorem 1 (thesis 2.1.1); width in closed form"),
    scales={"smoke": Widths(widths=(1, 2, 3, 4, 5, 13)), "desk": Widths()},
    controls=(
        Control("prediction for one width more", {"wider": 1}, ("excess loss",)),
        Control("shuffled topic labels", {"labels": "shuffled"}, ("own minus other topic",)),
    ),
    seeds={"smoke": 2, "desk": 6},
)
def embedding_optimum(settings: Widths, lab: Lab) -> Evidence:
    world, widths = settings.world, np.array(settings.widths)
    found = lab.measure(optimal_grams, world, setting.MASKING, settings.widths)
    best = found["excess"].argmin(0)
    excess = found["excess"].min(0)
    predicted = [theory.embedding_excess(world, width=int(d) + settings.wider) for d in widths]
    grams = found["gram"][best, np.arange(len(widths))][widths >= world.topics]
    member = np.eye(world.topics)[setting.labels(world, settings.labels)[1:].numpy()]
    sums = grams[:, 1:, 1:] @ member
    own = (sums * member).sum(-1, keepdims=True)
    gaps = (own - sums)[:, member == 0]
    return Evidence(
        [
            exact("excess loss", excess, predicted, atol=1e-8, unit="width"),
            exact("own minus other topic", gaps, theory.constants(world, setting.MASKING).c3, atol=1e-6, unit="sum"),
        ],
        figures={
            "excess against width": lambda: curves(
                widths,
                {"best of all starts": excess},
                predictions={"best of all starts": predicted},
                xlabel="width of the embedding",
                ylabel="excess loss",
                title="Width T suffices and is necessary",
            )
        },
        notes=["Each seed is one random start of L-BFGS; the best start of every width counts."],
    )


def optimal_grams(lab: Lab, world: TopicModel, masking: BertMasking, widths: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Excess loss and Gram matrix after minimising the exact loss over the embedding, for every seed and width."""
    objective = MaskedLM(masking.select, masking.keep, masking.random, error="squared", form="documents")
    example = objective.expect(world.infinite())
    excess, grams = [], []
    for seed in lab.seeds:
        for width in widths:
            model = embedding_model(world, masking, width=width)
            params = {name: value.detach() for name, value in model.named_parameters()}

            def loss(flat: np.ndarray, model: Any = model, params: Any = params) -> tuple[float, np.ndarray]:
                table = torch.from_numpy(flat).view(model.size, model.width).requires_grad_()

                def apply(params: Any, inputs: Any) -> Any:
                    return functional_call(model, params, (inputs,))

                value, _ = objective.loss(apply, {**params, "embed.W_E": table}, example)
                value.backward()
                assert table.grad is not None
                return value.item(), table.grad.numpy().ravel()

            start = (
                0.3 * torch.randn(world.vocab_size * width, generator=lab.generator(seed, f"width {width}")).double()
            )
            options = {"maxiter": 4000, "maxfun": 8000, "ftol": 0.0, "gtol": 1e-11, "maxcor": 30}
            found = minimize(loss, start.double().numpy(), jac=True, method="L-BFGS-B", options=options)
            excess.append(found.fun - theory.optimal_loss(world))
            table = found.x.reshape(world.vocab_size, width)
            grams.append(table @ table.T)
    shape = (len(lab.seeds), len(widths))
    return {"excess": np.reshape(excess, shape), "gram": np.reshape(grams, (*shape, world.vocab_size, -1))}


def embedding_model(world: TopicModel, masking: BertMasking, *, width: int) -> Transformer:
    """Theorem 1's network: only the embedding is free; W^V = I, uniform attention, tied head, its bias given."""
    model = Transformer(
        world.vocab,
        width=width,
        attention="uniform",
        output=False,
        residual=False,
        head_bias=True,
    ).double()
    model.set("unembed.b_U", theory.prediction_bias(world, masking), freeze=True)
    return model.set("blocks.0.attn.W_V", torch.eye(width).double()[None], freeze=True)


@dataclass(frozen=True)
class Diagonal:
    gram: str = "diagonal"
    bias: str = "words"


@claim(
    id="topics/embedding-diagonal-optimal",
    statement="E = c₃ diag(0, 1, …, 1) is optimal, with the bias −p_m p_r/(aTv) on words and none on [MASK].",
    source=setting.source("Theorem 1 (thesis 2.1.1), [MASK] entries corrected"),
    scales={"smoke": Diagonal(), "desk": Diagonal()},
    controls=(
        Control("c₃ for [MASK] too", {"gram": "identity"}, ("excess loss",)),
        Control("bias on [MASK] too", {"bias": "every output"}, ("excess loss",)),
    ),
)
def embedding_diagonal_optimal(settings: Diagonal, lab: Lab) -> Evidence:
    grams = {"diagonal": theory.diagonal_embedding_gram, "identity": theory.printed.embedding_gram_with_mask}
    biases = {"words": theory.prediction_bias, "every output": theory.printed.bias_for_every_output}
    excess = []
    for world in WORLDS:
        for masking in MASKINGS:
            gram, bias = grams[settings.gram](world, masking), biases[settings.bias](world, masking)
            loss = theory.embedding_loss(world, masking, gram, bias=bias)
            excess.append(abs(float(loss) - theory.optimal_loss(world)))
    return Evidence([bounded("excess loss", excess, 1e-12, unit="setting")])


@dataclass(frozen=True)
class Tied:
    transposed: bool = True


@claim(
    id="topics/tied-output",
    statement="A network whose head is tied to its embedding computes f = W_Eᵀ W^V W_E p̃ under uniform attention.",
    source=setting.source("Equation 6, transpose restored"),
    scales={"smoke": Tied(), "desk": Tied()},
    controls=(Control("no transpose", {"transposed": False}, ("output of the network",)),),
)
def tied_output(settings: Tied, lab: Lab) -> Evidence:
    # As wide as the vocabulary, or the product without the transpose would not exist at all.
    model = Transformer(SMALL.vocab, width=SMALL.vocab_size, attention="uniform", output=False, residual=False).double()
    model.initialise(lab.generator(lab.seeds[0], "weights"), 10.0)
    params = {name: value.detach() for name, value in model.named_parameters()}
    shown = theory.visible_distribution(SMALL, setting.MASKING)
    embedding, value = params["embed.W_E"].mT, params["blocks.0.attn.W_V"][0].mT
    head = embedding.mT if settings.transposed else embedding
    predicted = shown @ (head @ value @ embedding).mT
    with torch.no_grad():
        measured = model(Documents(shown))
    return Evidence([bounded("output of the network", (measured - predicted).abs(), 1e-12, unit="entry")])


CLAIMS = (embedding_optimum, embedding_diagonal_optimal, tied_output)
