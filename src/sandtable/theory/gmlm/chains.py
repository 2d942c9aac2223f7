"""Chains that draw blocks anew, as matrices: stationary laws, Dirichlet forms, Poincaré constants, χ², correlation.

Block dynamics draw K ~ p(· | x), then x_K from p(· | x_−K, K): Pf(x) = Σ_K p(K | x) E[f | x_−K, K]. They are
reversible, and every block is a projection, so the spectrum lies in [0, 1]. Drawing from p(· | x_−K) although K was
chosen by looking at x (`naive`) is another chain with another stationary law.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from sandtable.arguments import ArgumentError, capped_power, typed, whole
from sandtable.worlds.finite import FiniteLaw, over_hidden
from sandtable.worlds.masks import MaskLaw

DENSE = 512
"""Up to so many states all eigenvalues are computed; beyond, Lanczos finds the second."""
MOST_ENTRIES = 2**26
"""Of states times blocks: up to so many the chain is written down as a sparse matrix."""
MOST_ROWS = 2**13
"""The largest transition matrix that is written down: half a gigabyte."""


@typed
def apply(law: FiniteLaw, masks: MaskLaw, f: Float[Tensor, "states ..."], *, naive: bool = False) -> Tensor:
    """Pf for block dynamics, without writing P down: one pass over the table for every block.

    Where x_−K has no mass there is nothing to draw from, and the block adds 0.
    """
    _fit(law, masks)
    chosen, out = masks.probs(law.states), torch.zeros_like(f)
    for hidden, pick in zip(masks.family, chosen.T, strict=True):
        weight = law.probs if naive else law.probs * pick
        out += _times(pick, _given(f, weight, hidden, law.symbols))
    return out


@typed
def transition(law: FiniteLaw, masks: MaskLaw, *, naive: bool = False) -> Float[Tensor, "states states"]:
    """P(x, y) of block dynamics."""
    _writable(law)
    return apply(law, masks, torch.eye(len(law.probs), dtype=torch.float64), naive=naive)


def parallel_transition(law: FiniteLaw) -> Float[Tensor, "states states"]:
    """P(x, y) = Π_i p(y_i | x_−i): every position at once, each given all the others as they were."""
    _writable(law)
    p = torch.ones(len(law.probs), 1, dtype=torch.float64)
    for site in site_conditionals(law).unbind(1):
        p = (p[:, :, None] * site[:, None, :]).flatten(1)
    return p


def site_conditionals(law: FiniteLaw) -> Float[Tensor, "states position symbol"]:
    """p(x_i = · | x_−i) of every state and position."""
    table, out = law.probs.reshape((law.symbols,) * law.length), []
    for i in range(law.length):
        given = table / table.sum(i, keepdim=True).clamp(min=1e-300)
        row = given.movedim(i, -1).unsqueeze(i).expand(*table.shape, law.symbols)
        out.append(row.reshape(-1, law.symbols))
    return torch.stack(out, 1)


def stationary(p: Float[Tensor, "states states"]) -> Float[Tensor, " states"]:
    """The law π with πP = π; refused where there is more than one."""
    n = len(p)
    system = torch.cat([(p - torch.eye(n, dtype=p.dtype)).T, torch.ones(1, n, dtype=p.dtype)])
    if int(torch.linalg.matrix_rank(system[:n], atol=1e-11)) < n - 1:
        raise ArgumentError("p: the chain is reducible, so that its stationary law is not unique")
    right = torch.zeros(n + 1, 1, dtype=p.dtype)
    right[-1] = 1
    return torch.linalg.lstsq(system, right, driver="gelsd").solution[:, 0].clamp(min=0)


def dirichlet(
    p: Float[Tensor, "states states"], mu: Float[Tensor, " states"], f: Float[Tensor, " states"], g: Tensor
) -> float:
    """E(f, g) = ½ Σ μ(x) P(x, y) (f(x) − f(y)) (g(x) − g(y))."""
    flow = mu[:, None] * p
    return float((flow * (f[:, None] - f) * (g[:, None] - g)).sum() / 2)


@typed
def block_dirichlet(
    law: FiniteLaw, masks: MaskLaw, f: Float[Tensor, "states ..."], g: Float[Tensor, "states ..."]
) -> float:
    """E(f, g) = E_{x, K} Cov(f, g | x_−K, K), the form that block dynamics have.

    For functions of (x, K), a column for every block, it is the form of the chain that keeps K.
    """
    _fit(law, masks)
    chosen, total = masks.probs(law.states), 0.0
    both = [h if h.ndim > 1 else h[:, None].expand_as(chosen) for h in (f, g)]
    if any(h.shape != chosen.shape for h in both):
        shapes = " and ".join(str(tuple(h.shape)) for h in (f, g))
        raise ArgumentError(
            f"f and g of shapes {shapes}: must be {len(chosen)} states, × {chosen.shape[1]} blocks or not"
        )
    for block, hidden in enumerate(masks.family):
        weight = law.probs * chosen[:, block]
        one, other = (h[:, block] - _given(h[:, block], weight, hidden, law.symbols) for h in both)
        total += float((weight * one * other).sum())
    return total


def second_eigenvalue(law: FiniteLaw, masks: MaskLaw) -> float:
    """λ₂ of block dynamics on the support of the law.

    D^{1/2} P D^{−1/2} less its part along √p, whose eigenvalue is 1. A step of Lanczos takes one product with each of
    |Ω|^N · |blocks| entries, as long as that many are written down, and a pass over the table for every block beyond.
    """
    _fit(law, masks)
    root, n = law.probs.sqrt().numpy(), len(law.probs)
    if n * len(masks.family) <= MOST_ENTRIES:
        factor = _factor(law, masks)
        if n <= DENSE:
            return float(np.linalg.eigvalsh((factor @ factor.T).toarray() - np.outer(root, root))[-1])
        back = factor.T.tocsr()
        multiply = lambda v: factor @ (back @ v)  # noqa: E731
    else:
        safe = np.where(root > 0, root, 1.0)
        multiply = lambda v: root * apply(law, masks, torch.from_numpy(v / safe)).numpy()  # noqa: E731
    product: dict[str, Any] = {"matvec": lambda v: multiply(v.ravel()) - root * (root @ v.ravel()), "dtype": np.float64}
    start = np.random.default_rng(0).standard_normal(n)
    # The gap is wanted, not the eigenvalue: a tolerance (0) of the eigenvalue's last bits.
    found = eigsh(LinearOperator((n, n), **product), k=1, which="LA", v0=start, tol=0, return_eigenvectors=False)
    return float(found[0])


def _factor(law: FiniteLaw, masks: MaskLaw) -> csr_array:
    """B with D^{1/2} P D^{−1/2} = B Bᵀ: a column for every K and x_−K, entries √p(x) p(K | x)/√p(x_−K, K)."""
    p, chosen = law.probs[:, None].numpy(), masks.probs(law.states).numpy()
    shown = ~masks.family.numpy()
    # Places of what is visible, counted from the last visible position on.
    later = shown[:, ::-1].cumsum(1)[:, ::-1] - shown
    codes = law.states.numpy() @ np.where(shown, law.symbols**later, 0).T
    columns = law.symbols ** shown.sum(1)
    codes = codes + (columns.cumsum() - columns)
    mass = np.bincount(codes.ravel(), weights=(p * chosen).ravel(), minlength=int(columns.sum()))
    entries = np.sqrt(p) * chosen / np.sqrt(np.maximum(mass, 1e-300))[codes]
    starts = np.arange(len(p) + 1) * codes.shape[1]
    return csr_array((entries.ravel(), codes.ravel(), starts), shape=(len(p), len(mass)))


def poincare(law: FiniteLaw, masks: MaskLaw) -> float:
    """The smallest C with Var f ≤ C · E(f, f): 1/(1 − λ₂), ∞ where the chain never mixes.

    Known to about 10⁻¹⁵ C of itself; past 10¹² rounding hides the gap, and ∞ is returned too.
    """
    gap = 1 - second_eigenvalue(law, masks)
    return 1 / gap if gap > 1e-12 else math.inf


def chi_square(p: Float[Tensor, " states"], mu: Float[Tensor, " states"]) -> float:
    """χ²(p, μ) = Σ (p − μ)²/μ, with 0/0 = 0; ∞ where p has mass that μ has not."""
    parts = (p - mu).square() / mu
    return float(torch.where((p == 0) & (mu == 0), 0.0, parts).sum())


def kl(p: Float[Tensor, "*rows states"], q: Float[Tensor, "*rows states"]) -> Float[Tensor, "*rows"]:
    """Σ p log(p/q), with 0 log 0 = 0."""
    return (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1)


def tv(p: Float[Tensor, " states"], q: Float[Tensor, " states"]) -> float:
    """½ Σ |p − q|."""
    return float((p - q).abs().sum() / 2)


@typed
def total_correlation(law: FiniteLaw, block: Sequence[int]) -> float:
    """E_{x_−K} KL(p(x_K | x_−K) ‖ Π_{i ∈ K} p(x_i | x_−K)): what no product of positions can express.

    The least error of a step that draws the positions of K independently given the rest.
    """
    hidden = torch.zeros(law.length, dtype=torch.bool)
    hidden[[whole("block", place, least=0, most=law.length - 1) for place in block]] = True
    seen = _entropy(over_hidden(law.probs, hidden, law.symbols))
    single = 0.0
    for place in hidden.nonzero()[:, 0].tolist():
        others = hidden.clone()
        others[place] = False
        single += _entropy(over_hidden(law.probs, others, law.symbols)) - seen
    return single - (_entropy(law.probs) - seen)


def expected_total_correlation(law: FiniteLaw, masks: MaskLaw) -> float:
    """E_K of `total_correlation`, for masks that do not look at x."""
    _fit(law, masks)
    if masks.adaptive:
        raise ArgumentError("masks: total correlation is averaged over masks that do not depend on x")
    weights = masks.probs(law.states[:1])[0].tolist()
    blocks = [hidden.nonzero()[:, 0].tolist() for hidden in masks.family]
    return sum(p * total_correlation(law, block) for p, block in zip(weights, blocks, strict=True) if p > 0)


def conditional_entropy(law: FiniteLaw, masks: MaskLaw) -> float:
    """E H(x_K | x_−K, K): the least loss of masked prediction."""
    _fit(law, masks)
    total = 0.0
    for hidden, pick in zip(masks.family, masks.probs(law.states).T, strict=True):
        weight = law.probs * pick
        total += _entropy(weight) - _entropy(over_hidden(weight, hidden, law.symbols))
    return total


def _entropy(p: Tensor) -> float:
    return -float(torch.special.xlogy(p, p).sum())


def _times(weight: Tensor, f: Tensor) -> Tensor:
    return weight.reshape(-1, *(1,) * (f.ndim - 1)) * f


def _given(f: Tensor, weight: Tensor, hidden: Tensor, symbols: int) -> Tensor:
    """E[f | x_−K] under the weights, at every state; 0 where they vanish."""
    axes, shape = hidden.nonzero()[:, 0].tolist(), (symbols,) * len(hidden)
    if not axes:
        return f
    mass = weight.reshape(shape).sum(axes, keepdim=True).clamp(min=1e-300)
    total = _times(weight, f).reshape(*shape, *f.shape[1:]).sum(axes, keepdim=True)
    mean = total / mass.reshape(*mass.shape, *(1,) * (f.ndim - 1))
    return mean.expand(*shape, *f.shape[1:]).reshape(f.shape)


def _writable(law: FiniteLaw) -> None:
    count = capped_power(law.symbols, law.length)
    if count > MOST_ROWS:
        raise ArgumentError(
            f"law over {law.length} positions: a matrix of {law.symbols}^{law.length} × {law.symbols}^{law.length} is "
            f"too large to be written down, at most {MOST_ROWS:,} × {MOST_ROWS:,}; `apply` and `poincare` need none"
        )


def _fit(law: FiniteLaw, masks: MaskLaw) -> None:
    if masks.length != law.length:
        raise ArgumentError(f"masks over {masks.length} positions: the law has {law.length}")
