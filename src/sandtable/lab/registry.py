"""Finding claims: the entry points `sandtable.claims` of installed packages, and files named by the user."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from sandtable.arguments import ArgumentError, nearest, place, typed
from sandtable.lab import index
from sandtable.lab.changes import flat
from sandtable.lab.claim import Claim

GROUP = "sandtable.claims"


@typed
def load(files: Path | str | Sequence[Path | str] = ()) -> dict[str, Claim]:
    """Every claim by id, sorted: those of the entry points and those of `files`, one or several."""
    found = _distinct([*_installed().values(), *from_files(files).values()])
    _check_corrections({name: item.corrected for name, item in found.items()})
    return found


def from_files(files: Path | str | Sequence[Path | str]) -> dict[str, Claim]:
    """The claims of Python files, each loaded by its path."""
    return _distinct([item for file in several_files(files) for item in _collect(_load_file(place("--from", file)))])


def several_files(files: Path | str | Sequence[Path | str]) -> Sequence[Path | str]:
    """One file is a sequence of one; a text alone is none of letters."""
    return [files] if isinstance(files, Path | str) else files


def find(ids: Sequence[str], files: Sequence[Path | str] = ()) -> list[Claim]:
    """The claims called `ids`; the entry points are only loaded if `files` do not have them all."""
    known = from_files(files)
    if any(name not in known for name in ids):
        known = load(files)
    return [known[match([name], known)[0]] for name in ids]


def cards(
    files: Sequence[Path | str] = (), *, say: Callable[[str], None] = lambda text: None
) -> dict[str, dict[str, Any]]:
    """What `list` and `show` need of every claim, as plain JSON; for a process that has imported no claims so far.

    Those of installed packages come from the index where it is valid (`lab/index.py`); `say` is told when it is not.
    Those of `files` are always read anew.
    """
    points = _entry_points()
    known = index.recall(points)
    if known is None:
        known = _new_cards(points, say)
    own = {name: card(item) for name, item in from_files(files).items()}
    for name in own:
        if name in known:
            raise _twice(name)
    found = dict(sorted((known | own).items()))
    _check_corrections({name: item["corrected"] for name, item in found.items()})
    return found


def _new_cards(points: Sequence[importlib.metadata.EntryPoint], say: Callable[[str], None]) -> dict[str, Any]:
    """Import the claims of installed packages, and keep their cards if these are what the files now say."""
    if points:
        say("reading the claims of installed packages; this takes some seconds, once after every change to them")
    before = index.key(points)
    already = any(point.module in sys.modules for point in points)  # perhaps older than the files
    made = {name: card(item) for name, item in _installed().items()}
    if not already and index.key(points) == before:
        index.remember(points, made)
    return made


def card(claim: Claim) -> dict[str, Any]:
    """A claim as plain JSON, without its function."""
    source = {"authors": claim.source.authors, "year": claim.source.year, "where": claim.source.where}
    controls = [
        {"name": c.name, "change": {k: repr(v) for k, v in c.change.items()}, "refutes": list(c.refutes)}
        for c in claim.controls
    ]
    return {
        "id": claim.id,
        "statement": claim.statement,
        "source": source,
        "expected": claim.expected,
        "erratum": claim.erratum,
        "corrected": claim.corrected,
        "tour": claim.tour,
        "scales": {scale: shown(settings) for scale, settings in claim.scales.items()},
        "seeds": {scale: claim.seeds_at(scale) for scale in claim.scales},
        "work": {scale: work(settings) for scale, settings in claim.scales.items()},
        "no_smoke": None if "smoke" in claim.scales else claim.no_smoke or _too_long(claim.scales["desk"]),
        "controls": controls,
    }


def shown(settings: Any) -> dict[str, str]:
    """Settings as a person wrote them: field name → repr."""
    return {name: repr(getattr(settings, name)) for name in settings.__dataclass_fields__}


def work(settings: Any, most: int = 3) -> dict[str, int]:
    """The largest counts among settings and the settings inside them: what makes a claim long."""
    counts: dict[str, int] = {}
    for name in settings.__dataclass_fields__:
        value = getattr(settings, name)
        if hasattr(value, "__dataclass_fields__"):
            counts |= {f"{name}.{inner}": count for inner, count in work(value).items()}
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 10:
            counts[name] = value
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:most])


def _too_long(settings: Any) -> str:
    """Why a claim with these settings is not decided in three seconds, from what they speak of."""
    names = {name.rpartition(".")[2] for name in flat(settings)}
    if "corpus" in names:
        return "reads a corpus of real text"
    if names & {"trained", "size", "width", "layers", "lr", "rate", "l2"}:
        return "trains networks until they have learnt"
    if names & {"repetitions", "chains", "rows", "samples"}:
        return "needs very many draws"
    return "trains networks until they have learnt" if any("steps" in name for name in names) else "takes its time"


def match(patterns: Sequence[str], ids: Iterable[str]) -> list[str]:
    """Ids that fit any of the shell patterns, in the order of `ids`; a pattern that fits none is an error."""
    known = list(ids)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            lines = sorted({f"{name.partition('/')[0]}/*" for name in known})
            hint = nearest(pattern, lines if pattern.endswith("*") else [*lines, *known])
            raise ArgumentError(f"no claim fits {pattern!r}{hint} (see: sandtable list)")
    return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def search(patterns: Sequence[str], cards: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """As `match`; a pattern that fits no id stands for words that statement and source have, in small or capitals."""
    chosen: set[str] = set()
    for pattern in patterns:
        found = fnmatch.filter(cards, pattern) or [name for name, item in cards.items() if _tells(item, pattern)]
        chosen.update(found or match([pattern], cards))
    return [name for name in cards if name in chosen]


def _tells(card: Mapping[str, Any], words: str) -> bool:
    """Whether every word begins one of the claim: "Figure" also "Figures", but "2.7" neither "2.75" nor "12.7"."""
    told = " ".join([card["statement"], *map(str, card["source"].values())])
    ends = [rf"(?<![\w.]){re.escape(word)}" + r"(?!\.?\d)" * word[-1].isdigit() for word in words.split()]
    return bool(ends) and all(re.search(end, told, re.IGNORECASE) for end in ends)


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    found = list(importlib.metadata.entry_points(group=GROUP))
    if not any(point.value.startswith(f"{GROUP}.") for point in found):  # a source tree that was never installed
        own = pkgutil.iter_modules([str(Path(__file__).parents[1] / "claims")])
        found += [importlib.metadata.EntryPoint(part.name, f"{GROUP}.{part.name}", GROUP) for part in own]
    return sorted(found, key=lambda point: (point.name, point.value))


def _installed() -> dict[str, Claim]:
    claims: list[Claim] = []
    for point in _entry_points():
        try:
            module = importlib.import_module(point.module)
        except ImportError as error:
            raise ArgumentError(f"claims {point.name!r} ({point.value}) cannot be imported: {error}") from error
        claims.extend(_collect(module))
    return _distinct(claims)


def _collect(module: ModuleType) -> list[Claim]:
    """The claims of a module: its CLAIMS if it has them, else all it defines, for a package those of every part."""
    declared = getattr(module, "CLAIMS", None)
    if declared is not None:
        if not isinstance(declared, tuple | list) or not all(isinstance(item, Claim) for item in declared):
            raise ArgumentError(f"{module.__name__}.CLAIMS: must be a tuple of Claim")
        return list(declared)
    claims = [value for value in vars(module).values() if isinstance(value, Claim)]
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        claims.extend(_collect(importlib.import_module(f"{module.__name__}.{part.name}")))
    return claims


def _distinct(claims: Iterable[Claim]) -> dict[str, Claim]:
    found: dict[str, Claim] = {}
    for item in claims:
        if found.setdefault(item.id, item) is not item:
            raise _twice(item.id)
    return dict(sorted(found.items()))


def _twice(name: str) -> ArgumentError:
    return ArgumentError(f"two claims are called {name!r}: ids must differ")


def _check_corrections(corrected: Mapping[str, str | None]) -> None:
    """A printed statement names, as its correction, a claim that exists."""
    for name, other in corrected.items():
        if other is not None and other not in corrected:
            hint = nearest(other, list(corrected))
            raise ArgumentError(f"claim {name}: corrected={other!r} is no known claim{hint}")


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ArgumentError(f"--from {path}: no such file")
    name = f"claims_from_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"--from {path}: must be a Python file (*.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is being read
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # so that a file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ArgumentError) or not isinstance(error, Exception | SystemExit):
            raise
        raise ArgumentError(f"--from {_told_of(error, path)}") from error
    return module


def _told_of(error: BaseException, path: Path) -> str:
    """What went wrong in a file that was being read, and in which of its lines, in one line."""
    if isinstance(error, SyntaxError):  # names the file and the line itself
        return f"{path}: cannot be read: {error}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    said = next(iter(str(error).strip().splitlines()), "")
    return f"{':'.join(map(str, [path, *lines[-1:]]))}: cannot be read: {type(error).__name__}: {said}"
