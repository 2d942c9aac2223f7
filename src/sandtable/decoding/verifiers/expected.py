"""The true value of a prefix, V*(s) = E[τ | s] over what a model writes next: enumerated, or estimated by rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, whole
from sandtable.decoding.adapt import as_language_model
from sandtable.decoding.draws import Draws, as_generator
from sandtable.decoding.language_model import Hidden, LanguageModel, is_end
from sandtable.decoding.truncation import Truncation
from sandtable.decoding.verifiers.base import Verifier, View, as_verifier, checked_scores
from sandtable.decoding.verifiers.values import keys_of, prefix_seeds

_AT_ONCE = 2**14
"""How many rows a model is asked about at a time."""


@dataclass
class _Expected:
    """τ weighs finished rows: those that ⟨eos⟩ ends, or that have `max_tokens` after their prompt."""

    lm: Any
    tau: Any
    max_tokens: int
    law: Truncation = field(default_factory=Truncation, kw_only=True)
    needs: Hidden | None = field(default=None, init=False)
    is_value: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.model: LanguageModel = as_language_model(self.lm)
        self.outcome: Verifier = as_verifier(self.tau)
        whole("max_tokens", self.max_tokens)
        if self.outcome.needs is not None:
            raise ArgumentError(f"tau needs {self.outcome.needs}: it must be a function of the tokens")

    def _ends(self, prompts: Int[Tensor, " row"]) -> Int[Tensor, " row"]:
        ends = prompts + self.max_tokens
        return ends if self.model.longest is None else ends.clamp(max=self.model.longest)

    def _over(self, view: View) -> Bool[Tensor, " row"]:
        full = view.lengths >= self._ends(view.prompts)
        if not view.tokens.shape[1]:
            return full
        last = view.tokens.gather(1, (view.lengths - 1).clamp(min=0)[:, None])[:, 0]
        return full | (is_end(self.model, last) & (view.lengths > view.prompts))

    def _worth(self, view: View) -> Float[Tensor, " row"]:
        return checked_scores(self.outcome.score(view), (len(view),), self.outcome, view.rows)


@dataclass
class EnumeratedValue(_Expected):
    """V*(s) by going through all that can follow s: V* = τ at finished rows, V*(s) = Σ_t p(t | s) V*(s∘t) elsewhere.

    `lm` is any language model with few enough continuations, `law` the truncation that is sampled, `tau` a verifier or
    a function of the view that depends on tokens only. What was computed is kept; `most` bounds how many prefixes.
    """

    most: int = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("most", self.most)
        self._values: dict[tuple[int, tuple[int, ...]], float] = {}

    def score(self, view: View) -> Float[Tensor, " row"]:
        keys = list(zip(view.prompts.tolist(), keys_of(view), strict=True))
        missing = sorted({key for key in keys if key not in self._values})
        for length in sorted({len(row) for _, row in missing}):
            some = [(prompt, row) for prompt, row in missing if len(row) == length]
            rows = torch.tensor([row for _, row in some], dtype=torch.long).view(len(some), length)
            self._enumerate(rows, torch.tensor([prompt for prompt, _ in some]))
        return torch.tensor([self._values[key] for key in keys], dtype=torch.float64)

    def _enumerate(self, rows: Int[Tensor, "row position"], prompts: Int[Tensor, " row"]) -> None:
        """Values of rows of one length and of all that can follow them, level by level."""
        levels, count = [], len(self._values)
        while len(rows):
            count += len(rows)
            if count > self.most:
                raise ArgumentError(f"most={self.most}: more prefixes than that have to be enumerated")
            view = self._view(rows, prompts)
            over = self._over(view)
            law = self._law(rows[~over])
            parent, token = law.nonzero(as_tuple=True)
            levels.append((view, over, law))
            rows, prompts = torch.cat([rows[~over][parent], token[:, None]], dim=1), prompts[~over][parent]
        below = torch.zeros(0, dtype=torch.float64)
        for view, over, law in reversed(levels):
            values = torch.zeros(len(view), dtype=torch.float64)
            if bool(over.any()):
                ended = self._view(view.tokens[over], view.prompts[over])
                values[over] = self._worth(ended)
            parent, token = law.nonzero(as_tuple=True)
            values[~over] = torch.zeros(len(law), dtype=torch.float64).index_add_(0, parent, law[parent, token] * below)
            self._values.update(
                zip(zip(view.prompts.tolist(), keys_of(view), strict=True), values.tolist(), strict=True)
            )
            below = values

    def _view(self, rows: Tensor, prompts: Tensor) -> View:
        lengths = torch.full_like(prompts, rows.shape[1])
        return View(rows, lengths, torch.arange(len(rows)), prompts, self.model)

    def _law(self, rows: Int[Tensor, "row position"]) -> Float[Tensor, "row vocab"]:
        parts = [torch.zeros(0, self.model.vocab_size, dtype=torch.float64)]
        with torch.no_grad():
            for some in rows.split(_AT_ONCE) if len(rows) else ():
                parts.append(self.law.probs(self.model.start(list(some), room=1).logits()).cpu())
        return torch.cat(parts)


@dataclass
class MonteCarloValue(_Expected):
    """V*(s) estimated by the mean of τ over `rollouts` continuations of s; finished rows are worth τ itself.

    The draws are a hash of the prefix and of the `generator`, so the same prefix has the same value whenever it is
    asked for. `queries` counts the tokens drawn, which are no part of a decoder's bill.
    """

    rollouts: int = 16
    generator: torch.Generator | int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("rollouts", self.rollouts)
        self.queries = 0
        self._seed = int(torch.randint(2**62, (), generator=as_generator(self.generator)))

    def score(self, view: View) -> Float[Tensor, " row"]:
        values = torch.zeros(len(view), dtype=torch.float64)
        over = self._over(view)
        if bool(over.any()):
            values[over] = self._worth(_some(view, over))
        for rows in (~over).nonzero()[:, 0].split(max(1, _AT_ONCE // self.rollouts)):
            if len(rows):
                values[rows] = self._rollouts(_some(view, rows))
        return values

    def _rollouts(self, view: View) -> Float[Tensor, " row"]:
        copies = torch.arange(len(view)).repeat_interleave(self.rollouts)
        prompts = view.prompts[copies]
        ends, longest = self._ends(prompts), int((self._ends(view.prompts) - view.lengths).max())
        draws = Draws(prefix_seeds(view, self._seed)).split(self.rollouts)
        active = torch.ones_like(copies, dtype=torch.bool)
        with torch.no_grad():
            session = self.model.start([torch.tensor(key, dtype=torch.long) for key in keys_of(view)], room=longest)
            session.logits()  # prefixes are read once, before they are copied
            session = session.fork(copies)
            while bool(active.any()):
                tokens = self.law.draw(session.logits(active), draws.uniform(active)).cpu()
                session.append(tokens, active)
                self.queries += int(active.sum())
                active = active & ~is_end(self.model, tokens) & (session.lengths < ends)
        tokens = session.tokens[:, : int(session.lengths.max())]
        ended = View(tokens, session.lengths, view.rows[copies], prompts, self.model)
        return self._worth(ended).view(len(view), self.rollouts).mean(1)


def _some(view: View, rows: Tensor) -> View:
    """Some rows of a view."""
    parts = {name: getattr(view, name)[rows] for name in ("tokens", "lengths", "rows", "prompts")}
    return replace(view, **parts, hidden=None)
