"""Values along a tree of prefixes: an estimate V̂ inside, the outcome's own weight τ at the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sandtable.arguments import ArgumentError, number
from sandtable.decoding.driver import Call
from sandtable.decoding.language_model import is_end
from sandtable.decoding.verifiers.base import Judge, as_verifier


@dataclass
class Values:
    """V̂, never below `floor`, at inner nodes; at leaves (⟨eos⟩, full rows) τ, or V̂ itself where no τ is given.

    A zero inside cuts off all that lies below, hence the floor; a zero at a leaf is meant.
    """

    call: Call
    inner: Judge
    outcome: Judge
    floor: float = 0.0

    @classmethod
    def of(cls, call: Call, leaf_value: Any = None, floor: float = 0.0) -> Values:
        judge = call.judge
        assert judge is not None
        floor = number("floor", floor, least=0.0)
        if leaf_value is None:
            return cls(call, judge, judge, floor)
        tau = as_verifier(leaf_value)
        if tau.needs not in (None, judge.verifier.needs):
            raise ArgumentError(f"leaf_value needs {tau.needs}: a session keeps one hidden state, the verifier's")
        return cls(call, judge, Judge(tau, judge.calls, judge.first, judge.owners), floor)

    def bound(self, given: float | None) -> float:
        """A number that no value exceeds: the one given, or 1 where verifiers are probabilities."""
        if given is not None:
            return number("bound", given, above=0.0)
        for judge in (self.inner, self.outcome):
            if judge.verifier.is_value:
                name = type(judge.verifier).__name__
                raise ArgumentError(f"bound=None: values of {name} may be any number; give one that none exceeds")
        return max(1.0, self.floor)

    def here(self, rows: Bool[Tensor, " row"]) -> Float[Tensor, " row"]:
        """The values of `rows` as they stand; NaN elsewhere."""
        session, leaf = self.call.session, rows & self.call.over()
        inner = self.inner(session, rows & ~leaf).clamp(min=self.floor)
        return self.outcome(session, leaf).where(leaf, inner)

    def children(self, want: Bool[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """The values of the one-token continuations in `want`; zero elsewhere."""
        call, session = self.call, self.call.session
        leaf = (session.lengths + 1 >= call.ends)[:, None].expand_as(want).clone()
        leaf |= is_end(call.model, torch.arange(want.shape[1]))
        if self.outcome is self.inner:
            values = self.inner.children(session, want)
            return values.where(leaf, values.clamp(min=self.floor)).where(want, 0.0)
        inner = self.inner.children(session, want & ~leaf).clamp(min=self.floor)
        return self.outcome.children(session, want & leaf).where(leaf, inner).where(want, 0.0)


def within(values: Tensor, bound: float) -> Tensor:
    """`values`, if none is above the bound."""
    if bool((values > bound).any()):
        worst = values[values > bound].flatten()[0].item()
        raise ArgumentError(f"bound={bound:g}: the verifier returned {worst:g}; no value may be above the bound")
    return values
