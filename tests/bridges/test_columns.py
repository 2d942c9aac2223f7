"""Samples as columns: whatever file they go through, the batch comes back."""

import csv
import json

import pytest
import torch

from sandtable import worlds
from sandtable.arguments import ArgumentError
from sandtable.bridges.columns import columns, to_dataset, write
from sandtable.cli import main

TOPICS = worlds.TopicModel(3, 2, length=(5, 8), present=1)
DYCK = worlds.DyckPrefixes()
DROP = worlds.DropTask()


def batch_of(world, n=7, seed=3):
    return world.sample(n, torch.Generator().manual_seed(seed))


def same(found, batch):
    assert torch.equal(torch.tensor(found["tokens"]), batch.x)
    assert torch.equal(torch.tensor(found["mask"]), batch.mask)
    for name, values in batch.latents.items():
        torch.testing.assert_close(torch.tensor(found[name], dtype=values.dtype), values)


def read_csv(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return {k: [row[k] if "text" in k else json.loads(row[k]) for row in rows] for k in rows[0]}


def read_jsonl(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {name: [row[name] for row in rows] for name in rows[0]}


def read_parquet(path):
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pydict()


READERS = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}


@pytest.mark.parametrize("world", [TOPICS, DYCK, DROP], ids=["topics", "dyck", "drop"])
@pytest.mark.parametrize("ending", READERS)
def test_files_hold_the_batch(world, ending, tmp_path):
    path = write(world, tmp_path / f"deep/samples.{ending}", 7, seed=3)
    found, batch = READERS[ending](path), batch_of(world)
    same(found, batch)
    assert found["text"] == [world.vocab.text(x[m]) for x, m in zip(batch.x, batch.mask, strict=True)]
    if batch.given is not None:
        assert torch.equal(torch.tensor(found["given_tokens"]), batch.given.x)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(ArgumentError, match="exists already"):
        write(world, path, 7)


def test_a_hugging_face_data_set():
    pytest.importorskip("datasets")
    found = to_dataset(TOPICS, 7, seed=3)
    assert len(found) == 7
    assert found.column_names[:3] == ["tokens", "mask", "text"]
    same(found.to_dict(), batch_of(TOPICS))


def test_real_vectors_and_batches():
    found = columns(worlds.Batch(torch.tensor([[0.5, 1.5], [2.0, 3.0]]), latents={"mean": torch.tensor([1.0, 2.5])}))
    assert found == {"x": [[0.5, 1.5], [2.0, 3.0]], "mean": [1.0, 2.5]}
    assert columns(worlds.Batch(torch.tensor([[1, 0]])), vocab=worlds.Vocab(("a", "b")))["text"] == ["b a"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: write(TOPICS, p / "a.xlsx", 3), "path='.xlsx': must be one of .parquet, .jsonl, .csv"),
        (lambda p: write(TOPICS, p / "a.csv", 0), "n=0"),
        (lambda p: write(TOPICS, p / "a.csv"), "n=None"),
        (lambda p: columns(batch_of(TOPICS), 3), r"take batch\[:3\]"),
        (lambda p: columns("topics", 3), "source=str"),
        (lambda p: columns(worlds.Batch(torch.ones(2, 2).long(), latents={"mask": torch.ones(2)})), "is there already"),
    ],
)
def test_mistakes(call, said, tmp_path):
    with pytest.raises(ArgumentError, match=said):
        call(tmp_path)


def test_the_command_writes_and_refuses(tmp_path, capsys):
    path = tmp_path / "topics.jsonl"
    main_status = ["sample", "topics", "-n", "9", "--seed", "4", "-o", str(path)]
    with pytest.raises(SystemExit) as done:
        main(main_status)
    assert not done.value.code
    assert capsys.readouterr().out == f"{path}: 9 samples\n"
    assert len(path.read_text().splitlines()) == 9
    with pytest.raises(SystemExit) as done:
        main(main_status)
    assert done.value.code == 2
    assert "exists already" in capsys.readouterr().err
