"""VGB on brackets written by a trained model, where every string and its probability are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import rohatgi
from sandtable.decoding import ExactModel, Predicate, View, vgb
from sandtable.lab import Control, Evidence, Lab, Table, claim, exact, law, orders
from sandtable.lab.figures import curves
from sandtable.models import Transformer
from sandtable.objectives import NextToken
from sandtable.theory import generation as theory
from sandtable.training import Adam, Recipe
from sandtable.worlds import FixedLengthDyck

WORLD = FixedLengthDyck(length=8)
BRACKETS = 4
PREFIX = 3
"""Strings are counted by their first three brackets: few enough classes for a sharp bound on total variation."""

FAR_OFF = 3.0
"""Error of the values with which strings are decoded: so large that the laws of the two methods are told apart."""


@dataclass(frozen=True)
class Noised:
    errors: tuple[float, ...] = (0.3, 0.5, 1.0)
    steps: int = 300
    rows: int = 6000
    exchanged: bool = False
    leaves: str = "exact"
    simulated: str = "first leaf"


def recipe(steps: int) -> Recipe:
    """A Transformer that has seen few strings: it closes brackets wrongly now and then."""
    model = Transformer(
        WORLD.vocab, layers=2, heads=2, width=32, mlp=64, norm="pre", causal=True, positions="learned",
        longest=WORLD.longest, tied=False,
    )  # fmt: skip
    return Recipe(model, WORLD, NextToken(), steps, batch_size=64, optimizer=Adam(3e-3))


def bracket_law(network: Transformer) -> Any:
    """The network's law over brackets alone, after ⟨bos⟩: strings of D brackets are the leaves."""

    def probs(prefix: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            brackets = network(prefix)[:, -1, :BRACKETS].double().softmax(-1)
        return torch.nn.functional.pad(brackets, (0, len(WORLD.vocab) - BRACKETS))

    return probs


@claim(
    id="vgb/dyck",
    statement=(
        "With values of a trained model's prefixes that are wrong by up to 30, 50 or 100 percent, the first leaf of "
        "VGB is nearer (in KL) to the model's law restricted to balanced strings than action-level sampling with the "
        "same values, and its stationary law on leaves is that law exactly."
    ),
    source=rohatgi("constrained generation of Dyck words"),
    scales={"desk": Noised()},
    controls=(
        Control(
            "the two methods exchanged",
            {"exchanged": True},
            tuple(f"nearer at error {error:g}" for error in Noised().errors),
        ),
        Control("rewards at leaves noised too", {"leaves": "noised"}, ("stationary leaves",)),
        Control("predicted by action-level sampling", {"simulated": "action level"}, ("decoded first leaf",)),
    ),
    seeds=8,
)
def noised_values(settings: Noised, lab: Lab) -> Evidence:
    found = lab.measure(_divergences, settings.steps, settings.errors, settings.leaves)
    near, far = ("action level", "first leaf") if settings.exchanged else ("first leaf", "action level")
    checks = [
        orders(f"nearer at error {error:g}", found[far][:, i], found[near][:, i])
        for i, error in enumerate(settings.errors)
    ]
    checks.append(exact("stationary leaves", found["stationary"].max(), 0.0, atol=1e-10, unit="tree"))
    drawn = lab.only(lab.seeds[:1]).measure(_decoded, settings.steps, settings.rows)
    counts, predicted = drawn["counts"][0], drawn[settings.simulated][0]
    checks.append(law("decoded first leaf", counts, predicted, within=0.08, unit="string"))
    columns = ["error", "KL, action level", "KL, first leaf of VGB"]
    rows = [
        [error, *(float(found[name][:, i].mean()) for name in ("action level", "first leaf"))]
        for i, error in enumerate(settings.errors)
    ]
    return Evidence(
        checks,
        figures={
            "kl": lambda: curves(
                np.array(settings.errors),
                {"action level": found["action level"], "VGB, first leaf": found["first leaf"]},
                xlabel="relative error of the values",
                ylabel="KL to the restricted law",
                title="Wrong values hurt a walk less",
                log_y=True,
            )
        },
        tables={"mean over models": Table(columns, rows)},
        notes=[f"the models write balanced strings with probability {float(found['valid'].mean()):.3f}"],
    )


def _tree(network: Transformer) -> tuple[theory.Tree, np.ndarray, np.ndarray]:
    """All strings of brackets, which are balanced, and the true value of every prefix."""
    tree = theory.Tree.of(bracket_law(network), WORLD.length, WORLD.vocab, prompt=(WORLD.bos,), prune=True)
    *_, strings = tree.prefixes()
    reward = WORLD.accepts(strings).double().numpy()
    return tree, reward, tree.expect(reward)


def _divergences(lab: Lab, steps: int, errors: tuple[float, ...], leaves: str) -> dict[str, np.ndarray]:
    """Per model and error: KL from the restricted law to what two methods write, and VGB's own leaf law."""
    fit = lab.fit(recipe(steps))
    names = ("first leaf", "action level", "stationary")
    found: dict[str, list[Any]] = {name: [] for name in (*names, "valid")}
    for index, seed in enumerate(lab.seeds):
        tree, reward, value = _tree(fit.models[index])
        target = theory.restricted_law(tree, reward)
        rows = []
        for error in errors:
            generator = lab.generator(seed, f"noise {error}")
            wrong = theory.noised(value, tree, error=error, generator=generator)
            if leaves == "noised":
                scale = 1 + error * torch.rand(len(reward), generator=generator, dtype=torch.float64).numpy()
                wrong = theory.with_leaves(wrong, tree, reward * scale)
            chain = theory.Chain.of(tree, wrong)
            walk, action = chain.first_leaf_law, theory.action_level(tree, wrong).given_success
            rows.append((theory.kl(target, walk), theory.kl(target, action), theory.tv(target, chain.leaf_law)))
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            found[name].append(values)
        found["valid"].append(value[0])
    return {name: np.array(values) for name, values in found.items()}


def _decoded(lab: Lab, steps: int, rows: int) -> dict[str, np.ndarray]:
    """Strings that the decoder wrote, by their first brackets, and two predictions of that law."""
    fit = lab.fit(recipe(steps))
    found: dict[str, list[Any]] = {"counts": [], "first leaf": [], "action level": []}
    for index, seed in enumerate(lab.seeds):
        network = fit.models[index]
        tree, _, value = _tree(network)
        wrong = theory.noised(value, tree, error=FAR_OFF, generator=lab.generator(seed, "noise"))
        made = vgb(
            ExactModel(bracket_law(network), vocab=WORLD.vocab),
            [[WORLD.bos]] * rows,
            _values(tree, wrong),
            max_tokens=WORLD.length,
            steps=100 * WORLD.length**2,
            generator=lab.generator(seed, "walk"),
        )
        *_, strings = tree.prefixes()
        classes = (strings[:, 1 : 1 + PREFIX] * BRACKETS ** torch.arange(PREFIX)).sum(1).numpy()
        size = BRACKETS**PREFIX
        counts = tree.counts(made.tokens[:, 1:], made.lengths - 1)
        laws = {
            "first leaf": theory.Chain.of(tree, wrong).first_leaf_law,
            "action level": theory.action_level(tree, wrong).given_success,
        }
        found["counts"].append(np.bincount(classes, counts, minlength=size).astype(np.int64))
        for name, probabilities in laws.items():
            found[name].append(np.bincount(classes, probabilities, minlength=size))
    return {name: np.array(values) for name, values in found.items()}


def _values(tree: theory.Tree, values: np.ndarray) -> Predicate:
    """A verifier that knows the value of every node of a tree."""

    def look_up(view: View) -> np.ndarray:
        return values[tree.locate(view.tokens[:, 1:], view.lengths - 1)]

    return Predicate(look_up, is_value=True)


CLAIMS = (noised_values,)
