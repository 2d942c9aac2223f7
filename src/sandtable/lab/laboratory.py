"""The laboratory a claim works in: its seeds, its device, its generators, and everything already computed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sandtable.arguments import ArgumentError, one_of, resolve_device, shown, typed, whole
from sandtable.lab.claim import SCALES
from sandtable.lab.keys import describe, fingerprint, source_hash
from sandtable.lab.store import CHECKSUMS, Store, remove
from sandtable.training.pace import Pace

_SEEDS = "__seeds__"
BLOCK = 8
"""Seeds b·BLOCK … (b+1)·BLOCK − 1 are measured together where several processes share the work."""
MOST_SEEDS = 1_000_000
MOST_THREADS = 4096


@typed
@dataclass(frozen=True, eq=False)
class Lab:
    """What a claim's function is given besides its settings.

    Trained models (`fit`) and measurements (`measure`) are artefacts of the store, shared by every claim and control
    that asks for the same. With `fresh`, those older than `started` do not count. `spread(lab, what, blocks, args,
    kwargs)` has other processes do `lab.fit` or `lab.measure` for blocks of seeds, into the same store.
    """

    seeds: Sequence[int] = (0,)
    scale: str = "desk"
    device: str = "cpu"
    threads: int = field(default_factory=torch.get_num_threads)
    store: Store = field(default_factory=Store)
    fresh: bool = False
    started: float = field(default_factory=time.time)
    progress: Callable[[str], object] | None = None
    spread: Callable[..., object] | None = None
    _memo: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if len(self.seeds) > MOST_SEEDS:
            raise ArgumentError(f"seeds: {len(self.seeds):,} are too many, at most {MOST_SEEDS:,} in one run")
        object.__setattr__(self, "seeds", tuple(whole("seed", seed, least=0) for seed in self.seeds))
        if len(set(self.seeds)) < len(self.seeds) or not self.seeds:
            raise ArgumentError(f"seeds={self.seeds!r}: must be distinct, and at least one")
        one_of("scale", self.scale, SCALES)
        object.__setattr__(self, "device", resolve_device(self.device))
        whole("threads", self.threads, most=MOST_THREADS)
        if self.progress is not None and not callable(self.progress):
            raise ArgumentError(f"progress={shown(self.progress)}: must be None or a function of a text")

    def only(self, seeds: Iterable[int]) -> Lab:
        """The same laboratory with other seeds."""
        return dataclasses.replace(self, seeds=tuple(seeds))

    def generator(self, seed: int, purpose: str) -> torch.Generator:
        """A CPU generator of its own for every (seed, purpose): seeded with 63 bits of their SHA-256."""
        digest = hashlib.sha256(f"{whole('seed', seed, least=0)}:{purpose}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)

    def fit(self, recipe: Any) -> Any:
        """The recipe trained on the lab's seeds, from the store where it was trained before.

        Chunk c holds seeds c·chunk … (c+1)·chunk − 1 and is always trained whole, so the bits of a seed never depend on
        how many were asked for.
        """
        chunk = whole("chunk", recipe.chunk)
        key = self._key("fit", recipe) | {"recipe": describe(recipe)}
        folder = self.store.path("fits", fingerprint(key)[:32])
        missing = [s for s in self.seeds if not self.counts(folder / f"chunk-{s // chunk}" / CHECKSUMS)]
        self._share("fit", _blocks(missing, chunk), recipe)
        fits = [self._chunk(recipe, folder, c, key) for c in sorted({seed // chunk for seed in self.seeds})]
        whole_fit = fits[0] if len(fits) == 1 else type(fits[0]).join(fits)
        return whole_fit.select(list(self.seeds))

    def measure(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """`function(lab, *args, **kwargs)`: arrays by name, each with one row per seed; only new seeds are computed."""
        key = self._key("measure", function, args, kwargs) | {
            "function": describe(function),
            "args": describe(args),
            "kwargs": describe(kwargs),
            "scale": self.scale,
        }
        folder = self.store.path("measures", fingerprint(key)[:32])
        rows = self._rows(folder)
        if missing := [seed for seed in self.seeds if seed not in rows]:
            self._share("measure", _blocks(missing, BLOCK), function, *args, **kwargs)
            with self._locked(folder, missing):
                rows = self._rows(folder)
                missing = [seed for seed in self.seeds if seed not in rows]
                if missing:
                    lab = dataclasses.replace(self, seeds=missing, spread=None)  # who holds locks waits for nobody
                    arrays = _checked(function, function(lab, *args, **kwargs), len(missing))
                    self.store.write_json(folder / "key.json", {"key": key})
                    self.store.write_arrays(folder / _block(missing), {_SEEDS: np.array(missing), **arrays})
                    rows |= _by_seed(missing, arrays)
        # In any order: what a loaded fit holds is ordered otherwise than what was just trained.
        names = rows[self.seeds[0]].keys()
        if any(rows[seed].keys() != names for seed in self.seeds):
            raise ValueError(f"{function.__qualname__}: must return the same names for every seed")
        return {name: np.stack([rows[seed][name] for seed in self.seeds]) for name in names}

    def folder(self, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Path:
        """A folder that `make(say, place, *args, **kwargs)` fills: a corpus, a tokenizer, anything that is no array.

        Kept in the store like a trained model and shared by all that ask for the same; `say(text)` shows progress.
        """
        key = self._key("folder", make, args, kwargs) | {
            "function": describe(make),
            "args": describe(args),
            "kwargs": describe(kwargs),
        }
        place = self.store.path("folders", fingerprint(key)[:32])
        if str(place) not in self._memo:
            with self.store.lock(place, waiting=self._waiting):
                if not self.counts(place / CHECKSUMS) or not self.store.has_folder(place):
                    self.store.write_folder(place, lambda inside: make(self.say, inside, *args, **kwargs))
            self._memo[str(place)] = place
        return place

    def _share(self, what: str, blocks: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> None:
        """Have several blocks of seeds computed elsewhere; whoever asked then finds them in the store."""
        if self.spread is not None and len(blocks) > 1:
            self.spread(self, what, blocks, args, kwargs)

    @contextlib.contextmanager
    def _locked(self, folder: Path, seeds: Sequence[int]) -> Iterator[None]:
        """Hold the blocks of these seeds, the lowest first, so that two who want the same cannot wait in a circle."""
        with contextlib.ExitStack() as held:
            for block in sorted({seed // BLOCK for seed in seeds}):
                held.enter_context(self.store.lock(folder / f"block-{block}", waiting=self._waiting))
            yield

    def _key(self, kind: str, *things: Any) -> dict[str, Any]:
        """What every key covers besides the thing itself."""
        gpu = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else ""
        return {
            "kind": kind,
            "device": self.device.partition(":")[0] + (gpu and f" {gpu}"),
            "dtype": str(torch.get_default_dtype()),
            "threads": self.threads,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "sources": source_hash(*things),
        }

    def _chunk(self, recipe: Any, folder: Path, index: int, key: dict[str, Any]) -> Any:
        place = folder / f"chunk-{index}"
        if str(place) not in self._memo:
            with self.store.lock(place, waiting=self._waiting):
                known = self._load(recipe, place)
                self._memo[str(place)] = self._train(recipe, place, index, key) if known is None else known
        return self._memo[str(place)]

    def _load(self, recipe: Any, place: Path) -> Any:
        if not self.counts(place / CHECKSUMS) or not self.store.has_folder(place):
            return None
        # With its checksums right a fit is what was saved, so an error here is a bug and not damage.
        from sandtable.training import Fit

        return Fit.load(place, recipe)

    def _train(self, recipe: Any, place: Path, index: int, key: dict[str, Any]) -> Any:
        checkpoint = place.with_name(f"{place.name}.checkpoint")
        if not any(map(self.counts, checkpoint.rglob("*"))):
            remove(checkpoint)
        seeds = list(range(index * recipe.chunk, (index + 1) * recipe.chunk))
        self.store.write_json(place.with_name("key.json"), {"key": key})
        with self.store.writing(place):
            fit = recipe.train(seeds=seeds, device=self.device, checkpoint=checkpoint, progress=self._reporter())
        self.store.write_folder(place, fit.save)
        remove(checkpoint)
        return fit

    def _rows(self, folder: Path) -> dict[int, dict[str, np.ndarray]]:
        """Every seed measured so far; where two files have one, the newer file counts."""
        rows: dict[int, dict[str, np.ndarray]] = {}
        files = [file for file in folder.glob("seeds-*.npz") if self.counts(file)]
        for file in sorted(files, key=lambda file: (file.stat().st_mtime, file.name)):
            arrays = self.store.read_arrays(file)
            if arrays is not None:
                rows |= _by_seed(arrays.pop(_SEEDS).tolist(), arrays)
        return rows

    def counts(self, file: Path) -> bool:
        """Whether a file of the store is there, and not older than it may be."""
        return file.exists() and (not self.fresh or file.stat().st_mtime >= self.started)

    def say(self, text: str) -> None:
        """What is being done right now, for whoever watches."""
        if self.progress is not None:
            self.progress(text)

    def _reporter(self) -> Callable[[int, int, float, float], None]:
        pace = Pace()
        return lambda *report: self.say(pace.training(*report))

    def _waiting(self) -> None:
        self.say("waiting for another process that computes the same")


def _checked(function: Callable[..., Any], result: Any, count: int) -> dict[str, np.ndarray]:
    name = getattr(function, "__qualname__", repr(function))
    if not isinstance(result, dict) or not result:
        raise TypeError(f"{name}: must return a dict of arrays, got {type(result).__name__}")
    arrays = {key: _to_numpy(value) for key, value in result.items()}
    for key, array in arrays.items():
        if not isinstance(key, str) or key == _SEEDS or "/" in key:
            raise TypeError(f"{name}: {key!r} cannot be the name of an array")
        if array.dtype.hasobject:
            raise TypeError(f"{name}: {key!r} must be numbers, got dtype {array.dtype}")
        if array.shape[:1] != (count,):
            raise ValueError(f"{name}: {key!r} must have one row per seed ({count}), got shape {array.shape}")
    return arrays


def _to_numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _by_seed(seeds: Sequence[int], arrays: dict[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    return {seed: {name: array[row] for name, array in arrays.items()} for row, seed in enumerate(seeds)}


def _blocks(seeds: Sequence[int], size: int) -> list[list[int]]:
    """The seeds, split at the multiples of `size`."""
    return [[seed for seed in seeds if seed // size == block] for block in sorted({seed // size for seed in seeds})]


def _block(seeds: Sequence[int]) -> str:
    return f"seeds-{min(seeds)}-{max(seeds)}-{fingerprint(list(seeds))[:8]}.npz"
