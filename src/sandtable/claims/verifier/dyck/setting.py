"""What the trained Dyck claims share: the generator, its error prefixes, its verifier, and ways to decode.

The unit of replication is the prompt, or the prefix: many of each under a few trained models. The intervals speak of
these models; other models are reached with other seeds, not through the intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sandtable.decoding import (
    Accepts,
    Generation,
    Hidden,
    ProbeVerifier,
    Random,
    TransformerModel,
    ancestral,
    backtrack,
    collect_error_prefixes,
    hidden_states,
)
from sandtable.lab import Lab
from sandtable.models import Transformer
from sandtable.objectives import NextToken
from sandtable.probes.classifier import Classifier, ClassifierFit, train_classifier
from sandtable.training import Adam, Cosine, Linear, Recipe
from sandtable.worlds import FixedLengthDyck

WORLD = FixedLengthDyck(length=32, p=0.2, q=0.5)
SHIFTED = 0.8
"""The share of `[` in prompts; the generator was trained with 0.2."""
MILDER = 0.5
TOP_P = 0.9
READ = WORLD.length + 1
"""Tokens that a generator ever reads, ⟨bos⟩ and D brackets: rows end there, so no state of ⟨eos⟩ is ever judged."""


@dataclass(frozen=True)
class Trained:
    """The generators, and how many prompts their errors are collected from (at most `kept` errors each)."""

    architecture: str = "small"
    steps: int = 3000
    collected: int = 20_000
    kept: int = 400


PUBLISHED = Trained(architecture="llama", steps=9375, collected=100_000, kept=600)
"""So many prompts since some models of this size err in one of 500 only, and a verifier wants some hundred errors."""
MODELS = 5


def recipe(trained: Trained) -> Recipe:
    """Next-token training on fresh strings: a small Transformer, or the published one (Llama's shape, 16 M)."""
    common: dict[str, Any] = dict(causal=True, norm="pre", tied=False, longest=READ)
    if trained.architecture == "small":
        model = Transformer(
            WORLD.vocab, layers=2, heads=4, width=64, mlp=128, biases=True, positions="learned", **common
        )
        how: dict[str, Any] = dict(optimizer=Adam(2e-3, weight_decay=0.1), schedule=Cosine(100), ema=0.99)
    else:
        model = Transformer(
            WORLD.vocab, layers=6, heads=8, width=512, mlp=1024, mlp_kind="gated", activation="silu", norm_kind="rms",
            positions="rotary", **common,
        )  # fmt: skip
        how = dict(optimizer=Adam(3e-4, weight_decay=0.1), schedule=Linear(100), ema=0.999)
    return Recipe(model, WORLD, NextToken(), trained.steps, batch_size=32, chunk=MODELS, **how)


def generators(lab: Lab, trained: Trained) -> Iterator[tuple[int, TransformerModel]]:
    """(seed, model with averaged weights) of every seed of the lab."""
    averaged = lab.fit(recipe(trained)).averaged
    for place, seed in enumerate(lab.seeds):
        network = averaged[place].to(lab.device).eval()
        yield seed, TransformerModel(network, vocab=WORLD.vocab, eos=WORLD.eos)


# -- prefixes --------------------------------------------------------------------------------------------------------


def shifted_rows(lengths: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Beginnings, so many tokens long, of strings with the prompts' brackets."""
    rows = replace(WORLD, p=SHIFTED).sample(len(lengths), generator).x
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def error_prefixes(lab: Lab, trained: Trained, split: str) -> dict[str, np.ndarray]:
    """Prefixes that end with a generator's first error, and right ones of the same lengths; unused rows have length 0.

    Prompts are completed with nucleus 0.9. Right prefixes have the prompts' share of `[`, "milder" ones one half.
    Also counted: completions with an error, by kind.
    """
    shape = (len(lab.seeds), trained.kept)
    found = {name: np.zeros((*shape, READ), dtype=np.int8) for name in ("wrong", "right", "milder")}
    lengths, kinds = np.zeros(shape, dtype=np.int64), np.zeros((len(lab.seeds), 7), dtype=np.int64)
    for place, (seed, lm) in enumerate(generators(lab, trained)):
        generator = lab.generator(seed, f"{split} error prefixes")
        pairs = collect_error_prefixes(
            lm,
            WORLD.prompts(trained.collected, generator, p=SHIFTED),
            WORLD.first_error,
            max_tokens=READ,
            generator=generator,
            rights=shifted_rows,
            batch_size=10_000,
            top_p=TOP_P,
        )
        milder = replace(WORLD, p=MILDER).sample(shape[1], generator).x
        for row, (wrong, right) in enumerate(zip(pairs.wrong[: shape[1]], pairs.right, strict=False)):
            lengths[place, row] = size = len(wrong)
            for name, tokens in (("wrong", wrong), ("right", right), ("milder", milder[row])):
                found[name][place, row, :size] = tokens[:size]
        made = pairs.generation
        kinds[place] = np.bincount(WORLD.first_error(made.tokens, made.lengths).kind.numpy(), minlength=7)
    return {**found, "length": lengths, "kinds": kinds}


def rows_of(found: dict[str, np.ndarray], place: int, side: str, *, cut: int = 0) -> list[Tensor]:
    """The prefixes of one model on one side ("wrong", "right", "milder"), the last `cut` tokens left out."""
    pairs = zip(found[side][place], found["length"][place], strict=True)
    return [torch.from_numpy(row[: max(1, length - cut)].astype(np.int64)) for row, length in pairs if length]


# -- the verifier ----------------------------------------------------------------------------------------------------


def probes(lab: Lab, trained: Trained, labels: str, layer: int | None, repeats: int) -> dict[str, np.ndarray]:
    """Linear probes of every generator's hidden states, `repeats` of them on other splits; the first one's weights.

    `layer` None is the last one after the final norm; `labels` are true or shuffled. `fresh` tells for every prefix of
    the test split (wrong ones, then right ones; −1: none) whether the first probe is right about it.
    """
    pairs, others = (lab.measure(error_prefixes, trained, split) for split in ("train", "test"))
    out: dict[str, list[Any]] = {name: [] for name in ("weight", "bias", "mean", "scale", "validation", "fresh")}
    for place, (seed, lm) in enumerate(generators(lab, trained)):
        generator = lab.generator(seed, "probe")
        hidden = _hidden(lm, layer)
        states, truth = _labelled(lm, pairs, place, hidden)
        if labels == "shuffled":
            truth = truth[torch.randperm(len(truth), generator=generator)]
        fits = [train_classifier(states, truth, generator) for _ in range(repeats)]
        classifier = fits[0].classifier
        for name, value in classifier.state_dict().items():
            out[name.removeprefix("layers.0.")].append(value.numpy())
        out["validation"].append([fit.validation_accuracy for fit in fits])
        states, truth = _labelled(lm, others, place, hidden)
        fresh = np.full(2 * trained.kept, -1)
        fresh[: len(truth)] = (classifier(states).argmax(-1) == truth).numpy()
        out["fresh"].append(fresh)
    return {name: np.stack(values) for name, values in out.items()}


def _hidden(lm: TransformerModel, layer: int | None) -> Hidden:
    return Hidden(lm.layers, normed=True) if layer is None else Hidden(layer)


def _labelled(lm: TransformerModel, pairs: dict[str, np.ndarray], place: int, hidden: Hidden) -> tuple[Tensor, Tensor]:
    wrong, right = (rows_of(pairs, place, side) for side in ("wrong", "right"))
    labels = torch.arange(2).repeat_interleave(torch.tensor([len(wrong), len(right)]))
    return hidden_states(lm, [*wrong, *right], hidden), labels


# -- decoding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """Backtracking with a verifier ("probe", "truth", "random" …); quota 0 is plain sampling, top_p 0 greedy.

    `redo` is "argmax", Algorithm 1 as printed, which does not verify the tokens that it redoes, or "released-counter",
    the published code, which does: there one rejection may follow another and erase further and further back.
    """

    quota: int = 4
    stride: int = 4
    top_p: float = TOP_P
    verifier: str = "probe"
    redo: str = "argmax"
    threshold: float = 0.5
    protect_prompt: bool = True


PLAIN = Method(quota=0, verifier="none")
GREEDY = Method(quota=0, top_p=0.0, verifier="none")
RANDOM = ("random", "another random")
"""Verifiers that know nothing: the second stands where the trained one is compared with the first."""
OFFSET = 1_000_000


def decode(
    lm: TransformerModel, prompts: Sequence[Any], method: Method, verifier: Any, generator: torch.Generator
) -> Generation:
    """Complete the prompts to D brackets. With equal generators all methods draw a row's tokens from equal numbers."""
    options: dict[str, Any] = dict(max_tokens=READ, top_p=method.top_p, generator=generator)
    if method.quota == 0:
        return ancestral(lm, prompts, **options)
    return backtrack(
        lm,
        prompts,
        verifier,
        quota=method.quota,
        stride=method.stride,
        redo=method.redo,
        threshold=method.threshold,
        protect_prompt=method.protect_prompt,
        **options,
    )


def right(made: Generation) -> np.ndarray:
    """Which completions are balanced strings."""
    return WORLD.valid(made.tokens, made.lengths).numpy()


def judges(lab: Lab, trained: Trained, kind: str) -> Iterator[tuple[int, TransformerModel, Any]]:
    """(seed, generator, verifier) of every seed of the lab."""
    weights = lab.measure(probes, trained, "true", None, 1) if kind == "probe" else {}
    for place, (seed, lm) in enumerate(generators(lab, trained)):
        verifier = None
        if kind == "probe":
            verifier = _probe({name: torch.from_numpy(value[place]) for name, value in weights.items()}, lm)
        elif kind == "truth":
            verifier = Accepts(WORLD)
        elif kind in RANDOM:
            verifier = Random(seed + RANDOM.index(kind) * OFFSET)
        yield seed, lm, verifier


def _probe(weights: dict[str, Tensor], lm: TransformerModel) -> ProbeVerifier:
    classifier = Classifier(weights["weight"].shape[1])
    state = {name: weights[name] for name in ("mean", "scale")}
    classifier.load_state_dict(state | {f"layers.0.{name}": weights[name] for name in ("weight", "bias")})
    validation = float(weights["validation"][0])
    fit = ClassifierFit(classifier.requires_grad_(False), validation, float("nan"), 0, weights["validation"])
    return ProbeVerifier.of(lm, [WORLD.bos, 0, 0, 1], fit, _hidden(lm, None))
