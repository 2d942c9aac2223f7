"""The linear map under uniform attention: all optima, the one that L2 picks, and how gradient descent gets there.

With uniform attention every position predicts f = W p̃, so the squared loss is quadratic in W with curvature
Σ = E p̃p̃ᵀ = m mᵀ + a²s·Π: a mean mode, T − 1 topic contrasts, and a null space. `W[i, j]` is output i, input j.
Source: Li, Li & Risteski (2023), lemma 1, theorem 2 and the theorem on unregularised value matrices; the finite-λ and
finite-time forms are derived here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from sandtable.arguments import ArgumentError, number, typed
from sandtable.theory.topics.masking import (
    Constants,
    constants,
    topic_contrasts,
    visible_distribution,
)
from sandtable.worlds import BertMasking, TopicModel


class BlockEntries(NamedTuple):
    """A map that is constant on blocks: the [MASK] column, word pairs of different topics, word pairs of one topic."""

    mask_column: float
    different: float
    same: float

    @property
    def gap(self) -> float:
        return self.same - self.different

    def matrix(self, world: TopicModel) -> Float[Tensor, "vocab vocab"]:
        """The vocab × vocab matrix with these entries and an empty [MASK] row."""
        matrix = torch.full((world.vocab_size, world.vocab_size), self.different, dtype=torch.float64)
        matrix[world.same_topic] = self.same
        matrix[:, 0] = self.mask_column
        matrix[0] = 0.0
        return matrix


def value_matrix_entries(world: TopicModel, masking: BertMasking, *, keys: str = "all") -> BlockEntries:
    """Entries of the unique limit of argmin L + λ‖W‖²_F as λ → 0 (theorem 2).

    W_i0 = (c₂c₃ − c₁Tv)/(c₂² + Tv), different topics −(c₁c₂ + c₃)/(c₂² + Tv), same topic c₃/v more. With
    `keys="unselected"` there is no [MASK] to see and the entries are 0, 0 and 1/v.
    """
    c = constants(world, masking, keys=keys)
    _require_contrast(c)
    if keys == "unselected":
        return BlockEntries(0.0, 0.0, 1.0 / c.words)
    scale = c.c2**2 + c.vocab_words
    different = -(c.c1 * c.c2 + c.c3) / scale
    return BlockEntries((c.c2 * c.c3 - c.c1 * c.vocab_words) / scale, different, different + c.c3 / c.words)


def value_matrix_limit(world: TopicModel, masking: BertMasking, *, keys: str = "all") -> Float[Tensor, "vocab vocab"]:
    """The matrix of `value_matrix_entries`: also where gradient descent from zero ends without any L2."""
    return value_matrix_entries(world, masking, keys=keys).matrix(world)


def optimal_map(
    world: TopicModel,
    masking: BertMasking,
    *,
    u: Float[Tensor, " vocab"],
    deviations: Float[Tensor, "vocab topics words"] | None = None,
) -> Float[Tensor, "vocab vocab"]:
    """The member of the family of all optimal maps with offsets `u` and within-topic `deviations` (lemma 1).

    Row i sums to u_i·v over every foreign topic and to c₃ + u_i·v over its own; its [MASK] entry is −c₁ − c₂u_i
    (−c₂u₀ in row 0). Deviations move weight inside a topic: their mean over each topic is removed. Only 1 ≤ τ < T.
    """
    c = constants(world, masking)
    _require_contrast(c)
    shape = (world.vocab_size, c.topics, c.words)
    if tuple(u.shape) != shape[:1] or (deviations is not None and tuple(deviations.shape) != shape):
        got = tuple(u.shape), None if deviations is None else tuple(deviations.shape)
        raise ArgumentError(f"u, deviations of shapes {got}: must be ({shape[0]},) and {shape}")
    u = u.double()
    blocks = u[:, None, None].expand(shape).clone()
    words = torch.arange(1, world.vocab_size)
    blocks[words, world.topic_of[1:]] += c.c3 / c.words
    if deviations is not None:
        deviations = deviations.double()
        blocks += deviations - deviations.mean(-1, keepdim=True)
    column = -c.c2 * u
    column[1:] -= c.c1
    return torch.cat([column[:, None], blocks.flatten(1)], dim=1)


@typed
def random_optimal_map(
    world: TopicModel, masking: BertMasking, *, generator: torch.Generator, scale: float = 1.0
) -> Float[Tensor, "vocab vocab"]:
    """A member of lemma 1's family with Gaussian offsets and deviations of standard deviation `scale`."""
    number("scale", scale, least=0.0)
    size = world.vocab_size
    u = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    deviations = scale * torch.randn(size, world.topics, world.words, generator=generator, dtype=torch.float64)
    return optimal_map(world, masking, u=u, deviations=deviations)


def optimality_residuals(
    world: TopicModel, masking: BertMasking, W: Float[Tensor, "*models vocab vocab"]
) -> Float[Tensor, "*models vocab topics+1"]:
    """How far `W` is from lemma 1's conditions: T topic-sum residuals and the [MASK] residual of every row."""
    c = constants(world, masking)
    _require_contrast(c)
    W = W.double()
    sums = W[..., 1:].unflatten(-1, (c.topics, c.words)).sum(-1)
    sums[..., torch.arange(1, world.vocab_size), world.topic_of[1:]] -= c.c3
    u = sums.mean(-1, keepdim=True) / c.words
    column = W[..., :1] + c.c2 * u
    column[..., 1:, :] += c.c1
    return torch.cat([sums - c.words * u, column], dim=-1)


@typed
def is_optimal(world: TopicModel, masking: BertMasking, W: Float[Tensor, "vocab vocab"], *, tol: float = 1e-9) -> bool:
    """Whether `W` satisfies lemma 1's conditions up to `tol` in every entry."""
    return bool(optimality_residuals(world, masking, W).abs().max() <= tol)


def second_moment(world: TopicModel, masking: BertMasking, *, keys: str = "all") -> Float[Tensor, "vocab vocab"]:
    """Σ = E p̃p̃ᵀ = m mᵀ + a²s·Π; the loss of each row of W has Hessian 2Σ, of rank T when 1 ≤ τ < T."""
    c = constants(world, masking, keys=keys)
    return torch.outer(c.m, c.m) + c.a**2 * c.s * topic_contrasts(world)


def excess_loss(
    world: TopicModel, masking: BertMasking, W: Float[Tensor, "*models vocab vocab"], *, keys: str = "all"
) -> Float[Tensor, "*models"]:
    """Loss above `optimal_loss`, in closed form: ‖Wm − E P‖² + s‖aWΠ − Π‖²_F. Valid for both laws of the topics."""
    c = constants(world, masking, keys=keys)
    contrasts = topic_contrasts(world)
    W = W.double()
    mean_error = W @ c.m - _mean_words(c)
    contrast_error = c.a * W @ contrasts - contrasts
    return mean_error.square().sum(-1) + c.s * contrast_error.square().sum((-2, -1))


def population_loss(
    world: TopicModel,
    masking: BertMasking,
    W: Float[Tensor, "*models vocab vocab"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    keys: str = "all",
) -> Float[Tensor, "*models"]:
    """Squared loss of f = W p̃ + bias on infinitely long documents, summed over every topic set."""
    support = world.infinite()
    documents, visible = support.batch.x, visible_distribution(world, masking, keys=keys)
    predicted = visible @ W.double().mT
    if bias is not None:
        predicted = predicted + bias.double()
    per_set = 1.0 + predicted.square().sum(-1) - 2.0 * (predicted * documents).sum(-1)
    return per_set @ support.weights


@typed
def ridge_value_matrix(
    world: TopicModel, masking: BertMasking, *, l2: float, keys: str = "all"
) -> Float[Tensor, "vocab vocab"]:
    """argmin L(W) + l2·‖W‖²_F exactly: E P mᵀ/(‖m‖² + l2) + a s/(a²s + l2)·Π."""
    number("l2", l2, above=0.0)
    return stage_one_matrix(world, masking, step=None, lr=0.0, l2=l2, keys=keys)


@typed
def numerical_ridge(
    world: TopicModel, masking: BertMasking, *, l2: float = 0.0, keys: str = "all"
) -> Float[Tensor, "vocab vocab"]:
    """The same minimiser by enumeration and linear algebra, C(Σ + l2·I)⁻¹, or the least-norm CΣ⁺ at l2 = 0.

    Works for overlapping topics too, where no closed form is known.
    """
    number("l2", l2, least=0.0)
    support = world.infinite()
    documents, visible = support.batch.x, visible_distribution(world, masking, keys=keys)
    weighted = visible * support.weights[:, None]
    cross, moment = documents.mT @ weighted, visible.mT @ weighted
    if l2 == 0.0:
        return cross @ torch.linalg.pinv(moment, rtol=1e-10, hermitian=True)
    try:
        return torch.linalg.solve(moment + l2 * torch.eye(len(moment), dtype=moment.dtype), cross, left=False)
    except torch.linalg.LinAlgError as error:
        raise ArgumentError(f"l2={l2:g}: too small, the equations are singular to rounding") from error


@typed
def value_gap(world: TopicModel, masking: BertMasking, *, l2: float = 0.0, keys: str = "all") -> float:
    """Same-topic minus different-topic entry of the optimum: a s/(v(a²s + l2)), which is c₃/v at l2 = 0."""
    c = constants(world, masking, keys=keys)
    _require_contrast(c)
    number("l2", l2, least=0.0)
    return c.a * c.s / (c.words * (c.a**2 * c.s + l2))


@typed
def stage_one_gap(
    world: TopicModel, masking: BertMasking, *, step: ArrayLike, lr: float, l2: float = 0.0, keys: str = "all"
) -> np.ndarray:
    """The gap after `step` steps of gradient descent from zero: value_gap·(1 − (1 − 2·lr·(a²s + l2))^step)."""
    c = constants(world, masking, keys=keys)
    number("lr", lr, above=0.0)
    final = value_gap(world, masking, l2=l2, keys=keys)
    return final * relaxation(lr * (c.a**2 * c.s + l2), np.asarray(step))


@typed
def stage_one_matrix(
    world: TopicModel,
    masking: BertMasking,
    *,
    step: int | None,
    lr: float,
    l2: float = 0.0,
    start: Float[Tensor, "vocab vocab"] | None = None,
    keys: str = "all",
) -> Float[Tensor, "vocab vocab"]:
    """W after `step` steps (None: in the limit) of gradient descent on L + l2·‖W‖²_F from `start` (default zero).

    The mean mode relaxes at rate 2·lr·(‖m‖² + l2), the contrasts at 2·lr·(a²s + l2), and what `start` has in the null
    space of Σ decays at 2·lr·l2 only: without L2 it stays for ever.
    """
    number("lr", lr, least=0.0)
    number("l2", l2, least=0.0)
    c = constants(world, masking, keys=keys)
    mean, contrasts = c.m, topic_contrasts(world)
    along_mean = torch.outer(mean, mean) / c.mean_square
    rest = torch.eye(world.vocab_size, dtype=torch.float64) - along_mean - contrasts
    result = torch.zeros_like(contrasts)
    modes = [
        (along_mean, c.mean_square + l2, torch.outer(_mean_words(c), mean) / (c.mean_square + l2)),
        (contrasts, c.a**2 * c.s + l2, contrasts * _ratio(c.a * c.s, c.a**2 * c.s + l2)),
        (rest, l2, torch.zeros_like(contrasts)),
    ]
    for projection, curvature, target in modes:
        done = float(curvature > 0.0) if step is None else float(relaxation(lr * curvature, np.asarray(step)))
        result += done * target
        if start is not None:
            result += (1.0 - done) * (start.double() @ projection)
    return result


def relaxation(rate: float, step: np.ndarray) -> np.ndarray:
    """1 − (1 − 2·rate)^step, how far gradient descent on a quadratic has come; exact also for tiny rates."""
    if 2.0 * rate < 1.0:
        return -np.expm1(step * np.log1p(-2.0 * rate))
    return 1.0 - (1.0 - 2.0 * rate) ** step


def _mean_words(c: Constants) -> Float[Tensor, " vocab"]:
    mean = torch.full((c.vocab_words + 1,), 1.0 / c.vocab_words, dtype=torch.float64)
    mean[0] = 0.0
    return mean


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if numerator else 0.0


def _require_contrast(c: Constants) -> None:
    if c.s == 0.0:
        raise ArgumentError(f"present={c.present}: must be < topics={c.topics}, or all documents are alike")
