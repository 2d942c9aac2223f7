"""What translations are worth: exact match and token accuracy; of texts, BLEU and stutter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, missing, one_of, typed
from sandtable.inputs import PAD

Ids = Int[Tensor, "row position"]


def exact_match(tokens: Ids, target: Ids) -> Bool[Tensor, " row"]:
    """Which translations are the reference, token by token."""
    tokens, target = _together(tokens, target)
    return (tokens == target).all(1)


def token_accuracy(tokens: Ids, target: Ids) -> Float[Tensor, " row"]:
    """The share of the reference's tokens, ⟨eos⟩ included, that stand at their place."""
    tokens, target = _together(tokens, target)
    real = target != PAD
    return ((tokens == target) & real).sum(1).double() / real.sum(1)


@typed
def stutter_rate(outputs: Sequence[str], references: Sequence[str] | None = None) -> tuple[float, float]:
    """Over texts: repetitions of a word per pair of neighbours, and the share of texts that have one.

    Words are what stands between blanks. A reference excuses, for each word, as many repetitions as it has itself; of
    tokens, `probes.translation.neighbours` says the same.
    """
    if references is not None:
        _same_number(outputs, references)
    repeats = pairs = texts = 0
    for i, text in enumerate(outputs):
        words = text.split()
        found = Counter(a for a, b in pairwise(words) if a == b)
        if references is not None:
            found -= Counter(a for a, b in pairwise(references[i].split()) if a == b)
        repeats, pairs, texts = repeats + found.total(), pairs + max(len(words) - 1, 0), texts + bool(found)
    return repeats / max(pairs, 1), texts / max(len(outputs), 1)


@dataclass(frozen=True)
class Bleu:
    """A corpus BLEU in percent, and the signature that says how it was computed."""

    score: float
    signature: str


@typed
def bleu(outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a") -> Bleu:
    """Corpus BLEU of sacrebleu (Post 2018): `tokenize` "13a" as WMT does, "zh" for Chinese, "intl", "none", …"""
    one_of("tokenize", tokenize, bleu_tokenizers())
    _same_number(outputs, references)
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize)
    score = metric.corpus_score(list(outputs), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))


def bleu_tokenizers() -> tuple[str, ...]:
    """What sacrebleu can cut texts with."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise missing("bleu", "sacrebleu", "translation") from error
    return tuple(sorted(BLEU.TOKENIZERS))


def _together(tokens: Ids, target: Ids) -> tuple[Ids, Ids]:
    """Both with the same number of positions."""
    if len(tokens) != len(target):
        raise ArgumentError(f"{len(tokens)} translations, {len(target)} references: must be one for each")
    width = max(tokens.shape[1], target.shape[1])
    return (
        F.pad(tokens, (0, width - tokens.shape[1]), value=PAD),
        F.pad(target, (0, width - target.shape[1]), value=PAD),
    )


def _same_number(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references) or not outputs:
        raise ArgumentError(f"{len(outputs)} texts, {len(references)} references: must be one for each, and not none")
