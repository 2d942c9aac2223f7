"""How a measurement is reported: means, their ratio and AUC, and the bootstrap behind their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, probability, whole

Pairs = Int[Tensor, "pairs 2"]
Draws = Float[Tensor, " resamples"]
LEVEL = 0.99
AT_ONCE = 64  # resamples held at a time: bounds the memory of a bootstrap


def interval(draws: Float[Tensor, "resamples ..."], level: float = LEVEL) -> tuple[Tensor, Tensor]:
    """Both ends of the percentile interval of bootstrap draws; NaN without draws."""
    tail = (1 - probability("level", level)) / 2
    if not len(draws):
        return draws.new_full(draws.shape[1:], math.nan), draws.new_full(draws.shape[1:], math.nan)
    # a draw that redrew no pair at all is undefined and says nothing
    low, high = draws.nanquantile(torch.tensor([tail, 1 - tail], dtype=draws.dtype), dim=0)
    return low, high


@dataclass(frozen=True)
class Contrast:
    """A quantity on same-topic and on different-topic pairs: means, and the AUC P(same > different) + P(equal) / 2.

    `…_draws` are the three numbers recomputed on bootstrap samples, paired with each other.
    """

    same: float
    different: float
    auc: float
    same_pairs: int
    different_pairs: int
    same_draws: Draws
    different_draws: Draws
    auc_draws: Draws

    @property
    def difference(self) -> float:
        return self.same - self.different

    @property
    def ratio_defined(self) -> bool:
        """A ratio of means says nothing when its denominator cannot be told from zero."""
        low, high = interval(self.different_draws)
        return not bool((low <= 0) & (high >= 0)) and self.different != 0

    @property
    def ratio(self) -> float:
        """Mean same / mean different, as published; NaN where it is not defined."""
        return self.same / self.different if self.ratio_defined else math.nan

    def interval(self, what: str = "difference", level: float = LEVEL) -> tuple[float, float]:
        """The bootstrap interval of "same", "different", "difference", "ratio" or "auc"."""
        same, different = self.same_draws, self.different_draws
        ratio = same / different if self.ratio_defined else same * math.nan
        draws = dict(same=same, different=different, difference=same - different, ratio=ratio, auc=self.auc_draws)
        low, high = interval(draws[one_of("what", what, draws)], level)
        return float(low), float(high)


# -- bootstrap -------------------------------------------------------------------------------------------------------


def word_weights(
    member: Float[Tensor, "words topics"], resamples: int, generator: torch.Generator
) -> Float[Tensor, "words resamples"]:
    """How often each word is drawn when every topic redraws, with replacement, the words that have it as their first.

    Words are whole numbers of times in a sample, so float32 holds their products exactly.
    """
    home = member.argmax(1)
    order = home.argsort(stable=True)
    sizes = torch.bincount(home, minlength=member.shape[1])
    first = (sizes.cumsum(0) - sizes)[home]
    weights = torch.zeros(len(member), resamples)
    for some in weights.split(AT_ONCE, 1):
        where = torch.rand(some.shape, generator=generator, dtype=torch.float64) * sizes[home, None]
        some.scatter_add_(0, order[first[:, None] + where.long()], torch.ones(some.shape))
    return weights


def pair_draws(pairs: Pairs, values: Iterable[Tensor], weights: Float[Tensor, "words resamples"]) -> list[Draws]:
    """Σ over pairs of w_i·w_j·value for every draw, one sparse product per list of values."""
    shape, (rows, columns) = (len(weights), len(weights)), pairs.numpy().T
    sums = []
    for value in values:
        matrix = sp.csr_matrix((value.double().numpy(), (rows, columns)), shape=shape)
        parts = (part.double().numpy() for part in weights.split(AT_ONCE, 1))
        sums.append(torch.from_numpy(np.concatenate([np.einsum("wr,wr->r", w, matrix @ w) for w in parts])))
    return sums


def dots(vectors: Float[Tensor, "words width"], pairs: Pairs) -> Float[Tensor, " pairs"]:
    """⟨x_i, x_j⟩ of every pair."""
    return torch.cat([(vectors[i] * vectors[j]).sum(1) for i, j in (part.unbind(1) for part in pairs.split(1 << 13))])


def document_draws(
    columns: Float[Tensor, "documents columns"], resamples: int, generator: torch.Generator
) -> Float[Tensor, "resamples columns"]:
    """Column sums over documents redrawn with replacement."""
    whole("resamples", resamples, least=0)
    number, columns = len(columns), columns.double()
    sums = [columns.new_zeros(0, columns.shape[1])]
    for first in range(0, resamples, AT_ONCE):
        drawn = torch.randint(number, (min(AT_ONCE, resamples - first), number), generator=generator)
        weights = columns.new_zeros(drawn.shape).scatter_add_(1, drawn, columns.new_ones(drawn.shape))
        sums.append(weights @ columns)
    return torch.cat(sums)


def check_ids(name: str, ids: Tensor, vocab: int | None) -> None:
    """One line for the first id outside a vocabulary, whose size may be unknown."""
    wrong = ids[(ids < 0) | (ids >= (math.inf if vocab is None else vocab))]
    if len(wrong):
        known = "must be ≥ 0" if vocab is None else f"is not in the vocabulary of {vocab}"
        raise ArgumentError(f"{name}: token {int(wrong[0])} {known}")
