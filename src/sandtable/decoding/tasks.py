"""Tasks to decode on: prompts, the rules as a verifier, and what completions are worth."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, one_of, whole
from sandtable.decoding.ancestral import ancestral
from sandtable.decoding.error_prefixes import collect_error_prefixes
from sandtable.decoding.generation import Generation
from sandtable.decoding.language_model import Hidden, LanguageModel, is_end
from sandtable.decoding.verifiers.base import Verifier, View
from sandtable.decoding.verifiers.probe import ProbeVerifier
from sandtable.worlds.dyck import DyckError, FixedLengthDyck
from sandtable.worlds.testcases import REQUESTED, Fault, FirstError, TestCaseTask, first_error, token_at

_Tokens = Int[Tensor, "row position"]
_PerRow = Int[Tensor, " row"]

LEAST_PREFIXES = 20
"""Right and wrong prefixes without which no probe is trained."""


@dataclass(frozen=True)
class Problems:
    """Prompts side by side with what they are about: rows of one `key` ask the same thing again."""

    prompts: Sequence[Any]
    keys: Sequence[str]

    def __len__(self) -> int:
        return len(self.prompts)


class Examples(NamedTuple):
    """Prefixes to train a verifier on: `labels` are 1 for right ones and 0 for wrong ones."""

    rows: list[Int[Tensor, " position"]]
    labels: Int[Tensor, " row"]


class Task(Protocol):
    """`draw` makes prompts, `truth` is the rule-based verifier, `first_errors` and `measure` judge what was made."""

    kinds: ClassVar[tuple[str, ...]]
    """Kinds of prompts, the usual one first."""
    blocks: ClassVar[dict[str, Any]]
    """What a block is, for decoders that work block by block."""
    block_probe: ClassVar[bool]
    """Whether a probe for blocks is trained on other prefixes than one for tokens."""
    threshold: ClassVar[float]
    """The score below which a prefix is rejected, where nothing else is asked for."""

    @property
    def max_tokens(self) -> int: ...

    def draw(self, count: int, repeats: int, generator: torch.Generator, *, kind: str) -> Problems:
        """`count` different things to ask, each `repeats` times in a row."""
        ...

    def truth(self, problems: Problems) -> Verifier: ...

    def first_errors(
        self,
        problems: Problems,
        model: LanguageModel,
        tokens: Int[Tensor, "row position"],
        lengths: Int[Tensor, " row"],
    ) -> Int[Tensor, " row"]:
        """Of every row, prompt included, the index of the token with which it first goes wrong; −1 if it does not."""
        ...

    def examples(
        self,
        problems: Problems,
        model: LanguageModel,
        generator: torch.Generator,
        *,
        blocks: bool = False,
        **sampling: Any,
    ) -> Examples:
        """Complete the problems and take right and wrong prefixes from what was written, of tokens or of `blocks`."""
        ...

    def measure(self, problems: Problems, made: Generation) -> dict[str, Any]:
        """`accuracy`, `diversity`, `errors` by kind; costs are in the generation itself."""
        ...


@dataclass(frozen=True)
class DyckTask:
    """Complete the beginning of a balanced string (Botta, Li, Mehta, Ash, Zhang & Risteski 2025).

    Accuracy is the share of valid strings, diversity how many different completions a prompt got.
    """

    world: FixedLengthDyck = field(default_factory=FixedLengthDyck)
    lengths: tuple[int, int] = (25, 31)
    p: float = 0.8
    kinds: ClassVar[tuple[str, ...]] = ("ood", "test")
    blocks: ClassVar[dict[str, Any]] = {"boundary": 4}
    block_probe: ClassVar[bool] = False
    threshold: ClassVar[float] = 0.5

    @property
    def max_tokens(self) -> int:
        return self.world.longest - 1 - self.lengths[0]

    def draw(self, count: int, repeats: int, generator: torch.Generator, *, kind: str = "ood") -> Problems:
        """Prompts of another bracket law (`ood`), or of the law of training (`test`)."""
        p = self.p if one_of("kind", kind, self.kinds) == "ood" else self.world.p
        rows = self.world.prompts(whole("count", count), generator, lengths=self.lengths, p=p)
        again = [row for row in rows for _ in range(whole("repeats", repeats))]
        return Problems(again, [str(number // repeats) for number in range(len(again))])

    def truth(self, problems: Problems) -> Verifier:
        return _DyckRules(self.world)

    def first_errors(
        self,
        problems: Problems,
        model: LanguageModel,
        tokens: Int[Tensor, "row position"],
        lengths: Int[Tensor, " row"],
    ) -> Int[Tensor, " row"]:
        return self.world.first_error(tokens, lengths).position

    def examples(
        self,
        problems: Problems,
        model: LanguageModel,
        generator: torch.Generator,
        *,
        blocks: bool = False,
        **sampling: Any,
    ) -> Examples:
        """Wrong prefixes end at the first error, right ones have the same lengths; blocks may end anywhere."""
        errors = partial(self.first_errors, problems, model)
        found = collect_error_prefixes(
            model, problems.prompts, errors, max_tokens=self.max_tokens, generator=generator, **sampling
        )
        return Examples(found.rows, found.labels)

    def measure(self, problems: Problems, made: Generation) -> dict[str, Any]:
        valid = self.world.valid(made.tokens, made.lengths)
        kinds = self.world.first_error(made.tokens, made.lengths).kind[~valid].tolist()
        errors = Counter(DyckError(kind).name if kind else "UNFINISHED" for kind in kinds)
        by_key: dict[str, set[tuple[int, ...]]] = defaultdict(set)
        for key, row in zip(problems.keys, made.completions, strict=True):
            by_key[key].add(tuple(row))
        distinct = [len(rows) for rows in by_key.values()]
        return {
            "accuracy": float(valid.double().mean()),
            "diversity": sum(distinct) / len(distinct),
            "errors": dict(errors.most_common()),
        }


@dataclass(frozen=True)
class _DyckRules:
    world: FixedLengthDyck
    needs: Hidden | None = None
    is_value: bool = False

    def score(self, view: View) -> Float[Tensor, " row"]:
        return self.world.accepts(view.tokens, view.lengths)


@dataclass(frozen=True)
class AppendTask:
    """List eight test cases of a Python function that appends (Botta, Li, Mehta, Ash, Zhang & Risteski 2025).

    Accuracy is the share of the cases asked for that are correct and different from all others of their function name,
    diversity the number of those. What a model writes is parsed, never run.
    """

    suite: TestCaseTask = field(default_factory=TestCaseTask)
    max_tokens: int = 384
    kinds: ClassVar[tuple[str, ...]] = ("test", "ood", "train")
    blocks: ClassVar[dict[str, Any]] = {"boundary": "\n", "max_blocks": REQUESTED}
    block_probe: ClassVar[bool] = True
    threshold: ClassVar[float] = 0.1

    def draw(self, count: int, repeats: int, generator: torch.Generator, *, kind: str = "test") -> Problems:
        """`count` function names: new ones, words that mislead (`ood`), or those of verifier training (`train`)."""
        suite = TestCaseTask(sums=self.suite.sums, functions=whole("count", count))
        pairs = suite.prompts(repeats, generator, names=one_of("kind", kind, self.kinds))
        return Problems([prompt for _, prompt in pairs], [name for name, _ in pairs])

    def truth(self, problems: Problems) -> Verifier:
        return _AppendRules(tuple(problems.keys))

    def first_errors(
        self,
        problems: Problems,
        model: LanguageModel,
        tokens: Int[Tensor, "row position"],
        lengths: Int[Tensor, " row"],
    ) -> Int[Tensor, " row"]:
        places = torch.full_like(lengths, -1)
        for row, (name, prompt) in enumerate(zip(problems.keys, problems.prompts, strict=True)):
            start = len(model.encode(prompt))
            error, place = _first_wrong(name, model, tokens[row, start : int(lengths[row])].tolist())
            if error is not None:
                places[row] = start + place
        return places

    def examples(
        self,
        problems: Problems,
        model: LanguageModel,
        generator: torch.Generator,
        *,
        blocks: bool = False,
        **sampling: Any,
    ) -> Examples:
        """A wrong prefix ends with the token of the first error, a right one at a random token before it — with the
        prompt, where nothing is before it; anywhere, where nothing is wrong.

        For `blocks`: with the newline that closes the wrong line, and with the one before it, or with the last token
        where nothing is wrong. Completions whose only fault is that they go on are left out.
        """
        made = ancestral(model, problems.prompts, max_tokens=self.max_tokens, generator=generator, **sampling)
        rows, labels = [], []
        for name, row, start in zip(problems.keys, made.rows, made.prompts.tolist(), strict=True):
            written = row[start:]
            error, place = _first_wrong(name, model, written)
            if error is not None and error.kind == Fault.EXTRA_CONTENT_AFTER_TASK_COMPLETION:
                continue
            last = len(written) - 1
            if blocks:
                lines = [i for i, token in enumerate(written) if "\n" in model.decode([token])]
                wrong = next((i for i in lines if place <= i < last), last)
                right = last if error is None else next((i for i in reversed(lines) if i < place), -1)
            else:
                wrong, free = place, last + 1 if error is None else place
                right = int(torch.randint(free, (), generator=generator)) if free else -1
            ends = [(right, 1)] if error is None else [(wrong, 0), (right, 1)]
            rows += [torch.tensor(row[: start + end + 1]) for end, _ in ends]
            labels += [label for _, label in ends]
        return Examples(rows, torch.tensor(labels, dtype=torch.long))

    def measure(self, problems: Problems, made: Generation) -> dict[str, Any]:
        by_name: dict[str, list[str]] = defaultdict(list)
        for name, text in zip(problems.keys, made.text, strict=True):
            by_name[name].append(text)
        found = self.suite.score(by_name)
        return {"accuracy": found["accuracy"], "diversity": found["distinct"], "errors": found["errors"]}


def _first_wrong(name: str, model: LanguageModel, written: list[int]) -> tuple[FirstError | None, int]:
    """The first error of what was written for a function, and the token of `written` that makes it."""
    ended = bool(written) and bool(is_end(model, torch.tensor(written[-1])))
    error = first_error(model.decode(written), name, finished=ended)
    # An end that comes too early is the fault of the end token itself.
    place = 0 if error is None else min(token_at(error.position, written, model.decode), len(written) - 1)
    return error, place


@dataclass(frozen=True)
class _AppendRules:
    """Whether a completion can still become right; of a finished one, whether it is."""

    names: tuple[str, ...]
    needs: Hidden | None = None
    is_value: bool = False

    def score(self, view: View) -> Float[Tensor, " row"]:
        last = view.tokens.gather(1, (view.lengths - 1)[:, None])[:, 0]
        ended = is_end(view.model, last).tolist()
        rows = zip(view.completion, view.rows.tolist(), ended, strict=True)
        right = [first_error(text, self.names[row], finished=end) is None for text, row, end in rows]
        return torch.tensor(right, dtype=torch.float64)


def fit_probe(
    model: LanguageModel,
    examples: Examples,
    generator: torch.Generator,
    *,
    hidden: Hidden | None = None,
    depth: int = 1,
    granularity: str = "token",
    batch_size: int = 256,
) -> ProbeVerifier:
    """A verifier on the model's own hidden states, by default of its last layer, trained on `examples` of a task."""
    wrong = int((examples.labels == 0).sum())
    if len(examples.rows) < LEAST_PREFIXES or not 0 < wrong < len(examples.rows):
        why = "" if wrong else "; nothing was wrong, so that a probe has nothing to learn: ask harder prompts"
        raise ArgumentError(
            f"problems: their completions gave {wrong} wrong and {len(examples.rows) - wrong} right prefixes, a probe "
            f"needs {LEAST_PREFIXES} and both kinds{why or '; give more problems'}"
        )
    return ProbeVerifier.fit(
        model,
        examples.rows,
        examples.labels,
        generator,
        hidden=Hidden(getattr(model, "layers", 0)) if hidden is None else hidden,
        depth=depth,
        granularity=granularity,
        batch_size=batch_size,
    )
