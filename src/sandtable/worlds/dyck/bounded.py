"""What the two bounded-depth worlds share: tokens, symbols, the stack's walk, next-token laws read from a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, fits_in_memory, number, whole, with_generator
from sandtable.worlds.base import Batch, Vocab
from sandtable.worlds.dyck.rows import lengths_of, rows_of, tokens_of
from sandtable.worlds.dyck.stack import Brackets

LARGEST_SUPPORT = 2**20
MOST = 1_000_000
"""Brackets of the longest row whose law is worked out."""


@dataclass(frozen=True)
class BoundedDyck:
    """Brackets of k = `types` types, at most D = `depth` of them open, after ⟨bos⟩ (Wen, Li, Liu & Risteski 2023).

    An empty stack opens, each type with probability 1/k; a full one (depth D) closes its top; between them each type
    opens with probability q/k and the top is closed with probability 1 − q.
    """

    types: int = 2
    depth: int = 4
    q: float = 0.5

    def __post_init__(self) -> None:
        whole("types", self.types)
        whole("depth", self.depth)
        if number("q", self.q, above=0.0) >= 1:
            raise ArgumentError(f"q={self.q:g}: must be a probability strictly between 0 and 1")

    @property
    def bos(self) -> int:
        return 2 * self.types

    @property
    def eos(self) -> int:
        return 2 * self.types + 1

    @cached_property
    def brackets(self) -> Brackets:
        return Brackets(self.types)

    @cached_property
    def vocab(self) -> Vocab:
        return Vocab((*self.brackets.tokens, "<bos>", "<eos>"))

    # -- symbols -----------------------------------------------------------------------------------------------------

    @property
    def symbol_count(self) -> int:
        """2kD + 1: every bracket at every depth of its pair, and ⟨bos⟩."""
        return 2 * self.types * self.depth + 1

    def symbols(
        self, x: Int[Tensor, "batch position"], depth: Int[Tensor, "batch position"] | None = None
    ) -> Int[Tensor, "batch position"]:
        """(type, depth) of every token as one index: what a minimal first layer gives on (section 2.2.2).

        With c = 1 … D the depth of the pair, the opener of type t is t·D + c − 1 and its closer kD + t·D + c − 1, so
        that no two share an index; ⟨bos⟩, and ⟨eos⟩ with the padding after it, are 2kD. `depth` is that after every
        token, where it is known already.
        """
        looked_at = depth is None or x.device.type == "cpu"  # elsewhere a look would wait for the device
        if depth is None:
            self._require_tokens(x)
            depth = self.brackets.trace(x).depth
        before = torch.cat([torch.zeros_like(depth[:, :1]), depth[:, :-1]], dim=1)
        pair = torch.maximum(before, depth)
        bracket = x < self.bos
        if looked_at and bool((bracket & ((pair == 0) | (pair > self.depth))).any()):
            raise ArgumentError(
                f"tokens: a bracket deeper than {self.depth}, or closed on an empty stack, has no symbol"
            )
        return (x * self.depth + pair - 1).where(bracket, self.symbol_count - 1)

    def _require_tokens(self, x: Tensor) -> None:
        if tokens_of(x).numel() and not 0 <= int(x.min()) <= int(x.max()) <= self.eos:
            wrong = int(x.max()) if int(x.max()) > self.eos else int(x.min())
            raise ArgumentError(f"token {wrong}: {self.types} types of brackets have the tokens 0 to {self.eos}")

    def require_own(self, batch: Batch | Tensor) -> None:
        """An `ArgumentError` where a batch says that its tokens are those of another world."""
        if isinstance(batch, Batch) and batch.vocab is not None and batch.vocab != self.vocab:
            names = " ".join(self.vocab.tokens)
            raise ArgumentError(f"a batch in another vocabulary, of {len(batch.vocab)} tokens: this world's is {names}")

    def require_reader(self, model: Any, *, reads: str = "tokens") -> None:
        """An `ArgumentError` where a model does not read this world's "tokens" or "symbols", or score its brackets.

        ⟨eos⟩ may be missing, since no prefix holds it; scores are those of the 2k brackets, or of all that is read.
        A module that does not say its sizes (`size`, `outputs`) is not asked.
        """
        size, outputs = getattr(model, "size", None), getattr(model, "outputs", None)
        sizes = (self.eos + 1, self.bos + 1) if reads == "tokens" else (self.symbol_count,)
        if (size is not None and size not in sizes) or (outputs is not None and outputs not in (self.bos, size)):
            raise ArgumentError(
                f"a model that reads {size} {reads} and writes {outputs} scores: types={self.types}, "
                f"depth={self.depth} have {sizes[0]} {reads} and {self.bos} brackets to score; see reads="
            )

    # -- text --------------------------------------------------------------------------------------------------------

    def prefix(self, text: str) -> Int[Tensor, " position"]:
        """⟨bos⟩ and the brackets of `text`, which must begin a word of this language; blanks are skipped."""
        if not isinstance(text, str):
            raise ArgumentError(f"text={text!r}: must be a string of brackets")
        tokens, names = [], self.vocab.tokens[: self.bos]
        pieces = text.split() if self.types > 4 else text.replace(" ", "")
        stack: list[int] = []
        for i, piece in enumerate(pieces, start=1):
            if piece not in names:
                raise ArgumentError(f"{text!r}: {piece!r} is no bracket of this world, which has {' '.join(names)}")
            token = names.index(piece)
            if token < self.types:
                stack.append(token)
            elif not stack or stack.pop() != token - self.types:
                raise ArgumentError(f"{text!r}: unbalanced, {piece!r} at position {i} closes nothing")
            if len(stack) > self.depth:
                raise ArgumentError(f"{text!r}: too deep at position {i}, at most {self.depth} brackets may be open")
            tokens.append(token)
        return torch.tensor([self.bos, *tokens])

    def word(self, text: str) -> Int[Tensor, " position"]:
        """⟨bos⟩ and the brackets of `text`, which must be a complete word of this language."""
        row = self.prefix(text)
        opened = int((row < self.types).sum())
        if 2 * opened != len(row) - 1:
            raise ArgumentError(f"{text!r}: unbalanced, {2 * opened - len(row) + 1} brackets are left open")
        return row

    @property
    def reference(self) -> Int[Tensor, " position"]:
        """⟨bos⟩ `[[[[]]]](((())))`: all types at all depths, for comparing attention patterns (section 2.2.3)."""
        types = torch.arange(self.types)[:, None]
        row = torch.cat([types.expand(-1, self.depth), types.expand(-1, self.depth) + self.types], dim=1)
        return torch.cat([torch.tensor([self.bos]), row.flatten()])

    # -- counting ----------------------------------------------------------------------------------------------------

    def count_prefixes(self, length: int) -> int:
        """How many prefixes have so many brackets: the transfer matrix's row sum (push × k, pop × 1), exactly."""
        return sum(self._paths(length))

    def count_words(self, length: int) -> int:
        """How many complete words have so many brackets, exactly."""
        return self._paths(length)[0]

    def _paths(self, length: int) -> list[int]:
        """Strings of `length` brackets that leave 0 … D open."""
        at = [1] + [0] * self.depth
        for _ in range(whole("length", length, least=0)):
            pushed, popped = [0, *(self.types * paths for paths in at[:-1])], [*at[1:], 0]
            at = [a + b for a, b in zip(pushed, popped, strict=True)]
        return at

    # -- laws --------------------------------------------------------------------------------------------------------

    @property
    def opening(self) -> Float[Tensor, "read depth"]:
        """Probability that the next bracket opens, given how many brackets are read and open; otherwise the top is
        closed or, where nothing is open, the row ends. One row of it serves all positions of a law that stays."""
        raise NotImplementedError

    @cached_property
    def _table(self) -> Float[Tensor, "read depth top vocab"]:
        """The law of the next token; `top` is the type of the last open bracket plus one, 0 where there is none."""
        opens = self.opening[:, :, None]
        law = torch.zeros(*self.opening.shape, self.types + 1, self.eos + 1, dtype=torch.float64)
        law[..., : self.types] = opens[..., None] / self.types
        for top in range(self.types):
            law[:, 1:, top + 1, self.types + top] = 1 - self.opening[:, 1:]
        law[:, 0, :, self.eos] = 1 - opens[:, 0]
        return law

    def next_token_law(self, x: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position vocab"]:
        """The law of the token after every position of rows that begin with ⟨bos⟩.

        Depth and top of the stack decide, also where an earlier error makes a row impossible; after ⟨eos⟩ comes ⟨eos⟩.
        """
        self._require_tokens(x)
        trace = self.brackets.trace(x)
        read = torch.arange(x.shape[1], device=x.device).clamp(max=len(self.opening) - 1)
        law = self._table.to(x.device)[read, trace.depth.clamp(max=self.depth), trace.top + 1]
        ended = (x == self.eos).cummax(1).values if x.shape[1] else x == self.eos
        law[ended] = torch.eye(self.eos + 1, dtype=law.dtype, device=x.device)[self.eos]
        return law

    def next_token_probs(
        self, prefix: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch vocab"]:
        """The law of the token after each row, or after the first `lengths` tokens of it: ⟨bos⟩ after none."""
        lengths = lengths_of(prefix, lengths)
        start = torch.zeros(len(prefix), 1, self.eos + 1, dtype=torch.float64, device=prefix.device)
        start[..., self.bos] = 1.0
        real = torch.arange(prefix.shape[1], device=prefix.device) < lengths[:, None]
        law = torch.cat([start, self.next_token_law(prefix.where(real, self.bos))], dim=1)
        return law[torch.arange(len(prefix), device=prefix.device), lengths]

    def log_prob(self, batch: Batch | Int[Tensor, "batch position"]) -> Float[Tensor, " batch"]:
        """Log-probability of each row, or of its beginning where it is only that (`Batch.mask` counts its tokens)."""
        self.require_own(batch)
        x, real = rows_of(batch)
        if not x.shape[1]:
            return torch.zeros(len(x), dtype=torch.float64, device=x.device)
        chosen = self.next_token_law(x)[:, :-1].gather(-1, x[:, 1:, None])[..., 0]
        chosen = torch.cat([(x[:, :1] == self.bos).double(), chosen], dim=1)
        return chosen.log().where(real, 0.0).sum(1)

    def accepts(
        self, prefix: Int[Tensor, "batch position"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Bool[Tensor, " batch"]:
        """Whether each row is the beginning of a row of this world."""
        lengths = lengths_of(prefix, lengths)
        real = torch.arange(prefix.shape[1], device=prefix.device) < lengths[:, None]
        return self.log_prob(Batch(x=prefix.where(real, self.bos), mask=real)).isfinite()

    def depth_marginals(self, length: int | None = None) -> Float[Tensor, "read depth"]:
        """P(the row goes on, with d brackets open) after 0, 1, …, N brackets; N is that of a whole row unless given.

        d → d + 1 with the probability to open there, else d − 1; from 0 that is the end of a word.
        """
        steps = whole("length", self.most if length is None else length, least=0, most=MOST)
        opening, rows = self.opening, [torch.eye(self.depth + 1, dtype=torch.float64)[0]]
        for i in range(steps):
            opens = opening[min(i, len(opening) - 1)]
            step = torch.zeros_like(opens)
            step[1:] += rows[-1][:-1] * opens[:-1]
            step[:-1] += rows[-1][1:] * (1 - opens[1:])
            rows.append(step)
        return torch.stack(rows)

    # -- drawing -----------------------------------------------------------------------------------------------------

    @property
    def most(self) -> int:
        """Brackets of the longest row."""
        raise NotImplementedError

    @property
    def _positions(self) -> int:
        """Tokens of a row after ⟨bos⟩."""
        raise NotImplementedError

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` rows. `latents`, after every position: the `depth`, the type on `top` of the stack and where it was
        opened (`opener`; −1: empty), and the `symbol` of the token."""
        return self.sample_each(n, [generator])

    def sample_each(self, n: int, generators: Sequence[torch.Generator], device: str | torch.device = "cpu") -> Batch:
        """`n` rows from every generator, one generator after another: the same on every device.

        All rows take a step at a time. One uniform number u, drawn on the CPU, decides a token: it opens if u < p =
        P(open), and then u/p, uniform again, gives the type.
        """
        positions = self._positions
        # a uniform number, five integers and two flags for every token, and four latents once more
        fits_in_memory(
            "n × tokens", (n, positions), 10.0 * whole("n", n, least=0) * len(generators) * positions, size=8
        )
        uniform = [torch.rand(positions, n, generator=generator) for generator in generators]
        return self._walk((torch.cat(uniform, dim=1) if uniform else torch.empty(positions, 0)).to(device))

    def _walk(self, uniform: Float[Tensor, "token row"]) -> Batch:
        """The rows that these numbers stand for, which are used up."""
        (positions, n), device = uniform.shape, uniform.device
        opening = self.opening.float()
        ends = bool((opening[:, 0] < 1).any())
        opening = opening.to(device)
        integer = torch.int32 if n * (positions + 2) < 2**31 else torch.int64
        columns = torch.arange(n, dtype=integer, device=device)
        depths = torch.zeros(positions + 1, n, dtype=integer, device=device)
        opens = torch.empty(positions, n, dtype=torch.bool, device=device)
        ended = torch.zeros(positions + 1, n, dtype=torch.bool, device=device)
        # Entry (r, column) of `last` says where in it the opener of the last open bracket stands after token r − 1 (one
        # row is in front). Popping it brings back what held before it was pushed, one row up; ⟨bos⟩ means nothing open.
        last = (columns + n).repeat(positions + 2, 1)
        flat = last.view(-1)
        for i in range(positions):
            depth = depths[i]
            uniform[i] /= opening[min(i, len(opening) - 1)].index_select(0, depth)
            torch.lt(uniform[i], 1.0, out=opens[i])
            torch.where(opens[i], depth + 1, depth - 1, out=depths[i + 1])
            if ends:
                opens[i] &= ~ended[i]
                torch.lt(depths[i + 1], 0, out=ended[i + 1])
                ended[i + 1] |= ended[i]
                depths[i + 1].masked_fill_(ended[i + 1], 0)
            popped = flat.index_select(0, last[i + 1] - n)
            torch.where(opens[i], columns + (i + 2) * n, popped, out=last[i + 2])
        return self._batch(opens, (uniform * self.types).clamp_(max=self.types - 1), depths, last[1:] - n, ended, ends)

    def _batch(self, opens: Tensor, kind: Tensor, depths: Tensor, last: Tensor, ended: Tensor, ends: bool) -> Batch:
        """Tokens and latents of a walk; what comes in has positions in front."""
        small, n, none = depths.dtype, depths.shape[1], self.symbol_count - 1
        kinds = torch.full_like(depths, -1)  # of what each position opens
        kinds[1:] = kind
        tops = kinds.view(-1).index_select(0, last.reshape(-1)).view_as(depths)
        x = torch.full_like(depths, self.bos)
        torch.where(opens, kinds[1:], tops[:-1] + self.types, out=x[1:])
        symbols = torch.full_like(depths, none)
        symbols[1:] = x[1:] * self.depth + torch.maximum(depths[:-1], depths[1:]) - 1
        openers = torch.div(last, max(n, 1), rounding_mode="floor").to(small)
        openers.masked_fill_(openers == 0, -1)
        mask = torch.ones_like(ended)
        if ends:
            x[1:].masked_fill_(ended[1:], self.eos)
            symbols.masked_fill_(ended, none)
            mask[1:] = ~ended[:-1]
        latents = {"depth": depths, "top": tops, "opener": openers, "symbol": symbols}
        batch = Batch(x=x, mask=mask, latents=latents, vocab=self.vocab)
        return batch.map(lambda t: torch.empty(t.T.shape, dtype=_wide(t), device=t.device).copy_(t.T))


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.bool if tensor.dtype == torch.bool else torch.long
