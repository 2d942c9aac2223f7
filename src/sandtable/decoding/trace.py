"""What a decoder did, step by step: enough to replay every row and to draw the tree of what it tried."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from sandtable.arguments import ArgumentError
from sandtable.decoding.language_model import Session
from sandtable.decoding.trace_tree import Tree, tree_of


class Event(NamedTuple):
    """One thing that happened to one row: at `step`, with the row `length` tokens long *after* it.

    `action` is "append" (token), "erase" (token = how many), or "score" (score, and whether it passed).
    """

    step: int
    row: int
    action: str
    length: int
    token: int = -1
    score: float = float("nan")
    passed: bool = True
    how: str = ""


@dataclass
class Trace:
    """Events of all rows in order, and the prompts they start from."""

    prompts: list[list[int]]
    events: list[Event] = field(default_factory=list)
    step: int = 0

    @classmethod
    def of(cls, session: Session) -> Trace:
        return cls([session.row(i) for i in range(len(session))])

    @classmethod
    def written(cls, session: Session) -> Trace:
        """A trace that writes every row of a session as it stands after its prompt, and nothing else."""
        rows, starts = [session.row(i) for i in range(len(session))], session.prompts.tolist()
        trace = cls([row[:start] for row, start in zip(rows, starts, strict=True)], step=1)
        for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
            trace._write(number, start, row[start:], "sample")
        return trace

    def append(self, session: Session, rows: Tensor, tokens: Tensor, how: str | list[str] = "sample") -> None:
        """Tokens that were just appended to `rows` (a mask)."""
        self.step += 1
        lengths, tokens_ = session.lengths.tolist(), tokens.tolist()
        for row in rows.nonzero()[:, 0].tolist():
            kind = how[row] if isinstance(how, list) else how
            self.events.append(Event(self.step, row, "append", lengths[row], tokens_[row], how=kind))

    def scored(self, session: Session, rows: Tensor, scores: Tensor, passed: Tensor) -> None:
        """What the verifier said of the ends of `rows`."""
        lengths, values, verdicts = session.lengths.tolist(), scores.tolist(), passed.tolist()
        for row in rows.nonzero()[:, 0].tolist():
            self.events.append(
                Event(self.step, row, "score", lengths[row], score=values[row], passed=bool(verdicts[row]))
            )

    def erased(self, session: Session, amounts: Tensor) -> None:
        """Tokens that were just erased from the ends of rows."""
        lengths, counts = session.lengths.tolist(), amounts.tolist()
        for row, count in enumerate(counts):
            if count:
                self.events.append(Event(self.step, row, "erase", lengths[row], count))

    def chosen(self, session: Session, branch: Session, kept: Tensor, scores: Tensor | None) -> None:
        """Several continuations of every row of `session` were tried, one of them is kept.

        Each is written down as appended, scored and erased; then the kept one is appended for good.
        """
        self.step += 1
        copies, starts = len(branch) // len(session), session.lengths.tolist()
        values = [float("nan")] * len(branch) if scores is None else scores.tolist()
        for row, (start, winner) in enumerate(zip(starts, kept.tolist(), strict=True)):
            candidates = [branch.row(number)[start:] for number in range(row * copies, (row + 1) * copies)]
            if not any(candidates):
                continue
            for number, tokens in enumerate(candidates, start=row * copies):
                self._write(row, start, tokens, "candidate")
                self.events.append(
                    Event(self.step, row, "score", start + len(tokens), score=values[number], passed=number == winner)
                )
                self.events.append(Event(self.step, row, "erase", start, len(tokens)))
            self._write(row, start, candidates[winner - row * copies], "kept")

    def _write(self, row: int, start: int, tokens: Sequence[int], how: str) -> None:
        for length, token in enumerate(tokens, start=start + 1):
            self.events.append(Event(self.step, row, "append", length, token, how=how))

    def of_row(self, row: int) -> list[Event]:
        return [event for event in self.events if event.row == row]

    def replay(self, row: int) -> list[int]:
        """The tokens that the events of one row lead to, prompt included."""
        tokens = list(self.prompts[row])
        for event in self.of_row(row):
            if event.action == "append":
                tokens.append(event.token)
            elif event.action == "erase":
                del tokens[len(tokens) - event.token :]
        return tokens

    def tree(self, row: int) -> Tree:
        """All that was tried for one row, rejected branches included."""
        return tree_of(self.prompts[row], self.of_row(row))

    def to_json(self) -> str:
        """The trace as JSON text, an event a list; scores that are not numbers are null."""
        events = [
            [None if isinstance(v, float) and not math.isfinite(v) else v for v in event] for event in self.events
        ]
        return json.dumps({"prompts": self.prompts, "events": events, "step": self.step})

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """The trace that `to_json` wrote."""
        try:
            found = json.loads(text)
            events = [Event(*event)._replace(score=_score(event[5])) for event in found["events"]]
            prompts = [[int(token) for token in prompt] for prompt in found["prompts"]]
            return cls(prompts, events, int(found["step"]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ArgumentError(f"text is not a trace: {type(error).__name__}, {error}") from error

    @staticmethod
    def join(parts: Sequence[Trace]) -> Trace:
        """The traces of consecutive groups of rows as one."""
        joined = Trace([])
        for part in parts:
            first = len(joined.prompts)
            joined.prompts += part.prompts
            joined.events += [event._replace(row=event.row + first) for event in part.events]
        return joined


def _score(value: float | None) -> float:
    return math.nan if value is None else float(value)
