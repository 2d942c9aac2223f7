"""Verifiers: what a decoder asks about a prefix, and what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, shown
from sandtable.decoding.language_model import Hidden, LanguageModel, Session

GRANULARITIES = ("token", "block", "whole")
"""What verifiers can judge, from any prefix to finished rows only."""

_VIEWED = 2**24
"""How many tokens a verifier is shown at once when it scores all continuations of many rows."""


@dataclass(frozen=True)
class View:
    """Some rows of a session as a verifier sees them: prompt and continuation, padded on the right with 0.

    `rows` are the rows' numbers among all prompts of the call, `prompts` how many tokens of each row are its prompt.
    `hidden` is there if the verifier declared it in `needs`, which says of what layer it is; it lies where the model
    is, all else on the CPU. `text` is decoded when it is first read.
    """

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    rows: Int[Tensor, " row"]
    prompts: Int[Tensor, " row"]
    model: LanguageModel
    hidden: Float[Tensor, "row width"] | None = None
    needs: Hidden | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def text(self) -> list[str]:
        """Every row, prompt included, as text."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [self.model.decode(row[:length]) for row, length in rows]

    @cached_property
    def prompt(self) -> list[str]:
        """The prompt of every row as text."""
        rows = zip(self.tokens.tolist(), self.prompts.tolist(), strict=True)
        return [self.model.decode(row[:start]) for row, start in rows]

    @cached_property
    def completion(self) -> list[str]:
        """What was generated after the prompt, as text."""
        rows = zip(self.tokens.tolist(), self.prompts.tolist(), self.lengths.tolist(), strict=True)
        return [self.model.decode(row[start:length]) for row, start, length in rows]

    def by_length(self) -> list[tuple[Int[Tensor, " some"], Int[Tensor, "some position"]]]:
        """(index, tokens) of the rows of each length, for laws that take rows of one length."""
        groups = []
        for length in self.lengths.unique().tolist():
            index = (self.lengths == length).nonzero()[:, 0]
            groups.append((index, self.tokens[index, :length]))
        return groups


@runtime_checkable
class Verifier(Protocol):
    """`score(view)` is the probability in [0, 1] that a prefix can be completed; a *value* is any number ≥ 0.

    `needs` names the hidden state that the view must carry. An optional `score_children(view)` scores every one-token
    continuation at once, "row vocab". An optional `granularity` says what it can judge: any prefix ("token", as it is
    without one), finished blocks, or finished rows only ("whole"); methods that ask for more refuse it.
    """

    @property
    def needs(self) -> Hidden | None: ...

    @property
    def is_value(self) -> bool: ...

    def score(self, view: View) -> Float[Tensor, " row"]: ...


@dataclass(frozen=True)
class Predicate:
    """A function of the view: one score, or one truth value, for every row."""

    function: Callable[[View], Any]
    needs: Hidden | None = None
    is_value: bool = False
    granularity: str = "token"

    def __post_init__(self) -> None:
        one_of("granularity", self.granularity, GRANULARITIES)

    def score(self, view: View) -> Float[Tensor, " row"]:
        return _as_scores(self.function(view), self)


def granularity_of(verifier: Verifier) -> str:
    """What a verifier says it can judge: any prefix, unless it says otherwise."""
    return one_of("granularity", getattr(verifier, "granularity", "token"), GRANULARITIES)


def as_verifier(verifier: Any) -> Verifier:
    """A verifier as it is; a world that recognises prefixes, or a function of the view, made into one."""
    if isinstance(verifier, Verifier):
        return verifier
    if hasattr(verifier, "accepts"):
        from sandtable.decoding.verifiers.simple import Accepts

        return Accepts(verifier)
    if hasattr(verifier, "score"):
        missing = [name for name in ("needs", "is_value") if not hasattr(verifier, name)]
        raise ArgumentError(
            f"verifier of type {type(verifier).__name__} has no {' and no '.join(missing)}: beside score(view) a "
            "Verifier has needs (a Hidden, or None) and is_value (False for probabilities)"
        )
    if callable(verifier):
        return Predicate(verifier)
    raise ArgumentError(f"verifier={verifier!r}: must be a Verifier, a world with `accepts`, or a function of the view")


@dataclass
class Judge:
    """A verifier at work: shows it rows of a session, checks what it answers and counts the calls of every row."""

    verifier: Verifier
    calls: Int[Tensor, " row"]
    first: int = 0
    """The number of the session's first row among all prompts of the call."""
    owners: Int[Tensor, " row"] | None = field(default=None)
    """Where several rows of a session belong to one prompt: the prompt of each."""

    @classmethod
    def of(cls, verifier: Verifier, session: Session, first: int = 0) -> Judge:
        return cls(verifier, torch.zeros_like(session.lengths), first)

    def branch(self, owners: Int[Tensor, " row"]) -> Judge:
        """A judge of a session whose row i continues row `owners[i]` of this one's; its calls start at zero."""
        whose = owners if self.owners is None else self.owners[owners]
        return Judge(self.verifier, torch.zeros_like(owners), self.first, whose)

    def __call__(self, session: Session, rows: Tensor) -> Float[Tensor, " row"]:
        """Scores of `rows` (a mask) in float64; NaN elsewhere."""
        scores = torch.full((len(session),), torch.nan, dtype=torch.float64)
        index = rows.nonzero()[:, 0]
        if len(index):
            scores[index] = self.scored(self.view(session, index))
            self.calls[index] += 1
        return scores

    def children(self, session: Session, want: Bool[Tensor, "row vocab"]) -> Float[Tensor, "row vocab"]:
        """Scores of the one-token continuations in `want`, in float64; zero elsewhere. Each is one call.

        In one go where the verifier has `score_children`; else each is shown to it as a row: written out, or, if it
        looks inside the model, appended, scored and erased.
        """
        scores = torch.zeros(want.shape, dtype=torch.float64)
        index = want.any(1).nonzero()[:, 0]
        if not len(index):
            return scores
        self.calls += want.sum(1)
        if hasattr(self.verifier, "score_children"):
            view = self.view(session, index)
            said = self.verifier.score_children(view)  # pyright: ignore[reportAttributeAccessIssue]
            scores[index] = checked_scores(said, (len(view), want.shape[1]), self.verifier, view.rows).to(scores)
            return scores.where(want, 0.0)
        if self.verifier.needs is not None:
            return self._children_inside(session, want, scores)
        pairs = want.nonzero()
        for part in pairs.split(max(1, _VIEWED // (int(session.lengths.max()) + 1))):
            scores[part[:, 0], part[:, 1]] = self.scored(self._grown(session, part[:, 0], part[:, 1]))
        return scores

    def _grown(self, session: Session, index: Tensor, tokens: Tensor) -> View:
        """The view of rows `index` with one more token each, which the session does not have."""
        view = self.view(session, index)
        rows = torch.nn.functional.pad(view.tokens, (0, 1)).scatter(1, view.lengths[:, None], tokens[:, None])
        return View(rows, view.lengths + 1, view.rows, view.prompts, view.model)

    def _children_inside(self, session: Session, want: Tensor, scores: Tensor) -> Tensor:
        counts = want.sum(1)
        order = (
            want.long().sort(dim=1, descending=True, stable=True).indices
        )  # the wanted tokens of every row come first
        for number in range(int(counts.max())):
            rows, tokens = counts > number, order[:, number]
            session.append(tokens, rows)
            index = rows.nonzero()[:, 0]
            scores[index, tokens[index]] = self.scored(self.view(session, index))
            session.rewind(rows.long())
        return scores

    def view(self, session: Session, index: Int[Tensor, " some"]) -> View:
        """Some rows of the session as the verifier sees them."""
        view = view_of(session, index, self.verifier.needs, self.first)
        return view if self.owners is None else replace(view, rows=self.owners[index] + self.first)

    def scored(self, view: View) -> Float[Tensor, " row"]:
        """The verifier's answer to one view, checked."""
        said = self.verifier.score(view)
        return checked_scores(said, (len(view),), self.verifier, view.rows)


def view_of(session: Session, index: Int[Tensor, " some"], needs: Hidden | None, first: int = 0) -> View:
    """The view of some rows of a session."""
    hidden = None
    if needs is not None:
        mask = torch.zeros(len(session), dtype=torch.bool)
        mask[index] = True
        hidden = session.hidden(mask)
        hidden = hidden[index.to(hidden.device)]
    lengths = session.lengths[index]
    width = int(lengths.max())
    real = torch.arange(width) < lengths[:, None]
    tokens = session.tokens[index, :width].where(real, 0)  # behind a row's end may stand what was erased
    return View(tokens, lengths, index + first, session.prompts[index], session.model, hidden, needs)


def checked_scores(scores: Any, shape: Sequence[int], verifier: Verifier, rows: Int[Tensor, " row"]) -> Tensor:
    """What a verifier returned, in float64 on the CPU, if it is one number for every row that can be a score.

    `rows` are the rows' numbers.
    """
    name, scores = type(verifier).__name__, _as_scores(scores, verifier)
    if tuple(scores.shape) != tuple(shape):
        raise ArgumentError(
            f"verifier {name} returned shape {tuple(scores.shape)}: must be one score a row, {tuple(shape)}"
        )
    scores = scores.double().cpu()
    high = torch.inf if verifier.is_value else 1.0
    wrong = ~((scores >= 0) & (scores <= high) & scores.isfinite())
    if bool(wrong.any()):
        place = wrong.nonzero()[0]
        worst, row = scores[tuple(place)].item(), int(rows[place[0]])
        hint = ", for example exp(r) of a reward r" * (worst < 0)
        kind = f"a finite number ≥ 0{hint}" if verifier.is_value else "a probability in [0, 1], or set is_value"
        raise ArgumentError(
            f"verifier {name} returned {'NaN' if worst != worst else format(worst, 'g')} for row {row}: must be {kind}"
        )
    return scores


def _as_scores(scores: Any, verifier: Verifier) -> Tensor:
    """What a verifier returned as a tensor of real numbers."""
    try:
        found = torch.as_tensor(scores)
        if found.is_complex():
            raise TypeError("complex")
    except (TypeError, ValueError, RuntimeError) as error:
        name = type(verifier).__name__
        raise ArgumentError(f"verifier {name} returned {shown(scores)}: must be one number for every row") from error
    return found
