"""The store: a folder of JSON, npz and safetensors files, written atomically and checked when read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sandtable.arguments import ArgumentError, place, typed
from sandtable.lab.changes import as_declared
from sandtable.lab.claim import SCALES
from sandtable.lab.keys import canonical, fingerprint

if TYPE_CHECKING:  # loaded when first needed: `sandtable list` reads verdicts, which hold no arrays
    import numpy as np

try:
    import fcntl
except ImportError:  # no advisory locks on this system: two processes may do the same work, each file is still whole
    fcntl = None

CHECKSUMS = "checksums.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StoreError(ArgumentError):
    """The store cannot be written or read: no space, no permission, or no folder."""


@typed
class Store:
    """A folder of artefacts: `runs/` unless `root` or the variable SANDTABLE_HOME says otherwise.

    Every file is written beside its place, flushed and moved into it, so a reader finds the old content or the new one.
    Files carry a checksum; one that fails it is set aside as `*.damaged` with a warning and counts as absent.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = place("store", root if root is not None else os.environ.get("SANDTABLE_HOME") or "runs")

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def words(self) -> list[str]:
        """What names this store on the command line: nothing, if it is the default one."""
        return [] if self.root.resolve() == Store().root.resolve() else ["--store", str(self.root)]

    def path(self, *parts: str) -> Path:
        return self.root.joinpath(*parts)

    def verdict(self, claim: str, scale: str, variation: Mapping[str, str] | None = None) -> Path:
        """Where the record of a claim's last run at `scale` lies; runs with other settings or seeds have their own."""
        mark = f".{fingerprint(dict(variation))[:8]}" if variation else ""
        return self.path("verdicts", f"{claim.replace('/', '--')}--{scale}{mark}.json")

    def last_verdict(self, claim: str) -> dict[str, Any] | None:
        """The newest record of a claim over its scales: as it is declared, or with more seeds where that was not run.

        Without either it is the newest variation, which its entry `variation` tells.
        """
        counted, varied = [], []
        for scale in SCALES:
            place = self.verdict(claim, scale)
            if (record := self.read_json(place)) is not None:
                counted.append(record)
                continue
            varied += [record for path in self._variations(place) if (record := self.read_json(path)) is not None]
        counted += filter(as_declared, varied)
        return max(counted or varied, key=lambda record: record["date"], default=None)

    def _variations(self, place: Path) -> list[Path]:
        try:
            names = os.listdir(place.parent)
        except OSError:
            return []
        return [place.with_name(name) for name in names if name.startswith(f"{place.stem}.") and name.endswith(".json")]

    def require_writable(self) -> None:
        """Fail now, in one line, rather than after an hour of training."""
        probe = self.root / f".probe-{uuid.uuid4().hex}"
        with self.writing(self.root):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                probe.touch()
                probe.unlink()
            except FileNotFoundError as error:  # a place where no folder can be made
                raise PermissionError(errno.EACCES, error.strerror, str(self.root)) from error

    def write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write a JSON object with one more entry, `sha256`, of everything else in it."""
        body = {key: value for key, value in content.items() if key != "sha256"}
        text = json.dumps(body | {"sha256": _digest(body)}, indent=1, allow_nan=False, ensure_ascii=False)
        self._replace(path, lambda file: file.write(text.encode()))

    def read_json(self, path: Path) -> dict[str, Any] | None:
        """The object written by `write_json`, without its checksum; None where there is none or it is damaged."""
        try:
            content = json.loads(path.read_bytes())
            expected = content.pop("sha256", None) if isinstance(content, dict) else None
            found = None if expected is None else _digest(content)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, RecursionError) as error:  # ValueError: bytes, syntax, numbers that JSON has no words for
            return self.set_aside(path, f"not JSON ({error})")
        except OSError as error:
            raise self._unreadable(path, error) from error
        if expected is None or expected != found:
            return self.set_aside(path, "its checksum does not match")
        return content

    def write_arrays(self, path: Path, arrays: Mapping[str, np.ndarray]) -> None:
        """Write arrays as npz; the checksum is the comment of the zip archive."""
        import numpy as np

        def write(file: BinaryIO) -> None:
            with zipfile.ZipFile(file, "w") as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
                archive.comment = _arrays_digest(arrays).encode()

        self._replace(path, write)

    def read_arrays(self, path: Path) -> dict[str, np.ndarray] | None:
        """The arrays written by `write_arrays`; None where there are none or they are damaged."""
        import numpy as np

        arrays = {}
        try:
            with zipfile.ZipFile(path) as archive:
                for item in archive.infolist():
                    if item.compress_type != zipfile.ZIP_STORED:  # never ours, and could unfold to any size
                        raise ValueError(f"{item.filename} is compressed")
                    with archive.open(item) as member:
                        name = item.filename.removesuffix(".npy")
                        arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                expected = archive.comment.decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EISDIR, errno.EIO):
                raise self._unreadable(path, error) from error
            return self.set_aside(path, f"not a whole npz file ({error})")
        except Exception as error:  # a damaged header can ask for anything: other encodings, names, memory
            return self.set_aside(path, f"not a whole npz file ({error})")
        if expected != _arrays_digest(arrays):
            return self.set_aside(path, "its checksum does not match")
        return arrays

    def write_text(self, path: Path, text: str) -> None:
        self._replace(path, lambda file: file.write(text.encode()))

    def write_folder(self, path: Path, save: Callable[[Path], object]) -> None:
        """Let `save` fill a folder, then move it into place as a whole; hold the artefact's lock while calling this."""
        with self.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for left in path.parent.glob(f".{path.name}.tmp-*"):  # of a killed process: we hold the lock
                shutil.rmtree(left, ignore_errors=True)
            place = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex}")
            place.mkdir()
            try:
                save(place)
                sums = {str(file.relative_to(place)): _file_digest(file) for file in _files(place)}
                self.write_json(place / CHECKSUMS, {"files": sums})
                for file in _files(place):
                    _flush(file)
                _flush(place)
                if path.exists():
                    shutil.rmtree(path)
                os.replace(place, path)
                _flush(path.parent)
            finally:
                shutil.rmtree(place, ignore_errors=True)

    def has_folder(self, path: Path) -> bool:
        """Whether a folder of `write_folder` is there and whole; a damaged one is set aside."""
        if not path.is_dir():
            return False
        sums = self.read_json(path / CHECKSUMS)
        if sums is None or not isinstance(sums.get("files"), dict):
            self.set_aside(path, "its list of checksums is missing or damaged")
            return False
        found = {str(file.relative_to(path)) for file in _files(path)} - {CHECKSUMS}
        if found != set(sums["files"]):
            self.set_aside(path, "files are missing or were added")
            return False
        for name, expected in sums["files"].items():
            if _file_digest(path / name) != expected:
                self.set_aside(path, f"the checksum of {name} does not match")
                return False
        return True

    def set_aside(self, path: Path, why: str) -> None:
        """Rename a damaged file or folder to `*.damaged`, with a warning; the caller computes it again."""
        warnings.warn(f"{path} is damaged: {why}; set aside as {path.name}.damaged", RuntimeWarning, stacklevel=3)
        aside = path.with_name(path.name + ".damaged")
        with contextlib.suppress(FileNotFoundError), self.writing(path):
            remove(aside)
            os.replace(path, aside)

    @contextlib.contextmanager
    def lock(self, path: Path, *, waiting: Callable[[], object] | None = None) -> Iterator[None]:
        """Hold the artefact `path` alone among all processes; the system frees the lock when a process dies.

        `waiting` is called once if another process holds it.
        """
        with self.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path.with_name(path.name + ".lock"), "ab")  # noqa: SIM115 (closed below, which frees the lock)
        with file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if waiting is not None:
                        waiting()
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Turn a full disk and a closed folder into one clear line."""
        try:
            yield
        except StoreError:
            raise
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(f"no space left for {path} in the store {self.root}; finished work is kept") from error
            raise StoreError(
                f"the store {self.root} is not writable ({error.strerror or error}: {error.filename}); "
                "choose another folder with --store or SANDTABLE_HOME"
            ) from error

    def _unreadable(self, path: Path, error: OSError) -> StoreError:
        return StoreError(f"{path} in the store {self.root} cannot be read ({error.strerror or error})")

    def _replace(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        place = path.with_name(f".{path.name}.tmp-{uuid.uuid4().hex}")
        with self.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(place, "xb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(place, path)
                _flush(path.parent)
            finally:
                place.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _digest(content: Any) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(canonical([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _flush(path: Path) -> None:
    """Ask the system to put a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
