"""A small world of test cases: the published prompt and a completion with planted flaws, over a vocabulary of its own.

It stands in for a code model where none is at hand: a Transformer trained on it for a few minutes lists test cases of
`append` and makes the mistakes that were planted, at known rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, number, probability, typed, whole, with_generator
from sandtable.worlds.base import Batch
from sandtable.worlds.testcases import prompts
from sandtable.worlds.testcases.vocab import UNRELATED, TextVocab, testcase_vocab

FLAWS = ("prepend", "drop an element", "wrong item", "wrong name")
_MOST = 7  # elements of a tested list


@typed
@dataclass(frozen=True)
class AppendDocuments:
    """Prompt and completion: `assert NAME(l, item) == l + [item]`, eight lines.

    - A line with a list of k elements is flawed with probability `flaw` · (k/k̄)^`steep`, at most 1, where k̄ is the
      average length: long lists are harder, for the likeliest continuation too. Once a line was flawed, others are so
      with probability `again` unless their list is empty, in the same way: who errs once errs again, so a model that
      predicts the text well must notice it. The kinds in `FLAWS` have shares `kinds`: the item in front, an element
      left out, the item off by one, the function of the demonstration.
    - With probability `short` the document stops after seven lines and goes on with an unrelated function.
    - A tested list has 0 to 7 digits, its length k from a law ∝ `taper`^|k − `typical`|; no digit comes twice in a
      case. A digit follows on from the one before (1, 2, 3, …) with probability `habit`, else it is d with
      probability ∝ 1/(1 + d)^`skew`: there are typical cases, so that a greedy model repeats itself.
    - With probability `rare` the function has one of the telling names. Half of these functions have another body,
      which puts the item in front, and so do their test cases. In the other half the name misleads the author: lines
      are flawed with probability `misled`, by prepending.
    - `sums` lines stand in the demonstration; documents longer than `length` tokens are cut.
    """

    flaw: float = 0.2
    steep: float = 2.0
    again: float = 0.5
    kinds: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)
    short: float = 0.1
    typical: int = 2
    taper: float = 0.6
    habit: float = 0.3
    skew: float = 0.5
    rare: float = 0.02
    misled: float = 0.3
    sums: int = 1
    length: int = 176

    def __post_init__(self) -> None:
        for name in ("flaw", "again", "short", "habit", "rare", "misled"):
            probability(name, getattr(self, name))
        whole("typical", self.typical, least=0, most=_MOST)
        number("taper", self.taper, above=0.0)
        number("skew", self.skew, least=0.0)
        number("steep", self.steep, least=0.0)
        whole("sums", self.sums, least=0)
        whole("length", self.length)
        if len(self.kinds) != len(FLAWS) or abs(sum(self.kinds) - 1) > 1e-6:
            raise ArgumentError(f"kinds={self.kinds!r}: must be {len(FLAWS)} shares with sum 1")

    @cached_property
    def vocab(self) -> TextVocab:
        return testcase_vocab()

    @property
    def _sizes(self) -> Float[Tensor, " size"]:
        """The law of the length of a list."""
        weights = self.taper ** (torch.arange(_MOST + 1.0) - self.typical).abs()
        return weights / weights.sum()

    @with_generator
    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` documents. Latents: `flaw` of every line (0: none, else 1 + its place in `FLAWS`) and `size` of its list,
        `short`, `rare`, `front` (the body puts the item in front), and `start`, the number of tokens of the prompt.
        """
        draw = _Draws(whole("n", n), generator)
        rare, short = draw.chance(self.rare), draw.chance(self.short)
        front = rare & draw.chance(0.5)
        names = draw.names() + self.vocab.id("a")
        words = torch.tensor([self.vocab.id(name) for name in prompts.OOD_NAMES])
        names[:, 0] = torch.where(rare, words[draw.below(len(words))], names[:, 0])
        size, chain = self._lists(draw)
        flaw = self._flaws(draw, size, rare & ~front)
        head, shown = self._prompt(draw, names, rare, front)
        lines, written = self._lines(draw, names, rare, front, size, chain, flaw)
        written[:, -1] &= ~short[:, None]
        tail, ending = self._tail(draw, short)
        slots = torch.cat([head, lines.flatten(1), tail], 1)
        used = torch.cat([shown, written.flatten(1), ending], 1)
        x, mask = _packed(slots, used, self.length, self.vocab.eos)
        flaw[:, -1].masked_fill_(short, 0)
        latents = {"flaw": flaw, "size": size, "short": short, "rare": rare, "front": front, "start": shown.sum(1)}
        return Batch(x, mask, latents, vocab=self.vocab)

    def _lists(self, draw: _Draws) -> tuple[Int[Tensor, "n line"], Int[Tensor, "n line slot"]]:
        """Size of every tested list, and a chain of digits: the list, and the item behind it."""
        size = draw.law(self._sizes, prompts.REQUESTED)
        follows = draw.uniform(prompts.REQUESTED, _MOST + 1) < self.habit
        # The largest of log weight + Gumbel noise is d with probability ∝ weight, also among the digits left.
        noise = -(-draw.uniform(prompts.REQUESTED, 10).clamp_min(1e-30).log()).log()
        keys = noise - self.skew * torch.arange(1.0, 11.0).log()
        chain: list[Tensor] = []
        for slot in range(_MOST + 1):
            digit = keys.argmax(-1)
            if chain:
                next_one = (chain[-1] + 1) % 10
                free = keys.gather(-1, next_one[..., None])[..., 0] > -torch.inf
                digit = torch.where(follows[..., slot] & free, next_one, digit)
            keys = keys.scatter(-1, digit[..., None], -torch.inf)
            chain.append(digit)
        return size, torch.stack(chain, -1)

    def _flaws(self, draw: _Draws, size: Int[Tensor, "n line"], misled: Bool[Tensor, " n"]) -> Int[Tensor, "n line"]:
        """0 or the flaw of every line: one kind a document; after a first one the rate is `again`."""
        mean = float(self._sizes @ torch.arange(_MOST + 1.0))
        rate = torch.where(misled, self.misled, self.flaw)[:, None] * (size / mean) ** self.steep
        u, spoilt, rows = draw.uniform(prompts.REQUESTED), torch.zeros_like(misled), []
        for line in range(prompts.REQUESTED):
            here = u[:, line] < torch.where(spoilt, self.again * (size[:, line] > 0), rate[:, line])
            rows.append(here)
            spoilt = spoilt | here
        kind = 1 + draw.law(torch.tensor(self.kinds), 1)
        return torch.stack(rows, 1) * kind.where(~misled[:, None], 1)

    def _prompt(
        self, draw: _Draws, names: Tensor, rare: Tensor, front: Tensor
    ) -> tuple[Tensor, Bool[Tensor, "n slot"]]:
        v = self.vocab
        sums = draw.below(9, self.sums, 2) + 1
        total = sums.sum(-1)
        digit, comma = v.id("0"), v.id(", 0")
        body = torch.where(front, v.id(prompts.INSERT), v.id(prompts.APPEND))
        slots: list[int | Tensor] = [
            v.id(prompts.DEMONSTRATION),
            v.id(prompts.REQUEST),
            v.id("f"),
            v.id(prompts.ONE_A_LINE),
        ]
        for i in range(self.sums):
            slots += [v.id("\n"), v.id("assert "), v.id("f"), v.id("("), digit + sums[:, i, 0], comma + sums[:, i, 1]]
            slots += [v.id(") == "), digit + total[:, i] // 10, digit + total[:, i] % 10]
        slots += [v.id(prompts.DEFINE), *names.T, v.id(prompts.ARGUMENTS), body, v.id(prompts.RETURN)]
        slots += [v.id(prompts.REQUEST), *names.T, v.id(prompts.ONE_A_LINE)]
        table = draw.table(slots)
        used = torch.ones_like(table, dtype=torch.bool)
        for i in range(self.sums):
            used[:, 4 + 9 * i + 7] = total[:, i] > 9
        for rest in (-3, -2, -10, -9):  # a word is one token: the other letters are not there
            used[:, rest] = ~rare
        return table, used

    def _lines(
        self,
        draw: _Draws,
        names: Tensor,
        rare: Tensor,
        front: Tensor,
        size: Tensor,
        chain: Tensor,
        flaw: Tensor,
    ) -> tuple[Tensor, Bool[Tensor, "n line slot"]]:
        v = self.vocab
        slot, k = torch.arange(_MOST + 1), size[..., None]
        dropped = (draw.uniform(prompts.REQUESTED) * (size + 1)).long()[..., None]
        place = slot + ((flaw == 2)[..., None] & (slot >= dropped)).long()
        first = torch.where(place == 0, k, place - 1)  # the item first
        prepended = (flaw == 1) != front[:, None]
        source = torch.where(prepended[..., None], first, place)
        out = chain.gather(2, source.clamp_max(_MOST))
        off_by_one = (chain.gather(2, k) + 1) % 10
        out = torch.where((flaw == 3)[..., None] & (source == k), off_by_one, out)
        other = (flaw == 4)[..., None]
        named = torch.where(other, v.id("f"), names[:, None].expand(-1, prompts.REQUESTED, -1))
        letters = ~other & ~rare[:, None, None]

        digit, comma = v.id("0"), v.id(", 0")
        lead = (slot > 0) * (comma - digit) + digit
        mark = [torch.full_like(k, v.id(token)) for token in ("\n", "assert ", "([", "], ", ") == [", "]")]
        item = digit + chain.gather(2, k)
        lines = [
            *mark[:2],
            named,
            mark[2],
            (lead + chain)[..., :_MOST],
            mark[3],
            item,
            mark[4],
            lead + out,
            mark[5],
        ]
        every = torch.ones_like(k, dtype=torch.bool)
        inside, outside = slot[:_MOST] < k, slot < k + 1 - (flaw == 2)[..., None].long()
        used = [
            every.expand(-1, -1, 3),
            letters.expand(-1, -1, 2),
            every,
            inside,
            every.expand(-1, -1, 3),
            outside,
            every,
        ]
        return torch.cat(lines, 2), torch.cat(used, 2)

    def _tail(self, draw: _Draws, short: Tensor) -> tuple[Tensor, Bool[Tensor, "n slot"]]:
        v = self.vocab
        other = draw.names() + v.id("a")
        slots = [v.id("\n"), v.id(prompts.DEFINE), other[:, 0], other[:, 1], other[:, 2], v.id(UNRELATED), v.eos]
        used = [~short, *[short] * 5, torch.ones_like(short)]
        return draw.table(slots), torch.stack(used, 1)


@dataclass(frozen=True)
class _Draws:
    """Random numbers for `n` documents at once."""

    n: int
    generator: torch.Generator

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(self.n, *shape, generator=self.generator)

    def chance(self, p: float) -> Bool[Tensor, " n"]:
        return self.uniform() < p

    def below(self, most: int, *shape: int) -> Int[Tensor, "n ..."]:
        return torch.randint(most, (self.n, *shape), generator=self.generator)

    def law(self, weights: Tensor, *shape: int) -> Int[Tensor, "n ..."]:
        edges = weights.cumsum(0) / weights.sum()
        return torch.searchsorted(edges[:-1], self.uniform(*shape), right=True)

    def names(self) -> Int[Tensor, "n 3"]:
        """Three letters, 0 to 25 each; a telling name by chance is given another last letter."""
        letters = self.below(26, 3)
        telling = torch.tensor([[prompts.LETTERS.index(letter) for letter in name] for name in prompts.OOD_NAMES])
        chance = (letters[:, None] == telling).all(-1).any(-1)
        letters[:, 2].masked_fill_(chance, prompts.LETTERS.index("z"))
        return letters

    def table(self, slots: list[int | Tensor]) -> Int[Tensor, "n slot"]:
        columns = [s if isinstance(s, Tensor) else torch.tensor(s) for s in slots]
        return torch.stack([column.expand(self.n) for column in columns], 1)


def _packed(slots: Tensor, used: Tensor, length: int, pad: int) -> tuple[Tensor, Tensor]:
    """The used slots of every row side by side, cut or padded to `length`."""
    place = used.cumsum(1) - 1
    keep = used & (place < length)
    rows, columns = keep.nonzero(as_tuple=True)
    x = torch.full((len(slots), length), pad)
    x[rows, place[rows, columns]] = slots[rows, columns]
    return x, torch.arange(length) < keep.sum(1, keepdim=True)
