"""A masked model whose positions are predicted one by one: what it learns, and what it can never know of a block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sandtable.claims.gmlm.sources import li2024
from sandtable.decoding import MaskedNetwork, ModelBlocks
from sandtable.lab import Control, Evidence, Lab, Table, agrees, bounded, claim, exceeds, passing
from sandtable.lab.statistics import total_variation
from sandtable.models import Transformer
from sandtable.objectives import MaskedBlocks
from sandtable.theory.gmlm import chains
from sandtable.training import Adam, Cosine, Recipe
from sandtable.worlds import Blocks, CliqueIsing, FiniteLaw, Ising, MaskLaw, Mixture, UniformSize
from sandtable.worlds import Table as TableLaw
from sandtable.worlds.finite import places

NAMES = ("clique, three of four", "pairs that are coupled", "three words of a dialect")
NEAR = 0.02
ERROR = 0.01
TOGETHER = 0.05
"""Total variation within which a block that a trained model draws is the product of its marginals."""
MOST = 0.5
"""The share of models, at least, of which something is claimed: "most"."""


def _setting(name: str) -> tuple[FiniteLaw, MaskLaw]:
    """A small law and the blocks that are hidden."""
    if name == NAMES[0]:
        return CliqueIsing(4, 4, 0.5, 0.1), UniformSize(4, 3)
    if name == NAMES[1]:
        j = torch.full((4, 4), 0.1, dtype=torch.float64)
        j[0, 1] = j[1, 0] = j[2, 3] = j[3, 2] = 1.0
        return Ising((0.1, -0.1, 0.2, 0.0), tuple(map(tuple, j.fill_diagonal_(0.0).tolist()))), Blocks(
            4, ((0, 1), (2, 3))
        )
    agree = torch.zeros(3, 3, 3, dtype=torch.float64)
    agree[torch.arange(3), torch.arange(3), torch.arange(3)] = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    mixed = torch.full((3, 3, 3), 1 / 27, dtype=torch.float64)
    words = Mixture((TableLaw(agree.tolist()), TableLaw(mixed.tolist())), (0.6, 0.4))
    return words, UniformSize(3, 2)


def _recipe(name: str, steps: int, rate: float) -> Recipe:
    world, masks = _setting(name)
    network = Transformer(
        world.symbols + 1,
        width=16,
        heads=2,
        mlp=32,
        norm="pre",
        biases=True,
        positions="learned",
        longest=world.length,
        outputs=world.symbols,
        tied=False,
    )
    return Recipe(
        network,
        world.expectation,
        MaskedBlocks(masks, mask=world.symbols, symbols=world.symbols),
        steps=steps,
        optimizer=Adam(rate),
        schedule=Cosine(),
        dtype="float64",
    )


@dataclass(frozen=True)
class Heads:
    steps: int = 600
    untrained: bool = False
    rate: float = 1e-2
    times: float = 1.0
    drawn: int = 20_000
    against: Literal["product", "joint"] = "product"


@claim(
    id="gmlm/factorised-head",
    statement=(
        "A masked model with a softmax at every position learns the marginals p(x_i | x_−K): its cross-entropy exceeds "
        "that of the joint conditional by the total correlation of x_K given x_−K, and never by less. A block that it "
        "draws at once has the product law of these marginals, within 0.05 in total variation for most models."
    ),
    source=li2024("Proposition on parallel-decoding Transformers (T15), as a prediction for trained models"),
    scales={"desk": Heads()},
    controls=(
        Control(
            "untrained",
            {"untrained": True},
            tuple(f"{name}: {what}" for name in NAMES for what in ("excess loss", "marginals")),
        ),
        Control(
            "a tenth more total correlation",
            {"times": 1.1},
            tuple(f"{name}: {what}" for name in NAMES for what in ("excess loss", "never less")),
        ),
        Control(
            "blocks drawn against the joint law",
            {"against": "joint"},
            tuple(f"{name}: {what}" for name in NAMES for what in ("a block drawn at once", "not the joint law")),
        ),
    ),
    seeds=12,
)
def factorised_head(settings: Heads, lab: Lab) -> Evidence:
    checks, rows = [], []
    for name in NAMES:
        world, masks = _setting(name)
        found = lab.measure(_measured, name, 0 if settings.untrained else settings.steps, settings.rate, settings.drawn)
        wanted = settings.times * chains.expected_total_correlation(world, masks)
        block = _block(name)
        excess = found["loss"] - chains.conditional_entropy(world, masks)
        against = block.product if settings.against == "product" else block.joint
        checks += [
            agrees(f"{name}: excess loss", excess, wanted, relative=NEAR),
            bounded(f"{name}: never less", wanted - excess, 0.0, atol=1e-9, unit="model"),
            passing(f"{name}: marginals", found["marginals"], below=ERROR, at_least=MOST, unit="model"),
            passing(
                f"{name}: a block drawn at once",
                _apart(found["counts"], against),
                below=TOGETHER,
                at_least=MOST,
                unit="model",
            ),
            exceeds(
                f"{name}: not the joint law",
                [chains.tv(against, block.joint)],
                2 * TOGETHER,
                unit="law",
                deterministic=True,
            ),
        ]
        rows.append(
            [
                name,
                int(block.hidden.sum()),
                chains.conditional_entropy(world, masks),
                wanted,
                excess.mean(),
                excess.max(),
                found["marginals"].max(),
                _apart(found["counts"], against).max(),
            ]
        )
    return Evidence(
        checks,
        tables={
            "loss": Table(
                [
                    "law",
                    "hidden",
                    "joint conditional entropy",
                    "total correlation",
                    "excess loss",
                    "largest",
                    "error of a marginal, largest",
                    "block drawn at once, largest TV",
                ],
                rows,
            )
        },
        notes=[
            "The whole loss is exact, over all states and blocks. Marginals: the share of models whose largest error "
            "of a probability is below 0.01. Drawn at once: one block, from the state to the rest of which its "
            "positions are most correlated; the share of models whose draws are within 0.05 of the product."
        ],
    )


def _apart(counts: np.ndarray, law: Float[Tensor, " completion"]) -> np.ndarray:
    """Total variation of each model's draws from a law."""
    return np.array([total_variation(drawn, law.numpy()) for drawn in counts])


class Block(NamedTuple):
    """One block given a state of the rest, and its law: jointly, and as the product of its marginals."""

    state: Int[Tensor, " position"]
    hidden: Bool[Tensor, " position"]
    joint: Float[Tensor, " completion"]
    product: Float[Tensor, " completion"]


@cache
def _block(name: str) -> Block:
    """The block, and the state of the rest, whose joint law is furthest from a product."""
    world, masks = _setting(name)
    found = []
    for hidden in masks.family:
        for x in world.states.masked_fill(hidden, 0).unique(dim=0):
            joint = world.block_conditional(x[None], hidden.nonzero()[:, 0].tolist())[0]
            product = torch.ones(1, dtype=torch.float64)
            for marginal in world.conditional(x[None], hidden[None])[0, hidden]:
                product = torch.outer(product, marginal).flatten()
            found.append(Block(x, hidden, joint, product))
    return max(found, key=lambda block: chains.tv(block.joint, block.product))


def _measured(lab: Lab, name: str, steps: int, rate: float, drawn: int) -> dict[str, np.ndarray]:
    """Exact loss, largest error of a marginal, and how often each completion of one block is drawn."""
    world, _ = _setting(name)
    recipe = _recipe(name, steps, rate)
    fit = lab.fit(recipe)
    example = recipe.objective.expect(world.expectation)  # pyright: ignore[reportAttributeAccessIssue]
    logits = fit.models(example["inputs"])
    losses = [recipe.objective.score(each, example) for each in logits]  # pyright: ignore[reportAttributeAccessIssue]
    hidden = example["inputs"] == world.symbols
    marginals = world.conditional(example["inputs"].masked_fill(hidden, 0), hidden)
    errors = (logits.softmax(-1) - marginals).abs()[:, hidden].flatten(1).amax(1)
    counts = [_drawn(fit[i], name, drawn, lab.generator(seed, f"blocks, {name}")) for i, seed in enumerate(lab.seeds)]
    return {"loss": torch.stack(losses).numpy(), "marginals": errors.numpy(), "counts": np.array(counts)}


def _drawn(network: nn.Module, name: str, drawn: int, generator: torch.Generator) -> np.ndarray:
    """How often each completion is drawn where the trained model draws the positions of the block at once."""
    world, _ = _setting(name)
    block = _block(name)
    free = block.hidden.nonzero()[:, 0]
    model = MaskedNetwork(network, mask=world.symbols, vocab_size=world.symbols)
    sampler = ModelBlocks(model, UniformSize(len(free), len(free)), within="independent", free=free)
    x = sampler(block.state.expand(drawn, -1), generator)[:, free]
    codes = (x * places(world.symbols, len(free))).sum(1)
    return torch.bincount(codes, minlength=len(block.joint)).numpy()


CLAIMS = (factorised_head,)
