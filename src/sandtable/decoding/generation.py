"""What a decoder returns: tokens, whether they were accepted, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.decoding.language_model import LanguageModel, Session, is_end
from sandtable.decoding.trace import Trace

COSTS = ("queries", "forwards", "verifier_calls", "rejections", "backtracks", "erased")


@dataclass(frozen=True)
class Cost:
    """What every row cost.

    - `queries`: tokens asked of the generator, erased and discarded ones included: the oracle complexity of the theory;
    - `forwards`: times the network was run on the row (a prompt at once is one), which caching can make fewer or more;
    - `verifier_calls`, `rejections`: prefixes scored, and those turned down;
    - `backtracks`, `erased`: how often the row was rewound, and by how many tokens in all.
    """

    queries: Int[Tensor, " row"]
    forwards: Int[Tensor, " row"]
    verifier_calls: Int[Tensor, " row"]
    rejections: Int[Tensor, " row"]
    backtracks: Int[Tensor, " row"]
    erased: Int[Tensor, " row"]

    @classmethod
    def zero(cls, rows: int) -> Cost:
        return cls(*(torch.zeros(rows, dtype=torch.long) for _ in COSTS))

    def add(self, **amounts: Tensor) -> None:
        """Add to the named counters, row by row: numbers, or a mask for one each."""
        for name, amount in amounts.items():
            getattr(self, name).add_(amount.long())


@dataclass(frozen=True)
class Generation:
    """The rows that a decoder made.

    `tokens[r, :lengths[r]]` is row r with its prompt, whose first `prompts[r]` tokens it kept; `ended[r]` says that the
    row ends with ⟨eos⟩; `score` is the verifier's last word on a row, NaN if it was not asked.

    `accepted[r]` is False where the method gave up (FAIL): it found nothing that it may return within its tries or its
    walks, or nothing had any weight. Then the row is what was there at the time. Methods that always return something
    never FAIL, whatever the verifier says of it: plain sampling, `backtrack`, `best_of_n`, `block_best_of_n`, and
    `block_rejection` unless it is told to.
    """

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    prompts: Int[Tensor, " row"]
    accepted: Bool[Tensor, " row"]
    ended: Bool[Tensor, " row"]
    score: Float[Tensor, " row"]
    cost: Cost
    model: LanguageModel
    passes: int = 0
    seconds: float = 0.0
    trace: Trace | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getattr__(self, name: str) -> Tensor:
        """`generation.queries` is `generation.cost.queries`, and so on for every counter and extra."""
        if name in COSTS:
            return getattr(self.cost, name)
        extras = self.__dict__.get("extras", {})
        if name in extras:
            return extras[name]
        raise AttributeError(f"a Generation has no {name!r}")

    @property
    def rows(self) -> list[list[int]]:
        """Every row, prompt included, as a list of tokens."""
        return [row[:n] for row, n in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]

    @property
    def completions(self) -> list[list[int]]:
        """What follows the prompt of every row."""
        return [row[start:] for row, start in zip(self.rows, self.prompts.tolist(), strict=True)]

    @property
    def text(self) -> list[str]:
        """The completions as text."""
        return [self.model.decode(row) for row in self.completions]

    def log_prob(self) -> Float[Tensor, " row"]:
        """log p(completion | prompt) of every row under the generator's own law: nothing cut off, temperature 1.

        The model reads the rows once more, token by token as it wrote them; that is on no bill.
        """
        with torch.no_grad():
            rows = [row[:start] for row, start in zip(self.rows, self.prompts.tolist(), strict=True)]
            added = (self.lengths - self.prompts).max()
            session = self.model.start([torch.tensor(row, dtype=torch.long) for row in rows], room=int(added))
            total = torch.zeros(len(self), dtype=torch.float64)
            while bool((more := session.lengths < self.lengths).any()):
                place = session.lengths.clamp(max=self.tokens.shape[1] - 1)[:, None]
                token = self.tokens.gather(1, place)[:, 0]
                law = session.logits(more).double().log_softmax(-1)
                total += law.gather(1, token[:, None].to(law.device))[:, 0].cpu().where(more, 0.0)
                session.append(token, more)
        return total

    @staticmethod
    def join(parts: Sequence[Generation]) -> Generation:
        """The rows of several generations, one after another."""
        if len(parts) == 1:
            return parts[0]
        width = max(part.tokens.shape[1] for part in parts)
        wide = [torch.nn.functional.pad(part.tokens, (0, width - part.tokens.shape[1])) for part in parts]
        flat = ("lengths", "prompts", "accepted", "ended", "score")
        return Generation(
            torch.cat(wide),
            *(torch.cat([getattr(part, name) for part in parts]) for name in flat),
            cost=Cost(*(torch.cat([getattr(part.cost, f.name) for part in parts]) for f in fields(Cost))),
            model=parts[0].model,
            passes=sum(part.passes for part in parts),
            seconds=sum(part.seconds for part in parts),
            trace=None if parts[0].trace is None else Trace.join([p.trace for p in parts if p.trace is not None]),
            extras={name: torch.cat([part.extras[name] for part in parts]) for name in parts[0].extras},
        )

    @staticmethod
    def of(
        session: Session,
        cost: Cost,
        *,
        accepted: Tensor | None = None,
        score: Tensor | None = None,
        trace: Trace | None = None,
        extras: dict[str, Tensor] | None = None,
    ) -> Generation:
        """The rows of a session as they stand."""
        rows, lengths = len(session), session.lengths
        tokens = session.tokens[:, : int(lengths.max())]
        cost.forwards.copy_(session.forwards)
        last = tokens.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0] if tokens.shape[1] else lengths * 0
        ended = (lengths > 0) & is_end(session.model, last)
        positions = torch.arange(tokens.shape[1])
        return Generation(
            tokens=tokens.masked_fill(positions >= lengths[:, None], 0),
            lengths=lengths,
            prompts=session.prompts.minimum(lengths),
            accepted=torch.ones(rows, dtype=torch.bool) if accepted is None else accepted,
            ended=ended,
            score=torch.full((rows,), torch.nan, dtype=torch.float64) if score is None else score.double(),
            cost=cost,
            model=session.model,
            passes=session.passes,
            trace=trace,
            extras=extras or {},
        )
