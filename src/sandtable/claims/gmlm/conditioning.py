"""Masks that look at the sentence: what a position shows depends on why it was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sandtable.claims.gmlm.sources import li2024
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, printed
from sandtable.theory.gmlm import chains, fisher
from sandtable.worlds import AdaptiveBlocks
from sandtable.worlds import Table as LawTable

LAW = LawTable([[1 / 2, 1 / 3], [1 / 6, 0.0]])
"""x ∈ {00, 01, 10} with probabilities 1/2, 1/3, 1/6."""
SINGLE = ((0,), (1,))
CHOSEN = (1 / 2, 1 / 3, 1 / 4, 1 / 2)
"""P(K = {0} | x); the last one, of a state without probability, never matters."""
MASKS = AdaptiveBlocks(2, SINGLE, tuple((p, 1 - p) for p in CHOSEN))
NAMES = ("00", "01", "10", "11")


@dataclass(frozen=True)
class Example:
    conditioned: bool = True
    masks: Literal["look at x", "do not look", "exchanged"] = "look at x"
    shown: Literal["hidden by K", "shown by K"] = "hidden by K"


@claim(
    id="gmlm/conditioning-on-mask",
    statement=(
        "When masks look at X, what is hidden must be drawn given K too. For x = 00, 01, 10 with probabilities 1/2, "
        "1/3, 1/6 and P(K = {0} | x) = 1/2, 1/3, 1/4: P(x₁ = 0 | x₀ = 0, K = {1}) = 9/17 and "
        "P(x₀ = 0 | x₁ = 0, K = {0}) = 6/7, where 3/5 and 3/4 forget K. Drawing with K keeps the law; drawing without "
        "keeps 6/13, 3/13, 4/13."
    ),
    source=li2024("the example of adaptive masking with three states, in exact fractions; adaptive block dynamics"),
    scales={"smoke": Example(), "desk": Example()},
    controls=(
        Control("K left out of the condition", {"conditioned": False}, ("what is drawn", "law that is kept, given K")),
        Control(
            "masks that do not look at x",
            {"masks": "do not look"},
            ("P(x, K)", "what is drawn", "law that is kept, without K", "TV of the two"),
        ),
        Control("a law of K that is not the one given x", {"masks": "exchanged"}, ("mixes back",)),
    ),
)
def conditioning_on_mask(settings: Example, lab: Lab) -> Evidence:
    masks = _masks(settings)
    joint = fisher.joint(LAW, masks).flatten()
    drawn = [_drawn(settings, masks, block) for block in (1, 0)]
    kept = chains.stationary(chains.transition(LAW, masks, naive=not settings.conditioned))
    naive = chains.stationary(chains.transition(LAW, masks, naive=True))
    back = _mixed_back(MASKS if settings.masks == "exchanged" else masks, masks)
    return Evidence(
        [
            exact(
                "P(x, K)", joint, _fractions(1, 4, 1, 4, 1, 9, 2, 9, 1, 24, 1, 8, 0, 1, 0, 1), atol=1e-14, unit="pair"
            ),
            exact("what is drawn", drawn, _fractions(9, 17, 6, 7), atol=1e-14, unit="conditional"),
            bounded("mixes back", back, 1e-14, unit="state and position"),
            exact("law that is kept, given K", kept, LAW.probs, atol=1e-12, unit="state"),
            exact(
                "law that is kept, without K", naive, _fractions(6, 13, 3, 13, 4, 13, 0, 1), atol=1e-12, unit="state"
            ),
            exact("TV of the two", [chains.tv(naive, LAW.probs)], 11 / 78, atol=1e-12, unit="law"),
        ],
        tables={
            "laws": Table(
                ["x", "P(x)", "kept, given K", "kept, without K"],
                [
                    [name, p, k, n]
                    for name, p, k, n in zip(NAMES, LAW.probs.tolist(), kept.tolist(), naive.tolist(), strict=True)
                ],
            )
        },
        notes=["Mixes back: E over K given what is visible of p(x_K | x_−K, K) is p(x_K | x_−K)."],
    )


def _masks(settings: Example) -> AdaptiveBlocks:
    if settings.masks == "do not look":
        return AdaptiveBlocks(2, SINGLE, ((0.5, 0.5),) * 4)
    if settings.masks == "exchanged":
        return AdaptiveBlocks(2, SINGLE, tuple((1 - p, p) for p in CHOSEN))
    return MASKS


def _drawn(settings: Example, masks: AdaptiveBlocks, place: int) -> float:
    """P(0 at `place` | 0 at the other place, K), K the mask that hides `place`, or the other one."""
    row = torch.zeros(1, 2, dtype=torch.long)
    if settings.shown == "hidden by K":
        given = masks if settings.conditioned else None
        return float(LAW.block_conditional(row, [place], given)[0, 0])
    weight = LAW.probs * masks.probs(LAW.states)[:, 1 - place]
    same = LAW.states[:, 1 - place] == 0
    return float(weight[same & (LAW.states[:, place] == 0)].sum() / weight[same].sum())


def _mixed_back(law_of_k: AdaptiveBlocks, masks: AdaptiveBlocks) -> Float[Tensor, " case"]:
    """|E_{K' | x_−K} P(x_i = 0 | x_−i, K') − P(x_i = 0 | x_−i)|, for both positions and every state."""
    out = []
    for place in (0, 1):
        seen = LAW.states[:, 1 - place]
        for value in (0, 1):
            row = (seen == value).double()
            zero = row * (LAW.states[:, place] == 0)
            given = (zero @ fisher.joint(LAW, masks)) / (row @ fisher.joint(LAW, masks))
            share = (row @ fisher.joint(LAW, law_of_k)) / (row @ LAW.probs)
            out.append((share @ given - (zero @ LAW.probs) / (row @ LAW.probs)).abs())
    return torch.stack(out)


def _fractions(*parts: int) -> list[float]:
    return [above / below for above, below in zip(parts[::2], parts[1::2], strict=True)]


PRINTED = (
    printed(
        "masked-coordinate",
        conditioning_on_mask,
        {"shown": "shown by K"},
        statement=(
            "The conditional that adaptive masks change is P(x₁ = 0 | x₀ = 0, K = {0}) = 9/13, beside 3/5 without K."
        ),
        where="the example of adaptive masking with three states",
        erratum=(
            "9/13 is right, but it conditions on the very coordinate that K = {0} hides, and the chain never draws "
            "from it; what is drawn is 9/17 (K = {1}) and 6/7 (K = {0}). The fourth state is (1, 1)."
        ),
    ),
)

CLAIMS = (conditioning_on_mask, *PRINTED)
