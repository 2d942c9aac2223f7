"""What a parallel decoder can do in one step: product kernels, and how far a joint step is from all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from sandtable.claims.gmlm.sources import li2024
from sandtable.decoding import Truncation
from sandtable.lab import Control, Evidence, Lab, Table, bounded, claim, exact, exceeds, printed
from sandtable.theory.gmlm import chains, kernels
from sandtable.worlds import Ising, UniformSize
from sandtable.worlds.finite import all_states

EXACT = 1e-12
SIZES = ((1, 2), (2, 2), (2, 4), (3, 3), (4, 2), (6, 2), (3, 5))
"""(N, |Ω|)."""
COUPLINGS = (0.2, 0.5, 1.0, 2.0)
CORRELATIONS = (0.0196, 0.1109, 0.3278, 0.6031)
DISTANCES = (0.0942, 0.2092, 0.3273, 0.4014)
"""Total correlation of two spins, and their total variation from the nearest product law, at these couplings.

Those of T15, but for the distances at J = 0.2, 0.5 and 2, which are given there as 0.0944, 0.2095 and 0.4018. That is
too much: a product law attains √(1 + tanh J) − 1."""
NEVER = 30.0
"""How far below the others the logits are that stand for probability 0."""


def _table(length: int, symbols: int, generator: torch.Generator) -> Float[Tensor, "states position symbol"]:
    states = symbols**length
    return (2 * torch.randn(states, length, symbols, generator=generator, dtype=torch.float64)).softmax(-1)


def _pair(coupling: float) -> Ising:
    return Ising((0.0, 0.0), ((0.0, coupling), (coupling, 0.0)))


# -- explicit weights ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernels:
    sizes: tuple[tuple[int, int], ...] = SIZES
    tables: int = 5
    other: bool = False
    zeros: Literal["cut off", "softmax"] = "cut off"
    restarts: int = 9
    coupling_off: float = 0.0


@claim(
    id="gmlm/product-kernels",
    statement=(
        "Two Transformer blocks realise any positive product kernel exactly, and with a cut-off any product kernel. A "
        "joint step of two spins is further from all of them: by its total correlation in KL, by √(1 + tanh J) − 1 in "
        "total variation."
    ),
    source=li2024("Proposition on parallel-decoding Transformers (T15), weights of our own"),
    scales={"smoke": Kernels(sizes=SIZES[:5], tables=2, restarts=4), "desk": Kernels()},
    controls=(
        Control(
            "the kernel of another table",
            {"other": True},
            ("every entry", "long chains", "what never happens", "the rest of a table with zeros"),
        ),
        Control(
            "a coupling larger by 0.1",
            {"coupling_off": 0.1},
            ("nearest in KL", "nearest in total variation", "quoted numbers"),
        ),
    ),
)
def product_kernels(settings: Kernels, lab: Lab) -> Evidence:
    generator = lab.generator(lab.seeds[0], "tables")
    entries, walks, impossible, others, rows = [], [], [], [], []
    for length, symbols in settings.sizes:
        for _ in range(settings.tables):
            table = _table(length, symbols, generator)
            target = _table(length, symbols, generator) if settings.other else table
            found = kernels.kernel_of(kernels.product_kernel(table), length=length, symbols=symbols)
            wanted = _by_hand(target)
            entries.append(float((found - wanted).abs().max()))
            fifty = [torch.linalg.matrix_power(matrix, 50) for matrix in (found, wanted)]
            walks.append(float((fifty[0] - fifty[1]).abs().max()))
            out = torch.randint(symbols, table.shape[:2], generator=generator)
            ruled = torch.nn.functional.one_hot(out, symbols).bool()
            cut = _with_zeros(table, ruled, settings.zeros)
            ruled = ruled.roll(1, 2) if settings.other else ruled
            wanted = table.masked_fill(ruled, 0.0)
            impossible.append(float(cut[ruled].max()))
            others.append(float((cut - wanted / wanted.sum(2, keepdim=True)).abs().max()))
        width = 2 * symbols + length + 2 * length * symbols
        rows.append([length, symbols, symbols**length, width, length * symbols**length, entries[-1]])
    nearest = [_nearest(coupling, settings.restarts) for coupling in COUPLINGS]
    closed = [
        (kernels.two_spin_correlation(c), kernels.two_spin_distance(c))
        for c in (coupling + settings.coupling_off for coupling in COUPLINGS)
    ]
    (kl, tv), (correlation, distance) = np.array(nearest).T, np.array(closed).T
    return Evidence(
        [
            bounded("every entry", entries, EXACT, unit="table"),
            bounded("long chains", walks, 50 * EXACT, unit="table"),
            bounded("what never happens", impossible, 0.0, unit="table"),
            bounded("the rest of a table with zeros", others, EXACT, unit="table"),
            exact("nearest in KL", kl, correlation, atol=1e-8, unit="coupling"),
            exact("nearest in total variation", tv, distance, atol=1e-6, unit="coupling"),
            exact("quoted numbers", [*correlation, *distance], [*CORRELATIONS, *DISTANCES], atol=5.1e-5, unit="number"),
        ],
        tables={
            "weights": Table(["N", "|Ω|", "states", "width", "hidden units", "largest error of an entry"], rows),
            "two spins": Table(
                ["J", "least KL to a product", "total correlation", "least TV to a product", "√(1 + tanh J) − 1"],
                [[j, *row] for j, row in zip(COUPLINGS, zip(kl, correlation, tv, distance, strict=True), strict=True)],
            ),
        },
        notes=[
            "Long chains: fifty steps. “What never happens”: the probability of symbols that a table rules out, one at "
            "every position and state."
        ],
    )


def _by_hand(table: Float[Tensor, "states position symbol"]) -> Float[Tensor, "states states"]:
    """Π_j table[τ, j, τ'_j], gathered entry by entry."""
    to = all_states(table.shape[2], table.shape[1])
    return torch.stack([table[:, j, to[:, j]] for j in range(table.shape[1])]).prod(0)


def _with_zeros(table: Tensor, ruled: Tensor, zeros: str) -> Float[Tensor, "states position symbol"]:
    """What is sampled where the table is to have zeros: from logits that are finite, cut off or as they are."""
    states, length, symbols = table.shape
    logits = table.log().masked_fill(ruled, -torch.inf)
    logits = torch.where(ruled, logits.logsumexp(2, keepdim=True) - NEVER, logits)
    said = kernels.product_kernel(logits.softmax(-1))(all_states(symbols, length)).view(states * length, symbols)
    return (Truncation(top_p=1 - 1e-9) if zeros == "cut off" else Truncation()).probs(said).view_as(table)


def _nearest(coupling: float, restarts: int) -> tuple[float, float]:
    """The least KL and the least total variation between two spins and a product law, by search."""
    p = _pair(coupling).probs.numpy()

    def product(v: np.ndarray) -> np.ndarray:
        return np.outer([1 - v[0], v[0]], [1 - v[1], v[1]]).ravel()

    def least(distance: Callable[..., Any]) -> float:
        grid = itertools.islice(itertools.product((0.3, 0.7, 0.5), repeat=2), restarts)
        how = dict(method="Nelder-Mead", options=dict(xatol=1e-10, fatol=1e-13, maxiter=3000))
        return min(minimize(distance, v, bounds=[(1e-9, 1 - 1e-9)] * 2, **how).fun for v in grid)

    return (
        least(lambda v: float(np.sum(p * np.log(p / product(v))))),
        least(lambda v: float(np.abs(p - product(v)).sum() / 2)),
    )


# -- 1-Gibbs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneGibbs:
    couplings: tuple[float, ...] = (0.2, 0.5, 0.7, 1.0, 2.0)
    position: Literal["given", "random"] = "given"
    law: Literal["p", "product"] = "p"


@claim(
    id="gmlm/one-gibbs-is-a-product",
    statement=(
        "Drawing one given position anew is a product kernel, although the law it keeps is no product. With the "
        "position left to chance it is no product kernel."
    ),
    source=li2024("Remark on 1-Gibbs sampling by parallel decoders (T15), with the position given"),
    scales={"smoke": OneGibbs(), "desk": OneGibbs()},
    controls=(
        Control("the position left to chance", {"position": "random"}, ("rows that are products",)),
        Control("the product of the marginals", {"law": "product"}, ("keeps p", "p is no product")),
    ),
)
def one_gibbs(settings: OneGibbs, lab: Lab) -> Evidence:
    apart, kept, correlated = [], [], []
    for coupling in settings.couplings:
        law = _pair(coupling)
        if settings.position == "given":
            matrices = [_at(law, 0), _at(law, 1)]
        else:
            matrices = [chains.transition(law, UniformSize(2, 1))]
        wanted = law.probs if settings.law == "p" else torch.full((4,), 0.25, dtype=torch.float64)
        apart += [_from_product(matrix) for matrix in matrices]
        kept += [chains.tv(wanted @ matrix, wanted) for matrix in matrices]
        correlated.append(float(_from_product(wanted[None])))
    return Evidence(
        [
            bounded("rows that are products", apart, EXACT, unit="matrix"),
            bounded("keeps p", kept, EXACT, unit="matrix"),
            exceeds("p is no product", [min(correlated)], 0.01, unit="set of laws", deterministic=True),
        ],
        tables={
            "position left to chance": Table(
                ["J", "rows from products, from spins alike", "from spins that differ"],
                [
                    [j, *_rows_apart(chains.transition(_pair(j), UniformSize(2, 1)))[:2].tolist()]
                    for j in settings.couplings
                ],
            )
        },
    )


def _at(law: Ising, place: int) -> Float[Tensor, "states states"]:
    """The step that draws one given position anew."""
    drawn = chains.site_conditionals(law)[:, place][:, law.states[:, place]]
    other = law.states[:, 1 - place]
    return drawn * (other[:, None] == other).double()


def _rows_apart(matrix: Float[Tensor, "row four"]) -> Float[Tensor, " row"]:
    """Total variation between each row, a law of two spins, and the product of its marginals."""
    square = matrix.view(-1, 2, 2)
    product = square.sum(2)[:, :, None] * square.sum(1)[:, None]
    return (square - product).abs().sum((1, 2)) / 2


def _from_product(matrix: Float[Tensor, "row four"]) -> float:
    return float(_rows_apart(matrix).max())


# -- as printed ------------------------------------------------------------------------------------------------------

PRINTED = (
    printed(
        "all-product-kernels",
        product_kernels,
        {"zeros": "softmax"},
        statement="Parallel-decoding Transformers realise exactly the chains whose steps are products over positions.",
        where="Proposition T_PD = Prod (T15)",
        erratum=(
            "A softmax gives nothing probability 0, so kernels with zeros are only approached. With sampling that cuts "
            "off unlikely symbols, or takes the likeliest, they are realised exactly too."
        ),
    ),
    printed(
        "one-gibbs-product",
        one_gibbs,
        {"position": "random"},
        statement="A step of 1-Gibbs is a product over positions.",
        where="Remark after T_PD = Prod (T15)",
        erratum=(
            "Only with the position given, as an input or by a fixed order. Averaged over the position, a row of two "
            "spins with J = 0.7 is 0.0196 (spins alike) or 0.3217 (spins that differ) from a product."
        ),
    ),
)

CLAIMS = (product_kernels, one_gibbs, *PRINTED)
