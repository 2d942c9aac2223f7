"""What a translation costs: decoder passes, exactly, and the time they take beside them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sandtable.claims.gmlm.sources import li2024
from sandtable.decoding import Translated, autoregress, refine
from sandtable.inputs import RESERVED
from sandtable.lab import Control, Evidence, Lab, Table, claim, exact
from sandtable.lab.figures import curves
from sandtable.models import Seq2Seq
from sandtable.models.seq2seq import PUBLISHED


@dataclass(frozen=True)
class Speed:
    vocab: int = 512
    layers: int = 2
    heads: int = 4
    width: int = 48
    mlp: int = 192
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128)
    steps: int = 4
    predicted_steps: int = 4
    rows: int = 4
    repeats: int = 10
    ending_early: int = 0


PAPER = Speed(
    vocab=PUBLISHED["vocab"],
    layers=PUBLISHED["layers"],
    heads=PUBLISHED["heads"],
    width=PUBLISHED["width"],
    mlp=PUBLISHED["mlp"],
    repeats=30,
)


def _nets(settings: Speed, device: str) -> tuple[Seq2Seq, Seq2Seq]:
    """A refiner and a sequential net of one size, random weights: what a pass costs does not hang on them."""
    most = max(settings.lengths)
    options: dict[str, Any] = dict(layers=settings.layers, heads=settings.heads, width=settings.width, mlp=settings.mlp)
    refiner = Seq2Seq(settings.vocab, **options, longest=most, longest_target=most)
    return refiner.to(device).eval(), refiner.replace(causal=True).to(device).eval()


def _decoders(
    settings: Speed, device: str, rows: int, length: int
) -> dict[str, tuple[Seq2Seq, Callable[[], Translated]]]:
    """The refiner and the sequential net, and each one's way from sources of `length` tokens to targets of as many."""
    refiner, sequential = _nets(settings, device)
    generator = torch.Generator().manual_seed(length)
    source = torch.randint(RESERVED, settings.vocab, (rows, length), generator=generator).to(device)
    lengths = torch.full((rows,), length, device=device)
    stop = length - settings.ending_early

    def at_once() -> Translated:
        return refine(refiner, source, generator=generator, steps=settings.steps, lengths=lengths, early_stop=False)

    def in_order() -> Translated:
        return autoregress(sequential, source, shortest=stop, longest=stop)

    return {"refiner": (refiner, at_once), "sequential": (sequential, in_order)}


def passes(settings: Speed) -> dict[str, np.ndarray]:
    """How often each decoder layer (column) was run for each length (row): of the refiner, of the sequential net."""
    found: dict[str, list[list[int]]] = {"refiner": [], "sequential": []}
    for length in settings.lengths:
        for name, (model, decode) in _decoders(settings, "cpu", settings.rows, length).items():
            found[name].append(_runs(model, decode))
    return {name: np.array(values) for name, values in found.items()}


def _runs(model: Seq2Seq, decode: Callable[[], Translated]) -> list[int]:
    """Calls of every decoder layer, each with all rows, as hooks on the layers count them: not what a decoder says."""
    runs = [0] * len(model.layers)

    def count(layer: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            runs[layer] += 1

        return hook

    handles = [block.register_forward_hook(count(layer)) for layer, block in enumerate(model.layers)]
    decode()
    for handle in handles:
        handle.remove()
    return runs


def seconds(lab: Lab, settings: Speed) -> dict[str, np.ndarray]:
    """Wall clock of one source at a time, for every length and repetition."""
    found: dict[str, list[list[float]]] = {"refiner": [], "sequential": []}
    for length in settings.lengths:
        for name, (_, decode) in _decoders(settings, lab.device, 1, length).items():
            for _ in range(2):
                decode()
            found[name].append([_timed(decode, lab.device) for _ in range(settings.repeats)])
    return {name: np.array([values] * len(lab.seeds)) for name, values in found.items()}


def _timed(decode: Callable[[], Translated], device: str) -> float:
    _wait(device)
    began = time.perf_counter()
    decode()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


@claim(
    id="gmlm/padir-speed",
    statement=(
        "For a target of N tokens a refiner with four steps runs its decoder four times and a sequential net N times: "
        "N/4 times fewer passes."
    ),
    source=li2024("section 4.6, speed"),
    scales={"smoke": Speed(lengths=(8, 16, 32), repeats=1), "desk": Speed(), "paper": PAPER},
    controls=(
        Control("ten steps", {"steps": 10}, ("passes of the refiner", "sequential over refiner")),
        Control("targets one token shorter", {"ending_early": 1}, ("passes of the sequential net",)),
    ),
)
def speed(settings: Speed, lab: Lab) -> Evidence:
    found = passes(settings)
    lengths = np.array(settings.lengths)
    # Controls change what is counted, not what is timed.
    wall = lab.measure(seconds, replace(settings, steps=settings.predicted_steps, ending_early=0))
    ours, theirs = wall["refiner"][0], wall["sequential"][0]
    ratio = np.median(theirs, axis=1) / np.median(ours, axis=1)
    n = np.repeat(lengths[:, None], settings.layers, axis=1)
    rows = [
        [
            int(length),
            length / settings.predicted_steps,
            *(1e3 * float(value) for one in (ours[i], theirs[i]) for value in (np.median(one), np.quantile(one, 0.99))),
            float(ratio[i]),
            float(np.quantile(theirs[i], 0.99) / np.quantile(ours[i], 0.99)),
        ]
        for i, length in enumerate(lengths)
    ]
    columns = [
        "target tokens N", "passes, ratio", "refiner, ms", "99 %", "sequential, ms", "99 %", "ratio of medians", "99 %",
    ]  # fmt: skip
    return Evidence(
        [
            exact("passes of the refiner", found["refiner"], settings.predicted_steps, unit="length and layer"),
            exact("passes of the sequential net", found["sequential"], n, unit="length and layer"),
            exact(
                "sequential over refiner",
                found["sequential"] / found["refiner"],
                n / settings.predicted_steps,
                unit="length and layer",
            ),
        ],
        figures={
            "speed-up": lambda: curves(
                lengths,
                {"time": ratio},
                predictions={"passes": lengths / settings.predicted_steps},
                xlabel="target tokens",
                ylabel="sequential over refiner",
                title="One source at a time",
                log_x=True,
                log_y=True,
            )
        },
        tables={"wall clock": Table(columns, rows)},
        notes=[
            "Passes are counted by hooks on the layers of the decoder. Random weights, given lengths, no early stop; "
            "the sequential net keeps keys and values. Time is shown, not judged: published for four steps and one "
            "source at a time is more than 2 (median) and 5 (99th "
            f"percentile), end to end. On {lab.device}, with {lab.threads} thread{'s' * (lab.threads > 1)}.",
        ],
    )


CLAIMS = (speed,)
