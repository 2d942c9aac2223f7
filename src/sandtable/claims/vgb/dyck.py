"""VGB on brackets written by a trained model, where every string and its probability are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sandtable.claims.verifier.sources import rohatgi
from sandtable.decoding import (
    ExactModel,
    Hidden,
    Predicate,
    TransformerModel,
    View,
    action_level,
    hidden_states,
    vgb,
)
from sandtable.lab import Control, Evidence, Lab, Table, claim, exact, law, orders
from sandtable.lab.figures import curves
from sandtable.models import Transformer
from sandtable.objectives import NextToken
from sandtable.probes.classifier import train_classifier
from sandtable.theory import generation as theory
from sandtable.training import Adam, Recipe
from sandtable.worlds import FixedLengthDyck

WORLD = FixedLengthDyck(length=8)
BRACKETS = 4
METHODS = ("action level", "first leaf of VGB")
PREFIX = 3
"""Strings are counted by their first three brackets: few enough classes for a sharp bound on total variation."""

TRAINED = "trained"
"""The name of values that a linear probe of hidden states has learnt, beside the errors of the noised ones."""
ROLLOUTS = 2000
FAR_OFF = 3.0
"""Error of the values with which strings are decoded: so large that the laws of the two methods are told apart."""


@dataclass(frozen=True)
class Noised:
    errors: tuple[float, ...] = (0.3, 0.5, 1.0)
    steps: int = 300
    rows: int = 6000
    billed: int = 400
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


def _nearer(values: float | str) -> str:
    """The name of a check."""
    return f"nearer with {values} values" if values == TRAINED else f"nearer at error {values:g}"


@claim(
    id="vgb/dyck",
    statement=(
        "With values of a trained model's prefixes that are wrong by up to 30, 50 or 100 percent, or that a linear "
        "probe has learnt from roll-outs, the first leaf of VGB is nearer (in KL) to the model's law restricted to "
        "balanced strings than action-level sampling with the same values, and its stationary law on leaves is that "
        "law exactly."
    ),
    source=rohatgi("constrained generation of Dyck words"),
    scales={"desk": Noised()},
    controls=(
        Control(
            "the two methods exchanged",
            {"exchanged": True},
            tuple(_nearer(values) for values in (*Noised().errors, TRAINED)),
        ),
        Control("rewards at leaves noised too", {"leaves": "noised"}, ("stationary leaves",)),
        Control("predicted by action-level sampling", {"simulated": "action level"}, ("decoded first leaf",)),
    ),
    seeds=32,
)
def noised_values(settings: Noised, lab: Lab) -> Evidence:
    found = lab.measure(_divergences, settings.steps, settings.errors, settings.leaves)
    near, far = ("action level", "first leaf") if settings.exchanged else ("first leaf", "action level")
    arms = (*settings.errors, TRAINED)
    checks = [orders(_nearer(values), found[far][:, i], found[near][:, i]) for i, values in enumerate(arms)]
    checks.append(exact("stationary leaves", found["stationary"].max(), 0.0, atol=1e-10, unit="tree"))
    first = lab.only(lab.seeds[:1])
    drawn = first.measure(_decoded, settings.steps, settings.rows)
    counts, predicted = drawn["counts"][0], drawn[settings.simulated][0]
    checks.append(law("decoded first leaf", counts, predicted, within=0.08, unit="string"))
    bill = first.measure(_costs, settings.steps, settings.errors, settings.billed)
    methods = ("action level", "first leaf")
    columns = ["values", *(f"{what}, {how}" for what in ("KL", "TV", "queries", "verifier calls") for how in METHODS)]
    rows = [
        [
            values if values == TRAINED else f"off by up to {values:.0%}",
            *(float(found[name][:, i].mean()) for name in methods),
            *(float(found[f"TV, {name}"][:, i].mean()) for name in methods),
            *(float(bill[what][0, i, place]) for what in ("queries", "calls") for place in range(2)),
        ]
        for i, values in enumerate(arms)
    ]
    noised = slice(len(settings.errors))
    return Evidence(
        checks,
        figures={
            "kl": lambda: curves(
                np.array(settings.errors),
                {name: found[how][:, noised] for name, how in zip(METHODS, methods, strict=True)},
                xlabel="relative error of the values",
                ylabel="KL to the restricted law",
                title="Wrong values hurt a walk less",
                log_y=True,
            )
        },
        tables={"mean over models": Table(columns, rows)},
        notes=[
            f"The models write balanced strings with probability {float(found['valid'].mean()):.3f}; rejection of "
            f"whole strings draws from the law itself for {WORLD.length / float(found['valid'].mean()):.1f} queries, "
            "and one verifier call a try. Costs are those of the first model's strings.",
            f"The probe's values are off by {float(found['off'].mean()):.0%} on average, over prefixes as the model "
            "writes them.",
        ],
    )


def _tree(network: Transformer) -> tuple[theory.Tree, np.ndarray, np.ndarray]:
    """All strings of brackets, which are balanced, and the true value of every prefix."""
    tree = theory.Tree.of(bracket_law(network), WORLD.length, WORLD.vocab, prompt=(WORLD.bos,), prune=True)
    *_, strings = tree.prefixes()
    reward = WORLD.accepts(strings).double().numpy()
    return tree, reward, tree.expect(reward)


def _learnt(lab: Lab, seed: int, network: Transformer, tree: theory.Tree, reward: np.ndarray) -> np.ndarray:
    """P(balanced) of every prefix by a linear probe of its hidden state, fitted by log-loss to what became of it.

    The minimiser is the true value. The probe has seen the prefixes of strings that the model wrote; at leaves stands
    the reward.
    """
    generator = lab.generator(seed, "values")
    lm = TransformerModel(network.eval(), vocab=WORLD.vocab, eos=WORLD.eos)
    *levels, _ = tree.prefixes()
    rows = [row for level in levels for row in level]
    states = hidden_states(lm, rows, Hidden(lm.layers, normed=True), batch_size=4096)
    law = torch.from_numpy(theory.base_law(tree))
    written = torch.multinomial(law, ROLLOUTS, replacement=True, generator=generator).numpy()
    seen = [tree.parent[tree.leaves[written]]]
    while len(seen) < tree.horizon:
        seen.append(tree.parent[seen[-1]])
    became = torch.from_numpy(np.tile(reward[written] > 0, tree.horizon)).long()
    values = np.full(len(tree), 1 / ROLLOUTS)
    if bool(became.any()):
        fit = train_classifier(states[np.concatenate(seen)], became, generator)
        with torch.no_grad():
            values[: len(rows)] = fit.classifier(states).softmax(-1)[:, 1].double().numpy()
    return theory.with_leaves(values, tree, reward)


def _estimates(
    lab: Lab, seed: int, network: Transformer, errors: tuple[float, ...], leaves: str = "exact"
) -> tuple[theory.Tree, np.ndarray, np.ndarray, list[np.ndarray]]:
    """The tree, its reward and true values, and wrong ones: with every error, then learnt."""
    tree, reward, value = _tree(network)
    found = []
    for error in (*errors, TRAINED):
        generator = lab.generator(seed, f"noise {error}")
        if error == TRAINED:
            wrong = _learnt(lab, seed, network, tree, reward)
        else:
            wrong = theory.noised(value, tree, error=error, generator=generator)
        if leaves == "noised":
            scale = 1 + torch.rand(len(reward), generator=generator, dtype=torch.float64).numpy()
            wrong = theory.with_leaves(wrong, tree, reward * scale)
        found.append(wrong)
    return tree, reward, value, found


def _divergences(lab: Lab, steps: int, errors: tuple[float, ...], leaves: str) -> dict[str, np.ndarray]:
    """Per model and values: KL and TV from the restricted law to what two methods write, and VGB's own leaf law.

    `off` is the relative error of the learnt values, over prefixes as the model writes them.
    """
    fit = lab.fit(recipe(steps))
    names = ("first leaf", "action level", "TV, first leaf", "TV, action level", "stationary")
    found: dict[str, list[Any]] = {name: [] for name in (*names, "valid", "off")}
    for index, seed in enumerate(lab.seeds):
        tree, reward, value, estimates = _estimates(lab, seed, fit.models[index], errors, leaves)
        target = theory.restricted_law(tree, reward)
        rows = []
        for wrong in estimates:
            chain = theory.Chain.of(tree, wrong)
            laws = chain.first_leaf_law, theory.action_level(tree, wrong).given_success
            far = [measure(target, each) for measure in (theory.kl, theory.tv) for each in laws]
            rows.append((*far, theory.tv(target, chain.leaf_law)))
        for name, values in zip(names, zip(*rows, strict=True), strict=True):
            found[name].append(values)
        inside = (tree.depth > 0) & (tree.depth < tree.horizon) & (value > 0)
        off = np.abs(estimates[-1][inside] / value[inside] - 1)
        found["off"].append(np.average(off, weights=tree.prob[inside]))
        found["valid"].append(value[0])
    return {name: np.array(values) for name, values in found.items()}


def _costs(lab: Lab, steps: int, errors: tuple[float, ...], rows: int) -> dict[str, np.ndarray]:
    """Queries and verifier calls a string of both decoders, for every model and values."""
    fit = lab.fit(recipe(steps))
    out: dict[str, list[Any]] = {"queries": [], "calls": []}
    for index, seed in enumerate(lab.seeds):
        network = fit.models[index]
        tree, _, _, estimates = _estimates(lab, seed, network, errors)
        made = [
            decode(
                ExactModel(bracket_law(network), vocab=WORLD.vocab),
                [[WORLD.bos]] * rows,
                _values(tree, wrong),
                max_tokens=WORLD.length,
                generator=lab.generator(seed, "bill"),
                **options,
            )
            for wrong in estimates
            for decode, options in ((action_level, {}), (vgb, {"steps": 100 * WORLD.length**2}))
        ]
        for name, costs in (("queries", "queries"), ("calls", "verifier_calls")):
            out[name].append(np.reshape([float(getattr(one, costs).double().mean()) for one in made], (-1, 2)))
    return {name: np.stack(values) for name, values in out.items()}


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
