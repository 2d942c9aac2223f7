"""What all decoders share: one signature, batches, the law that is sampled, verification, and the bill."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, as_report, flag, nearest, shown, typed, whole
from sandtable.decoding.adapt import as_language_model
from sandtable.decoding.draws import Draws
from sandtable.decoding.exact_model import ExactModel
from sandtable.decoding.generation import COSTS, Cost, Generation
from sandtable.decoding.language_model import LanguageModel, Session, check_room, is_end, read_prompts
from sandtable.decoding.trace import Trace
from sandtable.decoding.truncation import Truncation
from sandtable.decoding.verifiers.base import GRANULARITIES, Judge, Predicate, Verifier, as_verifier, granularity_of

Progress = Callable[[int, int], object]


@dataclass
class Call:
    """One batch of a decoder at work: the session, the streams of its rows, the verifier, and what it has cost."""

    model: LanguageModel
    session: Session
    judge: Judge | None
    draws: Draws
    law: Truncation
    max_tokens: int
    cost: Cost
    trace: Trace | None = None
    owners: Int[Tensor, " row"] | None = None
    """In a branch: the row of the call it came from that each of its rows continues."""

    def __post_init__(self) -> None:
        self.ends = self.session.prompts + self.max_tokens
        if self.model.longest is not None:
            self.ends = self.ends.clamp(max=self.model.longest)
        self.everyone = torch.ones_like(self.ends, dtype=torch.bool)

    @property
    def least(self) -> int:
        """The shortest row that the model can continue."""
        return int(getattr(self.model, "needs_prompt", False))

    @property
    def looks_inside(self) -> bool:
        """Whether the verifier reads hidden states: then a row's end must be evaluated before it is verified."""
        return self.judge is not None and self.judge.verifier.needs is not None

    def judges(self, what: str) -> None:
        """Refuse a verifier that knows nothing of a "token", a "block" or the "whole", which it will be asked about."""
        if self.judge is None:
            return
        knows = granularity_of(self.judge.verifier)
        if GRANULARITIES.index(knows) > GRANULARITIES.index(what):
            asked = {"token": "after every token", "block": "at the ends of blocks", "whole": "of whole rows"}[what]
            fitting = "best_of_n or rejection" if knows == "whole" else "block_best_of_n or block_rejection"
            raise ArgumentError(
                f"verifier {type(self.judge.verifier).__name__} of granularity {knows!r}: would be asked {asked}, "
                f"and only knows {'finished rows' if knows == 'whole' else 'finished blocks'}; take {fitting}"
            )

    def over(self) -> Bool[Tensor, " row"]:
        """Rows that are full, or whose last generated token is ⟨eos⟩."""
        session = self.session
        full = session.lengths >= self.ends
        if self.model.eos is None:
            return full
        last = session.tokens.gather(1, (session.lengths - 1).clamp(min=0)[:, None])[:, 0]
        return full | (is_end(self.model, last) & (session.lengths > session.prompts))

    def next_token(
        self, rows: Tensor, greedy: Tensor | None = None, logits: Tensor | None = None
    ) -> Int[Tensor, " row"]:
        """A token for each of `rows` from the truncated law, the likeliest where `greedy`; one query each.

        `logits` are the model's, if the caller holds them already.
        """
        logits = self.session.logits(rows) if logits is None else logits
        self.cost.add(queries=rows)
        drawn = rows if greedy is None else rows & ~greedy
        if self.law.greedy or not bool(drawn.any()):
            tokens = logits.argmax(-1)
        else:
            tokens = self.law.draw(logits, self.draws.uniform(drawn))
            if greedy is not None and bool(greedy.any()):
                tokens = logits.argmax(-1).where(greedy.to(logits.device), tokens)
        tokens, lawful = torch.stack([tokens, logits.amax(-1).isfinite().long()]).cpu()  # one copy for both
        if bool((rows & (lawful == 0)).any()):
            row = int((rows & (lawful == 0)).nonzero()[0])
            raise ArgumentError(
                f"logits of row {row} after {int(self.session.lengths[row])} tokens: NaN or infinite; the model's "
                "weights are damaged, or it needs a dtype of more range"
            )
        return tokens

    def append(self, tokens: Tensor, rows: Tensor, how: Any = "sample") -> None:
        self.session.append(tokens, rows)
        if self.trace is not None:
            self.trace.append(self.session, rows, tokens, how)

    def rewind(self, amounts: Tensor) -> None:
        """Erase tokens, and count them; a row that loses any has backtracked once."""
        self.session.rewind(amounts)
        self.cost.add(backtracks=amounts > 0, erased=amounts)
        if self.trace is not None:
            self.trace.erased(self.session, amounts)

    def rejects(self, rows: Tensor, threshold: float) -> tuple[Bool[Tensor, " row"], Float[Tensor, " row"]]:
        """Which of `rows` the verifier scores below the threshold, and the scores (NaN elsewhere)."""
        assert self.judge is not None
        scores = self.judge(self.session, rows)
        rejected = rows & (scores < threshold)
        self.verdict(rows, scores, rejected)
        return rejected, scores

    def verdict(self, rows: Tensor, scores: Tensor, rejected: Tensor) -> None:
        """Note what was said of `rows`, and which were turned down."""
        self.cost.add(rejections=rejected)
        if self.trace is not None:
            self.trace.scored(self.session, rows, scores, ~rejected)

    def branch(self, copies: int) -> Call:
        """`copies` continuations of every row r, to be decoded together: rows r · copies … of a new call."""
        owners = torch.arange(len(self.session)).repeat_interleave(copies)
        return Call(
            self.model,
            self.session.fork(owners),
            None if self.judge is None else self.judge.branch(owners),
            self.draws.split(copies),
            self.law,
            self.max_tokens,
            Cost.zero(len(owners)),
            owners=owners,
        )

    def recast(self, index: Int[Tensor, " row"]) -> None:
        """Let row i go on as a copy of row `index[i]`; what the rows have cost stays where it is."""
        forwards, passes = self.session.forwards, self.session.passes
        self.session = self.session.fork(index)
        self.session.forwards, self.session.passes = forwards, passes

    def adopt(self, branch: Call, kept: Int[Tensor, " row"], scores: Tensor | None = None) -> None:
        """Go on from row `kept[r]` of a branch instead of row r; all rows of the branch are on the bill."""
        assert branch.owners is not None
        if self.trace is not None:
            self.trace.chosen(self.session, branch.session, kept, scores)
        bill = self.session.forwards.index_add(0, branch.owners, branch.session.forwards)
        passes = self.session.passes + branch.session.passes
        self.session = branch.session.fork(kept)
        self.session.forwards, self.session.passes = bill, passes
        for name in COSTS:
            getattr(self.cost, name).index_add_(0, branch.owners, getattr(branch.cost, name))
        if self.judge is not None and branch.judge is not None:
            self.judge.calls.index_add_(0, branch.owners, branch.judge.calls)

    def result(self, **outcome: Any) -> Generation:
        if self.judge is not None:
            self.cost.verifier_calls.add_(self.judge.calls)
        return Generation.of(self.session, self.cost, trace=self.trace, **outcome)


def decoder(function: Callable[..., Generation] | None = None, *, verifier: bool = True) -> Any:
    """Make `function(call, **method)` a decoder `(lm, prompts, verifier, *, max_tokens, …, **method) -> Generation`.

    With `verifier=False` the method takes none.
    """
    if function is None:
        return functools.partial(decoder, verifier=verifier)

    def run(
        lm: Any,
        prompts: Any,
        verifier: Any = None,
        *,
        max_tokens: int,
        generator: torch.Generator | int = 0,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        batch_size: int | None = None,
        trace: bool = False,
        progress: Progress | bool = False,
        **method: Any,
    ) -> Generation:
        if needs_verifier and verifier is None and method.get("quota") != 0:
            raise ArgumentError(f"verifier=None: {function.__name__} needs a verifier")
        model = as_language_model(lm)
        whole("max_tokens", max_tokens)
        report = as_report(progress, lambda done, total: f"{done}/{total} rows")
        law, trace = Truncation(temperature, top_p, top_k), flag("trace", trace)
        judge = None if verifier is None else as_verifier(verifier)
        rows = read_prompts(model, prompts, empty=not getattr(model, "needs_prompt", False))
        check_room(model, max(map(len, rows)))
        size = len(rows) if batch_size is None else whole("batch_size", batch_size)
        draws = Draws.of(generator, len(rows))
        parts = []
        with torch.no_grad():
            for first in range(0, len(rows), size):
                started = time.perf_counter()
                piece = slice(first, first + size)
                made = function(
                    _call(model, rows[piece], judge, first, draws.take(piece), law, max_tokens, trace=trace), **method
                )
                object.__setattr__(made, "seconds", time.perf_counter() - started)
                parts.append(made)
                if report is not None:
                    report(min(first + size, len(rows)), len(rows))
        return Generation.join(parts)

    needs_verifier = verifier
    functools.update_wrapper(run, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    own = inspect.signature(run, follow_wrapped=False).parameters
    shared = [p for name, p in own.items() if name != "method" and (verifier or name != "verifier")]
    added = [p for name, p in inspect.signature(function).parameters.items() if name != "call"]
    run.__signature__ = inspect.Signature([*shared, *added], return_annotation=Generation)  # pyright: ignore
    del run.__wrapped__
    run.method = function  # pyright: ignore
    return typed(run)


class _Asked(Exception):
    """A law that is only there to see whether a method takes its settings was asked: it does."""


def check_settings(decoder: Callable[..., Generation], settings: Mapping[str, Any], apart: Collection[str]) -> None:
    """Refuse, before there is a model, settings that a decoder does not have or take; those `apart` are not its own.

    Methods look at their settings before they ask the model anything: one that cannot be asked tells the rest.
    """
    known = [name for name in inspect.signature(decoder).parameters if name not in apart]
    for name, value in settings.items():
        if name not in known:
            raise ArgumentError(
                f"{name}={shown(value)}: not a setting of {decoder.__name__}, "
                f"which has {', '.join(known)}{nearest(name, known)}"
            )

    def law(prefix: Tensor) -> Tensor:
        raise _Asked

    # What only a model's own vocabulary can tell is left out.
    plain = {name: value for name, value in settings.items() if name not in ("boundary", "leaf_value")}
    given = () if "verifier" not in inspect.signature(decoder).parameters else (Predicate(lambda view: view.lengths),)
    with contextlib.suppress(_Asked):
        decoder(ExactModel(law, vocab=2), [[0]], *given, **{"max_tokens": 1, **plain})


def _call(
    model: LanguageModel,
    rows: list[Tensor],
    verifier: Verifier | None,
    first: int,
    draws: Draws,
    law: Truncation,
    max_tokens: int,
    *,
    trace: bool,
) -> Call:
    session = model.start(rows, room=max_tokens, hidden=None if verifier is None else verifier.needs)
    return Call(
        model,
        session,
        None if verifier is None else Judge.of(verifier, session, first),
        draws,
        law,
        max_tokens,
        Cost.zero(len(rows)),
        Trace.of(session) if trace else None,
    )
