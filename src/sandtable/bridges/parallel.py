"""Parallel text: pairs of sentences from two files or a data set, one vocabulary for both, and their world."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sandtable.arguments import ArgumentError, missing, number, place, typed, whole
from sandtable.bridges import corpus as corpora
from sandtable.bridges.cleaning import clean
from sandtable.bridges.huggingface import load_tokenizer
from sandtable.bridges.tokens import TokenCorpus, check_tokens, tokenize
from sandtable.inputs import EOS, MASK, PAD, RESERVED
from sandtable.worlds import Batch, Vocab
from sandtable.worlds.bits import bulk_generator
from sandtable.worlds.translation import SPECIAL

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LONGEST_LINE = 2**20  # characters
_PAIRS = "pairs.json"
SIDES = ("source", "target")
BYTES = 256
"""Tokens that every vocabulary has besides the special ones: with them no text is unknown."""

Ids = Int[Tensor, "row position"]


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, cleaned, read anew by every `for source, target in pairs`.

    Where one side is blank, the pair is left out. `limit` ends the stream after so many pairs. `stamp` tells one state
    of what is read from another without reading it, for caches of what was made from it.
    """

    name: str
    read: Callable[[], Iterator[tuple[str, str]]]
    limit: int | None = None
    stamp: str = ""

    def __post_init__(self) -> None:
        if self.limit is not None:
            whole("limit", self.limit)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "stamp": self.stamp, "limit": self.limit}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        cleaned = (tuple(clean(text).replace("\n", " ") for text in pair) for pair in self.read())
        return islice((pair for pair in cleaned if all(pair)), self.limit)  # pyright: ignore[reportReturnType]


@typed
def read_files(source: str | Path, target: str | Path, *, limit: int | None = None) -> Pairs:
    """Two text files, plain or .gz, a sentence a line: line i of one is the translation of line i of the other."""
    paths = [place("source", source), place("target", target)]
    for path in paths:
        if not path.is_file():
            raise ArgumentError(f"{str(path)!r}: no such file; parallel text is a pair of files with a sentence a line")

    def read() -> Iterator[tuple[str, str]]:
        sides = (corpora.read_lines(path, _LONGEST_LINE) for path in paths)
        for line, (left, right) in enumerate(zip_longest(*sides)):
            if left is None or right is None:
                short, long = paths if left is None else reversed(paths)
                raise ArgumentError(f"{str(short)!r} ends after {line} lines, but {str(long)!r} goes on: must be pairs")
            if max(len(left), len(right)) >= _LONGEST_LINE:
                raise ArgumentError(f"{name}: line {line + 1} has more than {_LONGEST_LINE:,} characters")
            yield left, right

    name = f"{paths[0].name} → {paths[1].name}"
    return Pairs(name, read, limit, "\n".join(corpora.stamp(path) for path in paths))


def read_dataset(
    name: str | Path,
    source: str,
    target: str,
    *,
    split: str = "train",
    config: str | None = None,
    limit: int | None = None,
) -> Pairs:
    """A data set of the Hugging Face hub, streamed, or a folder made by `save_to_disk`: two fields of its records.

    Dots lead into records within records: "translation.de".
    """
    records = corpora.open_records(name, split, config)
    where = f"data set {str(name)!r}"

    def side(record: Mapping[str, Any], path: str) -> str:
        *outer, last = [path] if path in record else path.split(".")
        for part in outer:
            record = record[part] if isinstance(record.get(part), Mapping) else {}
        return corpora.text_of(record, last, where)

    read = lambda: ((side(record, source), side(record, target)) for record in records())  # noqa: E731
    return Pairs(str(name), read, limit, "\n".join([corpora.stamp(name), source, target, split, config or ""]))


@typed
def train_bpe(texts: Iterable[str], *, vocab: int = 8000) -> PreTrainedTokenizerFast:
    """Byte-pair encoding (Sennrich, Haddow & Birch 2016) over bytes: at most `vocab` tokens, the special ones first.

    No text is unknown, and decoding gives the text back. The same texts give the same tokenizer.
    """
    whole("vocab", vocab, least=RESERVED + BYTES)
    check_tokens(vocab)
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise missing("a tokenizer", "transformers", "translation") from error
    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    pad, eos, mask, _ = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=pad, eos_token=eos, mask_token=mask, split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ParallelText:
    """The world of the pairs in `rows`, all alike: `x` is a target with ⟨eos⟩ at its end, `given` its source.

    Sources are padded to `longest_source` tokens, targets to `longest_target`: the longest that there are. Made by
    `load`, found again by `ParallelText.open`.
    """

    source: TokenCorpus
    target: TokenCorpus
    tokenizer: Any
    rows: Int[np.ndarray, " pair"]

    @staticmethod
    def open(folder: str | Path, *, longest: int = 128, ratio: float | None = None) -> ParallelText:
        """The pairs that `prepare_pairs` wrote to `folder`, checked against their digests.

        Only those with at most `longest` tokens on both sides, ⟨eos⟩ included, and at most `ratio` times as many on one
        side as on the other.
        """
        folder = Path(folder)
        if not (folder / _PAIRS).is_file():
            raise ArgumentError(f"folder={str(folder)!r}: holds no parallel text, {_PAIRS} is missing")
        source, target = (TokenCorpus.open(folder / side) for side in SIDES)
        n, m = np.diff(source.offsets), np.diff(target.offsets)
        kept = (n <= whole("longest", longest, least=2)) & (m < longest)
        if ratio is not None:
            kept &= np.maximum(n, m) <= number("ratio", ratio, least=1.0) * np.minimum(n, m)
        if not kept.any():
            least = int(np.maximum(n, m + 1).min())
            raise ArgumentError(
                f"longest={longest}, ratio={ratio}: leaves none of {len(n)} pairs; the shortest has {least} tokens"
            )
        return ParallelText(source, target, load_tokenizer(str(folder / "tokenizer")), np.flatnonzero(kept))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"ParallelText({self.source.name!r}, pairs={len(self)}, tokens={len(self.vocab)})"

    def describe(self) -> dict[str, Any]:
        rows = hashlib.sha256(self.rows.astype("<i8").tobytes()).hexdigest()
        return {"source": self.source, "target": self.target, "rows": rows}

    @property
    def dropped(self) -> int:
        """Pairs that are too long, or too unequal; of a part that `split` made, also those of the other part."""
        return len(self.source) - len(self)

    @cached_property
    def vocab(self) -> Vocab:
        return Vocab(tuple(self.source.words), mask=MASK)

    @cached_property
    def longest_source(self) -> int:
        return int(self._lengths[0][self.rows].max())

    @cached_property
    def longest_target(self) -> int:
        return int(self._lengths[1][self.rows].max()) + 1

    @property
    def _lengths(self) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Tokens of every source and of every target, without ⟨eos⟩."""
        return np.diff(self.source.offsets), np.diff(self.target.offsets)

    # -- batches -----------------------------------------------------------------------------------------------------

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` pairs; `latents` hold the number of each `pair`."""
        return self.batch(bulk_generator(generator).integers(len(self), size=whole("n", n)))

    def batch(self, which: Sequence[int] | Int[np.ndarray, " row"] | slice = slice(None)) -> Batch:
        """The pairs of these numbers, counted from 0; all of them by default."""
        chosen = np.arange(len(self))[which]
        rows = self.rows[chosen]
        given, seen = _window(self.source, rows, self.longest_source)
        words, real = _window(self.target, rows, self.longest_target)
        lengths = real.sum(1, keepdim=True)
        place = torch.arange(self.longest_target)
        latents = {"pair": torch.from_numpy(chosen), "length": lengths[:, 0] + 1}
        x = torch.where(place == lengths, EOS, words)
        return Batch(x, place <= lengths, latents, Batch(given, mask=seen, vocab=self.vocab), self.vocab)

    def split(self, held: int, *, seed: int = 0) -> tuple[ParallelText, ParallelText]:
        """Two worlds: most of the pairs, and `held` of them chosen at random and kept aside."""
        whole("held", held, most=len(self) - 1)
        order = np.random.default_rng(whole("seed", seed, least=0)).permutation(len(self))
        here, there = np.sort(order[held:]), np.sort(order[:held])
        return replace(self, rows=self.rows[here]), replace(self, rows=self.rows[there])

    # -- texts -------------------------------------------------------------------------------------------------------

    def encode(self, texts: Sequence[str]) -> tuple[Ids, Bool[Tensor, "row position"]]:
        """Sentences to translate as token ids, with padding behind, and what is no padding."""
        rows = [self.tokenizer.encode(clean(text).replace("\n", " "), add_special_tokens=False) for text in texts]
        empty = next((i for i, row in enumerate(rows) if not row), None)
        if empty is not None or not rows:
            raise ArgumentError(f"text {empty or 0}: is empty, there is nothing to translate")
        width = max(map(len, rows))
        ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        return ids, torch.arange(width) < torch.tensor([[len(row)] for row in rows])

    def decode(self, tokens: Ids) -> list[str]:
        """Texts of targets up to their ⟨eos⟩."""
        words = (tokens >= RESERVED) & ((tokens == EOS).cumsum(1) == 0)
        rows = [row[keep].tolist() for row, keep in zip(tokens.cpu(), words.cpu(), strict=True)]
        return [self.tokenizer.decode(row).strip() for row in rows]


@typed
def load(
    pairs: Pairs,
    *,
    vocab: int = 8000,
    tokenizer: str | Path | None = None,
    folder: str | Path | None = None,
    longest: int = 128,
    ratio: float | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> ParallelText:
    """The world of `read_files(…)` or `read_dataset(…)`, with a byte-pair encoding of both sides together.

    `tokenizer` is the folder of one trained before (with `train_bpe`). The tokens go to `folder`, from where
    `ParallelText.open` reads them again; without, to a temporary one, which goes with the object.
    """
    place = Path(tempfile.mkdtemp(prefix="sandtable-pairs-") if folder is None else folder)
    try:
        prepare_pairs(say, place, pairs, vocab=vocab, tokenizer=None if tokenizer is None else str(tokenizer))
        text = ParallelText.open(place, longest=longest, ratio=ratio)
    except BaseException:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
        raise
    if folder is None:
        weakref.finalize(text.source, shutil.rmtree, place, ignore_errors=True)
    return text


@typed
def prepare_pairs(
    say: Callable[[str], object],
    place: Path,
    pairs: Pairs,
    *,
    vocab: int = 8000,
    tokenizer: str | None = None,
) -> None:
    """Fill the folders `tokenizer`, `source` and `target` in `place`."""
    say("reading the pairs")
    if next(iter(pairs), None) is None:
        raise ArgumentError(f"{pairs.name}: empty, there is no pair of sentences")
    if tokenizer is None:
        say("training a tokenizer")
        made = train_bpe((text for pair in pairs for text in pair), vocab=vocab)
    else:
        made = load_tokenizer(tokenizer)
        if made.convert_ids_to_tokens(list(range(RESERVED))) != list(SPECIAL):
            raise ArgumentError(f"tokenizer={tokenizer!r}: does not begin with {', '.join(SPECIAL)}; use train_bpe")
    for index, side in enumerate(SIDES):
        say(f"tokenizing the {side}s")
        tokenize((pair[index] for pair in pairs), made, folder=place / side)
    made.save_pretrained(place / "tokenizer")
    (place / _PAIRS).write_text(json.dumps({"name": pairs.name}, ensure_ascii=False), encoding="utf-8")


def _window(corpus: TokenCorpus, rows: Int[np.ndarray, " row"], width: int) -> tuple[Ids, Bool[Tensor, "row position"]]:
    """Whole documents, padded to `width`."""
    starts = corpus.offsets[rows]
    return corpus._windows(starts, corpus.offsets[rows + 1] - starts, width)
