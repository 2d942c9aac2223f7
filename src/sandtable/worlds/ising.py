"""Ising models: spins that pull on one another, among them the clique whose magnetisation says everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, whole, with_generator
from sandtable.worlds.base import Batch, Vocab
from sandtable.worlds.finite import FiniteLaw, invert

SPINS = Vocab(("−", "+"))


def spins(x: Int[Tensor, "*batch position"]) -> Float[Tensor, "*batch position"]:
    """Symbols 0 and 1 as spins −1 and +1."""
    return 2.0 * x.double() - 1.0


@dataclass(frozen=True)
class Ising(FiniteLaw):
    """p(x) ∝ exp(Σ_i h_i s_i + Σ_{i<j} J_ij s_i s_j), s = 2x − 1: every unordered pair counts once.

    `couplings` is the symmetric matrix J with zeros on its diagonal.
    """

    fields: tuple[float, ...]
    couplings: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        fields = tuple(number("field", h) for h in _sequence("fields", self.fields))
        if not fields:
            raise ArgumentError("fields=(): must have one for each spin, at least one")
        rows = [
            tuple(number("coupling", j) for j in _sequence("couplings", row))
            for row in _sequence("couplings", self.couplings)
        ]
        if len(rows) != len(fields) or any(len(row) != len(fields) for row in rows):
            raise ArgumentError(
                f"couplings of {len(rows)} rows: must be {len(fields)} × {len(fields)}, as many as fields"
            )
        for i, row in enumerate(rows):
            if row[i] != 0:
                raise ArgumentError(f"couplings[{i}][{i}]={row[i]:g}: a spin is not coupled to itself, must be 0")
            for j in range(i):
                if row[j] != rows[j][i]:
                    raise ArgumentError(
                        f"couplings[{i}][{j}]={row[j]:g}: must equal couplings[{j}][{i}]={rows[j][i]:g}"
                    )
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "couplings", tuple(rows))

    @classmethod
    def of(
        cls, fields: Float[Tensor, " spin"] | Sequence[float], pairs: Float[Tensor, " pair"] | Sequence[float]
    ) -> Ising:
        """From the parameters θ = (h, (J_ij)_{i<j}), pairs in the order (0,1), (0,2), …, (N−2, N−1)."""
        h = torch.as_tensor(fields, dtype=torch.float64)
        upper = torch.as_tensor(pairs, dtype=torch.float64)
        n = len(h)
        if len(upper) != n * (n - 1) // 2:
            raise ArgumentError(f"pairs: {len(upper)} numbers, must be one for each of {n * (n - 1) // 2} pairs")
        j = torch.zeros(n, n, dtype=torch.float64)
        j[*torch.triu_indices(n, n, 1)] = upper
        return cls(tuple(h.tolist()), tuple(map(tuple, (j + j.T).tolist())))

    @property
    def length(self) -> int:
        return len(self.fields)

    @property
    def vocab(self) -> Vocab:
        return SPINS

    @cached_property
    def h(self) -> Float[Tensor, " spin"]:
        return torch.tensor(self.fields, dtype=torch.float64)

    @cached_property
    def j(self) -> Float[Tensor, "spin spin"]:
        return torch.tensor(self.couplings, dtype=torch.float64)

    def log_weight(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        self.check(x)
        s = spins(x)
        return s @ self.h + ((s @ self.j) * s).sum(1) / 2

    def parallel_law(self) -> Float[Tensor, " states"]:
        """Where resampling every spin at once, given all the others as they were, ends up (Little's dynamics).

        π(x) ∝ exp(Σ_i h_i s_i) · Π_i 2 cosh(h_i + Σ_j J_ij s_j): the chain is reversible, and π is not p.
        """
        s = spins(self.states)
        pull = self.h + s @ self.j
        return (s @ self.h + torch.logaddexp(pull, -pull).sum(1)).softmax(0)


@dataclass(frozen=True)
class CliqueIsing(FiniteLaw):
    """`clique` spins that all pull on one another with J = `coupling` > 0, and the other spins alone.

    p(x) ∝ exp(Σ_i h_i s_i + J Σ_{i<j in the clique} s_i s_j). The clique is the first `clique` positions; with
    m = Σ_clique s_i the pairs are worth J (m² − c)/2. `field` is one number for all spins, or one for each.
    Samples and log-probabilities are exact at any size; only what lists all states needs a small one.
    """

    size: int
    clique: int
    coupling: float
    field: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        whole("size", self.size, least=2)
        whole("clique", self.clique, least=2, most=self.size)
        number("coupling", self.coupling, above=0.0)
        if isinstance(self.field, Sequence):
            if len(self.field) != self.size:
                raise ArgumentError(f"field={self.field!r}: must be one number, or one for each of {self.size} spins")
            object.__setattr__(self, "field", tuple(number("field", h) for h in self.field))
        else:
            number("field", self.field)

    @property
    def length(self) -> int:
        return self.size

    @property
    def vocab(self) -> Vocab:
        return SPINS

    @cached_property
    def h(self) -> Float[Tensor, " spin"]:
        field = self.field if isinstance(self.field, tuple) else (self.field,) * self.size
        return torch.tensor(field, dtype=torch.float64)

    @property
    def clique_field(self) -> float:
        """h_G = Σ_clique h_i."""
        return float(self.h[: self.clique].sum())

    @property
    def even(self) -> bool:
        """Whether all spins of the clique have the same field, so that its magnetisation is a Markov chain."""
        return bool((self.h[: self.clique] == self.h[0]).all())

    @property
    def slack(self) -> float:
        """J − ‖h‖₁, the largest J₀ with which the model is strongly ferromagnetic."""
        return self.coupling - float(self.h.abs().sum())

    def ising(self) -> Ising:
        """The same law as a general Ising model."""
        j = torch.zeros(self.size, self.size, dtype=torch.float64)
        j[: self.clique, : self.clique] = self.coupling
        j.fill_diagonal_(0.0)
        return Ising(tuple(self.h.tolist()), tuple(map(tuple, j.tolist())))

    def log_weight(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        self.check(x)
        s = spins(x)
        m = s[:, : self.clique].sum(1)
        return s @ self.h + self.coupling * (m**2 - self.clique) / 2

    @cached_property
    def _tails(self) -> Float[Tensor, "spin up"]:
        """[j, u]: log Σ exp(Σ_{i ≥ j} h_i s_i) over the clique's spins from j on with u of them up; no pairs yet."""
        rows = [torch.full((self.clique + 1,), -math.inf, dtype=torch.float64).index_fill(0, torch.tensor(0), 0.0)]
        for h in self.h[: self.clique].flip(0):
            rows.append(torch.logaddexp(rows[-1] - h, rows[-1].roll(1) + h))
        return torch.stack(rows[::-1])

    @cached_property
    def log_up(self) -> Float[Tensor, " up"]:
        """[u]: log Σ of the clique's own weights over its states with u spins up."""
        m = 2.0 * torch.arange(self.clique + 1, dtype=torch.float64) - self.clique
        return self._tails[0] + self.coupling * (m**2 - self.clique) / 2

    @cached_property
    def log_normaliser(self) -> float:
        """log Σ_x exp(…): the clique by how many are up, the others one by one."""
        alone = self.h[self.clique :]
        return float(self.log_up.logsumexp(0) + torch.logaddexp(alone, -alone).sum())

    def log_prob(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        return self.log_weight(batch.x if isinstance(batch, Batch) else batch) - self.log_normaliser

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """How many of the clique are up, then which ones, spin by spin; the others on their own. O(nN + c²)."""
        whole("n", n, least=0)
        u = torch.rand(n, self.size + 1, generator=generator, dtype=torch.float64)
        x = (u[:, : self.size] < torch.sigmoid(2 * self.h)).long()
        left = invert(self.log_up.softmax(0).cumsum(0), u[:, self.size])
        for j in range(self.clique):
            up = self._tails[j + 1, (left - 1).clamp(min=0)] + self.h[j] - self._tails[j, left]
            x[:, j] = (left > 0) & (u[:, j] < up.exp())
            left = left - x[:, j]
        return Batch(x=x, mask=torch.ones_like(x, dtype=torch.bool), vocab=self.vocab)

    def mode(self, x: Int[Tensor, "*batch position"]) -> Int[Tensor, " *batch"]:
        """+1 where the whole clique is up (R₁), −1 where it is down (R₋₁), 0 elsewhere."""
        up = x[..., : self.clique].sum(-1)
        return (up == self.clique).long() - (up == 0).long()


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ArgumentError(f"{name}={value!r}: must be a sequence, of numbers in the end")
    return value
