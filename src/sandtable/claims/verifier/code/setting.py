"""What the claims on test cases share: a small code model, verifiers trained on its states, and runs of a decoder.

The published model (CodeLlama 7B) is stood in for by a Transformer of Llama's shape, trained on documents with planted
flaws. The unit of replication is the run: new function names, and a verifier trained anew on half of the model's own
completions. `RUNS` runs share a code model: the intervals speak of these models, other seeds reach others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from sandtable.arguments import one_of
from sandtable.decoding import (
    Generation,
    Hidden,
    ProbeVerifier,
    Random,
    TransformerModel,
    Verifier,
    ancestral,
    backtrack,
    block_best_of_n,
    hidden_states,
)
from sandtable.decoding.tasks import AppendTask, Problems
from sandtable.lab import Lab
from sandtable.models import Transformer
from sandtable.objectives import NextToken
from sandtable.probes.classifier import Classifier, train_classifier
from sandtable.training import Adam, Cosine, Recipe
from sandtable.worlds.testcases import (
    TRAIN_NAMES,
    AppendDocuments,
    Fault,
    TestCaseTask,
    correct_cases,
    first_error,
    token_at,
)

WORLD = AppendDocuments()
TASK = AppendTask(TestCaseTask(sums=WORLD.sums), max_tokens=WORLD.length)
RUNS = 4
"""Runs that share a code model."""
SEEDS = {"desk": 32, "paper": 20}
CHUNK = {"desk": 1, "paper": 5}
"""Code models trained in one stack."""
SMALL = 0.03
"""A difference in Acc_distinct that the published tables, with errors of 0.01 to 0.04, do not resolve."""
LEAST = 0.01
"""A difference that a user would notice: eight cases in eight hundred."""
LARGE: dict[str, Any] = dict(layers=4, width=256, heads=4, steps=4000, batch=64, lr=2e-3, layer=3, generations=1000)
"""What ten minutes on one H200 allow: five models at 1e15 operations each, a thousand runs."""


@dataclass(frozen=True)
class Code:
    """The code model; the layer that verifiers read, and of how many completions of each name; the size of a run."""

    layers: int = 3
    width: int = 64
    heads: int = 4
    steps: int = 3000
    batch: int = 16
    lr: float = 4e-3
    layer: int = 2
    generations: int = 600
    functions: int = 10
    repeats: int = 10


@dataclass(frozen=True)
class Probe:
    """A verifier: `depth` linear layers on the hidden state of `layer` (None: the usual), for tokens or whole lines."""

    layer: int | None = None
    depth: int = 1
    labels: str = "true"
    lines: bool = False


@dataclass(frozen=True)
class Method:
    """A way to decode: plain sampling, Algorithm 1 (`quota` > 0) or block best-of-n (`candidates` > 1).

    `verifier` is a `Probe`, "random" or "truth", the parser itself.
    """

    top_p: float = 0.95
    temperature: float = 1.0
    quota: int = 0
    stride: int = 4
    threshold: float = 0.1
    redo: str = "argmax"
    candidates: int = 1
    verifier: Probe | str = Probe()
    names: str = "test"


def code_of(settings: Code) -> Code:
    """What a claim's settings say about the model and the runs, without its own."""
    return Code(**{field.name: getattr(settings, field.name) for field in fields(Code)})


def verifier_of(kind: str) -> Probe | str:
    """A verifier by name: "trained", "shuffled" (trained on shuffled labels), "random" or "truth"."""
    one_of("verifier", kind, ("trained", "shuffled", "random", "truth"))
    return Probe(labels="true" if kind == "trained" else kind) if kind in ("trained", "shuffled") else kind


def run(settings: Code, lab: Lab, **method: Any) -> dict[str, np.ndarray]:
    """The runs of a method on the model of a claim's settings, from the store where they were made before."""
    return lab.measure(runs, code_of(settings), Method(**method))


def accuracy(settings: Code, lab: Lab, **method: Any) -> np.ndarray:
    """Acc_distinct of every run."""
    return run(settings, lab, **method)["accuracy"]


# -- the code model --------------------------------------------------------------------------------------------------


def recipe(code: Code) -> Recipe:
    """Next-token training on fresh documents."""
    model = Transformer(
        WORLD.vocab,
        layers=code.layers,
        heads=code.heads,
        width=code.width,
        mlp=4 * code.width,
        causal=True,
        norm="pre",
        norm_kind="rms",
        positions="rotary",
        longest=WORLD.length,
        tied=False,
    )
    return Recipe(
        model,
        WORLD,
        NextToken(),
        code.steps,
        batch_size=code.batch,
        optimizer=Adam(code.lr, beta2=0.98, weight_decay=0.01),
        schedule=Cosine(min(100, code.steps // 10), final=0.05),
        clip=1.0,
    )


def model(lab: Lab, code: Code, number: int) -> TransformerModel:
    """The code model of that number."""
    stacked = replace(recipe(code), chunk=CHUNK.get(lab.scale, 1))
    network = lab.only([number]).fit(stacked)[0].to(lab.device).eval()
    return TransformerModel(network, vocab=WORLD.vocab, eos=WORLD.vocab.eos)


def models(lab: Lab, code: Code) -> Iterator[tuple[int, TransformerModel]]:
    """(seed, code model) of every run."""
    known: dict[int, TransformerModel] = {}
    for seed in lab.seeds:
        if seed // RUNS not in known:
            known[seed // RUNS] = model(lab, code, seed // RUNS)
        yield seed, known[seed // RUNS]


# -- verifiers -------------------------------------------------------------------------------------------------------


def collected(lab: Lab, code: Code) -> dict[str, np.ndarray]:
    """For every code model (the lab's seeds are their numbers): completions of the training names, and where each has
    a wrong and a right prefix (ends, or −1: none).

    A wrong prefix ends with the token of the first error, a right one at a random token before it or, where the error
    comes first, with the prompt. For lines: with the newline that closes the wrong line, and with the one before it,
    or with the last token where there is no error. Completions whose only fault is that they go on are left out.
    """
    rows: list[dict[str, np.ndarray]] = []
    for number in lab.seeds:
        lm, generator = model(lab, code, number), lab.generator(number, "completions for verifiers")
        problems = TASK.draw(min(code.functions, len(TRAIN_NAMES)), code.generations, generator, kind="train")
        made = ancestral(
            lm, problems.prompts, max_tokens=TASK.max_tokens, generator=generator, batch_size=500, top_p=0.95
        )
        completed = zip(problems.keys, made.rows, made.prompts.tolist(), strict=True)
        ends = [_ends(name, row, start, generator) for name, row, start in completed]
        tokens = torch.nn.functional.pad(made.tokens, (0, WORLD.length - made.tokens.shape[1]))
        rows.append({"tokens": tokens.cpu().numpy().astype(np.uint8), "ends": np.array(ends)})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _ends(name: str, row: list[int], start: int, generator: torch.Generator) -> tuple[int, int, int, int]:
    """Ends of the wrong and the right prefix for tokens, then for lines."""
    tokens = row[start:]
    error = first_error(WORLD.vocab.text(tokens), name)
    if error is not None and error.kind == Fault.EXTRA_CONTENT_AFTER_TASK_COMPLETION:
        return -1, -1, -1, -1
    newline, last = WORLD.vocab.id("\n"), len(row) - 1
    if error is None:
        return -1, start + int(torch.randint(len(tokens), (), generator=generator)), -1, last
    wrong = start + min(token_at(error.position, tokens, WORLD.vocab.text), len(tokens) - 1)
    right = start - 1 if wrong == start else int(torch.randint(start, wrong, (), generator=generator))
    closes = next((place for place in range(wrong, last) if row[place] == newline), last)
    before = next((place for place in range(wrong - 1, start - 1, -1) if row[place] == newline), start - 1)
    return wrong, right, closes, before


def probes(lab: Lab, code: Code, probe: Probe) -> dict[str, np.ndarray]:
    """A classifier for every run, trained on its own half of the model's completions: parameters, and its accuracy on
    the tenth of the prefixes kept aside.
    """
    out: list[dict[str, np.ndarray]] = []
    for seed, lm in models(lab, code):
        found = lab.only([seed // RUNS]).measure(collected, code)
        generator = lab.generator(seed, f"verifier, {probe.labels} labels{', lines' * probe.lines}")
        half = torch.randperm(found["ends"].shape[1], generator=generator)[: found["ends"].shape[1] // 2].numpy()
        tokens, ends = found["tokens"][0, half], found["ends"][0, half][:, 2 * probe.lines :][:, :2]
        rows = [torch.from_numpy(tokens[row, : ends[row, side] + 1].astype(np.int64)) for row, side in _known(ends)]
        labels = torch.tensor([side for _, side in _known(ends)])
        if probe.labels == "shuffled":
            labels = labels[torch.randperm(len(labels), generator=generator)]
        states = hidden_states(lm, rows, _hidden(code, probe))
        fit = train_classifier(states, labels, generator, depth=probe.depth, batch_size=256, epochs=200)
        weights = {name: tensor.numpy() for name, tensor in fit.classifier.state_dict().items()}
        out.append({**weights, "validation": np.array(fit.validation_accuracy)})
    return {name: np.stack([row[name] for row in out]) for name in out[0]}


def _known(ends: np.ndarray) -> list[tuple[int, int]]:
    """(completion, 0 or 1) of every wrong or right prefix that there is."""
    return [(int(row), int(side)) for row, side in np.argwhere(ends >= 0)]


def _hidden(code: Code, probe: Probe) -> Hidden:
    return Hidden(code.layer if probe.layer is None else probe.layer)


def _verifier(lab: Lab, code: Code, method: Method, lm: TransformerModel, problems: Problems, seed: int) -> Verifier:
    if method.verifier == "random":
        return Random(seed=int(torch.randint(2**31, (), generator=lab.generator(seed, "random verifier"))))
    if method.verifier == "truth":
        return TASK.truth(problems)
    probe = method.verifier
    assert isinstance(probe, Probe)
    found = lab.only([seed]).measure(probes, code, probe)
    classifier = Classifier(code.width, depth=probe.depth)
    classifier.load_state_dict({name: torch.from_numpy(found[name][0]) for name in classifier.state_dict()})
    classifier.requires_grad_(False).to(lm.device)
    row, hidden = torch.arange(8), _hidden(code, probe)
    state = hidden_states(lm, [row], hidden)[0]
    return ProbeVerifier(classifier, hidden, row, state, float(found["validation"][0]))


# -- runs ------------------------------------------------------------------------------------------------------------


def runs(lab: Lab, code: Code, method: Method) -> dict[str, np.ndarray]:
    """One run for every seed: Acc_distinct, queries, backtracks, the share of right lines, errors, running counts.

    `gained` and `spent` are the distinct correct cases and the queries after each completion.
    """
    out: list[dict[str, Any]] = []
    for seed, lm in models(lab, code):
        problems = TASK.draw(
            code.functions, code.repeats, lab.generator(seed, f"{method.names} names"), kind=method.names
        )
        made = _decode(lab, code, method, lm, problems, seed)
        out.append(_bill(problems, made))
    return {name: np.stack([row[name] for row in out]) for name in out[0]}


def _decode(lab: Lab, code: Code, method: Method, lm: TransformerModel, problems: Problems, seed: int) -> Generation:
    generator = lab.generator(seed, repr(method))
    how: dict[str, Any] = dict(
        max_tokens=TASK.max_tokens,
        generator=generator,
        top_p=method.top_p,
        temperature=method.temperature,
    )
    if method.candidates > 1:
        verifier = _verifier(lab, code, method, lm, problems, seed)
        return block_best_of_n(lm, problems.prompts, verifier, n=method.candidates, **TASK.blocks, **how)
    if method.quota:
        verifier = _verifier(lab, code, method, lm, problems, seed)
        names = ("quota", "stride", "threshold", "redo")
        return backtrack(lm, problems.prompts, verifier, **{n: getattr(method, n) for n in names}, **how)
    return ancestral(lm, problems.prompts, **how)


def _bill(problems: Problems, made: Generation) -> dict[str, Any]:
    seen: dict[str, set[str]] = {name: set() for name in problems.keys}
    gained, right = [], []
    for name, text in zip(problems.keys, made.text, strict=True):
        cases = correct_cases(text, name)
        seen[name] |= cases
        right.append(len(cases))
        gained.append(sum(map(len, seen.values())))
    queries = made.queries.cpu().numpy()
    asked = 8 * len(problems)
    return {
        "accuracy": gained[-1] / asked,
        "queries": queries.sum(),
        "backtracks": float(made.backtracks.double().mean()),
        "right": sum(right) / asked,
        "gained": np.array(gained),
        "spent": queries.cumsum(),
    }
