"""What a model knows of topics: block structure of its matrices, attention within and across topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, numbers, typed, whole
from sandtable.inputs import Bag
from sandtable.models import Stack
from sandtable.worlds import TopicModel

PerModel = Float[Tensor, " models"]


@dataclass(frozen=True)
class Blocks:
    """Means over the word–word entries of vocab × vocab matrices, one number per model.

    `same` counts all same-topic entries with the diagonal, `same_other` leaves it out; `different` and its spread
    `different_std` are over entries between topics; `mask_column` is what [MASK] adds to words, `mask_row` the reverse.
    """

    same: PerModel
    same_other: PerModel
    diagonal: PerModel
    different: PerModel
    different_std: PerModel
    mask_column: PerModel
    mask_row: PerModel

    @property
    def gap(self) -> PerModel:
        """Mean same-topic entry minus mean different-topic entry."""
        return self.same - self.different

    @property
    def contrast(self) -> PerModel:
        """The gap in standard deviations of the different-topic entries."""
        return self.gap / self.different_std

    @property
    def is_diagonal(self) -> Bool[Tensor, " models"]:
        """ "Diagonal" rather than "uniform block": diagonal entries at least twice the other same-topic ones."""
        return self.diagonal >= 2 * self.same_other


def blocks(matrices: Float[Tensor, "models out in"], world: TopicModel, labels: Tensor | None = None) -> Blocks:
    """Block statistics of matrices in the theory's orientation: entry [i, j] is what token j adds to output i.

    `labels` replaces the home topic of every token (−1 for none), e.g. to shuffle or shift topics.
    """
    matrices = matrices.double()
    topic = world.topic_of if labels is None else labels
    if matrices.shape[-2:] != (len(topic), len(topic)):
        raise ArgumentError(
            f"matrices of shape {tuple(matrices.shape)}: must be models × {len(topic)} × {len(topic)} for this world"
        )
    word = topic >= 0
    pairs = word[:, None] & word[None, :]
    same = (topic[:, None] == topic[None, :]) & pairs
    eye = torch.eye(len(topic), dtype=torch.bool)
    between = matrices[:, pairs & ~same]
    return Blocks(
        same=matrices[:, same].mean(1),
        same_other=matrices[:, same & ~eye].mean(1),
        diagonal=matrices[:, same & eye].mean(1),
        different=between.mean(1),
        different_std=between.std(1),
        mask_column=matrices[:, 1:, 0].mean(1),
        mask_row=matrices[:, 0, 1:].mean(1),
    )


def value_matrix(models: Stack, layer: int = 0) -> Float[Tensor, "models out in"]:
    """W^V of a one-hot, single-head model without W_O, in the theory's orientation f = W^V y."""
    weight = models[f"blocks.{layer}.attn.W_V"]
    if weight.shape[1] != 1 or f"blocks.{layer}.attn.W_O" in models.params:
        raise ArgumentError("value_matrix: needs one head and no output matrix (output=False)")
    return weight[:, 0].mT


def without_offsets(matrices: Float[Tensor, "models out in"]) -> Float[Tensor, "models out in"]:
    """The matrices with every column's mean over word outputs taken out.

    Attention weights sum to one, so a constant added to a column moves all logits alike and cross-entropy cannot see
    it: only what is left is identified, and optimisers such as Adam leave the rest wherever it drifted.
    """
    centred = matrices.clone()
    centred[:, 1:] -= matrices[:, 1:].mean(1, keepdim=True)
    return centred


def gram(models: Stack) -> Float[Tensor, "models vocab vocab"]:
    """E = W_Eᵀ W_E: the dot products of all embeddings."""
    embedding = models["embed.W_E"]
    return embedding @ embedding.mT


@typed
def block_means(models: Stack, name: str, world: TopicModel) -> Blocks:
    """Block statistics of a parameter by name: a vocab × vocab matrix, W_V, or "gram" for the embedding's products."""
    if name == "gram":
        return blocks(gram(models), world)
    weight = models[name]
    return blocks(weight[:, 0].mT if weight.ndim == 4 else weight.mT, world)


# -- attention -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionAverages:
    """Mean attention over pairs of positions, one number per model: same word (a position with itself counts), other
    word of the same topic, word of another topic."""

    same_word: PerModel
    same_topic: PerModel
    different_topic: PerModel
    words: int

    @property
    def alpha(self) -> PerModel:
        return self.same_topic / self.different_topic

    @property
    def beta(self) -> PerModel:
        return self.same_word / self.different_topic

    @property
    def gamma(self) -> PerModel:
        """((v − 1) α + β) / v, the only combination that a block value matrix can see."""
        return ((self.words - 1) * self.alpha + self.beta) / self.words


@typed
def attention_averages(
    models: Stack,
    world: TopicModel,
    generator: torch.Generator,
    *,
    documents: int = 200,
    labels: Int[Tensor, " vocab"] | None = None,
    debias: bool = False,
    at_once: int = 25,
) -> AttentionAverages:
    """Average attention on unmasked documents of a one-layer model without positions.

    Computed over token types with their counts, which equals the average over all ordered pairs of positions. With
    `debias` the attention of a document of n words is multiplied by n / 100, so that its mean does not depend on n.
    """
    topic = world.topic_of if labels is None else labels
    batch = world.sample(documents, generator)
    assert batch.mask is not None
    size = world.vocab_size
    counts = torch.zeros(documents, size).scatter_add_(1, batch.x, batch.mask.float())
    word = topic >= 0
    pairs = word[:, None] & word[None, :]
    eye = torch.eye(size, dtype=torch.bool)
    same = (topic[:, None] == topic[None, :]) & pairs
    kinds = torch.stack([eye & pairs, same & ~eye, pairs & ~same]).double()
    sums = torch.zeros(3, len(models), dtype=torch.float64)
    numbers = torch.zeros(3, dtype=torch.float64)
    dtype = next(iter(models.params.values())).dtype
    for first in range(0, documents, whole("at_once", at_once)):
        some = counts[first : first + at_once]
        rows = torch.arange(len(some)).repeat_interleave(size)
        bag = Bag(some.to(dtype), rows, torch.arange(size).repeat(len(some)))
        _, found = models(bag, want=("blocks.0.attn.hook_pattern",))
        pattern = found["blocks.0.attn.hook_pattern"].mean(2).unflatten(1, (len(some), size))
        weight = some * (some.sum(1, keepdim=True) / 100 if debias else 1.0)
        # pattern[q, k] already counts every position of type k; rows are weighted by how often q is a query
        sums += torch.einsum("mqk,cqk->cm", torch.einsum("mdqk,dq->mqk", pattern, weight.to(dtype)).double(), kinds)
        numbers += torch.einsum("qk,cqk->c", some.double().T @ some.double(), kinds)
    mean = sums / numbers[:, None]
    return AttentionAverages(mean[0], mean[1], mean[2], words=world.words)


# -- dynamics --------------------------------------------------------------------------------------------------------


def norm_of(name: str) -> Callable[[Mapping[str, Tensor]], PerModel]:
    """A function for `watch=`: the Frobenius norm of a parameter of every model."""

    def norm(params: Mapping[str, Tensor]) -> PerModel:
        return params[name].reshape(len(params[name]), -1).norm(dim=1)

    return norm


@typed
def time_to_fraction(
    values: Float[Tensor, "models times"], steps: Float[Tensor, " times"] | list[int], fraction: float
) -> PerModel:
    """t_q: the first step at which a curve has made the fraction q of its total change; inf if it never does."""
    number("fraction", fraction)
    at = torch.tensor(numbers("steps", steps), dtype=torch.float64)
    if at.shape != values.shape[1:]:
        raise ArgumentError(f"steps of shape {tuple(at.shape)}: the curves have {values.shape[1]} points")
    change = (values - values[:, :1]) / (values[:, -1:] - values[:, :1])
    reached = change >= fraction
    first = at[reached.double().argmax(1)]
    return torch.where(reached.any(1), first, torch.full_like(first, torch.inf))


def rotation(before: Float[Tensor, "models ..."], after: Float[Tensor, "models ..."]) -> PerModel:
    """(1 − cos(before, after)) / 2 in [0, 1]: how far a matrix has turned, whatever its norm."""
    a, b = before.reshape(len(before), -1).double(), after.reshape(len(after), -1).double()
    return (1 - torch.nn.functional.cosine_similarity(a, b, dim=1)) / 2
