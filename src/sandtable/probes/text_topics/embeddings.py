"""Are words of one topic embedded closer together than words of different topics?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, items, typed, whole
from sandtable.probes.text_topics.contrast import AT_ONCE, Contrast, Pairs, check_ids, dots, pair_draws, word_weights
from sandtable.probes.topic_words import TopicWords


@dataclass(frozen=True)
class EmbeddingTopics:
    """Similarity of same-topic and different-topic words, by cosine and by dot product."""

    cosine: Contrast
    dot: Contrast


@typed
def embedding_topics(
    embeddings: Float[Tensor, "vocab width"],
    words: TopicWords,
    *,
    generator: torch.Generator,
    centred: bool = False,
    resamples: int = 1000,
    at_once: int = 256,
) -> EmbeddingTopics:
    """Every unordered pair of different kept words, exactly; bootstrap over words within topics.

    A bootstrap sample gives word i the weight w_i with which it is redrawn among the words of its (first) topic, and
    pair (i, j) the weight w_i·w_j: all draws of a mean are then quadratic forms in the same matrix of similarities.
    `centred` takes the mean of the kept words out first. Memory: the same-topic pairs, and `at_once` rows of the rest.
    """
    whole("resamples", resamples, least=0)
    whole("at_once", at_once)
    check_ids("embeddings", words.words, len(embeddings))
    member = words.member[words.words.to(words.member.device)].cpu().float()
    vectors = embeddings[words.words.to(embeddings.device)].detach().double().cpu()
    if centred:
        vectors = vectors - vectors.mean(0)
    weights = word_weights(member, resamples, generator)
    pairs = _same_pairs(member, at_once)
    units = F.normalize(vectors, dim=1)
    cosine, dot = (_contrast(v, member, pairs, weights, at_once) for v in (units, vectors))
    return EmbeddingTopics(cosine, dot)


@typed
def similarity_matrix(
    embeddings: Float[Tensor, "vocab width"], ids: Iterable[int] | Int[Tensor, " words"]
) -> Float[Tensor, "words words"]:
    """Cosines among chosen words."""
    chosen = torch.tensor([whole("ids", word, least=0) for word in items("ids", ids, "word ids")], dtype=torch.long)
    check_ids("ids", chosen, len(embeddings))
    units = F.normalize(embeddings[chosen.to(embeddings.device)].detach().double(), dim=1)
    return units @ units.T


def _same_pairs(member: Float[Tensor, "words topics"], at_once: int) -> Pairs:
    """Rows i < j of words that share a topic."""
    found = [torch.zeros(0, 2, dtype=torch.long)]
    for first in range(0, len(member), at_once):
        shared = (member[first : first + at_once] @ member[first:].T > 0).triu(1)
        found.append(shared.nonzero() + first)
    return torch.cat(found)


def _contrast(
    vectors: Float[Tensor, "words width"],
    member: Float[Tensor, "words topics"],
    pairs: Pairs,
    weights: Float[Tensor, "words resamples"],
    at_once: int,
) -> Contrast:
    """Means and AUC of dot products; different-topic sums are those of all pairs less those of same-topic pairs."""
    number = len(vectors) * (len(vectors) - 1) // 2
    different_pairs = number - len(pairs)
    if not len(pairs) or not different_pairs:
        kind = "different" if len(pairs) else "same"
        raise ArgumentError(f"words: the {len(vectors)} kept words hold no {kind}-topic pair; nothing to compare")
    values = dots(vectors, pairs)
    placements, placed = _placements(vectors, member, values.float(), weights, at_once)
    once = torch.ones(len(vectors), 1)
    same_weight, same_draws, same_placed = pair_draws(pairs, [torch.ones(len(pairs)), values, placements], weights)
    different_weight = _all_pairs(once.double(), weights) - same_weight
    different_draws = _all_pairs(vectors, weights) - same_draws
    different = (_all_pairs(vectors, once) - values.sum()) / different_pairs
    auc = float(placements.mean())
    return Contrast(
        same=float(values.mean()),
        different=float(different),
        auc=auc,
        same_pairs=len(pairs),
        different_pairs=different_pairs,
        same_draws=same_draws / same_weight,
        different_draws=different_draws / different_weight,
        auc_draws=same_placed / same_weight + placed / different_weight - auc,
    )


def _all_pairs(
    vectors: Float[Tensor, "words width"], weights: Float[Tensor, "words resamples"]
) -> Float[Tensor, " resamples"]:
    """Σ_{i<j} w_i·w_j·⟨x_i, x_j⟩ = (|Σ w x|² − Σ w²|x|²) / 2, without a matrix of pairs."""
    squares, sums = vectors.square().sum(1), []
    for some in weights.split(AT_ONCE, 1):
        some = some.double()
        sums.append(((vectors.T @ some).square().sum(0) - squares @ some.square()) / 2)
    return torch.cat(sums)


def _placements(
    vectors: Float[Tensor, "words width"],
    member: Float[Tensor, "words topics"],
    values: Float[Tensor, " same_pairs"],
    weights: Float[Tensor, "words resamples"],
    at_once: int,
) -> tuple[Float[Tensor, " same_pairs"], Float[Tensor, " resamples"]]:
    """(V(p) of every same-topic pair p, Σ w_i·w_j·V(i, j) over different-topic pairs).

    V(p) is the share of different-topic pairs below p, V(i, j) the share of same-topic pairs above (i, j), ties half.
    Both means of V are the AUC, and to first order its draws are their weighted means less the AUC (DeLong, DeLong and
    Clarke-Pearson 1988). Every different-topic pair is looked up among the sorted same-topic values.
    """
    levels, rank, ties = values.unique(return_inverse=True, return_counts=True)
    top = len(levels)
    below = F.pad(ties.cumsum(0), (1, 0)).double()  # same-topic pairs below level p
    padded, ties = F.pad(levels, (0, 1), value=math.inf), F.pad(ties, (0, 1))
    lower, equal = torch.zeros(2, top + 1, dtype=torch.float64)
    placed = torch.zeros(weights.shape[1], dtype=torch.float64)
    for first in range(0, len(vectors), at_once):
        part = slice(first, first + at_once)
        different = (member[part] @ member[first:].T == 0).triu(1)
        products = (vectors[part] @ vectors[first:].T).float()
        place = torch.searchsorted(levels, products)
        tied = padded[place] == products
        lower += torch.bincount(place[different], minlength=top + 1)
        equal += torch.bincount(place[different & tied], minlength=top + 1)
        above = 1 - (below[place] + 0.5 * ties[place] * tied) / len(values)
        share = (above * different).float()
        placed += (weights[part] * (share @ weights[first:])).sum(0)
    # place p: above level p − 1 and not above level p, so below levels p + 1, … and below or tied with p
    return ((lower.cumsum(0) - 0.5 * equal) / lower.sum())[rank], placed
