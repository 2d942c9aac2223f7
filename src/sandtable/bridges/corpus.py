"""Text corpora: streams of cleaned, deduplicated documents from files, data sets, or the docstrings on this machine."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandtable.arguments import ArgumentError, missing, nearest, one_of, place, typed, whole
from sandtable.bridges import docstrings
from sandtable.bridges.cleaning import Seen, clean

SEPARATORS = ("blank", "line", "title", "file")
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".jsonl", ".gz")
_BLOCK = 2**16  # characters read at a time
_LARGEST_RECORD = 2**26  # characters of one line of .jsonl, which has to be read whole
_SMALL_FILE = 100_000  # bytes: a file of a folder up to this size is one document


@dataclass(frozen=True)
class Corpus:
    """Documents as strings, read anew by every `for text in corpus`; at no time is more than one of them in memory.

    `documents()` gives the raw texts. They are cleaned (`clean`), cut at white space into pieces of at most `longest`
    characters, and dropped if they have fewer than `least_words` words or were seen before (`Seen`: 16 MiB, whatever
    the size of the corpus). `limit` ends the stream after so many documents.
    """

    name: str
    documents: Callable[[], Iterator[str]]
    least_words: int = 20
    longest: int = 100_000
    limit: int | None = None

    def __post_init__(self) -> None:
        whole("least_words", self.least_words)
        whole("longest", self.longest)
        if self.limit is not None:
            whole("limit", self.limit)

    def __iter__(self) -> Iterator[str]:
        return itertools.islice(self._kept(), self.limit)

    def _kept(self) -> Iterator[str]:
        seen = Seen()
        for text in self.documents():
            for piece in _pieces(clean(text), self.longest):
                if piece.count(" ") + 1 >= self.least_words and seen.add(piece):
                    yield piece

    def save(self, path: Path | str) -> Corpus:
        """Write the cleaned documents to a .jsonl file, and give the corpus that reads them from there."""
        path = Path(path)
        if path.suffix != ".jsonl":
            raise ArgumentError(f"path={str(path)!r}: must end in .jsonl")
        part = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        try:
            with part.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in self)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return load(path, least_words=self.least_words, longest=self.longest)


@typed
def load(
    source: str | Path | Sequence[str] | None = None,
    *,
    split: str = "train",
    field: str = "text",
    config: str | None = None,
    separator: str | None = None,
    least_words: int = 20,
    longest: int = 100_000,
    limit: int | None = None,
    packages: Sequence[str] | None = None,
) -> Corpus:
    """A corpus from `source`; what exists as a path is read as one.

    - None or "builtin": docstrings of the standard library and the installed packages, read from their source files
      without running them; `packages` chooses among them by import name ("stdlib" for the standard library);
    - a text file, plain or .gz. `separator` says where documents end: "blank" lines, every "line", " = Title = " lines
      (WikiText), or only the end of the "file"; None looks at the beginning of the file;
    - a .jsonl file (or .jsonl.gz), one object a line with the text in `field`;
    - a folder: all its .txt, .md, .rst, .jsonl and .gz files in the order of their names. Unless `separator` or titles
      say otherwise, a file of up to 100 kB is one document;
    - a folder made by `save_to_disk`, or the name of a data set on the Hugging Face hub, streamed: `field` of `split`
      (and of the named `config`);
    - a list of strings.
    """
    if separator is not None:
        one_of("separator", separator, SEPARATORS)
    name, documents = _open_source(source, split, field, config, separator, longest, packages)
    corpus = Corpus(name, documents, least_words=least_words, longest=longest, limit=limit)
    if next(iter(corpus), None) is None:
        raise ArgumentError(f"source={name!r}: empty corpus, no document has at least {least_words} words")
    return corpus


@typed
def stamp(source: str | Path | None = None) -> str:
    """What tells one state of a corpus from another without reading it, for caches of what was made from it.

    Of files, names, sizes and times; of the built-in corpus, the packages installed here; of a data set, its name.
    """
    if source is None or source == "builtin":
        found = sorted({f"{d.metadata['Name']} {d.version}" for d in importlib.metadata.distributions()})
        return hashlib.sha256("\n".join([sys.version, *found]).encode()).hexdigest()
    path = place("source", source)
    if not path.exists():
        return str(source)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    facts = [f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


# -- sources ---------------------------------------------------------------------------------------------------------


def _pieces(text: str, longest: int) -> Iterator[str]:
    """`text` in parts of at most `longest` characters, cut at white space where there is any."""
    while len(text) > longest:
        cut = max(text.rfind(" ", 0, longest + 1), text.rfind("\n", 0, longest + 1))
        cut = cut if cut > 0 else longest
        yield text[:cut]
        text = text[cut:].lstrip()
    yield text


def _open_source(
    source: Any, split: str, field: str, config: str | None, separator: str | None, longest: int, packages: Any
) -> tuple[str, Callable[[], Iterator[str]]]:
    """Name of a source, and the function that starts reading its raw documents."""
    if source is None or (isinstance(source, str) and source == "builtin"):
        files = docstrings.source_files(packages)
        return "builtin", lambda: docstrings.documents(files)
    if packages is not None:
        raise ArgumentError(f"packages={packages!r}: only chooses among the packages of the built-in corpus")
    if isinstance(source, list | tuple):
        if not all(isinstance(text, str) for text in source):
            raise ArgumentError("source: a list of documents must hold strings only")
        return f"{len(source)} documents", lambda: iter(source)
    if not isinstance(source, str | Path) or not str(source):
        raise ArgumentError(f"source={source!r}: must be a path, the name of a data set, a list of strings or None")
    path = place("source", source)
    if not os.path.exists(path):
        is_name = isinstance(source, str) and re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", source)
        if not is_name or path.suffix.lower() in TEXT_SUFFIXES:
            raise ArgumentError(f"source={str(source)!r}: no such file or folder")
        return str(source), _dataset(source, split, field, config)
    if (path / "dataset_dict.json").is_file() or (path / "dataset_info.json").is_file():
        return path.name, _dataset(path, split, field, config)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in TEXT_SUFFIXES and file.is_file())
        return path.name, lambda: (text for file in found for text in _read(file, field, separator, longest, True))
    return path.name, lambda: _read(path, field, separator, longest, False)


def _read(path: Path, field: str, separator: str | None, longest: int, in_folder: bool) -> Iterator[str]:
    """Raw documents of one file."""
    if ".jsonl" in (suffix.lower() for suffix in path.suffixes[-2:]):
        return _records(path, field)
    if separator is None:
        separator = _guess_separator(path, small=in_folder and path.stat().st_size <= _SMALL_FILE)
    return _split(read_lines(path, _BLOCK), separator, longest)


def read_lines(path: Path, most: int) -> Iterator[str]:
    """Lines of a text file, plain or gzipped, in parts where longer than `most` characters."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            while line := file.readline(most):
                if "\0" in line:
                    raise ArgumentError(f"source={str(path)!r}: a binary file, must be text in UTF-8")
                yield line  # pyright: ignore[reportReturnType]
    except UnicodeDecodeError as error:
        raise ArgumentError(f"source={str(path)!r}: a binary file or not UTF-8, must be text in UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise ArgumentError(f"source={str(path)!r}: cannot be read ({error})") from error


def _records(path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(path, _LARGEST_RECORD), start=1):
        if line.isspace():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"source={str(path)!r}: line {number} is not JSON ({error})") from error
        record = record if isinstance(record, dict) else {}
        yield text_of(record, field, f"{path} line {number}")


@typed
def text_of(record: Mapping[str, Any], field: str, where: str) -> str:
    """The text in a field of a record, or an `ArgumentError` that says `where` it should have been."""
    if field not in record:
        known = f"{', '.join(record) or 'none'}{nearest(field, list(record))}"
        raise ArgumentError(f"field={field!r}: not in {where}, whose fields are {known}")
    text = "" if record[field] is None else record[field]
    if not isinstance(text, str):
        raise ArgumentError(f"field={field!r}: must be text, but {where} holds {type(text).__name__}")
    return text


_TITLE = re.compile(r"= (?!=).*(?<!=) =")


def _guess_separator(path: Path, *, small: bool) -> str:
    """Where documents seem to end, from the first lines of a file."""
    lines = "".join(itertools.islice(read_lines(path, _BLOCK // 16), 200)).strip()[:_BLOCK].split("\n")
    if _TITLE.fullmatch(lines[0].strip()):
        return "title"
    if small:
        return "file"
    if not all(line.strip() for line in lines):
        return "blank"
    # Long lines are paragraphs; short ones without any break were wrapped by an editor.
    words = sum(len(line.split()) for line in lines)
    return "line" if len(lines) > 1 and words >= 20 * len(lines) else "file"


def _split(lines: Iterator[str], separator: str, longest: int) -> Iterator[str]:
    """Raw documents, in parts where longer than `longest`."""
    held, size, fresh, after_blank = [], 0, True, True
    for line in lines:
        blank = line.isspace()
        title = separator == "title" and after_blank and _TITLE.fullmatch(line.strip()) is not None
        if fresh and (separator == "line" or (separator == "blank" and blank) or title):
            yield "".join(held)
            held, size = [], 0
        fresh, after_blank = line.endswith("\n"), blank
        held.append(_plain_wikitext(line) if separator == "title" else line)
        size += len(held[-1])
        if size > longest:
            *whole_parts, rest = _pieces("".join(held), longest)
            yield from whole_parts
            held, size = [rest], len(rest)
    yield "".join(held)


def _plain_wikitext(line: str) -> str:
    """Without the marks of WikiText (Merity et al. 2016): headings, split numbers and hyphens, removed words."""
    line = line.replace("= ", "") if line.lstrip().startswith("= ") else line
    return re.sub(r" @([-.,])@ ", r"\1", line).replace("<unk>", "")


def _dataset(source: str | Path, split: str, field: str, config: str | None) -> Callable[[], Iterator[str]]:
    """Texts of a data set."""
    records = open_records(source, split, config)
    return lambda: (text_of(record, field, f"data set {str(source)!r}") for record in records())


def open_records(source: str | Path, split: str, config: str | None) -> Callable[[], Iterator[Mapping[str, Any]]]:
    """Records of a data set: one made by `save_to_disk`, or one of the hub, streamed."""
    name = str(source)
    try:
        import datasets
    except ImportError as error:
        raise missing("a data set", "datasets", "text") from error
    try:
        saved = os.path.isdir(source)
        data: Any = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config, streaming=True)
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(f"source={name!r}: no path or reachable data set ({clean(str(error))[:200]})") from error
    data = data[one_of("split", split, list(data))] if isinstance(data, dict) else data

    def read() -> Iterator[Mapping[str, Any]]:
        try:
            yield from data
        except OSError as error:
            raise ArgumentError(f"source={name!r}: cannot be read further ({clean(str(error))[:200]})") from error

    return read
