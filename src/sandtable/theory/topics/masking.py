"""What masking does to a document, and the constants every closed form of the topic world is made of.

Notation of Li, Li & Risteski (2023): T topics of v words, τ of them present, masking (p_m, p_c, p_r). Matrices follow
the theory's orientation throughout this package: `W[i, j]` maps input token j to output i, so a prediction is f = W
p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.special import digamma
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of
from sandtable.worlds import BertMasking, TopicModel

KEYS = ("all", "unselected")


@dataclass(frozen=True)
class Constants:
    """The scalars of the theory for one world and one masking law.

    A document with word distribution P looks like p̃ = a·P + p_m p_r/(Tv) on words and `p_mask` on [MASK], where a is
    the probability that a position still shows its own word. The covariance of P over documents is s·Π, with Π the
    projection on contrasts between topics. p₁ and p₂ (p̃ at words of present and absent topics) are nan for Dirichlet
    shares.
    """

    topics: int
    words: int
    present: int | None
    a: float
    noise: float
    p_mask: float
    c1: float
    c2: float
    c3: float
    s: float
    p1: float
    p2: float

    @property
    def vocab_words(self) -> int:
        return self.topics * self.words

    @property
    def mean_square(self) -> float:
        """‖m‖², the curvature of the mean mode."""
        return self.p_mask**2 + (1.0 - self.p_mask) ** 2 / self.vocab_words

    @property
    def m(self) -> Float[Tensor, " vocab"]:
        """E p̃ over documents: p_mask on [MASK], the rest evenly on words."""
        mean = torch.full((self.vocab_words + 1,), (1.0 - self.p_mask) / self.vocab_words, dtype=torch.float64)
        mean[0] = self.p_mask
        return mean


def constants(world: TopicModel, masking: BertMasking, *, keys: str = "all") -> Constants:
    """a = 1 − (1−p_c)p_m, p_mask = p_m(1−p_c−p_r), c₁ = p_r/((1−p_c−p_r)aTv), c₂ = 1/p_mask − 1, c₃ = 1/a, s, p₁, p₂.

    `keys="unselected"` hides every selected position from attention, as the published code of Li, Li & Risteski (2023)
    does: then p̃ = P, so a = 1 and the noise and [MASK] terms vanish (c₁ = 0, c₂ = ∞).
    """
    require_disjoint(world)
    one_of("keys", keys, KEYS)
    size = world.topics * world.words
    if keys == "unselected":
        a, noise, p_mask, c1, c2 = 1.0, 0.0, 0.0, 0.0, math.inf
        if masking.select == 1.0:
            raise ArgumentError("select=1: with keys='unselected' nothing would be visible; must be < 1")
    else:
        a = 1.0 - (1.0 - masking.keep) * masking.select
        noise = masking.select * masking.random
        p_mask = masking.select * masking.hide
        if a <= 0.0:
            raise ArgumentError("select=1, keep=0: no position shows its own word, so there is nothing to predict from")
        if masking.hide <= 1e-12:
            raise ArgumentError(
                f"keep + random = {masking.keep + masking.random:g}: must be < 1, or [MASK] is never seen (c₂ = ∞)"
            )
        c1 = masking.random / (masking.hide * a * size)
        c2 = 1.0 / p_mask - 1.0
    p1 = p2 = math.nan
    if world.present is not None:
        p2 = noise / size
        p1 = a / (world.words * world.present) + p2
    return Constants(
        topics=world.topics,
        words=world.words,
        present=world.present,
        a=a,
        noise=noise,
        p_mask=p_mask,
        c1=c1,
        c2=c2,
        c3=1.0 / a,
        s=contrast_variance(world),
        p1=p1,
        p2=p2,
    )


def require_disjoint(world: TopicModel) -> None:
    """The closed forms need topics that share no words."""
    if world.shared_words:
        raise ArgumentError(f"overlap={world.overlap:g}: the closed forms need disjoint topics, overlap=0")


def require_present(world: TopicModel) -> int:
    """τ, or an `ArgumentError` for worlds with Dirichlet shares."""
    if world.present is None:
        raise ArgumentError("present=None: this result is about documents with exactly τ topics; give present=τ")
    return world.present


def contrast_variance(world: TopicModel) -> float:
    """s in Cov(P) = s·Π: (T−τ)/(τvT(T−1)) for τ-sets, 1/(vT(Tα+1)) for Dirichlet(α) shares."""
    require_disjoint(world)
    topics, words = world.topics, world.words
    if topics == 1:
        return 0.0
    if world.present is not None:
        return (topics - world.present) / (world.present * words * topics * (topics - 1))
    assert world.dirichlet is not None
    return 1.0 / (words * topics * (topics * world.dirichlet + 1.0))


def topic_contrasts(world: TopicModel) -> Float[Tensor, "vocab vocab"]:
    """Π = (I_T − J_T/T) ⊗ J_v/v on words, 0 on [MASK]: the projection on contrasts between topics."""
    topics, words = world.topics, world.words
    between = torch.eye(topics, dtype=torch.float64) - 1.0 / topics
    projection = torch.zeros(world.vocab_size, world.vocab_size, dtype=torch.float64)
    projection[1:, 1:] = torch.kron(between, torch.full((words, words), 1.0 / words, dtype=torch.float64))
    return projection


def visible_distribution(
    world: TopicModel, masking: BertMasking, *, keys: str = "all"
) -> Float[Tensor, "support vocab"]:
    """p̃ of every topic set, in the order of `world.infinite()` (Li, Li & Risteski 2023, proposition on masking).

    p₁ on words of present topics, p₂ on the others, p_mask on [MASK]; overlapping topics are welcome here.
    """
    one_of("keys", keys, KEYS)
    documents = world.infinite().batch.x
    if keys == "unselected":
        return documents.clone()
    visible = (1.0 - (1.0 - masking.keep) * masking.select) * documents
    visible[:, 1:] += masking.select * masking.random / (world.vocab_size - 1)
    visible[:, 0] = masking.select * masking.hide
    return visible


def mean_squared_shares(world: TopicModel) -> float:
    """E Σ_t θ_t²: 1/τ for τ-sets, (α+1)/(Tα+1) for Dirichlet(α) shares."""
    if world.present is not None:
        return 1.0 / world.present
    assert world.dirichlet is not None
    return (world.dirichlet + 1.0) / (world.topics * world.dirichlet + 1.0)


def optimal_loss(world: TopicModel) -> float:
    """Least squared loss of uniform attention on infinitely long documents: 1 − E Σθ²/v, that is 1 − 1/(τv) for τ-sets.

    It is attained exactly when every position predicts the document's own word distribution.
    """
    require_disjoint(world)
    return 1.0 - mean_squared_shares(world) / world.words


def cross_entropy_floor(world: TopicModel) -> float:
    """Least cross-entropy (nats) when the document is known but the word is not: E H(θ) + ln v.

    ln(τv) for τ-sets; ψ(Tα+1) − ψ(α+1) + ln v for Dirichlet(α) shares.
    """
    require_disjoint(world)
    if world.present is not None:
        return math.log(world.present * world.words)
    assert world.dirichlet is not None
    entropy = digamma(world.topics * world.dirichlet + 1.0) - digamma(world.dirichlet + 1.0)
    return float(entropy) + math.log(world.words)
