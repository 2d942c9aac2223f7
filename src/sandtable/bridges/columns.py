"""Samples of a world as columns, one row a sample: Hugging Face data sets, parquet, JSON lines, CSV."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sandtable.arguments import ArgumentError, free_path, missing, one_of, typed, whole
from sandtable.worlds import Batch, Vocab, World

Columns = dict[str, list[Any]]


@typed
def columns(source: World | Batch, n: int | None = None, *, seed: int = 0, vocab: Vocab | None = None) -> Columns:
    """Lists by name, one entry for each of `n` samples of a world (or for each row of a batch).

    `tokens` and `mask` (true at real positions) are as long as the longest row, `text` has the real tokens as words,
    and every latent of the world comes under its own name. Real vectors are in `x`. Samples that are conditioned on
    others, such as translations of a source, have those as `given_tokens`, `given_mask`, …
    """
    if isinstance(source, Batch):
        if n is not None:
            raise ArgumentError(f"n={n!r}: a batch has the rows it has; take batch[:{n}]")
        batch = source
    elif isinstance(source, World):
        batch = source.sample(whole("n", n), torch.Generator().manual_seed(whole("seed", seed, least=0)))
        vocab = getattr(source, "vocab", None) if vocab is None else vocab
    else:
        raise ArgumentError(f"source={type(source).__name__}: must be a world or a batch of one")
    found = _of(batch, batch.vocab or vocab)
    if batch.given is not None:
        given = _of(batch.given, batch.given.vocab or batch.vocab or vocab)
        found |= {f"given_{name}": values for name, values in given.items()}
    return found


@typed
def to_dataset(source: World | Batch, n: int | None = None, *, seed: int = 0, vocab: Vocab | None = None) -> Any:
    """The same as a `datasets.Dataset` of Hugging Face."""
    found = columns(source, n, seed=seed, vocab=vocab)
    try:
        from datasets import Dataset
    except ImportError as error:
        raise missing("to_dataset", "datasets", "text") from error
    return Dataset.from_dict(found)


@typed
def write(
    source: World | Batch,
    path: str | Path,
    n: int | None = None,
    *,
    seed: int = 0,
    vocab: Vocab | None = None,
    overwrite: bool = False,
) -> Path:
    """The same as a file whose ending says which: .parquet, .jsonl or .csv (where lists are written as JSON)."""
    path = free_path(path, overwrite=overwrite)
    save = WRITERS[one_of("path", path.suffix, WRITERS)]
    found = columns(source, n, seed=seed, vocab=vocab)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(found, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _of(batch: Batch, vocab: Vocab | None) -> Columns:
    tokens = not batch.x.is_floating_point()
    found = {"tokens" if tokens else "x": _rows(batch.x)}
    mask = torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None and tokens else batch.mask
    if mask is not None:
        found["mask"] = _rows(mask)
    if tokens and vocab is not None and mask is not None:
        found["text"] = [vocab.text(x[real]) for x, real in zip(batch.x, mask, strict=True)]
    for name, values in batch.latents.items():
        if name in found:
            raise ArgumentError(f"latents[{name!r}]: a column of this name is there already")
        found[name] = _rows(values)
    return found


def _rows(values: Tensor) -> list[Any]:
    return values.detach().cpu().tolist()


# -- files -----------------------------------------------------------------------------------------------------------


def _parquet(found: Columns, path: Path) -> None:
    try:
        from pyarrow import parquet, table
    except ImportError as error:
        raise missing(".parquet", "pyarrow", "text", "; or write .jsonl") from error
    parquet.write_table(table(found), path)


def _jsonl(found: Columns, path: Path) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in _dicts(found):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _csv(found: Columns, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found))
        writer.writeheader()
        for row in _dicts(found):
            writer.writerow({k: json.dumps(v) if isinstance(v, list | bool) else v for k, v in row.items()})


def _dicts(found: Columns) -> list[dict[str, Any]]:
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


WRITERS: Mapping[str, Callable[[Columns, Path], None]] = {".parquet": _parquet, ".jsonl": _jsonl, ".csv": _csv}
