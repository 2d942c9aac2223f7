"""Finding claims: the entry points `sandtable.claims` of installed packages, and files named by the user."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from sandtable.arguments import ArgumentError, nearest
from sandtable.lab.claim import Claim

GROUP = "sandtable.claims"


def load(files: Sequence[Path | str] = ()) -> dict[str, Claim]:
    """Every claim by id, sorted: those of the entry points, then those of `files`."""
    installed = _installed()
    _remember(installed)
    found = _distinct([*installed.values(), *from_files(files).values()])
    for item in found.values():
        if item.corrected is not None and item.corrected not in found:
            hint = nearest(item.corrected, list(found))
            raise ArgumentError(f"claim {item.id}: corrected={item.corrected!r} is no known claim{hint}")
    return found


def from_files(files: Sequence[Path | str]) -> dict[str, Claim]:
    """The claims of Python files, each loaded by its path."""
    return _distinct([item for file in files for item in _collect(_load_file(Path(file)))])


def find(ids: Sequence[str], files: Sequence[Path | str] = ()) -> list[Claim]:
    """The claims called `ids`; the entry points are only loaded if `files` do not have them all."""
    known = from_files(files)
    if any(name not in known for name in ids):
        known = load(files)
    return [known[match([name], known)[0]] for name in ids]


def cards(files: Sequence[Path | str] = ()) -> dict[str, dict[str, Any]]:
    """What `list` and `show` need of every claim, as plain JSON.

    Importing claims imports torch, which takes seconds. So the cards of installed claims are kept in the user's cache
    under a hash of the packages they come from; where that folder cannot be written they are made anew each time.
    """
    known = _recall()
    if known is None or files:
        return {name: card(item) for name, item in load(files).items()}
    return known


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
        "controls": controls,
    }


def shown(settings: Any) -> dict[str, str]:
    """Settings as a person wrote them: field name → repr."""
    return {name: repr(getattr(settings, name)) for name in settings.__dataclass_fields__}


def match(patterns: Sequence[str], ids: Iterable[str]) -> list[str]:
    """Ids that fit any of the shell patterns, in the order of `ids`; a pattern that fits none is an error."""
    known = list(ids)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            lines = sorted({f"{name.partition('/')[0]}/*" for name in known})
            hint = nearest(pattern, lines if pattern.endswith("*") else known)
            raise ArgumentError(f"no claim fits {pattern!r}{hint} (see: sandtable list)")
    return [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: (point.name, point.value))


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
            raise ArgumentError(f"two claims are called {item.id!r}: ids must differ")
    return dict(sorted(found.items()))


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
        if isinstance(error, ImportError | SyntaxError):
            raise ArgumentError(f"--from {path}: cannot be read: {error}") from error
        raise
    return module


def _cache_file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    return Path(base, "sandtable", f"index-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]}.json")


def _recall() -> dict[str, dict[str, Any]] | None:
    """The cards in the cache, if the packages they came from have not changed since."""
    try:
        content = json.loads(_cache_file().read_bytes())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    if not isinstance(content, dict) or content.get("key") != _index_key():
        return None
    return content["cards"]


def _remember(claims: Mapping[str, Claim]) -> None:
    file = _cache_file()
    place = file.with_name(f"{file.name}.{os.getpid()}")
    content = {"key": _index_key(), "cards": {name: card(item) for name, item in claims.items()}}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))
        os.replace(place, file)
    except OSError:
        return  # without a cache `list` only takes longer


def _index_key() -> str:
    """A hash of the entry points and of every source file of the packages that they name, and of sandtable."""
    points = _entry_points()
    digest = hashlib.sha256(json.dumps([sys.version, [[p.name, p.value] for p in points]]).encode())
    for name in sorted({"sandtable", *(point.module.partition(".")[0] for point in points)}):
        for file in _sources(name):
            digest.update(str(file).encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _sources(package: str) -> list[Path]:
    """All Python files of an installed top-level package or module, without importing it."""
    module = sys.modules.get(package)
    spec = module.__spec__ if module is not None else PathFinder.find_spec(package)
    if spec is None:
        spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin else []
    return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))
