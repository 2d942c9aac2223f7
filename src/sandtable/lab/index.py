"""The index: cards of installed claims in the user's cache, valid while nothing they were made from has changed.

Importing claims imports torch, which takes seconds; the index lets `list` and `show` answer without. Its key holds

- the Python, the entry points, and the names (so the versions) of all installed distributions;
- the content of every Python file of the packages that entry points name, and of sandtable, and size and time of their
  other files;

and beside the key stand, for every other module that importing the claims brought in from outside the installed
distributions (an editable install, a folder on PYTHONPATH), size and time of its file. Any difference, and the index is
made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

_INSTALLED = (".dist-info", ".egg-info", ".egg-link", ".pth")


def recall(points: Sequence[EntryPoint]) -> dict[str, dict[str, Any]] | None:
    """The cards of the claims of `points`, if they are known and what they were made from is as it was."""
    try:
        content = json.loads(_file().read_bytes())
        cards, outside = content["cards"], content["outside"]
        if content["key"] != key(points) or content["seal"] != _seal(cards):
            return None
        return cards if all(_stamp(path) == stamp for path, stamp in outside.items()) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def remember(points: Sequence[EntryPoint], cards: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the cards just made from `points`; without a cache folder `list` only takes longer."""
    file = _file()
    place = file.with_name(f"{file.name}.{os.getpid()}")
    content = {"key": key(points), "outside": _outside(_packages(points)), "seal": _seal(cards), "cards": cards}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))
        os.replace(place, file)


def key(points: Sequence[EntryPoint]) -> str:
    """A hash of the entry points, of what is installed, and of the packages that the entry points name."""
    about = [sys.version, [[point.name, point.value] for point in points], _distributions()]
    digest = hashlib.sha256(json.dumps(about).encode())
    for file in (file for name in _packages(points) for file in _files(name)):
        digest.update(str(file).encode())
        digest.update(file.read_bytes() if file.suffix == ".py" else str(_stamp(file)).encode())
    return digest.hexdigest()


def _packages(points: Sequence[EntryPoint]) -> list[str]:
    return sorted({"sandtable", *(point.module.partition(".")[0] for point in points)})


def _file() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    return Path(base, "sandtable", f"index-{hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]}.json")


def _seal(cards: Any) -> str:
    """A checksum that a truncated or edited index does not carry."""
    return hashlib.sha256(json.dumps(cards, sort_keys=True).encode()).hexdigest()


def _distributions() -> list[str]:
    """Names with versions of all that is installed on the path, and of the hooks of editable installs."""
    folders = [folder for folder in map(Path, sys.path) if folder.is_dir()]
    return sorted(name for folder in folders for name in os.listdir(folder) if name.endswith(_INSTALLED))


def _files(package: str) -> list[Path]:
    """All files of an installed top-level package or module, without importing it."""
    module = sys.modules.get(package)
    spec = module.__spec__ if module is not None else PathFinder.find_spec(package)
    if spec is None:
        spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    if spec.submodule_search_locations is None:
        return [Path(spec.origin)] if spec.origin else []
    walked = (step for folder in spec.submodule_search_locations for step in os.walk(folder))
    return sorted(
        Path(place, name) for place, _, names in walked if not place.endswith("__pycache__") for name in names
    )


def _outside(packages: Sequence[str]) -> dict[str, list[int] | None]:
    """Files of all modules now imported that are neither of Python, nor of an installed distribution or `packages`."""
    homes = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    inside = tuple(home + os.sep for home in homes)
    found: dict[str, list[int] | None] = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or name.partition(".")[0] in ("__main__", "__mp_main__", *packages):
            continue
        path = os.path.realpath(path)
        if not path.startswith(inside) and os.path.isfile(path):
            found[path] = _stamp(path)
    return found


def _stamp(path: Path | str) -> list[int] | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns]
