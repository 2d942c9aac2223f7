"""Documents as token ids on disk, the tokenizer that makes them, and the world that samples windows of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from scipy import sparse
from torch import Tensor

from sandtable.arguments import ArgumentError, missing, typed, whole
from sandtable.bridges import corpus as corpora
from sandtable.bridges.huggingface import load_tokenizer
from sandtable.bridges.huggingface.loading import library
from sandtable.worlds import Batch, Vocab
from sandtable.worlds.bits import bulk_generator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

MOST_TOKENS = 2_000_000
"""Of a vocabulary that is trained: room for all is made at once."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_META = "tokens.json"
_FORMAT = 1
_TOGETHER = 256  # documents handed to a tokenizer at a time
_FED = 10_000  # repetitions of a word in one line for the trainer
_READ = 2**22  # bytes hashed at a time

Progress = Callable[[int, int], None]


def check_tokens(vocab: int) -> None:
    """Refuse a vocabulary that no memory holds: the library would end the process."""
    if whole("vocab", vocab) > MOST_TOKENS:
        raise ArgumentError(f"vocab={vocab}: must be at most {MOST_TOKENS:,}")


@typed
def train_tokenizer(
    corpus: Iterable[str], *, vocab: int = 8192, lowercase: bool = True, least_count: int = 2, framed: bool = True
) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer (Schuster & Nakajima 2012) of at most `vocab` tokens, as BERT's: [PAD] is 0, [MASK] is 4.

    Merges need `least_count` occurrences; words with letters other than the 1000 commonest are unknown. `framed` puts
    [CLS] … [SEP] around a text; a model trained on a `TextWorld` never sees these. The same corpus gives the same
    tokenizer. In memory are one document and a table of the distinct words.
    """
    whole("vocab", vocab, least=len(SPECIAL) + 1)
    check_tokens(vocab)
    whole("least_count", least_count)
    try:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise missing("a tokenizer", "transformers", "text") from error
    pad, unknown, start, end, mask = SPECIAL

    def blank(pieces: dict[str, int] | None) -> Any:
        made: Any = Tokenizer(models.WordPiece(vocab=pieces, unk_token=unknown))
        made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return made

    trained = blank(None)
    counts: Counter[str] = Counter()
    for text in corpus:
        words = trained.pre_tokenizer.pre_tokenize_str(trained.normalizer.normalize_str(text))
        counts.update(map(itemgetter(0), words))
    if not counts:
        raise ArgumentError("corpus: empty corpus, there is no text to train a tokenizer on")
    known, inner = _letters(counts, most=min(1000, (vocab - len(SPECIAL)) // 2))
    # The trainer numbers inner letters as it meets them, in an order that changes from run to run, and breaks ties
    # between merges by these numbers; letters named in advance keep theirs.
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab,
        min_frequency=least_count,
        special_tokens=[*SPECIAL, *(f"##{letter}" for letter in inner)],
        show_progress=False,
    )
    fed = ((word, n) for word, n in sorted(counts.items()) if known.issuperset(word))
    lines = (" ".join([word] * min(_FED, n - done)) for word, n in fed for done in range(0, n, _FED))
    trained.train_from_iterator(lines, trainer)
    tokenizer = blank(trained.get_vocab())
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.decoder = decoders.WordPiece()
    if framed:
        tokenizer.post_processor = processors.BertProcessing((end, SPECIAL.index(end)), (start, SPECIAL.index(start)))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, unk_token=unknown, cls_token=start, sep_token=end, mask_token=mask
    )


def _letters(counts: Counter[str], *, most: int) -> tuple[set[str], list[str]]:
    """The `most` commonest letters, and in order those of them that occur inside words."""
    letters: Counter[str] = Counter()
    for word, n in counts.items():
        letters.update(dict.fromkeys(word, n))
    known = set(sorted(letters, key=lambda letter: (-letters[letter], letter))[:most])
    return known, sorted(known & set().union(*(word[1:] for word in counts)))


@typed
def tokenize(
    corpus: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    folder: Path | str | None = None,
    longest: int | None = None,
    progress: Progress | None = None,
) -> TokenCorpus:
    """The documents as token ids, without special tokens around them, written to `folder` as they come.

    Documents are cut after `longest` tokens. Without a folder the files lie in a temporary one, which goes with the
    object. `progress` is called with the numbers of documents and tokens so far.
    """
    if longest is not None:
        whole("longest", longest)
    target = Path(tempfile.mkdtemp(prefix="sandtable-tokens-") if folder is None else folder)
    # Named anew each time: the metadata, replaced last and at once, say which files are the corpus.
    stamp = uuid.uuid4().hex[:12]
    names = {"ids": f"ids-{stamp}.bin", "offsets": f"offsets-{stamp}.bin"}
    part = target / f".{_META}-{stamp}"
    needless = [target / name for name in names.values()]
    try:
        target.mkdir(parents=True, exist_ok=True)
        documents, tokens = _write(corpus, tokenizer, target, names, longest, progress)
        meta: dict[str, Any] = {
            "format": _FORMAT,
            "name": str(getattr(corpus, "name", "documents")),
            "tokenizer": str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__),
            "documents": documents,
            "tokens": tokens,
            "files": names,
            "words": _words(tokenizer),
            "special": sorted({int(i) for i in tokenizer.all_special_ids}),
            "pad": tokenizer.pad_token_id,
            "mask": tokenizer.mask_token_id,
        }
        meta["digest"] = _digest(target, meta)
        part.write_text(json.dumps(meta, ensure_ascii=False, allow_nan=False), encoding="utf-8")
        replaced = _files(target)
        part.replace(target / _META)
        needless = replaced
    except OSError as error:
        raise ArgumentError(f"folder={str(target)!r}: cannot be written ({error.strerror or error})") from error
    finally:
        for file in (*needless, part):
            if file.is_file():
                file.unlink()
        if folder is None and not (target / _META).is_file():
            shutil.rmtree(target, ignore_errors=True)
    opened = TokenCorpus(target, meta)
    if folder is None:
        weakref.finalize(opened, shutil.rmtree, target, ignore_errors=True)
    return opened


def prepare_tokens(
    say: Callable[[str], None],
    place: Path,
    source: str | None,
    stamp: str,
    *,
    tokenizer: str | None = None,
    vocab: int = 8192,
    limit: int | None = None,
) -> None:
    """Fill the folders `tokenizer` and `tokens` in `place` from a corpus (`corpus.load(source)`).

    Without a `tokenizer` (a folder or a hub name) one of `vocab` tokens is trained on the corpus, which puts nothing
    around a text. `stamp` is `corpus.stamp(source)`: it does nothing here, but tells a cache that the corpus changed.
    """
    library()  # before the corpus is read, which takes minutes
    say("reading the corpus")
    texts = corpora.load(source, limit=limit)
    with tempfile.TemporaryDirectory(prefix="sandtable-") as scratch:
        if texts.name == "builtin":  # slow to read, and read twice
            texts = texts.save(Path(scratch) / "builtin.jsonl")
        if tokenizer is None:
            say("training a tokenizer")
            made = train_tokenizer(texts, vocab=vocab, framed=False)
        else:
            made = load_tokenizer(tokenizer)
        report = lambda documents, tokens: say(f"tokenizing: {documents:,} documents, {tokens:,} tokens")  # noqa: E731
        tokenize(texts, made, folder=place / "tokens", progress=report)
    made.save_pretrained(place / "tokenizer")


def _files(folder: Path) -> list[Path]:
    """The files of the corpus that lies in a folder, if there is one."""
    try:
        names = json.loads((folder / _META).read_text(encoding="utf-8"))["files"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [folder / Path(str(name)).name for name in names]


def _write(
    corpus: Iterable[str], tokenizer: Any, target: Path, names: dict[str, str], longest: int | None, progress: Any
) -> tuple[int, int]:
    """Numbers of documents and tokens written."""
    texts, documents, tokens = iter(corpus), 0, 0
    with (target / names["ids"]).open("wb") as ids, (target / names["offsets"]).open("wb") as offsets:
        offsets.write(np.zeros(1, dtype="<i8").tobytes())
        while batch := list(islice(texts, _TOGETHER)):
            encoded = tokenizer(batch, add_special_tokens=False, return_attention_mask=False, verbose=False)
            kept = [row for row in (row[:longest] for row in encoded["input_ids"]) if row]
            if not kept:
                continue
            ends = tokens + np.cumsum([len(row) for row in kept])
            ids.write(np.concatenate([np.asarray(row, dtype="<i4") for row in kept]).tobytes())
            offsets.write(ends.astype("<i8").tobytes())
            documents, tokens = documents + len(kept), int(ends[-1])
            if progress is not None:
                progress(documents, tokens)
    if not documents:
        raise ArgumentError("corpus: empty corpus, there is nothing to tokenize")
    return documents, tokens


def _words(tokenizer: Any) -> list[str]:
    """Token strings by id; ids that are not in use have an empty one."""
    known = tokenizer.get_vocab()
    words = [""] * max(len(tokenizer), max(known.values()) + 1)
    for word, index in known.items():
        words[index] = word
    return words


def _digest(folder: Path, meta: dict[str, Any]) -> str:
    """SHA-256 of the tokens, the documents they are in and what they mean."""
    named = [meta[key] for key in ("documents", "tokens", "words", "special", "pad", "mask")]
    total = hashlib.sha256(json.dumps(named).encode())
    for kind in ("ids", "offsets"):
        with (folder / Path(meta["files"][kind]).name).open("rb") as file:
            part = hashlib.sha256()
            while block := file.read(_READ):
                part.update(block)
        total.update(part.digest())
    return total.hexdigest()


class TokenCorpus:
    """Documents as token ids in a folder, read through the operating system's cache rather than into memory.

    `ids` holds all tokens one after another, document i those from `offsets[i]` to `offsets[i + 1]`. `words` are the
    token strings by id, `special` the ids that are no words; `pad_id` and `mask_id` may be None. `digest` names the
    content. Made by `tokenize`, found again by `TokenCorpus.open`.
    """

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.name: str = meta["name"]
        self.tokenizer_name: str = meta["tokenizer"]
        self.words: list[str] = meta["words"]
        self.special: frozenset[int] = frozenset(meta["special"])
        self.pad_id: int | None = meta["pad"]
        self.mask_id: int | None = meta["mask"]
        self.digest: str = meta["digest"]
        documents, tokens = meta["documents"], meta["tokens"]
        self.ids: np.memmap = np.memmap(folder / meta["files"]["ids"], dtype="<i4", mode="r", shape=(tokens,))
        self.offsets: np.memmap = np.memmap(
            folder / meta["files"]["offsets"], dtype="<i8", mode="r", shape=(documents + 1,)
        )

    @classmethod
    def open(cls, folder: Path | str) -> TokenCorpus:
        """The corpus that `tokenize` wrote to `folder`, checked against its digest."""
        folder = Path(folder)
        try:
            meta = json.loads((folder / _META).read_text(encoding="utf-8"))
            if meta["format"] != _FORMAT:
                raise ArgumentError(f"folder={str(folder)!r}: tokens of format {meta['format']!r}, must be {_FORMAT}")
            if meta["digest"] == _digest(folder, meta):
                return cls(folder, meta)
        except FileNotFoundError as error:
            missing = Path(error.filename or _META).name
            raise ArgumentError(f"folder={str(folder)!r}: not a token corpus, {missing} is missing") from error
        except ArgumentError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArgumentError(f"folder={str(folder)!r}: damaged token corpus, {_META} cannot be read") from error
        raise ArgumentError(f"folder={str(folder)!r}: damaged token corpus, its files do not match their checksum")

    def __repr__(self) -> str:
        return f"TokenCorpus({self.name!r}, documents={len(self)}, tokens={len(self.ids)}, digest={self.digest[:12]})"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def describe(self) -> dict[str, str]:
        return {"digest": self.digest}

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    def document(self, i: int) -> Int[np.ndarray, " position"]:
        """Token ids of document i."""
        i = whole("i", i, least=0, most=len(self) - 1)
        return np.asarray(self.ids[self.offsets[i] : self.offsets[i + 1]])

    def count_chunks(self, size: int = 4096) -> Iterator[sparse.csr_array]:
        """How often each token occurs in each document, `size` documents at a time."""
        whole("size", size)
        for first in range(0, len(self), size):
            edges = np.asarray(self.offsets[first : first + size + 1])
            ids = np.array(self.ids[edges[0] : edges[-1]])
            ones = np.ones(len(ids), dtype=np.int32)
            bounds = (edges - edges[0]).astype(np.int32 if len(ids) < 2**31 else np.int64)
            table = sparse.csr_array((ones, ids, bounds), shape=(len(bounds) - 1, self.vocab_size))
            table.sum_duplicates()
            yield table

    def counts(self) -> sparse.csr_array:
        """How often each token occurs in each document."""
        return sparse.csr_array(sparse.vstack(list(self.count_chunks()), format="csr"))

    def batches(
        self, longest: int, size: int, documents: Sequence[int] | None = None
    ) -> Iterator[tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"]]]:
        """All documents, or those named, in order, `size` at a time, cut after `longest` tokens.

        They are padded to the longest of their batch.
        """
        whole("longest", longest)
        whole("size", size)
        if documents is not None and len(documents):
            whole("documents", min(documents), least=0)
            whole("documents", max(documents), most=len(self) - 1)
        chosen = range(len(self)) if documents is None else documents
        for first in range(0, len(chosen), size):
            rows = np.asarray(chosen[first : first + size], dtype=np.int64)
            starts = self.offsets[rows]
            lengths = np.minimum(self.offsets[rows + 1] - starts, longest)
            yield self._windows(starts, lengths, int(lengths.max()))

    def some(self, count: int, seed: int = 0) -> list[int]:
        """Up to `count` documents drawn without replacement, shortest first, so that batches need little padding."""
        whole("count", count)
        drawn = np.random.default_rng(whole("seed", seed, least=0)).permutation(len(self))[:count]
        return drawn[np.argsort(np.diff(self.offsets)[drawn], kind="stable")].tolist()

    def _windows(
        self, starts: Int[np.ndarray, " batch"], lengths: Int[np.ndarray, " batch"], width: int
    ) -> tuple[Int[Tensor, "batch position"], Bool[Tensor, "batch position"]]:
        """`lengths` tokens from `starts` on, padded to `width`."""
        place = np.arange(width)
        real = place < lengths[:, None]
        ids = self.ids[np.where(real, starts[:, None] + place, starts[:, None])].astype(np.int64)
        ids[~real] = self.pad_id or 0
        return torch.from_numpy(ids), torch.from_numpy(real)


@typed
@dataclass(frozen=True)
class TextWorld:
    """Windows of `length` consecutive tokens of a corpus.

    A document is drawn with probability proportional to its number of tokens, then a window uniformly among those that
    fit into it. A document shorter than `length` is taken whole and padded. `masked=False` allows tokenizers without a
    mask token, which masked language modelling cannot do without.
    """

    corpus: TokenCorpus
    length: int = 128
    masked: bool = True

    def __post_init__(self) -> None:
        whole("length", self.length)
        if self.masked and self.corpus.mask_id is None:
            raise ArgumentError(
                f"tokenizer {self.corpus.tokenizer_name!r} has no mask token: add one before tokenizing "
                "(tokenizer.add_special_tokens({'mask_token': '[MASK]'})) or pass masked=False"
            )

    @cached_property
    def vocab(self) -> Vocab:
        return Vocab(tuple(self.corpus.words), mask=self.corpus.mask_id)

    def describe(self) -> dict[str, Any]:
        return {"corpus": self.corpus, "length": self.length, "masked": self.masked}

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """`n` windows; `latents` hold the `document` of each and its `start` there."""
        whole("n", n, least=0)
        rng, offsets = bulk_generator(generator), self.corpus.offsets
        token = rng.integers(len(self.corpus.ids), size=n)
        document = np.searchsorted(offsets, token, side="right") - 1
        first, size = offsets[document], offsets[document + 1] - offsets[document]
        start = rng.integers(np.maximum(size - self.length, 0) + 1)
        x, real = self.corpus._windows(first + start, np.minimum(size, self.length), self.length)
        latents = {"document": torch.from_numpy(document), "start": torch.from_numpy(start)}
        return Batch(x=x, mask=real, latents=latents, vocab=self.vocab)

    def sample_each(self, n: int, generators: Sequence[torch.Generator], device: str | torch.device = "cpu") -> Batch:
        """`n` windows from every generator, one generator after another: the same on every device."""
        drawn = [self.sample(n, generator) for generator in generators]
        latents = {name: torch.cat([batch.latents[name] for batch in drawn]) for name in drawn[0].latents}
        real = torch.cat([batch.mask for batch in drawn if batch.mask is not None])
        return Batch(torch.cat([batch.x for batch in drawn]), real, latents, vocab=self.vocab).to(device)
