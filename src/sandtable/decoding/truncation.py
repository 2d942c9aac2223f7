"""The law that is sampled: temperature, top-k and nucleus truncation of a model's next-token law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import number, probability, whole

_LONG, _BLOCK = 2**12, 2**8  # rows of more items are summed in blocks of so many
_COLDEST = 1e-30  # of numbers of 32 bits: below it, only equal logits share


@dataclass(frozen=True)
class Truncation:
    """p ∝ softmax(logits / temperature), cut to the `top_k` likeliest tokens and then to the nucleus of mass `top_p`.

    The nucleus is the smallest set of likeliest tokens whose mass reaches `top_p`, the token that crosses it included
    (Holtzman et al. 2020). `temperature` 0 or `top_p` 0 is the argmax; the first of equal tokens wins.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        number("temperature", self.temperature, least=0.0)
        probability("top_p", self.top_p)
        if self.top_k is not None:
            whole("top_k", self.top_k)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_p == 0 or self.top_k == 1

    @property
    def plain(self) -> bool:
        """Whether nothing is cut off."""
        return self.top_p == 1 and self.top_k is None

    def probs(self, logits: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """The truncated law of every row over the whole vocabulary, in float64."""
        if self.greedy:
            return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        probs = self._cooled(logits.double()).softmax(-1)
        if self.plain:
            return probs
        kept = self._kept(probs)
        return kept / kept.sum(-1, keepdim=True)

    def draw(self, logits: Float[Tensor, "row vocab"], uniform: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
        """One token a row by inverse CDF: the first whose cumulative probability exceeds the row's uniform number."""
        if self.greedy:
            return logits.argmax(-1)
        probs = self._cooled(logits).softmax(-1)
        return inverse_cdf(probs if self.plain else self._kept(probs), uniform)

    def _cooled(self, logits: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """Logits over the temperature, the largest at 0: there it stays, however small the temperature."""
        if self.temperature == 1:
            return logits
        return (logits - logits.amax(-1, keepdim=True)) / max(self.temperature, _COLDEST)

    def _kept(self, probs: Float[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """The probabilities with what is cut off set to zero."""
        # Only the values are sorted: they tell how many tokens are kept, and how likely the last of them is.
        vocab = probs.shape[-1]
        most = vocab if self.top_k is None else min(self.top_k, vocab)
        ordered = rising(probs).flip(-1) if most == vocab else probs.topk(most + 1, dim=-1).values
        allowed = ordered[:, :most]
        sums = RunningSums(allowed)
        kept = (sums.first(self.top_p * sums.total, reach=True) + 1).clamp(max=most)
        last = ordered.gather(-1, kept - 1)
        cut = probs.masked_fill(probs < last, 0.0)
        following = ordered.gather(-1, kept.clamp(max=ordered.shape[-1] - 1))
        if bool(((following == last) & (kept < vocab)).any()):
            surplus = (probs >= last).sum(-1, keepdim=True) - kept
            equal = probs == last  # of tokens as likely as the last one kept, the first ones are
            cut = cut.masked_fill(equal & (equal.cumsum(-1) > equal.sum(-1, keepdim=True) - surplus), 0.0)
        return cut


def rising(values: Float[Tensor, "row item"]) -> Float[Tensor, "row item"]:
    """The values of every row in rising order; without their places, numpy does it many times faster than torch."""
    if values.device.type != "cpu":
        return values.sort(dim=-1).values
    return torch.from_numpy(np.sort(values.detach().numpy(), axis=-1))


def inverse_cdf(weights: Float[Tensor, "row item"], uniform: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
    """Index i of each row with probability weights_i / Σ weights; never one of weight zero."""
    sums = RunningSums(weights)
    # Rounding may carry u · total up to the total itself, which no item exceeds: just below it, the last one does.
    place = sums.first((uniform[:, None].to(sums.total) * sums.total).minimum(_below(sums.total)))[:, 0]
    return place.clamp(max=weights.shape[1] - 1)  # where weights are NaN nothing is ever reached


class RunningSums:
    """Running sums of every row in float64, to find where they pass a number.

    Long rows are summed in blocks, and item by item in one block only: that is all it takes, and many times faster.
    """

    def __init__(self, values: Float[Tensor, "row item"]) -> None:
        rows, items = values.shape
        self._blocks = None
        if items > _LONG:
            self._blocks = torch.nn.functional.pad(values, (0, -items % _BLOCK)).view(rows, -(-items // _BLOCK), _BLOCK)
            self._sums = self._blocks.sum(-1, dtype=torch.float64).cumsum(-1)
        else:
            self._sums = values.cumsum(-1, dtype=torch.float64)

    @property
    def total(self) -> Float[Tensor, "row 1"]:
        return self._sums[:, -1:]

    def first(self, target: Float[Tensor, "row 1"], *, reach: bool = False) -> Int[Tensor, "row 1"]:
        """The first item with which the sum exceeds the target, a number below the total, or reaches it."""
        place = torch.searchsorted(self._sums, target, right=not reach)
        if self._blocks is None:
            return place
        place = place.clamp(max=self._sums.shape[1] - 1)
        before = self._sums.gather(1, (place - 1).clamp(min=0)).where(place > 0, 0.0)
        inside = self._blocks.gather(1, place[:, :, None].expand(-1, -1, _BLOCK))[:, 0]
        inside = before + inside.cumsum(-1, dtype=torch.float64)
        # The block's last sum may be a rounding error below what the blocks themselves add up to.
        ends = inside[:, -1:]
        return place * _BLOCK + torch.searchsorted(
            inside, target.minimum(ends if reach else _below(ends)), right=not reach
        )


def _below(numbers: Float[Tensor, "row 1"]) -> Float[Tensor, "row 1"]:
    """The next smaller numbers."""
    return numbers.nextafter(torch.full_like(numbers, -torch.inf))
